"""C3-SESS-1, 3: clients come and go, heads and roots end, credentials are revoked."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from sapwood.core.clock import VirtualClock
from sapwood.environment.settings import DisconnectPolicy, PolicySettings
from sapwood.head import session_records
from sapwood.head.session_registry import SessionRegistry
from sapwood.security.session_secrets import ALL_ROLES, ShownSecret
from sapwood.session.session_life import SessionState
from sapwood.session_server import keeping, rights
from sapwood.session_server.keeping import KeptStreams, ServedStream
from sapwood.session_server.server import SessionServer
from sapwood.session_server.session_life import SessionLife
from sapwood_simulation.faults import Faults
from sapwood_simulation.processes import VirtualLoop
from sapwood_simulation.session_simulation import SessionReport, SessionSimulation
from sapwood_simulation.session_world import SessionWorld, SimulatedHead
from sapwood_simulation.simulation import InvariantError, SimulationOptions

FAULTS = Faults(crash=0.001, pause=0.0003, zygote=0.0001, sever=0.002, clog=0.0005, split=0.1)


def simulated(seed: int, faults: Faults = FAULTS) -> SessionReport:
    options = SimulationOptions(
        seed=seed, agents=1 + seed % 8, fanout=[0, 2, 3][seed % 3], waves=2, faults=faults
    )
    return SessionSimulation(options).run()


@pytest.mark.row("C3-SESS-1", "C3-SESS-3")
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(1, 20))]
)
@pytest.mark.slow
def test_sessions_lose_nothing_and_are_never_between(
    block: int, apart: Callable[[Callable[[], Any]], Any]
) -> None:
    seeds = range(8 * block, 8 * block + 8)
    reports = apart(lambda: [simulated(seed) for seed in seeds])
    assert sum(report.waves for report in reports) > 40
    assert sum(report.cut for report in reports) > 10
    assert sum(report.heads for report in reports) > 10
    assert sum(report.adopted for report in reports) > 5
    assert sum(report.changes for report in reports) > 5


@pytest.mark.slow
def test_without_faults_nothing_is_cut_and_the_head_stays() -> None:
    report = simulated(4, Faults())
    assert (report.cut, report.heads, report.crashes) == (0, 1, 0)


# --- killed at each step -------------------------------------------------------------------------


class Steps:
    """A session is created, and deleted unattached; the head is killed at one step.

    Args:
        points: At which step of the head: before or behind a write, or what it does to a root.
        both: Whether the root is killed at the same time.
        again: Whether the next head is killed as well, at which of its steps.
        delete: Whether it is deleted.
    """

    def __init__(self, points: int, *, both: bool, again: int = 0, delete: bool = True) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        chance = random.Random(points)  # noqa: S311 - chance that can be repeated
        self.world = SessionWorld(self.loop, chance, DisconnectPolicy())
        self.world.begin_head()
        self.killed = False
        self._head().kill_after(points)
        for do in (self._create, self._delete)[: 1 + delete]:
            if self.world.head is not None:
                self.world.head.do(do)
            self.run(5.0)
            if self.world.head is None:
                self.killed = True
                if both:
                    for root in list(self.world.roots.values()):
                        root.crash()
                self.world.begin_head(again)
                self.run(2.0)
                if self.world.head is None:
                    self.world.begin_head()
                break
        self.run(20.0)

    def _head(self) -> SimulatedHead:
        assert self.world.head is not None
        return self.world.head

    def _create(self) -> None:
        self._head().registry.create(session_records.CreateSession(name="night", on="local"))

    def _delete(self) -> None:
        self._head().registry.end("night")

    def run(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.next_due() <= end:
            self.clock.advance(max(0.0, self.loop.next_due() - self.loop.time()))
            self.loop.run_due()
        self.clock.advance(end - self.loop.time())

    def check(self) -> str:
        """Check that the session is there or not, and return which."""
        world = self.world
        records = {one.id: one for one in self._head().registry.records()}
        kept = {one.id: one for one in world.records()}
        assert kept == records, "stored and known sessions differ"
        living = {root.id for root in world.roots.values()}
        known = {one.id for one in records.values() if not SessionState(one.state).is_over}
        assert living == known, "an unknown session server, or a session without one"
        assert set(world.notices) == living
        assert world.folders == {f"/run/sapwood-{one}" for one in living}
        secrets = {one for one in world.kept.entries if one.startswith("session-secrets/")}
        assert secrets == {f"session-secrets/{one}" for one in living}
        assert all(records[one].state == "detached" for one in living), "it is between"
        return "there" if living else "not there"


@pytest.mark.row("C3-SESS-1")
def test_a_session_that_ends_is_not_begun_again_where_its_last_report_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps(1_000_000, both=False, delete=False)
    steps.world.policy = PolicySettings()  # the default: roots restart
    (root,) = steps.world.roots.values()
    monkeypatch.setattr(root, "_tell_head", lambda: None)
    root.life.end("its owner has ended it")
    steps.run(10.0)
    assert steps.check() == "not there"


@pytest.mark.row("C3-SESS-1")
@pytest.mark.parametrize("both", [False, True], ids=["head", "head and root"])
def test_killed_at_any_step_a_session_is_there_or_not(both: bool) -> None:
    ends, points = set(), 1
    while (steps := Steps(points, both=both)).killed:
        ends.add(steps.check())
        points += 1
    assert points > 12, "so many steps there are, each before and behind"
    assert ends == ({"not there"} if both else {"there", "not there"})
    assert steps.check() == "not there"


@pytest.mark.row("C3-SESS-1")
@pytest.mark.slow
def test_the_next_head_is_killed_while_it_looks_what_there_is() -> None:
    for points in range(1, 13):
        for again in range(1, 9):
            for both in (False, True):
                Steps(points, both=both, again=again).check()


# --- mistakes on purpose -------------------------------------------------------------------------


class Mistake(msgspec.Struct):
    """A mistake that the simulation must find.

    Attributes:
        make: Makes it.
        found: What it is found by.
        seeds: Seeds of which one finds it.
    """

    make: Callable[[pytest.MonkeyPatch], None]
    found: str
    seeds: range


def _forgets_at_once(patch: pytest.MonkeyPatch) -> None:
    hand_over = KeptStreams.hand_over

    def forgetful(self: KeptStreams) -> Any:
        given = hand_over(self)
        self.taken()
        return given

    patch.setattr(KeptStreams, "hand_over", forgetful)


def _left(patch: pytest.MonkeyPatch) -> None:
    def nothing(_stream: ServedStream) -> Mapping[int, int]:
        return {}

    patch.setattr(ServedStream, "left", nothing)


def _owes_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    read_by_root = KeptStreams._read_by_root

    def owing(self: KeptStreams, stream: ServedStream, kept: keeping._Kept) -> None:
        read_by_root(self, stream, kept)
        if kept.read:
            stream.owed[stream.source_of(kept.effect)] += 1

    patch.setattr(KeptStreams, "_read_by_root", owing)


def _anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rights, "role_shown", lambda *_: ShownSecret(ALL_ROLES, 1e9))


def _leaves_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionServer, "leave", lambda *_: None)


MISTAKES = {
    "a handed-over value is forgotten before it arrives": Mistake(
        _forgets_at_once, "are lost|for good", range(134, 135)
    ),
    "values in transit to a client that is gone count as unread": Mistake(
        _left, "for good|no progress", range(9)
    ),
    "a retained and dropped value is owed": Mistake(
        _owes_what_was_dropped, "for good|no progress", range(3, 20)
    ),
    "results go to who has said that it leaves": Mistake(
        _leaves_late, "are lost|for good|never over", range(2, 20)
    ),
    "an attached client is not cut off when its credential is revoked": Mistake(
        lambda patch: patch.setattr(SessionServer, "deny", lambda *_: None),
        "still in use",
        range(11, 30),
    ),
    "any secret admits any client": Mistake(
        _anybody, "without the right|was admitted by", range(2)
    ),
    "an idle session stays": Mistake(
        lambda patch: patch.setattr(SessionLife, "_idle_over", lambda *_: None),
        "is idle",
        range(25, 30),
    ),
}


def until_one_fails(seeds: range) -> None:
    for seed in seeds:
        simulated(seed)


def at_any_step() -> None:
    for points in range(1, 30):
        for again in range(6):
            Steps(points, both=again > 0, again=again).check()


def test_a_session_that_is_not_ended_by_the_next_head_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = SessionRegistry._go_on

    def lazy(self: SessionRegistry, *args: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self, "_end", lambda *_: None)
            go_on(self, *args)

    monkeypatch.setattr(SessionRegistry, "_go_on", lazy)
    with pytest.raises(AssertionError, match="it is between"):
        at_any_step()


def test_a_session_that_is_written_down_after_its_root_began_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = SessionRegistry.create

    def early(self: SessionRegistry, wanted: session_records.CreateSession) -> Any:
        record = session_records.SessionRecord(
            id="0", name="night", state="starting", on="local", created=0
        )
        self.processes.begin(self._plan(record, wanted))
        return create(self, wanted)

    monkeypatch.setattr(SessionRegistry, "create", early)
    with pytest.raises(AssertionError, match="unknown session server"):
        at_any_step()


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
@pytest.mark.slow
def test_a_mistake_is_found(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake.make(monkeypatch)
    with pytest.raises(InvariantError, match=mistake.found):
        until_one_fails(mistake.seeds)
