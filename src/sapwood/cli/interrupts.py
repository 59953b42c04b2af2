r"""What Ctrl-C, Ctrl-\, SIGTERM and ``os._exit`` in a program do to a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType
from typing import NoReturn

from sapwood.code.user_error import ProcessExit
from sapwood.core.failures import new_thread

TERMINATION_GRACE = 5.0
"""Seconds for which SIGTERM is only forwarded; then it ends the block."""


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """Let SIGTERM end the run the way Ctrl-C does, so that nothing is left behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C or SIGTERM in the block; only the second raises.

    A ``KeyboardInterrupt`` may be thrown inside ``threading``'s own code, which then leaves a
    lock taken or fails with ``RuntimeError: cannot release un-acquired lock`` (four of some
    40,000 interrupted waits failed; the one that was looked at did so). A loop that asks does not
    meet that.

    Yields:
        A function that tells whether one has come.

    Raises:
        KeyboardInterrupt: A second one came.
    """
    noted = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    heeded = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield lambda: noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def forwarded_interrupts(
    forward: Callable[[int], object], grace: float = TERMINATION_GRACE
) -> Iterator[None]:
    """Hand the first Ctrl-C or SIGTERM in the block to a function; only the second raises.

    SIGTERM comes from a program that may send no second one: if the block has not ended after a
    grace period, SIGTERM is repeated here.

    The function is called on a separate thread, because the block may be waiting to write.

    Args:
        forward: Given the number of the signal.
        grace: Seconds until SIGTERM is repeated.

    Raises:
        KeyboardInterrupt: A second signal came, or the block continued after SIGTERM.
    """
    came: SimpleQueue[int] = SimpleQueue()  # may be given to from a signal handler
    noted = False

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True
        came.put(number)

    def work() -> None:
        number = came.get()
        if number:
            forward(number)
        if number == signal.SIGTERM:
            try:
                came.get(timeout=grace)
            except Empty:
                os.kill(os.getpid(), signal.SIGTERM)

    thread = new_thread("sapwood-interrupts", work)
    heeded = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    thread.start()
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(0)
        thread.join()


@contextmanager
def answered_quits(answer: Callable[[], object]) -> Iterator[None]:
    r"""Have each Ctrl-\ (SIGQUIT) in the block call a function, on a separate thread.

    Where the signal is ignored, it stays so.

    Args:
        answer: The function; further signals wait until it has returned.
    """
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        yield
        return
    came: SimpleQueue[int] = SimpleQueue()  # may be given to from a signal handler

    def work() -> None:
        while came.get():
            answer()

    thread = new_thread("sapwood-quits", work)
    thread.start()
    before = signal.signal(signal.SIGQUIT, lambda number, _frame: came.put(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGQUIT, before)
        came.put(0)
        thread.join()


@contextmanager
def no_exit_of_process() -> Iterator[None]:
    """Make ``os._exit`` raise in this process, so that what a program does there fails its run.

    Else a program whose ``update`` calls it would end the command with the status of a success.
    Processes that are forked in the block end as ever.

    Example:
        >>> with no_exit_of_process():
        ...     try:
        ...         os._exit(3)
        ...     except ProcessExit as error:
        ...         error.code
        3
    """
    original, own = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() != own:
            original(status)
        raise ProcessExit(status)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = original
