"""What becomes of an unexpected exception: it is logged, and fails what it concerns.

Every thread and event loop of Sapwood has one handler of exceptions, at its top. It uses
:func:`log_failure`, which never raises and does not write to the standard streams, and
:func:`as_error`, which makes the error that waiters get. Threads are started by
:func:`start_thread`, so that none ends without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sapwood.core.errors import REPORT_HINT, InternalError, SapwoodError

if TYPE_CHECKING:
    import threading

LOG = "sapwood.failures"
"""Name of the log that unexpected exceptions go to; the standard library's ``logging`` has it."""

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
    text = _text_of(exception)
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


def start_thread(
    name: str,
    work: Callable[..., Any],
    *args: Any,
    failed: Callable[[SapwoodError], Any] | None = None,
    daemon: bool = True,
) -> threading.Thread:
    """Start a named thread; what it raises is logged and given to ``failed``.

    Args:
        name: Of the thread.
        work: What it does.
        *args: The arguments of that.
        failed: Fails those who wait for the thread, with the error; called on it.
        daemon: Whether the interpreter may end without it.

    Example:
        >>> errors = []
        >>> def work() -> None: raise SapwoodError("no disk")
        >>> start_thread("example", work, failed=errors.append).join()
        >>> print(errors[0])
        no disk
    """
    import threading  # noqa: PLC0415 - agents have one thread

    def run() -> None:
        try:
            work(*args)
        except BaseException as exception:  # noqa: BLE001 - the top of a thread
            log_failure(f"thread '{name}'", exception)
            if failed is not None:
                fail(f"thread '{name}'", failed, as_error(exception, f"thread '{name}'"))

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def fail(doing: str, failed: Callable[..., Any], *args: Any) -> None:
    """Call what fails the waiters of something; what that raises is logged, not raised."""
    try:
        failed(*args)
    except BaseException as exception:  # noqa: BLE001 - the last handler there is
        log_failure(f"the handler of the failure of {doing}", exception)


def _text_of(exception: BaseException) -> str:
    try:
        return str(exception)
    except BaseException:  # noqa: BLE001 - exceptions of users may do anything when printed
        return "(its text cannot be made)"
