"""Letters under faults: tagged messages, requests and large payloads, each once and in order.

Agents and the front end send to each other, to one place or several, while processes end, hang and
are cut off, links break and junctions are replaced. Each message has its source's process and a
number of its own, so it can be seen whether it came twice, too late or not at all. A message may
fail only if the process that it was for has ended, and its sender is told so.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any, NamedTuple

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.letters import events as le
from sapwood.comm.letters.match import ANY
from sapwood.comm.payload import Payload
from sapwood.core.errors import AgentLostError
from sapwood.core.topology import ROOT
from sapwood.testing.simulation import InvariantError, Simulation, SimulationOptions

LETTERS_OF_A_WAVE = 50
"""Messages and requests for each of ``options.waves``."""

MOST_DESTINATIONS = 8
"""Places that one message is sent to at most."""

UNDER_WAY = 40
"""Messages and requests that are under way at a time, about."""

LOOK_EVERY = 64
"""Steps after which it is looked at again whether all places wait for a message."""

LARGE = 200_000
"""Bytes of a payload that is fetched in pieces, as its receiver is on another machine."""


class Process(NamedTuple):
    """One process at a place."""

    rank: int
    pid: int


class Way(NamedTuple):
    """From one process to another."""

    source: Process
    destination: Process


class LetterSimulation(Simulation):
    """One run of letters under faults.

    Args:
        options: What is simulated.

    Example:
        >>> LetterSimulation(SimulationOptions(agents=8, fanout=2, waves=1)).run().waves
        50
    """

    what = "letters"
    census = True

    def __init__(self, options: SimulationOptions) -> None:
        super().__init__(options)
        self.failed = 0
        self._places = range(options.agents + 1)
        self._numbers = 0
        self._got: dict[Way, int] = defaultdict(int)
        self._sends: set[tuple[Process, int, int]] = set()
        self._asks: dict[tuple[Process, int], int] = {}
        self._waiting: set[Process] = set()
        self._ended: dict[int, set[int]] = defaultdict(set)
        self._to_arrive: set[tuple[Process, int, int]] = set()
        self._blamed: list[tuple[int, str]] = []
        self._arrived: set[tuple[Process, int, int]] = set()
        self._handled: set[tuple[Process, int]] = set()
        self.network.answer = lambda _rank, value: value

    # --- the course of events ------------------------------------------------------------------

    def _run(self) -> None:
        self._begin()
        total = self.options.waves * LETTERS_OF_A_WAVE
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
        self._check_end()

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
            self._asks[process, self._numbers] = destination
            self.network.post(source, ev.Ask(destination, "test", self._numbers, *self._value()))
        else:
            self._send(process, self._numbers)

    def _value(self) -> tuple[bytes, Payload | None]:
        encoded = values.encode({"x": self._numbers})
        return encoded.body, Payload(bytes(LARGE)) if self._random.random() < 0.03 else None

    def _send(self, source: Process, number: int) -> None:
        count = 1 if self._random.random() < 0.7 else MOST_DESTINATIONS
        ranks = self._random.sample(self._places, min(count, len(self._places)))
        self._receive(source)
        self._sends.update((source, number, rank) for rank in ranks)
        _, payload = self._value()
        body = values.encode({"pid": source.pid, "number": number}).body
        self.network.post(source.rank, le.SendTagged(number, tuple(ranks), 1, body, payload))

    def _process(self, rank: int) -> Process | None:
        node = self.network.nodes.get(rank)
        return Process(rank, node.identity.pid) if node is not None else None

    def _receive(self, process: Process) -> None:
        """Have a place wait for a message, if it does not yet."""
        if process not in self._waiting:
            self._waiting.add(process)
            self.network.post(process.rank, le.PostReceive(0, ANY, ANY))

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
        return self._numbers

    def _process_ended(self, rank: int) -> None:
        entry = self.pids.get(rank)
        super()._process_ended(rank)
        if entry is None:
            return
        process = Process(rank, entry[0])
        self._ended[rank].add(process.pid)
        self._waiting.discard(process)
        self._sends = {key for key in self._sends if key[0] != process}
        self._asks = {key: where for key, where in self._asks.items() if key[0] != process}

    # --- what must hold ------------------------------------------------------------------------

    def _saw(self, effect: Any) -> None:
        self._saw_below(ROOT, effect)

    def _saw_below(self, rank: int, effect: Any) -> None:
        process = self._process(rank)
        if process is None:
            return
        if isinstance(effect, le.TaggedArrived):
            self._saw_arrival(process, effect)
        elif isinstance(effect, le.SendEnded):
            self._saw_end(process, effect)
        elif isinstance(effect, ev.Asked):
            if (process, effect.number) in self._handled:
                raise InvariantError(f"request {effect.number} comes twice to rank {rank}")
            self._handled.add((process, effect.number))
        elif isinstance(effect, ev.Answered):
            destination = self._asks.pop((process, effect.number), None)
            if destination is None:
                raise InvariantError(f"request {effect.number} of rank {rank} ends twice")
            self._check_error(effect.error, destination)

    def _saw_arrival(self, process: Process, effect: le.TaggedArrived) -> None:
        said: Any = values.decode(effect.body, b"")
        way = Way(Process(effect.source, int(said["pid"])), process)
        number = int(said["number"])
        if number <= self._got[way]:
            raise InvariantError(
                f"message {number} from rank {effect.source} arrives at rank {process.rank} after "
                f"{self._got[way]}"
            )
        self._got[way] = number
        self._arrived.add((way.source, number, process.rank))
        self._waiting.discard(process)
        self._receive(process)

    def _saw_end(self, source: Process, effect: le.SendEnded) -> None:
        key = (source, effect.number, effect.destination)
        if key not in self._sends:
            raise InvariantError(f"message {effect.number} of rank {source.rank} ends twice")
        self._sends.discard(key)
        if effect.error is not None:
            self._check_error(effect.error, effect.destination)
        elif key not in self._arrived and not self._ended[effect.destination]:
            self._to_arrive.add(key)  # it may wait there for a large one before it

    def _check_arrivals(self) -> None:
        for key in self._to_arrive - self._arrived:
            # Of a process that was replaced it is not known what it had not yet read.
            if not self._ended[key[2]]:
                raise InvariantError(f"message {key[1]} to rank {key[2]} is lost")
        for destination, what in self._blamed:
            if not self._ended[destination]:
                raise InvariantError(f"rank {destination} lives, and its sender is told: {what}")

    def _check_error(self, error: Any, destination: int) -> None:
        if error is None:
            return
        self.failed += 1
        if error.code != AgentLostError.code:
            raise InvariantError(f"what was for rank {destination} failed: {error.what}")
        self._blamed.append((destination, error.what))
