"""Sessions without user code: agents that echo."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sapwood.core.topology import plan
from sapwood.environment.settings import RestartSettings
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.options import PlacesChanged, SessionOptions

PATIENCE = 30.0
TIMEOUT = 60.0
ECHO = "sapwood.session.agent:main"
QUICK = RestartSettings(limit=20, backoff=0.01, backoff_max=0.05)

MakeSession = Callable[..., EmbeddedSession]


class Watch:
    """What a session says of its places."""

    def __init__(self, session: EmbeddedSession) -> None:
        self.session = session
        self.changes: list[PlacesChanged] = []
        session.subscribe(self.changes.append)

    def back(self) -> set[int]:
        """Return the places that came back with new processes so far."""
        return self._ranks(back=True, disconnected=False)

    def lost(self) -> set[int]:
        """Return the places whose processes were lost so far."""
        return self._ranks(back=False, disconnected=False)

    def attached(self) -> set[int]:
        """Return the places that were attached elsewhere so far, with the same processes."""
        return self._ranks(back=True, disconnected=True)

    def _ranks(self, *, back: bool, disconnected: bool) -> set[int]:
        wanted = [
            one for one in self.changes if (one.back, one.disconnected) == (back, disconnected)
        ]
        return {rank for change in wanted for rank in change.ranks}


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.002)


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], object]], None]:
    """Wait until something is so."""
    return until


def start(agents: int, fanout: int = 0, **options: Any) -> EmbeddedSession:
    """Start a session."""
    chosen = {"agent_entry": ECHO, "restart": QUICK, **options}
    session = EmbeddedSession(SessionOptions(tree=plan(agents, fanout), **chosen))
    session.start()
    return session


@pytest.fixture
def make_session() -> Iterator[MakeSession]:
    """Start sessions that end with the test."""
    made: list[EmbeddedSession] = []

    def make(agents: int, fanout: int = 0, **options: Any) -> EmbeddedSession:
        made.append(start(agents, fanout, **options))
        return made[-1]

    yield make
    for session in made:
        session.close()


@pytest.fixture(scope="module")
def standing_session(
    nothing_is_left_behind_by_all: None, request: pytest.FixtureRequest
) -> Iterator[EmbeddedSession]:
    """A session for all tests of a module that want it; its ``STANDING`` says how it is started."""
    del nothing_is_left_behind_by_all  # it looks when the session has ended
    options = dict(request.module.STANDING)
    exchanges = options.pop("exchanges")
    session = start(**options)
    if exchanges:
        session.on_loop(session.shortcut.start, session.host.driver)
    yield session
    session.close()


@pytest.fixture
def standing(standing_session: EmbeddedSession) -> Iterator[EmbeddedSession]:
    """The session of the module, for a test that harms none of its places."""

    def pids() -> list[int]:
        return [place.pid for place in standing_session.supervisor.processes]

    before = pids()
    yield standing_session
    assert pids() == before, "a test that harms places needs its own session"


@pytest.fixture
def watch() -> Callable[[EmbeddedSession], Watch]:
    """Watch the places of a session."""
    return Watch
