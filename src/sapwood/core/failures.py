"""What becomes of an unexpected exception: it is logged, and fails what it concerns.

Every thread and event loop of Sapwood has one handler of exceptions, at its top. It uses
:func:`log_failure`, which never raises and does not write to the standard streams, and
:func:`as_error`, which makes the error that waiters get. Threads are started by
:func:`start_thread`, so that none ends without a word.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sapwood.core.errors import REPORT_HINT, InternalError, SapwoodError

if TYPE_CHECKING:
    import threading

LOG = "sapwood.failures"
"""Name of the log that unexpected exceptions go to; the standard library's ``logging`` has it."""

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""The limit of open files of a process or of the machine is reached."""

MAX_TRACEBACK = 16 * 1024
"""Characters of a traceback that an error carries; of a longer one the end."""


def as_error(exception: BaseException, doing: str = "") -> SapwoodError:
    """Return the error that says what an exception stopped; those of Sapwood stay as they are.

    It never raises, whatever the exception does when it is printed.

    Args:
        exception: The exception.
        doing: The operation that it stopped, for ``where``.

    Example:
        >>> error = as_error(KeyError("rank"), "request 'ping' of agent 3")
        >>> error.code, error.what, error.where
        ('SW900', "KeyError: 'rank'", "request 'ping' of agent 3")
        >>> as_error(InternalError("violated: order")).what
        'violated: order'
    """
    if isinstance(exception, SapwoodError):
        return exception
    text = text_of(exception)
    kind = type(exception).__name__
    error = InternalError(
        f"{kind}: {text}" if text else kind,
        where=doing,
        hint=REPORT_HINT,
        details={"traceback": traceback_of(exception)},
    )
    error.__cause__ = exception
    return error


def traceback_of(exception: BaseException) -> str:
    """Return the traceback of an exception as text; it never raises."""
    import traceback  # noqa: PLC0415 - agents start faster without it

    try:
        text = "".join(traceback.format_exception(exception))
    except BaseException:  # noqa: BLE001 - exceptions of users may do anything when printed
        text = "".join(traceback.format_tb(exception.__traceback__)) + type(exception).__name__
    return text[-MAX_TRACEBACK:]


def log_failure(doing: str, exception: BaseException) -> None:
    """Write an unexpected exception to the log, with its traceback; never raise.

    Args:
        doing: The operation that failed.
        exception: Why it failed.
    """
    try:
        import logging  # noqa: PLC0415 - agents start faster without it

        logging.getLogger(LOG).error("%s failed\n%s", doing, traceback_of(exception))
    except BaseException:  # noqa: BLE001, S110 - a log that fails must fail nothing else
        pass


def log_loop_failure(loop: str, exception: BaseException) -> None:
    """Log what a callback of the main thread's loop raised; raise what is to end the process."""
    if isinstance(exception, KeyboardInterrupt | SystemExit):
        raise exception
    log_failure(f"a callback of {loop}", exception)


@contextlib.contextmanager
def failing(doing: str, failed: Callable[[SapwoodError], Any]) -> Iterator[None]:
    """Give ``failed`` an exception that is raised inside; log it unless it is one of Sapwood.

    Example:
        >>> answers = []
        >>> with failing("request 'ping'", answers.append):
        ...     raise SapwoodError("no such agent")
        >>> print(*answers)
        no such agent
    """
    try:
        yield
    except SapwoodError as error:
        fail(doing, failed, error)
    except (Exception, SystemExit) as exception:  # noqa: BLE001 - it fails this and no more
        log_failure(doing, exception)
        fail(doing, failed, as_error(exception, doing))


def new_thread(
    name: str,
    work: Callable[..., Any],
    *args: Any,
    failed: Callable[[SapwoodError], Any] | None = None,
    daemon: bool | None = True,
) -> threading.Thread:
    """Return a named thread; an exception of its work is logged and given to ``failed``.

    Args:
        name: Of the thread.
        work: The function that it calls.
        *args: The arguments of that function.
        failed: Fails the callers that wait for the thread; it is called on the thread.
        daemon: Whether the interpreter may end without it; None: as the thread that makes it.
    """
    import threading  # noqa: PLC0415 - agents have one thread

    def run() -> None:
        try:
            work(*args)
        except BaseException as exception:  # noqa: BLE001 - the top of a thread
            doing = f"thread '{name}'"
            log_failure(doing, exception)
            if failed is not None:
                fail(doing, failed, as_error(exception, doing))

    return threading.Thread(target=run, name=name, daemon=daemon)


def start_thread(
    name: str,
    work: Callable[..., Any],
    *args: Any,
    failed: Callable[[SapwoodError], Any] | None = None,
    daemon: bool | None = True,
) -> threading.Thread:
    """Start a thread of :func:`new_thread`, and return it.

    Example:
        >>> errors = []
        >>> def work() -> None: raise SapwoodError("no disk")
        >>> start_thread("example", work, failed=errors.append).join()
        >>> print(errors[0])
        no disk
    """
    thread = new_thread(name, work, *args, failed=failed, daemon=daemon)
    thread.start()
    return thread


def run_all(doing: str, steps: Iterable[Callable[[], Any]]) -> None:
    """Run each step, also after one that fails; then raise what the first failure was.

    Args:
        doing: The operation, for the log.
        steps: Functions without arguments.

    Example:
        >>> done = []
        >>> run_all("the end", [lambda: done.append(1), lambda: 1 / 0, lambda: done.append(3)])
        Traceback (most recent call last):
        ZeroDivisionError: division by zero
        >>> done
        [1, 3]
    """
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as exception:  # noqa: BLE001 - the other steps are done all the same
            log_failure(doing, exception)
            first = first or exception
    if first is not None:
        raise first


def fail(doing: str, failed: Callable[..., Any], *args: Any) -> None:
    """Call what fails the waiters of something; what that raises is logged, not raised."""
    try:
        failed(*args)
    except BaseException as exception:  # noqa: BLE001 - the last handler there is
        log_failure(f"the handler of the failure of {doing}", exception)


def text_of(exception: BaseException) -> str:
    """Return the text of an exception; it never raises."""
    try:
        return str(exception)
    except BaseException:  # noqa: BLE001 - exceptions of users may do anything when printed
        return "(its text cannot be made)"
