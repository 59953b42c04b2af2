"""Where waves may take a shorter way than the event loop's, if there is one (``fastpath/``)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from sapwood.comm import values
from sapwood.comm.driver import NodeDriver
from sapwood.comm.messages import StreamSpec
from sapwood.comm.payload import Payload
from sapwood.core.futures import CallerFuture
from sapwood.session.wave_result import WaveResult


class WaveHandle(Protocol):
    """A stream of the client: what a shortcut needs of it."""

    spec: StreamSpec
    new_future: Callable[[], CallerFuture[WaveResult]]

    @property
    def open_waves(self) -> int:
        """Waves that are not over."""

    def exchanged(self, waves: int) -> None:
        """Note that waves were exchanged."""

    def go_on(self, body: bytes, payload: Payload | None, future: Future[WaveResult]) -> None:
        """Begin a wave that was begun by the shortcut."""


class Shortcut(Protocol):
    """Sends and gathers waves in the place of the event loop.

    Attributes:
        passed: Waves that were exchanged so far, as far as the event loop has heard.
        on_flowing: Called once, when waves flow; on the loop's thread.
    """

    passed: int
    on_flowing: Callable[[], None]

    def exchange(
        self,
        handle: WaveHandle,
        encoded: values.Encoded,
        timeout: float | None,
        meanwhile: Callable[[], object],
    ) -> WaveResult | Future[WaveResult] | None:
        """Exchange a wave; None where it has to go by the event loop."""

    def start(self, driver: NodeDriver) -> bool:
        """Exchange waves from now on; return whether that can be."""

    def close(self) -> None:
        """Exchange no more; called when the loop does not run."""

    def flows(self) -> None:
        """Note that waves flow."""

    def wanted(self, handle: WaveHandle) -> None:
        """Record that a caller waits for the next wave of a stream, which uses the event loop."""

    def deliver(self, handle: WaveHandle, future: Future[WaveResult], result: WaveResult) -> None:
        """Give a waiting caller the result of a wave that used the event loop."""


class NoShortcut:
    """All waves go by the event loop."""

    def __init__(self) -> None:
        self.passed = 0
        self.on_flowing: Callable[[], None] = _nothing

    def exchange(
        self,
        handle: WaveHandle,
        encoded: values.Encoded,
        timeout: float | None,
        meanwhile: Callable[[], object],
    ) -> None:
        """Leave it to the event loop."""

    def start(self, driver: NodeDriver) -> bool:
        """There is nothing to start."""
        del driver
        return False

    def close(self) -> None:
        """There is nothing to close."""

    def flows(self) -> None:
        """Do nothing."""

    def wanted(self, handle: WaveHandle) -> None:
        """Do nothing."""

    def deliver(self, handle: WaveHandle, future: Future[WaveResult], result: WaveResult) -> None:
        """Give it to whoever waits."""
        del handle
        future.set_result(result)


def _nothing() -> None:
    pass
