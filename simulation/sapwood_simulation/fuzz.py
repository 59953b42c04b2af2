"""Hostile frames through the decoder and the core of every kind of place.

``python -m sapwood_simulation.fuzz --frames 1000000`` says what happened, and fails if a place
crashed, hung, kept memory, or complained of one peer more than once. The same seed gives the
same frames.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import frames
from sapwood.comm.driver import NodeDriver
from sapwood.comm.groups import events as gev
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.messages import (
    LATE_IN_NEXT,
    NO_WAIT,
    PROTOCOL_VERSION,
    TIME_OUT,
    AnyMessage,
    Down,
    FilterAt,
    Open,
    StreamSpec,
    Synchronisation,
    Welcome,
)
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.messaging import events as mev
from sapwood.comm.node import Node
from sapwood.comm.reduction import gathering
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import SapwoodError
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood_simulation.hostile import DOWNWARDS, UPWARDS, HostilePeer
from sapwood_simulation.links import ClockLoop, PlaceLoop, raise_it

TREE = kary(4, 2)
FRAMES_OF_A_PEER = 40
"""Frames that one peer sends at most, if it is not cut off before."""

PEERS_OF_A_PLACE = 200
"""Peers that one place meets before it is replaced by a new one."""

LEAVE = 0.8
"""Chance that a peer which was cut off sends nothing more."""

CAREFUL_PEERS = 0.5
"""Chance that a peer keeps to the protocol as far as it can, and so is not cut off at once."""

MAX_SECONDS = 2.0
"""Seconds of the processor that one frame may take: others may have it in between."""

MAX_GROWTH = 64 * 2**20
"""Bytes by which the process may have grown after the first tenth of the frames."""


MAX_MEMORY = 2 * 2**30
"""Limit of the command's address space in bytes, so that larger allocations fail at once."""


class FuzzReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened; ``slowest`` in seconds, ``growth`` in bytes."""

    frames: int
    peers: int
    cut_off: int
    slowest: float
    growth: int
    seconds: float


class FuzzError(AssertionError):
    """A place did what it must not do."""


_ALL = ((1, TREE.agents + 1),)
_BOTH = (FilterAt("*", b"up", b"down"),)
_EACH = (FilterAt("*", b"up", b"down", per_child=True),)
_SUM = {"x": "sum"}
_WAITS, _LATE, _DROPS = (
    Synchronisation(NO_WAIT),
    Synchronisation(TIME_OUT, 1.0, LATE_IN_NEXT),
    Synchronisation(TIME_OUT, 1.0),
)

KINDS = (
    StreamSpec(0, "test", _ALL, _SUM),
    StreamSpec(0, "test", _ALL, _SUM, on_loss="partial", counted=True),
    StreamSpec(0, "test", _ALL, _SUM, on_loss="fail", follows=True),
    StreamSpec(0, "test", _ALL, _SUM, sync=_DROPS),
    StreamSpec(0, "test", _ALL, _SUM, sync=_LATE, on_loss="partial"),
    StreamSpec(0, "test", _ALL, {"x": "concat"}, sync=_LATE, filters=_BOTH),
    StreamSpec(0, "test", _ALL, sync=_WAITS),
    StreamSpec(0, "test", _ALL, sync=_WAITS, counted=True, follows=True),
    StreamSpec(0, "test", _ALL, sync=_WAITS, filters=_BOTH),
    StreamSpec(0, "test", _ALL, _SUM, filters=_BOTH, parameters={1: b"\xc0"}),
    StreamSpec(0, "test", _ALL, _SUM, filters=_EACH, on_loss="partial"),
    StreamSpec(0, "test", ((1, 2),), {"x": "min"}),
)
"""Streams of all kinds: with time-outs, without waiting, with filters, with loss policies."""

STREAMS = 6
"""Streams that are open at a place; their numbers are those that hostile peers name."""

BODIES = (b"\x81\xa1x\x01", b"\x81\xa1x\x02", b"", b"\xc1")
"""What friends and filters say."""


class FuzzedPlace:
    """A place that meets hostile peers, as their parent or their child.

    It has streams of all kinds and groups, which move while the peers are there.

    Args:
        tree: The tree that it is in.
        rank: Its place in the tree: the root, a junction or an agent.
        above: Whether the hostile peer is its parent.
        speaks_for: Ranks that the present peer may name.
        chance: Decides which streams it has, and what is done on them.
    """

    def __init__(self, tree: Tree, rank: int, *, above: bool, chance: random.Random) -> None:
        self.rank = rank
        self.above = above
        self.problems: list[str] = []
        self.chance = chance
        self._tree = tree
        self._incarnation = 0
        self._has_parent = False
        self.speaks_for: tuple[int, ...] = (tree.parents[rank],) if rank != ROOT else ()
        self._sweeps = 0
        self._rounds = 0
        self._wanted: list[ev.Effect] = []
        self._clock = VirtualClock()
        node = Node(Identity("fuzz", rank, 1, 1, "m"), tree, LinkTiming(grace=0.0), gathering())
        self._loop = ClockLoop(self._clock)
        loop = PlaceLoop(self._loop, lambda: True, lambda: False, self._clock.now)
        kinds = (ev.FilterWanted, ev.FilterStaging, ev.WaveArrived, ev.Asked, ev.Wake)
        self.place = NodeDriver(
            node,
            dict.fromkeys(kinds, self._wanted.append),
            cast("Any", loop),
            self.problems.append,
            log=raise_it,
        )
        self._open = tuple(
            msgspec.structs.replace(spec, stream=number)
            for number, spec in enumerate(chance.sample(KINDS, STREAMS), 1)
        )
        if rank == ROOT:
            for spec in self._open:
                paced = not spec.reduce and chance.random() < 0.5
                self.place.post(ev.OpenStream(spec, paced))
            self.place.post(gev.EnterGroup(((0, tree.agents + 1),), "fuzz"))

    @property
    def lives(self) -> bool:
        """Whether it can meet another peer: without its parent a place ends."""
        return not self.above

    def meet(self, *, greeted: bool) -> int:
        """Let a peer connect, and greet; return its number."""
        tree, place = self._tree, self.place
        if not self.above and self.rank != ROOT and not self._has_parent:
            self._meet_parent()
        if self.above:
            place.post(ev.Begin())
        number = place.connection_opened(_Mute(), initiator=self.above)
        if not greeted:
            return number
        if self.above:
            place.bytes_received(number, self._welcome())
            if self.chance.random() < 0.5:
                self._told(number)
            return number
        self._incarnation += 1
        child = self.chance.choice(tree.children(self.rank))
        self.speaks_for = (*tree.leaves(child), child)
        hello = Identity("fuzz", child, self._incarnation, 3, "m").hello(link=number)
        place.bytes_received(number, _bytes_of(hello))
        return number

    def move(self) -> None:
        """Do something on the streams and groups, as those that use them do."""
        chance, place, stream = self.chance, self.place, self.chance.randint(1, STREAMS)
        if self.rank == ROOT:
            self._sweeps += 1
            self._rounds += 1
            body = chance.choice(BODIES)
            action = chance.choice(("flush", "quiesce", "resume", "query"))
            call = gmsg.GroupCall("allreduce", "sum")
            some: Sequence[ev.Event] = (
                ev.Broadcast(stream, body, None),
                ev.Broadcast(stream, body, None),
                ev.SweepStream(stream, self._sweeps, action),
                ev.ConfigureStream(stream, body),
                ev.Read(stream, chance.randint(1, 2), 1),
                gev.CallGroup((0, 1, 1), self._rounds, call, 0, body, None),
                mev.AnnounceMembership(((chance.randint(1, 4), 0),), (), "it ended"),
            )
            if stream in place.node.streams or not isinstance(some[0], ev.Broadcast):
                with contextlib.suppress(SapwoodError):  # the stream may be quiet
                    place.post(chance.choice(some))
        elif self._tree.is_agent(self.rank) and stream in place.node.streams:
            place.post(ev.Emit(stream, 1.0, chance.choice(BODIES), None))
        wanted = self._wanted[:]
        self._wanted.clear()
        for effect in wanted:
            self._answer(effect)
        if chance.random() < 0.3:
            self._clock.advance(0.6)
            self._loop.run_due()
            place.post(ev.Tick())

    def _answer(self, effect: ev.Effect) -> None:
        chance, body = self.chance, self.chance.choice(BODIES)
        error = SapwoodError("no").to_record() if chance.random() < 0.2 else None
        if isinstance(effect, ev.FilterWanted):
            stream, ticket = effect.spec.stream, effect.ticket
            self.place.post(ev.Filtered(stream, ticket, body, None, 0.0, error))
        elif isinstance(effect, ev.FilterStaging):
            self.place.post(ev.FilterStaged(effect.stream, effect.number, error))
        elif isinstance(effect, ev.WaveArrived):
            stream = effect.spec.stream
            if error is not None:
                self.place.post(ev.Fail(stream, effect.wave, error))
            else:
                self.place.post(ev.Contribute(stream, effect.wave, 1.0, body, None))
        elif isinstance(effect, ev.Asked):
            self.place.post(ev.Answer(effect.source, effect.number, body, None, error))
        elif isinstance(effect, ev.Wake):
            self.place.post(ev.TimeUp(effect.stream))

    def _meet_parent(self) -> None:
        """Let a friendly parent tell of streams."""
        self._has_parent = True
        self.place.post(ev.Begin())
        number = self.place.connection_opened(_Mute(), initiator=True)
        self.place.bytes_received(number, self._welcome())
        self._told(number)

    def _welcome(self) -> bytes:
        return _bytes_of(Welcome(PROTOCOL_VERSION, self._tree.parents[self.rank], 2, "m"))

    def _told(self, number: int) -> None:
        """Hear of streams and of their first waves."""
        for spec in self._open:
            self.place.bytes_received(number, _bytes_of(Open(spec)))
            self.place.bytes_received(number, _bytes_of(Down(spec.stream, 1, 0, BODIES[0])))


PLACES = (
    (kary(4, 2), ROOT, False),
    (flat(4), ROOT, False),
    (kary(4, 2), 5, False),
    (kary(4, 2), 5, True),
    (kary(4, 2), 1, True),
)
"""Where places are, and whether their hostile peers are above them."""


def places(chance: random.Random) -> list[FuzzedPlace]:
    """Return a place of each kind."""
    return [FuzzedPlace(tree, rank, above=above, chance=chance) for tree, rank, above in PLACES]


class _Mute:
    """A connection whose other end accepts data and never sends any unasked."""

    peer = ""

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Take it."""

    def close(self) -> None:
        """Nothing to close."""

    def abort(self) -> None:
        """Nothing to close."""


def fuzz(count: int, seed: int = 0, progress: Callable[[int], None] | None = None) -> FuzzReport:
    """Send hostile frames to places of all kinds.

    Args:
        count: How many frames.
        seed: Decides which.
        progress: Called from time to time with the number of inputs so far.

    Raises:
        FuzzError: A place crashed, hung, kept memory, or complained too often; the message says
            how to have it again.
    """
    source = HostilePeer(seed)
    begin = time.perf_counter()
    sent = peers = cut_off = 0
    slowest = 0.0
    base = 0
    targets = places(source.chance)
    while sent < count:
        if peers % PEERS_OF_A_PLACE == 0:
            targets = places(source.chance)
        which = peers % len(targets)
        target = targets[which]
        peers += 1
        frames_sent, seconds, was_cut = _one_peer(target, source, seed, sent)
        if target.lives:
            target.place.post(ev.Tick())
        else:
            tree, rank, above = PLACES[which]
            targets[which] = FuzzedPlace(tree, rank, above=above, chance=source.chance)
        sent += frames_sent
        cut_off += was_cut
        slowest = max(slowest, seconds)
        if not base and sent >= count // 10:
            base = _resident()
        if progress is not None and peers % 1000 == 0:
            progress(sent)
    del targets, target
    growth = _resident() - base
    if growth > MAX_GROWTH:
        raise FuzzError(f"the process has grown by {growth} bytes; {_again(seed, sent)}")
    return FuzzReport(
        frames=sent,
        peers=peers,
        cut_off=cut_off,
        slowest=slowest,
        growth=growth,
        seconds=time.perf_counter() - begin,
    )


def _one_peer(
    target: FuzzedPlace, source: HostilePeer, seed: int, sent: int
) -> tuple[int, float, bool]:
    """Let one peer send until it is cut off or has had enough."""
    chance = source.chance
    target.problems.clear()
    slowest, count, data = 0.0, 0, b""
    place = target.place
    careful = chance.random() < CAREFUL_PEERS
    kinds = DOWNWARDS if target.above else UPWARDS
    try:
        number = target.meet(greeted=careful or chance.random() < 0.9)
        for count in range(1, chance.randint(1, FRAMES_OF_A_PEER) + 1):  # noqa: B007 - used below
            data = source.careful(kinds, target.speaks_for) if careful else source.frame()
            if chance.random() < 0.3:
                target.move()
            begin = time.thread_time()
            half = chance.randrange(len(data) + 1)
            place.bytes_received(number, data[:half])
            place.bytes_received(number, data[half:])
            slowest = max(slowest, time.thread_time() - begin)
            if slowest > MAX_SECONDS:
                raise FuzzError(f"{slowest:.1f} s for {data[:200]!r}; {_again(seed, sent)}")
            if target.problems and chance.random() < LEAVE:
                break
    except FuzzError:
        raise
    except Exception as error:  # whatever it is: nothing may come out of a place
        raise FuzzError(
            f"{type(error).__name__}: {error} from {data[:200]!r}; {_again(seed, sent)}"
        ) from error
    if len(target.problems) > 1:
        raise FuzzError(f"{len(target.problems)} complaints of one peer; {_again(seed, sent)}")
    place.connection_closed(number, "the peer left")
    return count, slowest, bool(target.problems)


def _again(seed: int, sent: int) -> str:
    return (
        f"to have it again: python -m sapwood_simulation.fuzz --seed {seed} --frames {sent + 100}"
    )


def _bytes_of(message: AnyMessage) -> bytes:
    return b"".join(frames.encode(message, None, share=False))


def _resident() -> int:
    """Return the memory of this process, bytes."""
    gc.collect()
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description="Hostile frames to places of all kinds.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    try:
        report = fuzz(options.frames, options.seed)
    except FuzzError as error:
        sys.exit(f"sapwood: {error}")
    print(  # noqa: T201 - the output of a command
        f"{report.frames:,} frames of {report.peers:,} peers, {report.cut_off:,} cut off, slowest "
        f"{report.slowest * 1e3:.1f} ms, memory {report.growth / 2**20:+.1f} MiB, "
        f"{report.seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
