"""Content through junctions: once over each link, while it arrives, whoever dies meanwhile."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.payload import Payload
from sapwood.comm.reactor import ReactorTimer
from sapwood.content import serving
from sapwood.content.fetch import ContentCache, HeldContent
from sapwood.content.messages import GET
from sapwood.content.pull import WINDOW
from sapwood.content.refs import CHUNK, ContentChunk, ContentRef
from sapwood.content.relay import ContentRelay
from sapwood.core.errors import AgentLostError, ClosedError, ProtocolError, SapwoodError
from sapwood.core.topology import ROOT

PATIENCE = 60.0
LIMIT = 2**30


class Turns:
    """A loop in virtual time, which all processes share."""

    def __init__(self) -> None:
        self.now = 0.0
        self._later: list[tuple[float, int, Any]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.call_later(0.0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        timer = ReactorTimer(callback, args)
        heapq.heappush(self._later, (self.now + delay, next(self._count), timer))
        return timer

    def turn(self) -> None:
        """Do the next thing."""
        assert self._later, "nothing will ever happen"
        self.now, _, timer = heapq.heappop(self._later)
        if timer.callback is not None:
            timer.callback(*timer.args)


class Process:
    """A place with the folder of its node; one that others are below passes content on."""

    def __init__(self, world: World, rank: int, node: int, sources: tuple[int, ...]) -> None:
        self.world = world
        self.rank = rank
        loop: Any = world.loop
        folder = str(world.folder / str(node))
        self.cache = ContentCache(folder, LIMIT, self._ask, loop, sources)
        self.relay = ContentRelay(self.cache, self._answered, self._failed)
        self.fetches: list[Any] = []
        self.alive = True
        self.under_way = self.most_under_way = 0
        self.waiting: dict[int, tuple[int, Callable[[ev.Answered], None]]] = {}

    def _ask(
        self,
        destination: int,
        handler: str,
        body: bytes,
        on_answer: Callable[[ev.Answered], None] | None = None,
    ) -> None:
        assert on_answer is not None
        number = next(self.world.numbers)
        if not self.alive:
            return
        self.waiting[number] = (destination, on_answer)
        self.world.deliver(self, destination, ev.Asked(self.rank, handler, number, body, None))

    def answered(self, number: int, answer: ev.Answered) -> None:
        _, on_answer = self.waiting.pop(number, (0, None))
        if self.alive and on_answer is not None:
            on_answer(answer)

    def _answered(self, asked: ev.Asked, payload: Payload) -> None:
        if asked.source in self.world.stopped:
            self.world.untaken.append(payload)
            return
        self.under_way += len(payload.view)
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.world.loop.call_later(self.world.pause(), self._give, asked, payload)

    def _give(self, asked: ev.Asked, payload: Payload) -> None:
        owner = payload.owner
        assert isinstance(owner, ContentChunk)
        self.under_way -= len(payload.view)
        if not self.alive:
            return
        self.world.sent[self.rank] += len(payload.view)
        self.world.answer(asked, ev.Answered(asked.number, plain.encode(None), payload, None))
        owner.taken()

    def _failed(self, asked: ev.Asked, error: SapwoodError) -> None:
        self.world.fail(asked, error)

    def kill(self) -> None:
        """End it as a signal does: its files are as they are, its locks are gone."""
        self.alive = False
        for one in self.relay._content.values():
            self._drop(one.fetch)
            if one.held is not None:
                one.held.close()
        for fetch in self.fetches:
            self._drop(fetch)
        self.relay._content.clear()

    @staticmethod
    def _drop(fetch: Any) -> None:
        if fetch is None:
            return
        fetch._ended = True
        if fetch._part is not None:
            fetch._part.close()
        fetch._held.close()


class World:
    """A root that offers content, and processes below it."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.loop = Turns()
        self.random = random.Random(seed)  # noqa: S311 - of a simulation
        self.numbers = itertools.count(1)
        self.contents: dict[str, bytes] = {}
        self.sent: Counter[int] = Counter()
        self.processes: dict[int, Process] = {}
        self.changed: Callable[[int, bytes], bytes] = lambda _rank, data: data
        self.stopped: set[int] = set()
        self.untaken: list[Payload] = []

    def pause(self) -> float:
        return self.random.uniform(0.0001, 0.01)

    def offer(self, data: bytes) -> ContentRef:
        sha256 = hashlib.sha256(data).hexdigest()
        self.contents[sha256] = data
        return ContentRef(sha256, len(data))

    def process(self, rank: int, node: int, *above: int) -> Process:
        """Begin a process, or another one in its place."""
        made = self.processes[rank] = Process(self, rank, node, (*above, ROOT))
        return made

    def kill(self, rank: int) -> None:
        """Kill a process, and notify the processes that wait for it."""
        self.processes[rank].kill()
        lost = AgentLostError(f"rank {rank} is gone").to_record()
        for process in self.processes.values():
            for number, (destination, _) in list(process.waiting.items()):
                if destination == rank:
                    told = ev.Answered(number, b"", None, lost)
                    self.loop.call_soon(process.answered, number, told)

    def deliver(self, source: Process, destination: int, asked: ev.Asked) -> None:
        assert source.rank == asked.source
        self.loop.call_later(self.pause(), self._arrived, destination, asked)

    def _arrived(self, destination: int, asked: ev.Asked) -> None:
        if destination == ROOT:
            assert asked.handler == GET
            sha256, _, offset, count = plain.decode(asked.body)
            self.loop.call_later(self.pause(), self._from_root, asked, sha256, offset, count)
            return
        assert asked.handler == GET
        process = self.processes[destination]
        if not process.alive:
            self.fail(asked, AgentLostError(f"rank {destination} is gone"))
            return
        try:
            process.relay.asked(asked)
        except SapwoodError as error:
            self.fail(asked, error)

    def _from_root(self, asked: ev.Asked, sha256: str, offset: int, count: int) -> None:
        data = self.contents.get(sha256)
        if data is None:
            self.fail(asked, ClosedError("it is not offered any more"))
            return
        if not count:
            self.answer(asked, ev.Answered(asked.number, plain.encode(None), None, None))
            return
        self.sent[ROOT] += count
        chunk = Payload(self.changed(ROOT, data[offset : offset + count]))
        self.answer(asked, ev.Answered(asked.number, plain.encode(None), chunk, None))

    def fail(self, asked: ev.Asked, error: SapwoodError) -> None:
        self.answer(asked, ev.Answered(asked.number, b"", None, error.to_record()))

    def answer(self, asked: ev.Asked, answer: ev.Answered) -> None:
        if answer.payload is not None:
            data = self.changed(asked.source, bytes(answer.payload.view))
            answer = ev.Answered(answer.number, answer.body, Payload(data), None)
        process = self.processes[asked.source]
        self.loop.call_soon(process.answered, asked.number, answer)

    def fetch(self, rank: int, ref: ContentRef) -> list[HeldContent | SapwoodError]:
        """Start to fetch; the returned list receives the outcome."""
        process = self.processes[rank]
        got: list[HeldContent | SapwoodError] = []
        process.fetches.append(process.cache.fetch([ref], got.append, got.append))
        return got

    def run(self, until: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline
            self.loop.turn()

    def have(self, got: list[HeldContent | SapwoodError]) -> None:
        """Wait until content is there."""
        self.run(lambda: got)
        assert isinstance(got[0], HeldContent), got[0]
        got[0].close()

    def whole(self, node: int, ref: ContentRef) -> bool:
        path = self.folder / str(node) / ref.sha256
        return path.exists() and path.read_bytes() == self.contents[ref.sha256]

    def close(self) -> None:
        for process in self.processes.values():
            process.relay.close()


def take(payload: Payload) -> None:
    assert isinstance(payload.owner, ContentChunk)
    payload.owner.taken()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Junction 10 on node 1; below it 11 on node 2 and 12 on node 3; below 11, 13 on node 4."""
    made = World(tmp_path)
    made.process(10, 1)
    made.process(11, 2, 10)
    made.process(12, 3, 10)
    made.process(13, 4, 11, 10)
    return made


@pytest.mark.slow
def test_the_root_sends_once_what_all_want(world: World) -> None:
    ref = world.offer(os.urandom(6 * CHUNK + 5))
    for got in [world.fetch(rank, ref) for rank in (13, 11, 12, 10)]:
        world.have(got)
    assert all(world.whole(node, ref) for node in (1, 2, 3, 4))
    assert world.sent == {ROOT: ref.nbytes, 10: 2 * ref.nbytes, 11: ref.nbytes}
    for got in [world.fetch(rank, ref) for rank in (13, 11, 12, 10)]:
        world.have(got)
    assert sum(world.sent.values()) == 4 * ref.nbytes
    world.close()


@pytest.mark.slow
def test_chunks_are_passed_on_while_others_arrive(world: World) -> None:
    ref = world.offer(os.urandom(20 * CHUNK))
    got = world.fetch(13, ref)
    world.run(lambda: world.sent[11] >= 3 * CHUNK)
    assert world.sent[ROOT] < ref.nbytes - 8 * CHUNK
    world.have(got)
    world.close()


def test_a_process_of_the_node_that_fetches_already_is_followed(world: World) -> None:
    """An agent of the junction's node leads; the junction fetches nothing and passes it on."""
    ref = world.offer(os.urandom(8 * CHUNK))
    world.process(1, 1)
    leads = world.fetch(1, ref)
    world.run(lambda: world.sent[ROOT] >= 2 * CHUNK)
    follows = world.fetch(12, ref)
    world.run(lambda: world.sent[10] >= CHUNK)
    assert not leads
    world.have(follows)
    world.have(leads)
    assert world.sent == {ROOT: ref.nbytes, 10: ref.nbytes}
    world.close()


@pytest.mark.slow
def test_a_junction_holds_little_of_what_it_passes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_IN_FLIGHT", 4 * CHUNK)
    for rank in range(20, 26):
        world.process(rank, rank, 10)
    ref = world.offer(os.urandom(12 * CHUNK + 1))
    for got in [world.fetch(rank, ref) for rank in range(20, 26)]:
        world.have(got)
    assert world.processes[10].most_under_way <= (4 + 6) * CHUNK
    assert world.sent == {ROOT: ref.nbytes, 10: 6 * ref.nbytes}
    world.close()


@pytest.mark.slow
def test_a_place_that_stops_reading_delays_no_other_place(world: World) -> None:
    """It has several pieces of content under way, as work that needs them has begun together."""
    world.process(20, 20, 10)
    world.stopped.add(20)
    refs = [world.offer(os.urandom(8 * CHUNK)) for _ in range(6)]
    stopped = [world.fetch(20, ref) for ref in refs]
    world.run(lambda: len(world.untaken) >= 4)
    for got in [world.fetch(12, ref) for ref in refs]:
        world.have(got)
    assert not any(stopped)
    for payload in world.untaken:
        take(payload)
    world.close()


@pytest.mark.slow
def test_who_was_below_a_junction_that_dies_goes_on_at_its_byte(world: World) -> None:
    ref = world.offer(os.urandom(16 * CHUNK))
    got = world.fetch(12, ref)
    world.run(lambda: world.sent[10] >= 5 * CHUNK)
    there, before = world.sent[10], world.sent[ROOT]
    world.kill(10)
    world.have(got)
    assert world.whole(3, ref)
    assert world.sent[ROOT] - before <= ref.nbytes - there + 2 * WINDOW * CHUNK
    world.close()


@pytest.mark.slow
def test_a_junction_that_begins_again_goes_on_at_its_byte(world: World) -> None:
    ref = world.offer(os.urandom(16 * CHUNK))
    world.fetch(10, ref)
    world.run(lambda: world.sent[ROOT] >= 9 * CHUNK)
    world.kill(10)
    before = world.sent[ROOT]
    world.process(10, 1)
    world.have(world.fetch(12, ref))
    assert world.whole(1, ref)
    assert world.sent[ROOT] - before <= (16 - 9 + 2 * WINDOW) * CHUNK
    assert world.sent[ROOT] - before < ref.nbytes
    world.close()


def test_what_was_left_damaged_is_fetched_again(world: World) -> None:
    ref = world.offer(os.urandom(6 * CHUNK))
    world.fetch(10, ref)
    world.run(lambda: world.sent[ROOT] >= 5 * CHUNK)
    world.kill(10)
    part = world.folder / "1" / f"{ref.sha256}.part"
    with part.open("r+b") as file:
        file.write(b"damaged")
    world.process(10, 1)
    world.have(world.fetch(10, ref))
    assert world.whole(1, ref)


def test_a_junction_that_passes_on_something_else_is_passed_by(world: World) -> None:
    """What a machine in between changes is noticed by the hash, and comes from the root then."""
    ref = world.offer(os.urandom(3 * CHUNK))
    lies = {"left": 3}

    def changed(rank: int, data: bytes) -> bytes:
        if rank == 12 and lies["left"]:
            lies["left"] -= 1
            return b"!" + data[1:]
        return data

    world.changed = changed
    world.have(world.fetch(12, ref))
    assert world.whole(3, ref)
    assert world.sent == {ROOT: 2 * ref.nbytes, 10: ref.nbytes}
    world.close()


def test_a_junction_without_room_sends_others_to_the_root(world: World) -> None:
    ref = world.offer(os.urandom(3 * CHUNK))
    world.processes[10].cache.store.limit = CHUNK
    world.have(world.fetch(12, ref))
    assert world.sent == {ROOT: ref.nbytes}
    world.close()


def test_what_is_not_offered_any_more_is_an_error_of_the_root(world: World) -> None:
    ref = world.offer(os.urandom(CHUNK))
    world.contents.clear()
    got = world.fetch(13, ref)
    world.run(lambda: got)
    assert isinstance(got[0], ClosedError)
    assert not [path for path in world.folder.rglob("*") if path.is_file() and path.name != ".room"]
    world.close()


def test_content_of_another_session_is_not_passed_on(world: World) -> None:
    """The folder of the node has it; the root of this session does not offer it."""
    ref = world.offer(os.urandom(2 * CHUNK))
    world.have(world.fetch(10, ref))
    assert world.whole(1, ref)
    secret = world.contents.pop(ref.sha256)
    world.sent.clear()
    got = world.fetch(12, ref)
    world.run(lambda: got)
    assert isinstance(got[0], ClosedError)
    assert not world.sent
    world.contents[ref.sha256] = secret  # a session that offers it, too
    world.have(world.fetch(12, ref))
    assert world.sent[10]
    world.close()


def test_a_relay_lets_go_of_what_nobody_asks_for(world: World) -> None:
    ref = world.offer(os.urandom(2 * CHUNK))
    world.have(world.fetch(12, ref))
    relay = world.processes[10].relay
    world.run(lambda: not relay._content)
    world.close()


@pytest.mark.parametrize(
    "asked",
    [
        ["x", 1, 0, 1],
        ["0" * 64, 10, 5, 6],
        ["0" * 64, 10, -1, 2],
        ["0" * 64, 10, 0, 0],
        ["0" * 64, 2**40, 0, CHUNK + 1],
        ["0" * 64, 10],
        None,
    ],
)
def test_nonsense_is_refused(world: World, asked: Any) -> None:
    relay = world.processes[10].relay
    with pytest.raises(ProtocolError):
        relay.asked(ev.Asked(12, GET, 1, plain.encode(asked), None))
    assert not relay._content


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 40))]
)
@pytest.mark.slow
def test_whoever_dies_all_have_it_in_the_end(tmp_path: Path, seed: int) -> None:
    """Processes of all nodes are killed at random; each survivor gets the content."""
    world = World(tmp_path, seed)
    homes = {
        10: (1,),
        11: (2, 10),
        12: (3, 10),
        13: (4, 11, 10),
        14: (5, 11, 10),
        1: (1,),
        2: (2, 10),
    }
    for rank, (node, *above) in homes.items():
        world.process(rank, node, *above)
    refs = [
        world.offer(world.random.randbytes(world.random.randrange(1, 5 * CHUNK))) for _ in range(3)
    ]
    got = {(rank, ref): world.fetch(rank, ref) for rank in homes for ref in refs}
    for _ in range(6):
        moment = world.loop.now + world.random.uniform(0.0, 0.05)
        world.run(lambda moment=moment: world.loop.now >= moment or all(got.values()))  # type: ignore[misc]  # a default binds it
        rank = world.random.choice(list(homes))
        world.kill(rank)
        node, *above = homes[rank]
        world.process(rank, node, *above)
        for ref in refs:
            for held in got[rank, ref]:
                if isinstance(held, HeldContent):
                    held.close()
            got[rank, ref] = world.fetch(rank, ref)
    for one in got.values():
        world.have(one)
    assert all(world.whole(node, ref) for node in range(1, 6) for ref in refs)
    assert not list(tmp_path.rglob("*.part"))
    world.close()
