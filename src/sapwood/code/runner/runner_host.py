"""The agent supervises its runner: it forks one when needed, queues jobs, replaces one that ended.

Whatever user code does to the runner, the agent does not die with it.

::

    NONE --call--> IDLE --send--> BUSY --result--> IDLE
      ^                             |                |
      +-------- death --------------+----------------+

If the runner was killed from outside, its call restarts in a new one, if it may.
"""

import contextlib
import enum
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec

from sapwood.code.runner import calls, rpc_messages
from sapwood.code.runner.crash import KILLS, crash_error
from sapwood.code.runner.leases import Lease, LeasedResults
from sapwood.code.runner.options import RunnerOptions
from sapwood.code.runner.output import OutputCapture, drained
from sapwood.code.runner.rpc_server import RunnerRpcServer
from sapwood.code.runner.stack_reader import (
    STACK,
    OnStack,
    StackReader,
    StackText,
    without_sample,
)
from sapwood.code.transfers import DeviceTransfers
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.payload import Payload
from sapwood.comm.replay import Expectation, Sent
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.contexts.runner_factory import Forked, NotForked, RunnerFactory
from sapwood.core.errors import (
    CancelledError,
    ProcessSpentError,
    ResourceError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
)

MAX_WAITING = 100_000
"""Calls that may wait for one runner."""


class Job(msgspec.Struct, eq=False):
    """A call and what to do with its outcome.

    Attributes:
        procedure: Name in the runner's table.
        context: What the call belongs to; :meth:`RunnerHost.cancel` takes it.
        body: Encoded argument.
        payload: Its arrays.
        on_done: Gets the result.
        on_error: Gets the error.
        time_limit: Seconds after which the call is killed; 0 for no limit.
        needs: Name of the preparation that must have happened in the same process.
        function: What user code the call runs, for error messages.
        attempts: How often it may start, if its runner is killed; see ``crash.py``.
        kills: How often that has happened.
        ahead_of: The job that waits until this one has prepared the runner for it.
        begun: When it was last handed to a runner, by the clock of the loop.
    """

    procedure: str
    context: str
    body: bytes
    payload: Payload | None
    on_done: Callable[["JobOutcome"], None]
    on_error: Callable[[SapwoodError], None]
    time_limit: float = 0.0
    needs: str = ""
    function: str = ""
    attempts: int = 1
    kills: int = 0
    ahead_of: "Job | None" = None
    begun: float = 0.0


class JobOutcome(msgspec.Struct, frozen=True):
    """The result of a job.

    Attributes:
        body: Encoded value.
        payload: Its arrays; its owner goes back to :meth:`RunnerHost.give_back`.
        seconds: Time inside the procedure.
        transfers: What devices did meanwhile; None for nothing.
    """

    body: bytes
    payload: Payload | None
    seconds: float
    transfers: DeviceTransfers | None = None


class Preparation(msgspec.Struct, frozen=True):
    """A call that must have happened in a runner before others, for example opening a program."""

    procedure: str
    body: bytes
    payload: Payload | None
    function: str = ""


class RunnerState(enum.Enum):
    """States of a runner."""

    NONE = "none"
    IDLE = "idle"
    BUSY = "busy"


class RunnerHost:
    """One runner process at a time, and the calls for it in order.

    Args:
        loop: Event loop of the agent.
        options: How runners are set up.
        runner_factory: Has runners forked.
        on_output: Gets what the runner prints.

    Attributes:
        leases: Results that are stored in the runner's memory.
        rpc_server: Answers requests of running user code; None without any.
        number: Of the last call.
        on_orphaned: Told that the zygote is gone, and with it the runner.
        write: Sends a call to the runner.
    """

    def __init__(
        self,
        loop: Loop,
        options: RunnerOptions,
        runner_factory: RunnerFactory,
        on_output: Callable[[bytes], None],
    ) -> None:
        self.state = RunnerState.NONE
        self.pid = 0
        self.crashes = 0
        self.blocks = MappedBlocks()
        self.rpc_server: RunnerRpcServer | None = None
        self.on_orphaned: Callable[[], None] = _end_is_near
        self._loop = loop
        self._options = options
        self._runner_factory = runner_factory
        loop.add_reader(runner_factory.fileno(), self._news)
        self._on_output = on_output
        self._connection: socket.socket | None = None
        self.write: Callable[[bytes], object] = _nowhere
        self._output: OutputCapture | None = None
        self._report: OutputCapture | None = None
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self.number = 0
        self._killed: SapwoodError | None = None
        self._gone = self._served = self._undelivered = False
        self._timer: Timer | None = None
        self._preparations: dict[str, Preparation] = {}
        self._prepared: set[str] = set()
        self.leases = LeasedResults(self.blocks)
        self._idle: Timer | None = None
        self._spill: list[SharedBlock] = []
        self._is_foreign = False
        self._stacks = StackReader(loop)
        self._late: Job | None = None

    # --- for the agent -------------------------------------------------------------------------

    def prepare(self, name: str, preparation: Preparation) -> None:
        """Note what must happen in a runner before jobs that need ``name``."""
        self._preparations[name] = preparation

    def forget(self, name: str) -> None:
        """Drop a preparation."""
        self._preparations.pop(name, None)
        self._prepared.discard(name)

    def submit(self, job: Job) -> None:
        """Run a job when those before it are done."""
        if len(self._waiting) >= MAX_WAITING:
            job.on_error(ResourceError(f"more than {MAX_WAITING} calls wait for one runner"))
            return
        self._waiting.append(job)
        if self._running is None:
            self._next()

    def resting(self, name: str) -> int:
        """Return the runner's socket if it waits for jobs that need ``name``, else -1."""
        idle = self.state is RunnerState.IDLE and not self._waiting and self._killed is None
        if not idle or name not in self._prepared or self._connection is None or not self.pid:
            return -1
        return self._connection.fileno()

    def cancel(self, context: str) -> None:
        """Drop all jobs of a context; one that runs is killed."""
        self.drop(context, CancelledError("the call was cancelled"))
        if self._running is not None and self._running.context == context:
            self._kill(CancelledError("the call was cancelled"))

    def drop(self, context: str, reason: SapwoodError) -> bool:
        """Drop the jobs of a context that have not begun; return whether there were any."""
        dropped = [job for job in self._waiting if job.context == context]
        for job in dropped:
            self._waiting.remove(job)
            job.on_error(reason)
        return bool(dropped)

    @property
    def running(self) -> Job | None:
        """The job that the runner works on."""
        return self._running

    def read_stack(self, on_stack: OnStack) -> None:
        """Read the stack of the runner; ``on_stack`` gets it, or why there is none."""
        if self.pid and self._report is not None and not self._gone:
            self._stacks.read(self.pid, self._report, on_stack)
        else:
            on_stack(StackText("", "" if self._running is None else "its runner has not started"))

    def sample_stack(self, on_sample: OnStack) -> None:
        """Read the stack of the runner's main thread, unless a stack is being read."""
        if self.pid and self._report is not None and not self._gone:
            self._stacks.sample(self.pid, self._report, on_sample)

    def give_back(self, lease: Lease) -> None:
        """Let the runner use a result's memory again."""
        self.leases.give_back(lease, self.pid)

    def close(self) -> None:
        """End the runner."""
        self._waiting.clear()
        if self.pid:
            self._runner_factory.kill(self.pid)
        self._loop.remove_reader(self._runner_factory.fileno())
        self._end_of_call()
        self._clear()
        self.leases.close()

    # --- one call ------------------------------------------------------------------------------

    def _next(self) -> None:
        # One call at a time, and none for a process that is about to end.
        while self._waiting and self._running is None and not self._gone and self._killed is None:
            job = self._waiting.popleft()
            if job.needs and job.needs not in self._prepared:
                preparation = self._preparations.get(job.needs)
                if preparation is None:
                    job.on_error(CancelledError("the run is over"))
                    continue
                self._waiting.appendleft(job)
                job = self._preparation_job(job, preparation)
            try:
                if self.state is RunnerState.NONE:
                    self._fork()
                self._send(job)
            except ConnectionError:  # the zygote is gone, which _news() finds next
                self._waiting.appendleft(job)
                return
            except SapwoodError as error:
                job.on_error(error)

    def _preparation_job(self, job: Job, preparation: Preparation) -> Job:
        name = job.needs

        def prepared(_outcome: JobOutcome) -> None:
            self._prepared.add(name)

        def failed(error: SapwoodError) -> None:
            if self._waiting and self._waiting[0] is job:
                self._waiting.popleft()
            job.on_error(error)

        return Job(
            preparation.procedure,
            job.context,
            preparation.body,
            preparation.payload,
            prepared,
            failed,
            time_limit=job.time_limit,
            function=preparation.function,
            ahead_of=job,
        )

    def _send(self, job: Job) -> None:
        self.number += 1
        call = calls.Call(
            self.number,
            job.procedure,
            job.context,
            calls.Bulk.pack(job.body, self._spill.append),
            calls.Bulk.pack_payload(job.payload, self._spill.append),
            self.leases.take_returned(),
        )
        assert self._output is not None  # noqa: S101 - _fork() made it
        self._output.begin()
        self._running = job
        job.begun = self._loop.time()
        self.state = RunnerState.BUSY
        try:
            self.write(calls.encode(call))
        except (BrokenPipeError, ConnectionResetError):  # its end is noticed
            self._undelivered = True
        if job.time_limit:
            self._timer = self._loop.call_later(job.time_limit, self._too_long, job)

    def _readable(self) -> None:
        if self._connection is None or self._is_foreign:
            return
        try:
            data = self._connection.recv(calls.MAX_DATAGRAM)
        except (BlockingIOError, ConnectionResetError):
            return
        if not data:
            self._loop.remove_reader(self._connection.fileno())
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """Take in what the runner says."""
        if data == rpc_messages.WANTED and self._connection is not None:
            if self.rpc_server is not None:
                self.rpc_server.open(self._connection, self._foreign)
            else:
                self.write(rpc_messages.NOBODY)
            return
        try:
            result = calls.decode_result(data)
        except msgspec.DecodeError:
            self._foreign()
        else:
            self._finished(result)

    def _foreign(self) -> None:
        """End a runner from which came what it did not write itself, and believe it no more."""
        self._is_foreign = True
        if self._connection is not None:
            self._loop.remove_reader(self._connection.fileno())
        function = (self._running.function if self._running else "") or "user code"
        self._kill(
            RunnerCrashError(
                f"{function} wrote to the connection between its runner and its agent, "
                "and the runner was ended",
                hint="write only to files and sockets that your code has opened",
            )
        )

    def passed(self, calls_made: int) -> None:
        """Count calls that a shortcut has made for this host."""
        self.number += calls_made

    @contextlib.contextmanager
    def replay(self, sent: Iterable[bytes]) -> Iterator[None]:
        """Meanwhile, calls are compared with what was sent to the runner, and not sent.

        Raises:
            SapwoodError: Something else was sent than these calls.
        """

        def nowhere(_buffers: object) -> None:
            raise SapwoodError("a shortcut made a call that should have been another")

        write = self.write
        expected = Expectation([Sent(data, len(data)) for data in sent], nowhere)
        self.write = lambda data: expected.write([data])
        try:
            yield
        finally:
            self.write = write
        expected.check()

    def _finished(self, result: calls.Result) -> None:
        job = self._running
        if job is None or result.number != self.number or job is self._late:
            return
        self._end_of_call()
        self._served = True
        self.state = RunnerState.IDLE
        if result.error is not None:
            error = SapwoodError.from_record(result.error)
            if isinstance(error, ProcessSpentError):
                self._waiting.appendleft(job)  # it has not begun: a new process runs it
                self._kill(error)
                return
            self._with_output(error)
            job.on_error(error)
        else:
            self._deliver(job, result)
        self._next()

    def _deliver(self, job: Job, result: calls.Result) -> None:
        try:
            body = self.leases.body(result.body)
            payload = self.leases.payload(result.payload)
        except SapwoodError as error:
            job.on_error(error)
            return
        job.on_done(JobOutcome(body, payload, result.seconds, result.transfers))

    def _end_of_call(self) -> None:
        self._running = self._late = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for block in self._spill:
            block.close()
        self._spill.clear()

    def _with_output(self, error: SapwoodError) -> None:
        text = drained(self._output)
        if text.strip():
            error.details.setdefault("output", text)

    # --- the process ---------------------------------------------------------------------------

    def _fork(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output = OutputCapture(self._loop, self._options.output, self._on_output)
        report = OutputCapture(self._loop, self._options.output)
        descriptors = (theirs.fileno(), output.write_end, report.write_end)
        try:
            self._runner_factory.fork(msgspec.msgpack.encode(self._options), descriptors)
        except OSError as error:
            ours.close()
            output.close()
            report.close()
            if isinstance(error, ConnectionError):
                raise
            raise ResourceError(f"cannot start a runner: {error.strerror}") from error
        finally:
            theirs.close()
        output.close_write_end()
        report.close_write_end()
        ours.settimeout(0)
        self._connection, self._output, self._report = ours, output, report
        self.write = ours.send
        self._loop.add_reader(ours.fileno(), self._readable)
        self.state = RunnerState.IDLE
        if self._options.idle > 0:
            self._idle = self._loop.call_later(self._options.idle, self._look, self.number)

    def _news(self) -> None:
        """Receive the zygote's reports of runners."""
        try:
            while (news := self._runner_factory.news()) is not None:
                if isinstance(news, Forked):
                    self.pid = news.pid
                    if self._killed is not None:
                        self._kill(self._killed)
                elif isinstance(news, NotForked):
                    self._ended(ResourceError(f"cannot start a runner: {news.reason}"))
                elif news.pid == self.pid:
                    self._gone = True
                    self._readable()  # a last result may still be there
                    if self._killed is None and self._begins_again(news.status):
                        self._ended(None)
                        continue
                    if self._killed is not None and self._running is not None:
                        self._with_output(self._killed)
                    self._ended(self._killed or self._crash(news.status))
        except ConnectionError:
            self._loop.remove_reader(self._runner_factory.fileno())
            self.on_orphaned()

    def _look(self, number: int) -> None:
        """End a runner that was idle since the last check and that holds nothing open."""
        idle = self.state is RunnerState.IDLE and number == self.number
        if idle and not self._preparations:
            self._kill(CancelledError("the runner was not needed any more"))
        else:
            self._idle = self._loop.call_later(self._options.idle, self._look, self.number)

    def _too_long(self, job: Job) -> None:
        # The signal for its stack may end what it waits for: such a result is not delivered.
        self._late = job
        self.read_stack(partial(self._kill_late, job))

    def _kill_late(self, job: Job, stack: StackText) -> None:
        """End a call that ran too long, unless its runner ended while its stack was read."""
        if self._running is not job or self._killed is not None:
            return
        from sapwood.code.stacks import stack_text  # noqa: PLC0415 - only late calls need it

        limit = f"{job.time_limit:g} s"
        where = stack_text(stack.text) or stack.problem
        self._kill(
            TimeLimitError(
                f"{job.function or 'user code'} ran longer than {limit} and was killed",
                hint="raise the time limit, or use more agents or smaller chunks",
                details={STACK: where} if where else {},
            )
        )

    def _kill(self, reason: SapwoodError) -> None:
        self._killed = reason
        if self.pid and not self._gone:  # else as soon as it is known
            self._runner_factory.kill(self.pid)

    def _begins_again(self, status: int) -> bool:
        """Return whether the call whose runner ended may restart; if so, queue it."""
        job = self._running
        if job is None:
            return False
        wanted = job.ahead_of or job
        never_began = self._undelivered and self._served  # the runner ended after an earlier call
        if not never_began:
            if status not in KILLS:
                return False
            wanted.kills += 1
            if wanted.kills >= wanted.attempts:
                return False
        if wanted is job:  # else it is the next one already, and needs the preparation again
            self._waiting.appendleft(job)
        return True

    def _ended(self, error: SapwoodError | None) -> None:
        """The runner is gone: fail its call, if with an error; the next one gets a new runner."""
        job = self._running
        self._end_of_call()
        self._clear()
        if job is not None and error is not None:
            job.on_error(error)
        self._next()

    def _crash(self, status: int) -> SapwoodError:
        self.crashes += 1
        job = self._running
        function = (job.function if job else "") or "user code"
        kills = (job.ahead_of or job).kills if job and status in KILLS else 0
        backtrace = without_sample(drained(self._report))
        texts = {"backtrace": backtrace, "output": drained(self._output)}
        limited = self._options.memory > 0
        return crash_error(function, status, texts, memory_limited=limited, kills=kills)

    def _clear(self) -> None:
        self._stacks.runner_ended()
        if self.rpc_server is not None:
            self.rpc_server.close()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._connection is not None:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
        for capture in (self._output, self._report):
            if capture is not None:
                capture.close()
        self.leases.runner_ended()
        self.pid, self._connection, self._killed = 0, None, None
        self._is_foreign = False
        self._gone = self._served = self._undelivered = False
        self.write = _nowhere
        self._output = self._report = None
        self._prepared.clear()
        self.state = RunnerState.NONE


def _end_is_near() -> None:
    """Do nothing: agents and junctions end with their zygote, so their calls are not answered."""


def _nowhere(_data: bytes) -> None:
    """Do nothing, because no runner exists."""
