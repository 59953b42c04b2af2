"""Hostile frames through the decoder and the core of every kind of place.

``python -m sapwood_simulation.fuzz --frames 1000000`` says what happened, and fails if a place
crashed, hung, kept memory, or complained of one peer more than once. The same seed gives the
same frames.
"""

from __future__ import annotations

import argparse
import gc
import os
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
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.messages import PROTOCOL_VERSION, AnyMessage, StreamSpec, Welcome
from sapwood.comm.node import Node
from sapwood.comm.reduction import gathering
from sapwood.core.clock import VirtualClock
from sapwood.core.topology import ROOT, kary
from sapwood_simulation.hostile import HostilePeer
from sapwood_simulation.links import ClockLoop, raise_it

TREE = kary(4, 2)
FRAMES_OF_A_PEER = 40
"""Frames that one peer sends at most, if it is not cut off before."""

PEERS_OF_A_PLACE = 200
"""Peers that one place meets before it is replaced by a new one."""

LEAVE = 0.8
"""Chance that a peer which was cut off sends nothing more."""

MAX_SECONDS = 2.0
"""Seconds of the processor that one frame may take: others may have it in between."""

MAX_GROWTH = 64 * 2**20
"""Bytes by which the process may have grown after the first tenth of the frames."""


MAX_MEMORY = 2 * 2**30
"""Bytes of address space that the command gives itself: what takes more fails at once."""


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


class FuzzedPlace:
    """A place that meets hostile peers, as their parent or their child.

    Args:
        rank: Its place in the tree: the root, a junction or an agent.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.problems: list[str] = []
        self._as_child = TREE.is_agent(rank)
        self._incarnation = 0
        node = Node(Identity("fuzz", rank, 1, 1, "m"), TREE, LinkTiming(grace=0.0), gathering())
        loop = cast("Any", ClockLoop(VirtualClock()))
        self.place = NodeDriver(node, {}, loop, self.problems.append, log=raise_it)

    def meet(self, *, greeted: bool) -> int:
        """Let a peer connect, and greet; return its number."""
        peer = _Mute()
        if self._as_child:
            self.place.post(ev.Begin())
        number = self.place.connection_opened(peer, initiator=self._as_child)
        if not greeted:
            return number
        if self._as_child:
            welcome = Welcome(PROTOCOL_VERSION, TREE.parents[self.rank], 2, "m")
            self.place.bytes_received(number, _bytes_of(welcome))
        else:
            self._incarnation += 1
            child = TREE.children(self.rank)[0]
            hello = Identity("fuzz", child, self._incarnation, 3, "m").hello(link=number)
            self.place.bytes_received(number, _bytes_of(hello))
            if self.rank == ROOT and 1 not in self.place.node.streams:
                spec = StreamSpec(1, "test", ((1, TREE.agents + 1),), {"x": "sum"})
                self.place.post(ev.OpenStream(spec))
            if self.rank == ROOT and self._incarnation % 16 == 1:
                self.place.post(ev.Broadcast(1, b"\x81\xa1x\x01", None))
        return number


class _Mute:
    """A connection whose other end takes what comes and says nothing by itself."""

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
        progress: Told now and then how many there were.

    Raises:
        FuzzError: A place crashed, hung, kept memory, or complained too often; the message says
            how to have it again.
    """
    source = HostilePeer(seed)
    begin = time.perf_counter()
    sent = peers = cut_off = 0
    slowest = 0.0
    base = 0
    targets = [FuzzedPlace(rank) for rank in (ROOT, TREE.parents[1], 1)]
    while sent < count:
        if peers % PEERS_OF_A_PLACE == 0:
            targets = [FuzzedPlace(rank) for rank in (ROOT, TREE.parents[1], 1)]
        target = targets[peers % len(targets)]
        peers += 1
        frames_sent, seconds, was_cut = _one_peer(target, source, seed, sent)
        if not TREE.is_agent(target.rank):
            target.place.post(ev.Tick())
        else:  # an agent ends with its parent
            targets[2] = FuzzedPlace(target.rank)
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
    try:
        number = target.meet(greeted=chance.random() < 0.9)
        for count in range(1, chance.randint(1, FRAMES_OF_A_PEER) + 1):  # noqa: B007 - used below
            data = source.frame()
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
