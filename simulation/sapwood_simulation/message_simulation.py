"""Messages under faults: tagged messages, requests and large payloads, each once and in order.

Agents and the client send to each other, to one place or several, while processes end, hang and
are cut off, links break and junctions are replaced. Each message has its source's process and its
own number, so it can be seen whether it came twice, too late or not at all, and what it
carries follows from that number, so it can be seen whether it came as it was sent.

A message may fail only if a process that it was for ended while it was under way, or had ended
shortly before it was sent; an acknowledged message may be missing only if the process that had it
ended. When nothing goes wrong any more, everybody can write to everybody.
"""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.envelope import ANY
from sapwood.comm.messaging.rendezvous import PIECE
from sapwood.comm.payload import Payload
from sapwood.core.errors import AgentLostError
from sapwood.core.topology import ROOT
from sapwood_simulation.simulation import InvariantError, Simulation, SimulationOptions

MESSAGES_OF_A_WAVE = 50
"""Messages and requests for each of ``options.waves``."""

MOST_DESTINATIONS = 8
"""Places that one message is sent to at most."""

UNDER_WAY = 40
"""Messages and requests that are under way at a time, about."""

LOOK_EVERY = 64
"""Steps after which it is looked at again whether all places wait for a message."""

LARGE = (70_000, PIECE + 1, 2 * PIECE + 100)
"""Bytes of payloads that are fetched in pieces, as their receiver is on another machine."""

SMALL = 40
"""Bytes of other payloads at most."""

TOLD_BEFORE = 2.0
"""Virtual seconds by which a report of an end may precede the end: the process is killed."""

TOLD_AFTER = 12.0
"""Virtual seconds for which a sender may not know yet that a new process is there.

It may be cut off from the client itself, and has to notice that."""

PROBES = 3
"""Places that each place writes to at last."""


class Process(NamedTuple):
    """One process at a place."""

    rank: int
    pid: int


class Way(NamedTuple):
    """From one process to another."""

    source: Process
    destination: Process


class SentMessage(NamedTuple):
    """A message or a request that has not ended.

    Attributes:
        destination: For whom it is.
        began: When it was sent, virtual seconds.
    """

    destination: int
    began: float


class MessageSimulation(Simulation):
    """One run of messages under faults.

    Args:
        options: The options of the simulation.

    Example:
        >>> MessageSimulation(SimulationOptions(agents=8, fanout=2, waves=1)).run().waves
        50
    """

    what = "messages"
    census = True

    def __init__(self, options: SimulationOptions) -> None:
        super().__init__(options)
        self.failed = 0
        self._places = range(options.agents + 1)
        self._numbers = self._probes = 0
        self._got: dict[Way, int] = defaultdict(int)
        self._sends: dict[tuple[Process, int, int], SentMessage] = {}
        self._asks: dict[tuple[Process, int], SentMessage] = {}
        self._waiting: set[Process] = set()
        self._to_arrive: dict[tuple[Process, int, int], tuple[float, float]] = {}
        self._blamed: list[tuple[SentMessage, float, str]] = []
        self._arrived: set[tuple[Process, int, int]] = set()
        self._handled: set[tuple[Process, int]] = set()
        self.network.answer = _answer

    # --- the course of events ------------------------------------------------------------------

    def _run(self) -> None:
        self._begin()
        total = self.options.waves * MESSAGES_OF_A_WAVE
        for number in range(1, total + 1):
            self._something()
            least = number - UNDER_WAY
            self._until(partial(self._is_over, least), faults=True)
            self._let_pass(self._random.randrange(4))
        self._until(self._nothing_waits, faults=True)
        self._come_to_rest()
        self._until(self._nothing_waits, faults=False)
        self._until(self._nothing_is_left, faults=False)
        self._check_arrivals()
        self._write_to_everybody()
        self._check_end()

    def _write_to_everybody(self) -> None:
        """Check that everybody can write to everybody when nothing goes wrong any more."""
        heard = self.network.clock.now() + 2 * self.timing.heartbeat
        self._until(lambda: self.network.clock.now() >= heard, faults=False)
        failed = self.failed
        for rank in self._places:
            self._numbers += 1
            self._probes += 1
            ranks = self._random.sample(self._places, min(PROBES, len(self._places)))
            self._send_to(self._living(rank), self._numbers, ranks, 0)
        self._until(self._nothing_waits, faults=False)
        if self.failed != failed:
            told = {
                (one.destination, what) for one, _, what in self._blamed[failed - self.failed :]
            }
            raise InvariantError(f"all live, and cannot be written to: {told}")
        self._check_arrivals()

    def _let_pass(self, steps: int) -> None:
        end = self._steps + steps
        self._until(lambda: self._steps >= end, faults=True)

    def _something(self) -> None:
        """Send something from somewhere."""
        chance = self._random
        living = [rank for rank in self._places if self._process(rank) is not None]
        source = chance.choice(living)
        process = self._process(source)
        assert process is not None
        self._numbers += 1
        if self.network.is_paused(source):
            return
        if chance.random() < 0.3:
            destination = chance.choice(self._places)
            size = self._size(self._numbers)
            self._asks[process, self._numbers] = SentMessage(destination, self.network.clock.now())
            body, payload = _encoded({"x": self._numbers, "data": _data(self._numbers, size)})
            self.network.post(source, ev.Ask(destination, "test", self._numbers, body, payload))
        else:
            self._send(process, self._numbers)

    def _size(self, number: int) -> int:
        return LARGE[number % len(LARGE)] if self._random.random() < 0.03 else number % SMALL

    def _send(self, source: Process, number: int) -> None:
        count = 1 if self._random.random() < 0.7 else MOST_DESTINATIONS
        ranks = self._random.sample(self._places, min(count, len(self._places)))
        self._send_to(source, number, ranks, self._size(number))

    def _send_to(self, source: Process, number: int, ranks: list[int], size: int) -> None:
        self._receive(source)
        now = self.network.clock.now()
        self._sends.update({(source, number, rank): SentMessage(rank, now) for rank in ranks})
        said = {"pid": source.pid, "number": number, "data": _data(number, size)}
        body, payload = _encoded(said)
        self.network.post(source.rank, mev.SendTagged(number, tuple(ranks), 1, body, payload))

    def _living(self, rank: int) -> Process:
        return Process(rank, self.network.nodes[rank].identity.pid)

    def _process(self, rank: int) -> Process | None:
        node = self.network.nodes.get(rank)
        return Process(rank, node.identity.pid) if node is not None else None

    def _receive(self, process: Process) -> None:
        """Make a place wait for a message, if it does not yet."""
        if process not in self._waiting:
            self._waiting.add(process)
            self.network.post(process.rank, mev.PostReceive(0, ANY, ANY))

    def _is_over(self, number: int) -> bool:
        self._all_receive()
        under_way = len({key[:2] for key in self._sends}) + len(self._asks)
        return under_way <= UNDER_WAY or number <= 0

    def _all_receive(self) -> None:
        if self._steps % LOOK_EVERY == 0 and len(self._waiting) < len(self._places):
            for rank in self._places:
                process = self._process(rank)
                if process is not None and not self.network.is_paused(rank):
                    self._receive(process)

    def _nothing_waits(self) -> bool:
        self._all_receive()
        return not self._sends and not self._asks

    def _nothing_is_left(self) -> bool:
        return not any(
            len(node.requests) or len(node.transfers) for node in self.network.nodes.values()
        )

    def _done(self) -> int:
        return self._numbers - self._probes

    def _process_ended(self, rank: int) -> None:
        entry = self.pids.get(rank)
        super()._process_ended(rank)
        if entry is None:
            return
        process = Process(rank, entry[0])
        self._waiting.discard(process)
        self._sends = {key: one for key, one in self._sends.items() if key[0] != process}
        self._asks = {key: where for key, where in self._asks.items() if key[0] != process}

    # --- what must hold ------------------------------------------------------------------------

    def _saw(self, effect: Any) -> None:
        self._saw_below(ROOT, effect)

    def _saw_below(self, rank: int, effect: Any) -> None:
        process = self._process(rank)
        if process is None:
            return
        if isinstance(effect, mev.TaggedArrived):
            self._saw_arrival(process, effect)
        elif isinstance(effect, mev.SendEnded):
            self._saw_end(process, effect)
        elif isinstance(effect, ev.Asked):
            if (process, effect.number) in self._handled:
                raise InvariantError(f"request {effect.number} comes twice to rank {rank}")
            self._handled.add((process, effect.number))
        elif isinstance(effect, ev.Answered):
            asked = self._asks.pop((process, effect.number), None)
            if asked is None:
                raise InvariantError(f"request {effect.number} of rank {rank} ends twice")
            if effect.error is not None:
                self._check_error(effect.error, asked)
            else:
                self._check_answer(effect, asked.destination)

    def _saw_arrival(self, process: Process, effect: mev.TaggedArrived) -> None:
        said = _decoded(effect.body, effect.payload)
        way = Way(Process(effect.source, int(said["pid"])), process)
        number = int(said["number"])
        if number <= self._got[way]:
            raise InvariantError(
                f"message {number} from rank {effect.source} arrives at rank {process.rank} after "
                f"{self._got[way]}"
            )
        self._got[way] = number
        if not np.array_equal(said["data"], _data(number, len(said["data"]))):
            raise InvariantError(f"message {number} does not say what was sent")
        self._arrived.add((way.source, number, process.rank))
        self._waiting.discard(process)
        self._receive(process)

    def _saw_end(self, source: Process, effect: mev.SendEnded) -> None:
        key = (source, effect.number, effect.destination)
        if key not in self._sends:
            raise InvariantError(f"message {effect.number} of rank {source.rank} ends twice")
        sent = self._sends.pop(key)
        if effect.error is not None:
            self._check_error(effect.error, sent)
        elif key not in self._arrived:  # it may wait there for a large one before it
            self._to_arrive[key] = (sent.began, self.network.clock.now())

    def _check_answer(self, effect: ev.Answered, destination: int) -> None:
        answer = _decoded(effect.body, effect.payload)
        data = _data(effect.number, len(answer["data"]))
        if (answer["x"], answer["rank"]) != (effect.number, destination) or not np.array_equal(
            answer["data"], data[::-1]
        ):
            raise InvariantError(f"request {effect.number} has the answer of another one")

    def _check_arrivals(self) -> None:
        for key, (began, ended) in self._to_arrive.items():
            # Of a process that had it and ended it is not known what it had not yet read.
            if key not in self._arrived and not self._has_ended(key[2], began, ended):
                raise InvariantError(f"message {key[1]} to rank {key[2]} is lost")
        self._to_arrive.clear()
        for sent, told, what in self._blamed:
            begin, end = sent.began - TOLD_AFTER, told + TOLD_BEFORE
            lives = self.network.lives[sent.destination]
            if not any(life.begin <= told and begin <= life.end <= end for life in lives):
                raise InvariantError(
                    f"rank {sent.destination} lives, and its sender receives: {what}"
                )

    def _has_ended(self, rank: int, begin: float, end: float) -> bool:
        """Whether a process of a place ended by now that was there between two times."""
        now = self.network.clock.now()
        lives = self.network.lives[rank]
        return any(one.begin <= end and begin <= one.end <= now for one in lives)

    def _check_error(self, error: Any, sent: SentMessage) -> None:
        self.failed += 1
        if error.code != AgentLostError.code:
            raise InvariantError(f"a message for rank {sent.destination} failed: {error.what}")
        if f"agent {sent.destination} is gone" not in error.what:
            raise InvariantError(
                f"a message for rank {sent.destination} blames others: {error.what}"
            )
        self._blamed.append((sent, self.network.clock.now(), error.what))


def _answer(rank: int, value: Any) -> Any:
    return {"x": value["x"], "rank": rank, "data": value["data"][::-1].copy()}


def _data(number: int, size: int) -> Any:
    """Return bytes that follow from the number of a message, and from nothing else."""
    chance = random.Random(number)  # noqa: S311 - the receiver makes the same
    return np.frombuffer(chance.randbytes(size), np.uint8)


def _encoded(value: Any) -> tuple[bytes, Payload | None]:
    encoded = values.encode(value)
    return encoded.body, Payload(encoded.payload()) if encoded.nbytes else None


def _decoded(body: bytes, payload: Payload | None) -> Any:
    return values.decode(body, payload.view if payload is not None else b"")
