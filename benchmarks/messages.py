"""What a message costs: round trips of empty active messages, and how many pass a junction.

``messages.round_trip``
    An empty active message to one agent (handler ``ping``) and its answer; the next one is sent
    where the answer of the last one is heard, on the client's loop. Floor: an empty frame to
    one forked child and back, a uvloop loop on both sides of a socket pair.
``messages.round_trip_waiting``
    The same from a thread that waits for each answer (``session.ask(…).result()``). Same floor.
``messages.through_junction``
    Microseconds for each message that passes one junction with so many agents below it, when
    every agent has :data:`AHEAD` requests at a time: half of them go down, half come up. Floor:
    the same number of round trips, one after the other, without anything in between.

A measurement is one round; floor and Sapwood take turns, and the first rounds do not count.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

import sapwood
from floors import measure_floor
from report import Figure, Options, Report, read_options
from sapwood.core.topology import ROOT, Tree
from sapwood.session.embedded import EmbeddedSession, embedded
from sapwood.session.options import SessionOptions

WARM_UP = 50

AHEAD = 8
"""Requests that each agent has at a time, where messages pass a junction."""


def main() -> None:
    """Measure and print."""
    options = read_options("Messages.", agents=(4, 16, 64), runs=5)
    with Report("Messages", options) as report:
        round_trips(options, report)
        for agents in options.agents:
            through_junction(agents, options, report)


def started(tree: Tree) -> EmbeddedSession:
    """Return a session whose agents run no user code."""
    session = EmbeddedSession(SessionOptions(tree=tree, agent_entry="sapwood.session.agent:main"))
    session.start()
    return session


def round_trips(options: Options, report: Report) -> None:
    """Measure one message there and back."""
    rounds = 50 if options.quick else 1000
    chained: list[float] = []
    waited: list[float] = []
    floors: list[float] = []
    with sapwood.local(agents=1) as cluster:
        session = embedded(cluster.session)
        for _ in range(options.runs):
            floors += measure_floor("echo", agents=1, nbytes=0, rounds=rounds)
            chained += chain(session, WARM_UP + rounds)[WARM_UP:]
            for turn in range(WARM_UP + rounds):
                begin = time.perf_counter()
                assert session.ask(1, "ping", turn).result() == turn
                if turn >= WARM_UP:
                    waited.append(time.perf_counter() - begin)
    report.add(Figure.of("messages.round_trip", 1, chained, floors, unit="us", nbytes=0))
    report.add(Figure.of("messages.round_trip_waiting", 1, waited, floors, unit="us", nbytes=0))


def chain(session: EmbeddedSession, rounds: int) -> list[float]:
    """Return the seconds of round trips, each of which begins where the last one ends."""
    seconds: list[float] = []
    finished = threading.Event()
    begin = 0.0

    def ask(_last: Future[Any] | None = None) -> None:
        nonlocal begin
        now = time.perf_counter()
        if begin:
            seconds.append(now - begin)
        if len(seconds) == rounds:
            finished.set()
            return
        begin = time.perf_counter()
        session.ask(1, "ping", None).add_done_callback(ask)

    session.on_loop(ask)
    assert finished.wait(60)
    return seconds


def through_junction(agents: int, options: Options, report: Report) -> None:
    """Measure messages that pass one junction."""
    requests = 20 if options.quick else 200
    tree = Tree(agents, (-1, *([agents + 1] * agents), ROOT))
    seconds: list[float] = []
    floors: list[float] = []
    session = started(tree)
    try:
        for _ in range(options.runs):
            floors += [
                one / 2 for one in measure_floor("echo", agents=1, nbytes=0, rounds=requests)
            ]
            flood(session, agents, AHEAD)
            begin = time.perf_counter()
            flood(session, agents, requests)
            seconds.append((time.perf_counter() - begin) / (2 * agents * requests))
    finally:
        session.close()
    name = "messages.through_junction"
    report.add(Figure.of(name, agents, seconds, floors, unit="us", nbytes=0))


def flood(session: EmbeddedSession, agents: int, requests: int) -> None:
    """Have so many requests answered by every agent, a few of each at a time."""
    left = dict.fromkeys(range(1, agents + 1), requests)
    open_ = agents * requests
    finished = threading.Event()

    def ask(rank: int) -> None:
        if left[rank]:
            left[rank] -= 1
            session.ask(rank, "ping", None).add_done_callback(lambda _: answered(rank))

    def answered(rank: int) -> None:
        nonlocal open_
        open_ -= 1
        if not open_:
            finished.set()
        ask(rank)

    def begin() -> None:
        for rank in left:
            for _ in range(AHEAD):
                ask(rank)

    session.on_loop(begin)
    assert finished.wait(120)


if __name__ == "__main__":
    main()
