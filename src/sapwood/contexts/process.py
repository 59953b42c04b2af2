"""What a forked process does first: die with its parent, and forget what it inherited."""

import contextlib
import ctypes
import errno
import functools
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61


@functools.cache
def _libc_prctl() -> Callable[[int, int, int, int, int], int]:
    """Return the system call; the zygote looks it up first, so that its children have it."""
    found: Callable[[int, int, int, int, int], int] = ctypes.CDLL(None, use_errno=True).prctl
    return found


def _prctl(option: int, argument: int) -> None:
    if _libc_prctl()(option, argument, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends; end now if that has happened already.

    Args:
        parent: Process id of the parent, taken before the fork.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def allow_debuggers(ancestor: int) -> None:
    """Let descendants of a process read this one's memory, where the kernel asks for that (Yama).

    Args:
        ancestor: The process, an ancestor of this one.
    """
    with contextlib.suppress(OSError):  # a kernel without Yama, or an emulator
        _prctl(_PR_SET_PTRACER, ancestor)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends.

    An emulator of another architecture may not know this call; what a process is in this
    respect outlives ``exec``, so whoever started the emulator has called it (``Spawner``).
    """
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def forget_signals() -> None:
    """Undo the signal set-up that a fork copied from its parent."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for number in (
        signal.SIGTTIN,
        signal.SIGTTOU,
    ):  # to use the terminal must not stop it
        signal.signal(number, signal.SIG_IGN)


def interrupt_nobody() -> None:
    """Wait for whoever is at work when waking (``SCHED_BATCH``); children inherit this.

    Else the first agent that a client wakes interrupts it before it has sent to the others
    (``docs/decisions/0010-binding.md``). What the user has chosen stays.
    """
    with contextlib.suppress(OSError):  # an emulator may not know the call
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def c_library() -> str:
    """Return name and version of this process' C library, for example ``glibc 2.36``."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (ValueError, OSError):
        return "musl"


def children(pid: int) -> list[int]:
    """Return the process ids of the children of the main thread of a process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123 - hot
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def describe_status(status: int) -> str:
    """Return an exit status as people say it.

    Args:
        status: Exit code, or minus the signal's number.

    Example:
        >>> describe_status(-11), describe_status(3)
        ('killed by SIGSEGV', 'exited with code 3')
    """
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def resident_memory(pid: int) -> int:
    """Return the bytes of memory that a process holds; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - agents have no pathlib
            pages = int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
