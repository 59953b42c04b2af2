"""Where calls may be made without the interpreter, if there is such a way (``fastpath/``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sapwood.code.native_call import NativeCall
from sapwood.code.runner import calls


class CallShortcut(Protocol):
    """Makes calls that are like the ones before, in the place of the interpreter."""

    def begins(
        self, native_call: Callable[[], NativeCall | None] | None
    ) -> Callable[[], NativeCall | None] | None:
        """Note that calls of another kind begin; return what to ask of them, None for nothing."""

    def expects(
        self,
        call: calls.Call,
        size: int,
        body: calls.Bulk,
        answer: bytes,
        native_call: Callable[[], NativeCall | None],
    ) -> bool:
        """Note a call; True if the next ones are to be like it: then :meth:`receive` is next."""

    def receive(self) -> int:
        """Make calls until another one comes; return the size of that, 0 when there are no more."""


class NoCallShortcut:
    """The interpreter makes all calls."""

    def begins(self, native_call: Callable[[], NativeCall | None] | None) -> None:
        """Nothing is to be asked of them."""

    def expects(
        self,
        call: calls.Call,
        size: int,
        body: calls.Bulk,
        answer: bytes,
        native_call: Callable[[], NativeCall | None],
    ) -> bool:
        """The next one is the interpreter's, too."""
        del call, size, body, answer, native_call
        return False

    def receive(self) -> int:
        """There are none."""
        return 0
