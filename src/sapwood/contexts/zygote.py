"""The zygote: a single-threaded process with everything imported, from which others fork.

A fork costs a millisecond where a new interpreter with numpy costs a hundred, and the children
share the memory of what is imported. The zygote has no thread and no event loop, so forking it
is safe; it runs no user code.

It works in two steps. With the little that agents need it forks them, so that they are ready
early and small; then it imports numpy and what runners need, and forks those when agents ask
(``runner_factory.py``). Processes whose entries need the second step wait for it.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from typing import NoReturn

from sapwood.contexts import orders, process, runner_factory
from sapwood.contexts.plan import Entry, Main, RunnerEntry, ZygotePlan, find_entry
from sapwood.core import typed

ALIVE_PAUSE = 0.1
"""Seconds between two signs of life while the zygote imports and obeys no orders."""

FIRST_FD = 3
"""First descriptor that is not stdin, stdout or stderr."""

LAST_FD = 2**31 - 1
"""No descriptor is above this one; one system call closes a range of any length."""


class UnwantedError(BaseException):
    """An import was given up; no handler of exceptions in the module catches it."""


class _ImportWatch:
    """Asked for each module that is not imported yet, before those that find it."""

    def __init__(self, unwanted: Callable[[], object]) -> None:
        self._unwanted = unwanted

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find nothing."""
        del name, path, target
        if self._unwanted():
            raise UnwantedError
        return None


def import_while_wanted(module: str, unwanted: Callable[[], object]) -> None:
    """Import a module.

    Args:
        module: Its name.
        unwanted: Whether it is not needed any more; asked before each module that it imports.

    Raises:
        UnwantedError: It is not needed; the modules that are imported by then stay unused.

    Example:
        >>> import_while_wanted("json", lambda: False)
    """
    watch = _ImportWatch(unwanted)
    sys.meta_path.insert(0, watch)
    try:
        importlib.import_module(module)
    finally:
        sys.meta_path.remove(watch)


class ForkedTree:
    """A tree whose processes this zygote forks: who orders them, and what they get."""

    __slots__ = ("configuration", "control", "folder", "over")

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.configuration = b""
        self.folder = ""
        self.over = False

    def report(self, report: orders.Report) -> None:
        """Report to the client, if it still lives."""
        with contextlib.suppress(OSError):
            self.control.send(orders.encode(report))

    def remove_folder(self) -> None:
        """Remove its folder, if it still exists."""
        if self.folder:
            import shutil  # noqa: PLC0415 - it imports all compressors, and is needed at the end

            shutil.rmtree(self.folder, ignore_errors=True)


class ForkedProcess:
    """A process of a tree that this zygote forked.

    Attributes:
        runners: Process ids of its runners, except those that are being ended.
    """

    __slots__ = ("channel", "runners", "spec", "tree")

    def __init__(self, tree: ForkedTree, spec: orders.ProcessSpec, channel: socket.socket) -> None:
        self.tree = tree
        self.spec = spec
        self.channel = channel
        self.runners: set[int] = set()


class Zygote:
    """The state of the zygote process.

    Args:
        control: This end of the control socket.
        plan: What it imports and forks.
        search_path: ``sys.path`` of its runners.
    """

    def __init__(
        self, control: socket.socket, plan: ZygotePlan, search_path: Sequence[str]
    ) -> None:
        self._search_path = search_path
        self._main = ForkedTree(control)
        self._trees = {control.fileno(): self._main}
        self._plan = plan
        self._complete = False
        self._imported: set[str] = set()
        self._waiting: list[tuple[ForkedTree, orders.ProcessSpec]] = []
        self._members: dict[int, ForkedProcess] = {}
        self._channels: dict[int, ForkedProcess] = {}
        self._runners: dict[int, ForkedProcess] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()

    def run(self) -> None:
        """Obey orders until the control socket ends; then leave nothing behind."""
        process.forget_signals()  # here, once: it costs a child a tenth of its start
        process.interrupt_nobody()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._hear_of_ends()
        self._poll.register(self._main.control, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)
        try:
            while self._serve():
                pass
        except UnwantedError:
            pass  # the client is gone
        finally:
            self._end()

    def ready(self, seconds: float) -> None:
        """Tell the client that all is imported, and how long that took."""
        machine, python = os.uname().machine, ".".join(map(str, sys.version_info[:3]))
        self._main.report(orders.Ready(os.getpid(), seconds, machine, process.c_library(), python))

    def _serve(self) -> bool:
        """Take in what there is; False when the client is gone."""
        more_to_import = not self._complete and (self._members or self._waiting)
        ready = self._poll.poll(0 if more_to_import else None)
        if not ready:
            self._complete_imports()
        for descriptor, _ in ready:
            if descriptor == self._wake_read:
                self._drain()
                self._reap()
            elif descriptor in self._trees:
                if not self._obey(self._trees[descriptor]):
                    return False
            elif descriptor in self._channels:
                self._obey_member(self._channels[descriptor])
        return True

    # --- members of the tree -------------------------------------------------------------------

    def _obey(self, tree: ForkedTree) -> bool:
        """Do what a client wants; False when the main one is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(tree.control, orders.MAX_ORDER, 1)
        except ConnectionResetError:
            data = b""
        if not data and tree is self._main:
            return False
        if not data:
            self._part_with(tree)
            return True
        order = orders.decode_order(data)
        if isinstance(order, orders.ConfigureProcesses):
            tree.configuration, tree.folder = order.configuration, order.folder
            os.environ.update(order.environment)
        elif isinstance(order, orders.Spawn):
            self._spawn([(tree, spec) for spec in order.processes])
        elif isinstance(order, orders.Serve):
            client = orders.ProcessSpec("", 0, 0)
            self._listen_to(ForkedProcess(tree, client, socket.socket(fileno=descriptors[0])))
        elif isinstance(order, orders.Attend):
            self._trees[descriptors[0]] = ForkedTree(socket.socket(fileno=descriptors[0]))
            self._poll.register(descriptors[0], select.POLLIN)
        elif isinstance(order, orders.HeartbeatRequest):
            tree.report(orders.HeartbeatReply())
        elif order.pid in self._members:
            os.kill(order.pid, order.signal)
        return True

    def _part_with(self, tree: ForkedTree) -> None:
        """A client wants nothing any more: end the processes of its tree."""
        tree.over = True
        self._poll.unregister(tree.control)
        self._waiting = [waiting for waiting in self._waiting if waiting[0] is not tree]
        for pid, member in self._members.items():
            if member.tree is tree:
                os.kill(pid, signal.SIGKILL)
        self._clear_away(tree)

    def _clear_away(self, tree: ForkedTree) -> None:
        """Leave nothing of a tree whose processes are gone."""
        if any(member.tree is tree for member in self._members.values()):
            return
        del self._trees[tree.control.fileno()]
        tree.remove_folder()
        tree.control.close()

    def _spawn(self, wanted: Sequence[tuple[ForkedTree, orders.ProcessSpec]]) -> None:
        """Fork processes, one right after the other."""
        parent = os.getpid()
        signal.set_wakeup_fd(-1)  # here, once: so that no child need do that
        for tree, spec in wanted:
            if self._can_fork(tree, spec):
                self._fork(tree, spec, parent)
        self._hear_of_ends()
        self._reap()  # those that ended before the zygote listened again
        if self._complete:
            gc.collect()  # reference cycles of the assembly are not freed otherwise

    def _can_fork(self, tree: ForkedTree, spec: orders.ProcessSpec) -> bool:
        """Whether the module of an entry is there; else its process waits for that."""
        module = spec.entry.partition(":")[0]
        if module in self._plan.later and module not in self._imported:
            self._waiting.append((tree, spec))
            return False
        return True

    def _fork(self, tree: ForkedTree, spec: orders.ProcessSpec, parent: int) -> None:
        """Assemble a process and fork it.

        After a fork, a write to a page copies it first (copy-on-write): what exists before costs
        the child no page. An error during assembly is raised in the child, which reports it.
        """
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            tree.report(_not_spawned(spec, error))
            return
        with theirs:
            main = _assemble(tree, spec, runner_factory.RunnerFactory(theirs))
            try:
                pid = os.fork()
            except OSError as error:
                ours.close()
                tree.report(_not_spawned(spec, error))
                return
            if pid == 0:
                self._become(main, theirs.fileno(), parent)
        member = self._members[pid] = ForkedProcess(tree, spec, ours)
        self._listen_to(member)
        tree.report(orders.Spawned(spec.rank, spec.incarnation, pid))

    def _listen_to(self, member: ForkedProcess) -> None:
        """Fork runners when a process asks for them."""
        member.channel.settimeout(0)
        self._channels[member.channel.fileno()] = member
        self._poll.register(member.channel, select.POLLIN)

    def _become(self, main: Main, own: int, parent: int) -> NoReturn:
        """Run what was assembled, in the child, and never return; ``own`` is its one descriptor."""
        status = 1
        try:
            process.die_with_parent(parent)
            # By descriptor: to look at the zygote's objects would copy the pages on which they lie.
            os.closerange(FIRST_FD, own)
            os.closerange(own + 1, LAST_FD)
            gc.enable()
            main()
            status = 0
        except BaseException:  # noqa: BLE001 - the last frame of a process reports everything
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(status)

    # --- runners -------------------------------------------------------------------------------

    def _complete_imports(self) -> None:
        """Import the rest; a process that waited for a module is forked once that is there."""
        unwanted = self._watch()
        for module in self._plan.later:
            import_while_wanted(module, unwanted)
            self._imported.add(module)
            waiting, self._waiting = self._waiting, []
            self._spawn(waiting)
        gc.collect()
        gc.freeze()
        self._complete = True

    def _watch(self) -> Callable[[], bool]:
        """Return what says, during imports, if the client is gone, and answers if it waits."""
        control = select.poll()
        control.register(self._main.control, select.POLLIN)
        last = 0.0

        def unwanted() -> bool:
            nonlocal last
            found = control.poll(0)
            if found and found[0][1] & select.POLLHUP:
                return True
            if found and time.monotonic() > last + ALIVE_PAUSE:  # its orders are obeyed afterwards
                last = time.monotonic()
                self._main.report(orders.HeartbeatReply())
            return False

        return unwanted

    def _obey_member(self, member: ForkedProcess) -> None:
        """Fork or end a runner of a member."""
        try:
            received = runner_factory.receive_order(member.channel)
        except BlockingIOError:
            return  # the descriptor was closed and is another's now
        except ConnectionResetError:
            received = None
        if received is None:
            self._forget(member)
            return
        order, descriptors = received
        if isinstance(order, runner_factory.Fork):
            self._fork_runner(member, order.options, descriptors)
        elif order.pid in member.runners:
            member.runners.remove(order.pid)
            os.kill(order.pid, signal.SIGKILL)

    def _fork_runner(self, member: ForkedProcess, options: bytes, descriptors: list[int]) -> None:
        """Fork a runner for a member."""
        if not self._complete:
            self._complete_imports()
        if member.channel.fileno() < 0:  # it ended meanwhile
            for descriptor in descriptors:
                os.close(descriptor)
            return
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(member, runner_factory.NotForked(error.strerror or str(error)))
        else:
            if pid == 0:
                self._become_runner(options, parent, descriptors)
            member.runners.add(pid)
            self._runners[pid] = member
            self._tell(member, runner_factory.Forked(pid))
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_runner(self, options: bytes, parent: int, descriptors: list[int]) -> NoReturn:
        try:
            entry: RunnerEntry = find_entry(self._plan.runner)
            sys.path[:] = self._search_path  # user code imports as it would without us
            entry(options, parent, descriptors)
        finally:
            os._exit(1)

    def _tell(self, member: ForkedProcess, news: runner_factory.News) -> None:
        with contextlib.suppress(OSError):
            member.channel.send(runner_factory.encode(news))

    def _forget(self, member: ForkedProcess) -> None:
        """Stop listening to a member that ended, and end its runners."""
        if self._channels.pop(member.channel.fileno(), None) is not None:
            self._poll.unregister(member.channel)
            member.channel.close()
        for pid in member.runners:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        member.runners.clear()

    # --- ends ------------------------------------------------------------------------------------

    def _hear_of_ends(self) -> None:
        """Have the loop woken when a child ends."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _reap(self) -> None:
        while True:
            try:
                pid, raw = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            status = os.waitstatus_to_exitcode(raw)
            if pid in self._members:
                member = self._members.pop(pid)
                self._forget(member)
                spec = member.spec
                member.tree.report(orders.Exited(spec.rank, spec.incarnation, pid, status))
                if member.tree.over:
                    self._clear_away(member.tree)
            elif pid in self._runners:
                member = self._runners.pop(pid)
                if pid in member.runners:
                    member.runners.remove(pid)
                    if status != runner_factory.CONNECTION_CLOSED:
                        lost = orders.RunnerLost(member.spec.rank, pid, status)
                        member.tree.report(lost)
                # What user code started in the runner's process group ends with it.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                self._tell(member, runner_factory.Ended(pid, status))

    def _end(self) -> None:
        """Kill all descendants, orphans included, and remove the folders."""
        signal.set_wakeup_fd(-1)
        while living := process.children(os.getpid()):
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
        for tree in self._trees.values():
            tree.remove_folder()


def _not_spawned(spec: orders.ProcessSpec, error: OSError) -> orders.SpawnFailed:
    return orders.SpawnFailed(spec.rank, spec.incarnation, error.strerror or str(error))


def _assemble(
    tree: ForkedTree, spec: orders.ProcessSpec, factory: runner_factory.RunnerFactory
) -> Main:
    """Return what a process runs; where it cannot be assembled, that raises the error."""
    try:
        entry: Entry = find_entry(spec.entry)
        return entry(tree.configuration, spec.rank, spec.incarnation, factory)
    except Exception as error:  # noqa: BLE001 - its process reports it
        return partial(_fail, error)


def _fail(error: Exception) -> NoReturn:
    raise error


def main(descriptor: int, encoded_plan: str, search_path: Sequence[str]) -> None:
    """Run a zygote.

    Args:
        descriptor: File descriptor of the control socket.
        encoded_plan: The plan as msgpack, in hexadecimal digits.
        search_path: ``sys.path`` of its runners, as the client has it.
    """
    begin = time.perf_counter()
    plan = typed.unpacker(ZygotePlan)(bytes.fromhex(encoded_plan))
    process.adopt_orphans()
    for module in plan.first:
        importlib.import_module(module)
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    gc.freeze()
    zygote = Zygote(control, plan, search_path)
    seconds = time.perf_counter() - begin
    zygote.ready(seconds)
    zygote.run()
