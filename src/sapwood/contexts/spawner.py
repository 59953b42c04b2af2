"""The client's hold on its zygote: start it, have processes forked, hear of their ends."""

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sapwood.comm.loop import Loop
from sapwood.contexts import orders
from sapwood.contexts.heartbeat import HeartbeatMonitor
from sapwood.contexts.local_user import LocalUser
from sapwood.contexts.plan import ZygotePlan
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.errors import ResourceError
from sapwood.core.futures import on_loop_thread
from sapwood.environment.interpreter import python_command

BATCH = 64
"""Processes in one order."""

HAND_OVER_TIMEOUT = 10.0
"""Seconds for which an order with a descriptor waits for a zygote that takes none."""

END_TIMEOUT = 5.0
"""Seconds that a zygote gets to end its processes before it is killed itself."""

_BOOT = (
    "import gc, os, sys; gc.disable(); path = sys.argv[2].split(chr(0x1f)) {keep}; "
    "own = os.path.dirname(os.__file__); own = own, own + '/lib-dynload'; "
    "sys.path[:] = sorted(path, key=lambda entry: entry not in own); "
    "from sapwood.contexts.zygote import main; main(int(sys.argv[1]), sys.argv[3], path)"
)
"""Starts a zygote. Nothing of what it imports is garbage, so none is looked for. Its search path
has the standard library first: modules of the user's may have the names of standard ones."""

_EMULATED = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); "
    "from sapwood.contexts.process import adopt_orphans; adopt_orphans(); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)
"""Starts another interpreter, with what its emulator may not be able to ask the kernel for."""

_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A process from which others fork must not have threads; runners undo this."""


class Spawner:
    """Starts a zygote and speaks with it.

    Args:
        plan: What the zygote imports and forks.
        configure: What its processes get.
        on_report: Told what the zygote reports, on the loop's thread.
        on_end: Told when the zygote is gone without having been closed.
        borrow: Returns a control socket of the zygote of another tree, which forks the processes of
            this one, too; while it is missing, this tree has its own zygote.
        owner: User of the processes; by default the user of this process.
    """

    def __init__(
        self,
        plan: ZygotePlan,
        configure: orders.ConfigureProcesses,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[], None],
        borrow: Callable[[], socket.socket] | None = None,
        owner: LocalUser | None = None,
    ) -> None:
        self._plan = plan
        self._configure = configure
        self._on_report = on_report
        self._on_end = on_end
        self._borrow = borrow
        self._owner = owner
        self._loop: Loop | None = None
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._unsent: deque[bytes] = deque()
        self._heartbeats = HeartbeatMonitor()
        self._ready = False

    @property
    def pid(self) -> int:
        """Process id of the zygote; 0 before the start, or of one that is borrowed."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the zygote; orders may follow at once.

        Raises:
            ResourceError: The process cannot be started, or what it is to know is too long.
        """
        configure = _encoded(self._configure)
        if self._borrow is not None:
            with contextlib.suppress(ResourceError):
                self._control = self._borrow()
                self._control.send(configure)
                return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = _command(self._plan, theirs.fileno())
            owner = self._owner
            variables = os.environ if owner is None else owner.environment()
            options = {} if owner is None else owner.process_options()
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env={**variables, **_SINGLE_THREADED},
                    process_group=0,  # Linux weighs sessions against each other: this is one
                    **options,
                )
            except OSError as error:
                ours.close()
                raise ResourceError(f"cannot start a process: {error.strerror}") from error
        self._control = ours
        ours.send(configure)

    def listen(self, loop: Loop) -> None:
        """Hear reports on a loop; called on its thread."""
        assert self._control is not None  # noqa: S101 - start() comes first
        self._loop = loop
        self._control.settimeout(0)
        loop.add_reader(self._control.fileno(), self._readable)
        if self._unsent:  # from before anything read what the zygote reports
            loop.add_writer(self._control.fileno(), self._writable)

    def reconfigure(self, configuration: bytes) -> None:
        """Give another configuration to processes that are forked from now on.

        Raises:
            ResourceError: It is too long.
        """
        self._configure = msgspec.structs.replace(self._configure, configuration=configuration)
        self._send(self._configure)

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Have processes forked."""
        for start in range(0, len(processes), BATCH):
            self._send(orders.Spawn(list(processes[start : start + BATCH])))

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process of this zygote."""
        self._send(orders.Kill(pid, number))

    def is_silent(self, looks: int, first: int) -> bool:
        """Ask the zygote for a sign of life; say whether it gave none for a number of looks.

        Args:
            looks: So many, when it has said that it is ready.
            first: So many until then.
        """
        if self._process is None:  # who lent it looks after it
            return False
        if self._heartbeats.look():
            self._send(orders.HeartbeatRequest())
        return self._heartbeats.missed >= (looks if self._ready else first)

    def end(self) -> None:
        """Kill the zygote, and with it its processes; called on the loop's thread."""
        self.detach()
        if self._process is not None:
            self._process.kill()

    def new_runner_factory(self) -> RunnerFactory:
        """Return what has runners forked for the client itself.

        Raises:
            ResourceError: The zygote is gone.
        """
        return RunnerFactory(self._hand_over(orders.Serve()))

    def lend(self) -> socket.socket:
        """Return a control socket for a secondary tree; from any thread.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self._hand_over(orders.Attend())

    def _hand_over(self, order: orders.Order) -> socket.socket:
        """Give the zygote one end of a connection, and return the other."""
        control = self._control
        if control is None:
            raise ResourceError("no process can be started: the zygote is gone")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                _send_descriptor(control, orders.encode(order), theirs.fileno())
            except BlockingIOError:
                ours.close()
                raise ResourceError(
                    "no process can be started: the zygote has not taken earlier orders "
                    f"within {HAND_OVER_TIMEOUT:g} s",
                    where=f"zygote {self.pid}" if self.pid else "",
                    hint="retry when its machine is less busy",
                ) from None
            except OSError as error:
                ours.close()
                raise ResourceError(f"no process can be started: {error.strerror}") from error
        return ours

    def close(self) -> None:
        """End the zygote and all its descendants, and wait for that.

        Of a borrowed zygote, only the processes of this tree are ended.
        """
        zygote = self._process
        if zygote is None:
            self._part()
            return
        self._let_go()
        try:
            zygote.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            zygote.kill()
            zygote.wait()

    def _part(self) -> None:
        """Let a borrowed zygote end the processes of this tree, and wait for that."""
        if self._control is not None:
            self._control.settimeout(END_TIMEOUT)
            with contextlib.suppress(OSError):  # it is gone itself, or hangs
                self._control.shutdown(socket.SHUT_WR)
                while self._control.recv(orders.MAX_ORDER):
                    pass
            self._let_go()

    def detach(self) -> None:
        """Stop listening; called on the loop's thread before :meth:`close`."""
        if self._loop is not None and self._control is not None:
            self._loop.remove_reader(self._control.fileno())
            self._drop_unsent()
            self._loop = None

    def _let_go(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def _send(self, order: orders.Order) -> None:
        """Send an order; one that the zygote does not take yet waits until it does.

        This side never blocks: the zygote may be blocked itself, by reports that are not read.
        """
        if self._control is None:
            return
        waits = bool(self._unsent)
        self._unsent.append(_encoded(order))
        if not waits and not self._sent_all() and self._loop is not None:
            self._loop.add_writer(self._control.fileno(), self._writable)

    def _sent_all(self) -> bool:
        """Send what waits; say whether nothing does any more."""
        assert self._control is not None  # noqa: S101 - detach() stops this
        while self._unsent:
            try:
                self._control.send(self._unsent[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):  # its end is noticed
                self._unsent.clear()
                break
            self._unsent.popleft()
        return True

    def _writable(self) -> None:
        if self._sent_all() and self._loop is not None and self._control is not None:
            self._loop.remove_writer(self._control.fileno())

    def _drop_unsent(self) -> None:
        if self._unsent and self._loop is not None and self._control is not None:
            self._loop.remove_writer(self._control.fileno())
        self._unsent.clear()

    def _readable(self) -> None:
        while self._control is not None:
            try:
                data = self._control.recv(orders.MAX_ORDER)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self.detach()
                self._on_end()
                return
            report = orders.decode_report(data)
            self._heartbeats.heard()
            self._ready = self._ready or isinstance(report, orders.Ready)
            if not isinstance(report, orders.HeartbeatReply):
                self._on_report(report)


def _send_descriptor(control: socket.socket, data: bytes, descriptor: int) -> None:
    """Send an order with a descriptor; wait a while for a zygote that is busy.

    Raises:
        BlockingIOError: The zygote still took nothing.
    """
    # Not socket.send_fds(): it ignores its flags.
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    end = time.monotonic() + HAND_OVER_TIMEOUT
    room = select.poll()
    room.register(control.fileno(), select.POLLOUT)
    while True:
        try:
            control.sendmsg([data], rights, socket.MSG_DONTWAIT)
        except BlockingIOError:
            left = end - time.monotonic()
            if left <= 0 or on_loop_thread():
                raise
            room.poll(1000 * left)
        else:
            return


def _encoded(order: orders.Order) -> bytes:
    """Return an order as it is sent.

    Raises:
        ResourceError: It is too long: the zygote would end.
    """
    data = orders.encode(order)
    if len(data) > orders.MAX_ORDER:
        raise ResourceError(
            f"what the processes of a machine are to know takes {len(data)} bytes, and the most "
            f"is {orders.MAX_ORDER}",
            hint="use fewer agents, or a shorter environment for them",
        )
    return data


def _command(plan: ZygotePlan, descriptor: int) -> list[str]:
    """Return the command that starts a zygote with its end of the control socket.

    It finds modules where this process does. Another interpreter finds its own: it only gets
    the folder of this package.
    """
    path, keep = sys.path, ""
    if plan.interpreter:
        path, keep = [str(Path(__file__).parents[2])], "+ sys.path"
    told = (str(descriptor), chr(0x1F).join(path), msgspec.msgpack.encode(plan).hex())
    words = ("-c", _BOOT.format(keep=keep), *told)
    if not plan.interpreter:
        return python_command(*words, site=False)
    emulated = python_command(*words, interpreter=plan.interpreter)
    return python_command("-c", _EMULATED, *path, *emulated, site=False)
