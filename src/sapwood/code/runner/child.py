"""The runner process: set-up after the fork, then one call after the other."""

import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import msgspec

from sapwood.code import call_record, guarded, result_memory, transfers, user_modules
from sapwood.code.native_call import NativeCall
from sapwood.code.runner import calls, here
from sapwood.code.runner.affinity import CoreAffinity
from sapwood.code.runner.call_state import CallState
from sapwood.code.runner.options import ORDINAL, RunnerOptions
from sapwood.code.runner.packages import import_staged_packages
from sapwood.code.runner.printing import Printing
from sapwood.code.runner.result_pool import ResultPool
from sapwood.code.runner.shortcut import CallShortcut, NoCallShortcut
from sapwood.code.runner.stack_reader import SAMPLE_SIGNAL, STACK_SIGNAL
from sapwood.code.user_error import user_error
from sapwood.comm import values
from sapwood.comm.cached_codec import CachedDecoder
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.content.refs import ContentFolder
from sapwood.contexts import process
from sapwood.contexts.runner_factory import CONNECTION_CLOSED
from sapwood.core import typed
from sapwood.core.errors import (
    MAX_RECORD_TEXT,
    SapwoodError,
)
from sapwood.core.optional import fastpath


class Work(NamedTuple):
    """What a procedure does in a context.

    Attributes:
        call: Called with the argument, returns a result.
        check: Raises an error about a result that is wrong; not called with one like the last one.
        native_call: Returns what the last call of ``call`` was, if it can be made without Python.
        pickles: Whether a result that cannot travel as a value may travel pickled, and exceptions.
        lasting: Whether further calls of this context find what this one changes of the process;
            see ``call_state.py``.
    """

    call: Callable[[Any], Any]
    check: Callable[[Any], object] | None = None
    native_call: Callable[[], NativeCall | None] | None = None
    pickles: bool = False
    lasting: bool = True


Procedure = Callable[[str], Work]
"""``procedure(context) -> work``: for calls in this context, until there is another call."""

MakeProcedures = Callable[[MappedBlocks, CoreAffinity, ContentFolder], dict[str, Procedure]]
"""Makes the table of procedures of a runner."""

_STANDARD_FDS = 3
_LAST_FD = 1001
"""The two descriptors of a runner's own end here, far above those that user code opens: what it
writes to by mistake is none of them."""
_MAX_FD = 1 << 20

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_MAX_INT = 2**31 - 1

SHORTEST_TEXT = 256
"""Characters to which the texts of an error are cut before they are left out."""


class _CrashReport:
    """Where this process writes to when it crashes."""

    fd = -1


_crash_report = _CrashReport()


def main(
    encoded_options: bytes,
    parent: int,
    descriptors: list[int],
    make_procedures: MakeProcedures,
) -> NoReturn:
    """Run a runner in a process that was forked just now; never returns.

    Args:
        encoded_options: How to set up, as msgpack.
        parent: Process id of the zygote.
        descriptors: The connection to the agent, the pipe to print to, the pipe to crash to.
        make_procedures: Makes the table of procedures.
    """
    status = 1
    try:
        process.die_with_parent(parent)
        process.forget_signals()
        process.allow_debuggers(parent)  # for py-spy, which the agent starts
        os.setpgid(0, 0)
        control = _take_descriptors(*descriptors)
        printing = Printing()
        sys.stdout, sys.stderr = printing.output, printing.error
        options = typed.unpacker(RunnerOptions)(encoded_options)
        _limit(options)
        faulthandler.enable(file=_crash_report.fd, all_threads=False)
        with contextlib.suppress(OSError):  # an emulator may not know the signal
            faulthandler.register(STACK_SIGNAL, _crash_report.fd, all_threads=True, chain=False)
            faulthandler.register(SAMPLE_SIGNAL, _crash_report.fd, all_threads=False, chain=False)
        gc.enable()
        user_modules.be_runner()
        blocks = MappedBlocks()
        affinity = CoreAffinity(options.ordinal, options.bound_agents)
        procedures = make_procedures(blocks, affinity, ContentFolder(options.content))
        runner = Runner(control, blocks, procedures, printing, options)
        try:
            runner.serve()
            status = CONNECTION_CLOSED
        except OSError as error:  # of the connection: what user code raises is reported over it
            sys.stderr.write(
                f"the connection to the agent is gone ({error.strerror}): user code has closed "
                "descriptors that it had not opened\n"
            )
    except BaseException:  # noqa: BLE001 - the last frame of a process reports everything
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class Runner:
    """Serves calls until the agent closes the connection.

    Args:
        control: Connection to the agent.
        blocks: Memory of other processes that is mapped here.
        procedures: The procedures that can be called.
        printing: The default standard output of user code.
        options: How it is set up.
    """

    def __init__(
        self,
        control: socket.socket,
        blocks: MappedBlocks,
        procedures: dict[str, Procedure],
        printing: Printing,
        options: RunnerOptions,
    ) -> None:
        self._control = control
        self._blocks = blocks
        self._procedures = procedures
        self._results = ResultPool()
        self._decoder = CachedDecoder()
        result_memory.use(self._results.allocate)
        here.serve(control)
        self._printing = printing
        self._state = CallState()
        self._datagram = bytearray(calls.MAX_DATAGRAM)
        room = fastpath("repeat") if options.fastpath else None
        self._repeating: CallShortcut = NoCallShortcut()
        if room is not None:
            self._repeating = room.Repeating(
                control.fileno(), options.spin, self._datagram, self._is_quiet, self._end_copy
            )
        # Undeclared arguments take no time to convert; None is the null pointer.
        self._flush_c = ctypes.CDLL(None).fflush
        self._flush_c.restype = None

    # The hot path is kept in one function on purpose: between calls other processes evict our
    # caches, so each further function costs a cache miss.
    def serve(self) -> None:  # noqa: C901, PLR0912, PLR0915 - see above
        """Serve calls until there are no more."""
        control, results, caller = self._control, self._results, here.runner
        send, lend, take_back = control.send, results.lend, results.take_back
        pid, getpid, clock = os.getpid(), os.getpid, time.perf_counter
        printing, flush_c, devices = self._printing, self._flush_c, transfers.any_watched
        output, errors, get = printing.output, printing.error, vars(sys).get
        decode_call, decode_plain, encode = calls.decode_call, values.decode_plain, calls.encode
        nothing, context, procedure = calls.Bulk(), "", ""
        state, lasting = self._state, True
        frames, limit_frames, fewest_frames = (
            sys.getrecursionlimit,
            sys.setrecursionlimit,
            sys.getrecursionlimit(),
        )
        datagram, repeating = memoryview(self._datagram), self._repeating
        receive_one: Callable[[], int] = partial(control.recv_into, datagram)
        receive = receive_one
        native_call: Callable[[], NativeCall | None] | None = None
        while size := receive():
            receive = receive_one
            call = decode_call(datagram[:size])
            if call.free:
                take_back(call.free)
            begin = 0.0
            try:
                body = call.body
                if body.shared is None and call.payload == nothing:
                    argument = decode_plain(body.inline)
                else:
                    argument = self._decoder.decode(self._bytes(body), self._bytes(call.payload))
                if call.context != context or call.procedure != procedure:
                    context = procedure = ""
                    begin = clock()
                    found = self._procedures[call.procedure](call.context)
                    context, procedure, work = call.context, call.procedure, found.call
                    results.expect((procedure, context), found.check, pickles=found.pickles)
                    native_call = repeating.begins(found.native_call)
                    lasting = found.lasting
                    run = state.enter(context, lasting=lasting)
                caller.busy = True
                begin = clock()
                try:
                    result = run(work, argument)
                finally:
                    if frames() < fewest_frames:  # what follows needs them
                        limit_frames(fewest_frames)
                    if getpid() != pid:
                        self._end_copy()
                    caller.busy = False
                    if caller.channel is not None:
                        caller.channel.forget_all()
                seconds = clock() - begin
                body, payload = lend(result)
            except BaseException as problem:  # noqa: BLE001 - whatever user code raises is reported
                limit_frames(max(frames(), fewest_frames))  # a module that was imported may set it
                seconds = clock() - begin if begin else 0.0
                results.abandon()
                body, error = calls.Bulk(), user_error(problem, pickles=results.pickles).to_record()
                data = _shortened(calls.Result(call.number, body, body, seconds, error))
            else:
                moved = transfers.since_last_call() if devices[0] else None
                # What calls.Result becomes, without making one.
                data = encode((call.number, body, payload, seconds, None, moved))
            argument = result = None  # they are not to outlive the call
            # The output of user code arrives before its agent learns that the call is done.
            if printing.pending or get("stdout") is not output or get("stderr") is not errors:
                printing.end_call()
            flush_c(None)
            send(data)
            if not lasting:
                state.leave(call.context)
                context = procedure = ""
            elif native_call is not None and repeating.expects(call, size, body, data, native_call):
                receive = repeating.receive

    def _is_quiet(self) -> bool:
        """Whether nothing of Python happens beside a call, so that none of it can be missed."""
        return (
            threading.active_count() == 1
            and not transfers.any_watched[0]
            and not self._printing.pending
            and sys.stdout is self._printing.output
            and sys.stderr is self._printing.error
            and not any(callable(signal.getsignal(each)) for each in signal.valid_signals())
        )

    def _end_copy(self) -> NoReturn:
        """End a process that user code forked and let return: only one may answer."""
        try:
            self._printing.flush()
            self._flush_c(None)
        finally:  # whatever user code has made of them
            os._exit(0)

    def _bytes(self, bulk: calls.Bulk) -> bytes | memoryview:
        return bulk.inline if bulk.shared is None else self._blocks.view(bulk.shared)


def _take_descriptors(connection: int, output: int, crash: int) -> socket.socket:
    """Read nothing, print to the agent's pipe, keep the connection, close everything else."""
    below = _STANDARD_FDS
    for kept in sorted((connection, output, crash)):
        os.closerange(below, kept)
        below = kept + 1
    os.closerange(below, _MAX_FD)
    sources = (os.open(os.devnull, os.O_RDONLY), output, output, connection, crash)
    most, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = min(_LAST_FD, most - 1 - len(sources))
    # First out of the way of the numbers that they get, then to these.
    above = [fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, last + 1) for source in sources]
    for target, source in zip((0, 1, 2, last - 1, last), above, strict=True):
        os.dup2(source, target, inheritable=target < _STANDARD_FDS)
    os.closerange(_STANDARD_FDS, last - 1)
    os.closerange(last + 1, _MAX_FD)
    _crash_report.fd = last
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - it is a descriptor
    return socket.socket(fileno=last - 1)


def _limit(options: RunnerOptions) -> None:
    os.environ[ORDINAL] = str(options.ordinal)
    import_staged_packages()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would delay the news of a crash
    if options.memory:
        resource.setrlimit(resource.RLIMIT_DATA, (options.memory, options.memory))
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # others reserve a gigabyte
    if options.check_memory:
        guarded.guard_all_arrays()
    elif options.keep:
        _keep_memory(options.keep)
    threads = str(options.threads)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = threads
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _keep_memory(nbytes: int) -> None:
    """Have malloc keep what is freed: a large array that is made anew each time costs its pages.

    Where memory is limited this is left out, as what is kept counts.
    """
    with contextlib.suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, min(nbytes, _MAX_INT))


def install_crash_handler(library: bytes) -> None:
    """Have native frames written when this process crashes, and when its stack is asked for.

    Nothing is written if that fails.
    """
    with contextlib.suppress(OSError, AttributeError):
        handler = ctypes.CDLL(os.fsdecode(library))
        call_record.watch(handler)
        handler.sapwood_install_crash_handler(_crash_report.fd)
        handler.sapwood_install_stack_handler(STACK_SIGNAL)
        handler.sapwood_install_stack_handler(SAMPLE_SIGNAL)


def _shortened(result: calls.Result) -> bytes:
    """Encode a result, of whose error the texts may not fit, with only as much as does."""
    data = calls.encode(result)
    limit = MAX_RECORD_TEXT
    while len(data) > calls.MAX_DATAGRAM and result.error is not None:
        limit //= 2
        error = SapwoodError.from_record(result.error).to_record(limit)
        if limit < SHORTEST_TEXT:
            error = msgspec.structs.replace(error, details={})
        data = calls.encode(msgspec.structs.replace(result, error=error))
    return data
