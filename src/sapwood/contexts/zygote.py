"""The zygote: a single-threaded process with everything imported, from which others fork.

A fork costs a millisecond where a new interpreter with numpy costs a hundred, and the children
share the memory of what is imported. The zygote has no thread and no event loop, so forking it
is safe; it runs no user code.
"""

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from sapwood.contexts import orders, process

Entry = Callable[[bytes, int, int], None]
"""What a forked process runs: ``entry(configuration, rank, incarnation)``."""


class Zygote:
    """The state of the zygote process.

    Args:
        control: This end of the control socket.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._configuration = b""
        self._folder = ""
        self._alive: dict[int, orders.ProcessSpec] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Obey orders until the control socket ends; then leave nothing behind."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        try:
            while True:
                for descriptor, _ in poll.poll():
                    if descriptor == self._wake_read:
                        self._drain()
                        self._reap()
                    elif not self._obey():
                        return
        finally:
            self._end()

    def report(self, report: orders.Report) -> None:
        """Tell the front end, if it is still there."""
        with contextlib.suppress(OSError):
            self._control.send(orders.encode(report))

    def _obey(self) -> bool:
        data = self._control.recv(orders.MAX_ORDER)
        if not data:
            return False
        order = orders.decode_order(data)
        if isinstance(order, orders.Configure):
            self._configuration, self._folder = order.configuration, order.folder
            os.environ.update(order.environment)
        elif isinstance(order, orders.Spawn):
            for spec in order.processes:
                self._spawn(spec)
        elif order.pid in self._alive:
            os.kill(order.pid, order.signal)
        return True

    def _spawn(self, spec: orders.ProcessSpec) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            reason = error.strerror or str(error)
            self.report(orders.SpawnFailed(spec.rank, spec.incarnation, reason))
            return
        if pid == 0:
            self._become(spec, parent)
        self._alive[pid] = spec
        self.report(orders.Spawned(spec.rank, spec.incarnation, pid))

    def _become(self, spec: orders.ProcessSpec, parent: int) -> NoReturn:
        """Run a process' entry in the child, and never return."""
        status = 1
        try:
            process.die_with_parent(parent)
            process.forget_signals()
            self._control.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            gc.enable()
            find_entry(spec.entry)(self._configuration, spec.rank, spec.incarnation)
            status = 0
        except BaseException:  # noqa: BLE001 - the last frame of a process reports everything
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(status)

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
            spec = self._alive.pop(pid, None)
            if spec is not None:
                status = os.waitstatus_to_exitcode(raw)
                self.report(orders.Exited(spec.rank, spec.incarnation, pid, status))

    def _end(self) -> None:
        """Kill all descendants, orphans included, and remove the folder."""
        signal.set_wakeup_fd(-1)
        while living := process.children(os.getpid()):
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def find_entry(name: str) -> Entry:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    entry: Entry = getattr(importlib.import_module(module), function)
    return entry


def main(descriptor: int, preload: list[str]) -> None:
    """Run a zygote.

    Args:
        descriptor: File descriptor of the control socket.
        preload: Modules to import before the first fork.
    """
    begin = time.perf_counter()
    process.adopt_orphans()
    for module in preload:
        importlib.import_module(module)
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    gc.collect()
    gc.freeze()
    gc.disable()
    zygote = Zygote(control)
    zygote.report(orders.Ready(os.getpid(), time.perf_counter() - begin))
    zygote.run()
