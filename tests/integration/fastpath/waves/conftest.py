"""Sessions whose waves are exchanged by the library of shortcuts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.session.conftest import (  # noqa: F401 - fixtures of those tests, too
    TIMEOUT,
    MakeSession,
    make_session,
    standing,
    standing_session,
    until,
    until_fixture,
    watch,
)

from sapwood.fastpath import native
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.streams import StreamHandle


@pytest.fixture(autouse=True, scope="session")
def library_is_built() -> None:
    """The library must be there: an installation with a compiler builds it."""
    native.load()


@pytest.fixture(name="make")
def make_exchanging(make_session: MakeSession) -> MakeSession:
    """Start sessions whose waves are exchanged, as those of clusters are."""

    def make(agents: int, fanout: int = 0, **options: Any) -> EmbeddedSession:
        session = make_session(agents, fanout, **{"spin": 0.001, **options})
        session.on_loop(session.shortcut.start, session.host.driver)
        return session

    return make


@pytest.fixture
def flow() -> Callable[[StreamHandle, EmbeddedSession], None]:
    """Have waves until they are exchanged."""

    def flows(stream: StreamHandle, session: EmbeddedSession) -> None:
        before = session.shortcut.passed

        def passes() -> bool:
            for _ in range(10):
                assert stream.exchange({"x": 1}, TIMEOUT).total["x"] == session.tree.agents
            stream.broadcast({"x": 1}).result(TIMEOUT)  # so that the event loop hears of them
            return session.shortcut.passed > before

        until(passes)

    return flows


@pytest.fixture
def interrupted() -> Callable[[Callable[[], object], float], None]:
    """Wait for what does not come, until Ctrl-C is pressed some seconds later.

    A pipe tells when: an interrupt of what ``threading`` itself does would leave a lock taken.
    """

    def interrupt(wait: Callable[[], object], seconds: float) -> None:
        near, far = os.pipe()

        def press() -> None:
            os.read(near, 1)
            threading.Event().wait(seconds)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        try:
            os.write(far, b"x")
            wait()
        finally:
            thread.join()
            os.close(near)
            os.close(far)

    return interrupt
