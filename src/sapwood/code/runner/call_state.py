"""State of a runner process that user code may change, and that no other call is to find changed.

:func:`_rows` is the table of it. A task finds the state that the runner had when it was started; a
run or stream finds it as its own last call has left it. So the state is restored when a task, or
the last call of a run or stream, has ended, and is exchanged where calls of a run alternate with
others. Between the calls of one run, nothing is restored or compared.

State that Python keeps in context variables (error handling of numpy 2, the context of ``decimal``,
variables of the user's own) needs no row: each task, run or stream has its own context.

Not restored: modules and their variables, threads, open files, resource limits, priority, and
what a native library keeps. ``sys.stdout`` and ``sys.stderr`` are restored after each call
(:mod:`sapwood.code.runner.printing`), modes of floating-point numbers after each native function
as well (:mod:`sapwood.code.floating_point`).
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import fcntl
import gc
import locale
import os
import platform
import random
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from sapwood.code import floating_point

SIGNALS: Final = tuple(
    int(getattr(signal, name))
    for name in (
        *("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD"),
        *("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGWINCH"),
    )
)
"""Signals whose handlers are restored: not those by which a crash is reported."""

_LOWEST_COPY: Final = 900
"""Copies of the standard descriptors have numbers from here on: user code opens lower ones."""


class StateKind(NamedTuple):
    """One kind of state.

    Attributes:
        name: What it is.
        read: Returns it.
        write: Changes it to what ``read`` has returned.
        restore: Restores it without being read, where that is as fast as reading.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    restore: Callable[[], object] | None = None


def _rows() -> list[StateKind]:
    """Return the table, for the state that the process has now."""
    modes = _Modes()
    rows = [
        # First: the handler of a signal may raise an exception at any time.
        StateKind("alarm", _nothing, _ignore, partial(signal.alarm, 0)),
        StateKind("signal handlers", _handlers, _set_handlers),
        StateKind("standard descriptors", _nothing, _ignore, _StandardDescriptors().restore),
        StateKind("floating-point modes", modes.read, _set_modes, partial(_set_modes, modes.first)),
        StateKind("current folder", _folder, os.chdir, partial(os.fchdir, _opened_folder())),
        StateKind("umask", _umask, os.umask, partial(os.umask, _umask())),
        StateKind("warning filters", _filters, _set_filters),
        StateKind("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
        StateKind(
            "garbage collection", gc.isenabled, lambda on: gc.enable() if on else gc.disable()
        ),
        StateKind("socket time-out", socket.getdefaulttimeout, socket.setdefaulttimeout),
        StateKind("locale", _locale, _set_locale),
        StateKind("event loop", _event_loop_policy, _set_event_loop_policy),
    ]
    for name, kind in (("variables", _Variables()), ("random generators", _Generators())):
        rows.append(StateKind(name, kind.read, kind.write, kind.restore))
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":  # newer ones use a context variable
        rows.append(StateKind("numpy errors", np.geterr, lambda errors: np.seterr(**errors)))
    return rows


class CallState:
    """Restores what calls have changed, once they have ended."""

    def __init__(self) -> None:
        self._rows = [(row, row.read()) for row in _rows()]
        self._restored = [row.restore for row, _ in self._rows if row.restore is not None]
        self._compared = [
            (row.read, first, row.write) for row, first in self._rows if row.restore is None
        ]
        self._unread = [
            row.restore for row, _ in self._rows if row.restore is not None and row.read is _nothing
        ]
        self._kept: dict[str, list[tuple[StateKind, Any]]] = {}
        self._contexts: dict[str, contextvars.Context] = {}
        self._current = ""

    def enter(self, name: str, *, lasting: bool) -> Callable[..., Any]:
        """Give a call the state that it is to find.

        Args:
            name: The task, run or stream that it belongs to.
            lasting: Whether further calls follow that are to find what it leaves.

        Returns:
            What to call it by: ``run(function, *arguments)``.
        """
        if name != self._current:
            if self._current:
                self._exchange(self._current)
            for row, value in self._kept.pop(name, ()):
                with contextlib.suppress(Exception):
                    row.write(value)
            self._current = name
        context = self._contexts.get(name)
        if context is None:
            context = contextvars.Context()
            if lasting:
                self._contexts[name] = context
        return context.run

    def leave(self, name: str) -> None:
        """Restore the state after the last call of a task, run or stream."""
        self._kept.pop(name, None)
        self._contexts.pop(name, None)
        self._current = ""
        self._restore()

    def _exchange(self, name: str) -> None:
        """Keep what a run or stream has changed for its next call, and restore it for others."""
        try:
            values = [(row, row.read(), first) for row, first in self._rows]
            kept = [(row, value) for row, value, first in values if value != first]
        except Exception:  # noqa: BLE001 - what user code has put there may do anything
            kept = []
            self._restore_each()
        if kept:
            self._kept[name] = kept
            self._restore()
        else:
            for restore in self._unread:
                restore()

    def _restore(self) -> None:
        # Two loops without calls of Python functions where that is possible: this is done after
        # each task.
        try:
            for restore in self._restored:
                restore()
            for read, first, write in self._compared:
                if read() != first:
                    write(first)
        except Exception:  # noqa: BLE001 - a handler of the user's, or the folder is gone
            self._restore_each()

    def _restore_each(self) -> None:
        for row, first in self._rows:
            with contextlib.suppress(Exception):
                if row.restore is not None:
                    row.restore()
                else:
                    row.write(first)


def _nothing() -> None:
    """Return what a row reads that is restored, but not exchanged."""


def _ignore(value: None) -> None:
    del value


def _high(descriptor: int) -> int:
    """Return a copy of a descriptor above those that user code opens."""
    for lowest in (_LOWEST_COPY, 3):
        with contextlib.suppress(OSError):  # fewer are allowed
            return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    return -1


class _StandardDescriptors:
    """Descriptors 0 to 2: what user code has closed or replaced is put back."""

    def __init__(self) -> None:
        self._copies = [(number, _high(number)) for number in range(3)]

    def restore(self) -> None:
        for number, copy in self._copies:
            os.dup2(copy, number)


_handler: Any = vars(signal)["_signal"].getsignal
"""As the public function, but it makes no enumerations of numbers, which takes long."""


def _handlers() -> list[Any]:
    return list(map(_handler, SIGNALS))


def _set_handlers(handlers: Sequence[Any]) -> None:
    signal.set_wakeup_fd(-1)
    for number, handler in zip(SIGNALS, handlers, strict=True):
        if handler is not None:  # else C has set it
            signal.signal(number, handler)


class _Modes:
    """The floating-point environment; exceptions that have been raised do not count."""

    def __init__(self) -> None:
        self.first = self._read()

    def read(self) -> bytes:
        now = self._read()
        return self.first if _control(now) == _control(self.first) else now

    @staticmethod
    def _read() -> bytes:
        modes = floating_point.Environment()
        floating_point.save(modes)
        return bytes(modes)


def _control(modes: bytes) -> bytes | tuple[bytes, int]:
    """Return the part of an environment that controls what is computed."""
    if _MACHINE == "x86_64":
        exceptions = 0x3F
        return modes[:2], int.from_bytes(modes[28:32], "little") & ~exceptions
    return modes[:4] if _MACHINE == "aarch64" else modes


_MACHINE: Final = platform.machine()


def _set_modes(modes: bytes) -> None:
    floating_point.restore(modes)


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - fast
    except OSError:  # it was removed
        return ""


def _opened_folder() -> int:
    descriptor = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _high(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _filters() -> tuple[Any, ...]:
    return tuple(warnings.filters)


def _set_filters(filters: Sequence[Any]) -> None:
    warnings.resetwarnings()  # notes that they change, which the next line does not
    warnings.filters[:] = filters  # type: ignore[index]  # it is a list


_setlocale: Any = ctypes.CDLL(None).setlocale
_setlocale.restype = ctypes.c_char_p


def _locale() -> bytes | None:
    found: bytes | None = _setlocale(locale.LC_ALL, None)
    return found


def _set_locale(name: bytes) -> None:
    _setlocale(locale.LC_ALL, name)


def _event_loop_policy() -> Any:
    module = sys.modules.get("asyncio.events")
    return None if module is None else vars(module).get("_event_loop_policy")


def _set_event_loop_policy(policy: Any) -> None:
    module = sys.modules.get("asyncio.events")
    if module is not None:
        vars(module)["_event_loop_policy"] = policy


class _NotedVariables(dict[bytes, bytes]):
    """The variables of ``os.environ``, which notes what they were before they were changed.

    Changes that a module makes while it is imported are not noted: it is not imported again.
    """

    def __init__(self, variables: Mapping[bytes, bytes]) -> None:
        super().__init__(variables)
        self.before: dict[bytes, bytes | None] = {}

    def __setitem__(self, name: bytes, value: bytes) -> None:
        self._note(name)
        super().__setitem__(name, value)

    def __delitem__(self, name: bytes) -> None:
        self._note(name)
        super().__delitem__(name)

    def _note(self, name: bytes) -> None:
        if name not in self.before and not _is_importing():
            self.before[name] = self.get(name)


def _is_importing() -> bool:
    frame = sys._getframe(1)  # noqa: SLF001 - public in all but its name
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename in _IMPORTERS:
            return True
    return False


_IMPORTERS: Final = {"<frozen importlib._bootstrap>", "<frozen site>"}
"""Code that imports modules."""


class _Variables:
    """Environment variables that Python code has changed."""

    def __init__(self) -> None:
        self._noted = _NotedVariables(dict(os.environb))
        os.environ._data = os.environb._data = self._noted  # type: ignore[attr-defined]  # noqa: SLF001 - not public, but the same since Python 2

    def read(self) -> dict[bytes, bytes | None]:
        return {name: self._noted.get(name) for name in self._noted.before}

    def write(self, variables: Mapping[bytes, bytes | None]) -> None:
        for name, value in variables.items():
            if value is not None:
                os.environb[name] = value
            else:
                os.environb.pop(name, None)
        if b"TZ" in variables:
            time.tzset()

    def restore(self) -> None:
        before = self._noted.before
        if before:
            self.write(dict(before))
            before.clear()


class _Generators:
    """The generators of the modules ``random`` and ``numpy.random``.

    A call that seeds them does not make those after it repeat the same numbers: if a call has used
    them, the next call finds them with a new seed.
    """

    def __init__(self) -> None:
        # Parts that change when numbers are drawn, and when it is seeded.
        self._python = _Part.from_address(_python_generator())
        self._python_seen = self._python.raw
        self._numpy = _Part()
        self._numpy_seen = self._numpy.raw
        self._numpy_known = False
        self._know_numpy()

    def _know_numpy(self) -> None:
        self._numpy_known = "numpy.random.mtrand" in sys.modules
        if self._numpy_known:
            self._held = vars(np.random)["get_bit_generator"]()  # so that its memory stays
            self._numpy = _Part.from_address(_last_words(self._held))
            self._numpy_seen = self._numpy.raw

    def read(self) -> tuple[Any, Any]:
        python = numpy = None
        if self._python.raw != self._python_seen:
            python = random.getstate()
        if self._numpy_known and self._numpy.raw != self._numpy_seen:
            numpy = np.random.get_state()  # noqa: NPY002 - that is the one
        return python, numpy

    def write(self, states: tuple[Any, Any]) -> None:
        python, numpy = states
        if python is not None:
            random.setstate(python)
        if numpy is not None:
            np.random.set_state(numpy)  # noqa: NPY002 - as above

    def restore(self) -> None:
        if self._python.raw != self._python_seen:
            random.seed()
            self._python_seen = self._python.raw
        if self._numpy.raw != self._numpy_seen or (
            not self._numpy_known and "numpy.random.mtrand" in sys.modules
        ):
            np.random.seed(list(os.urandom(_SEED)))  # noqa: NPY002 - as above
            self._know_numpy()


_SEED: Final = 32
"""Bytes of a seed."""


_Part = ctypes.c_char * 16


def _python_generator() -> int:
    """Return where the generator of ``random`` has its index, and behind it its state."""
    return id(random._inst) + object.__basicsize__  # noqa: SLF001 - else it would have to be compared as a whole


def _last_words(generator: Any) -> int:
    """Return where ``numpy.random`` has the end of its state, and behind it its index."""
    words, word = 624, 4
    address: int = generator.ctypes.state_address
    return address + word * (words + 1) - ctypes.sizeof(_Part)
