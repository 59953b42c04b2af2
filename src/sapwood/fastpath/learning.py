"""What the event loop does when waves were exchanged: the place replays what passed.

Waves that are done have left nothing behind but counts, and frames to be kept for the case that
a link breaks. One that is under way goes through the place from its beginning; what this wants to
send must be what was sent, and what the children have answered so far comes to it afterwards.
"""

from __future__ import annotations

from contextlib import ExitStack
from operator import add

from sapwood.comm import events as ev
from sapwood.comm.driver import NodeDriver
from sapwood.comm.frames import Buffers
from sapwood.comm.link import MESSAGE_COST
from sapwood.comm.replay import Sent
from sapwood.fastpath.armed import ArmedStream
from sapwood.fastpath.exchange_library import ExchangeLibrary


def learn(library: ExchangeLibrary, place: NodeDriver, armed: ArmedStream) -> None:
    """Let everybody know what passed since the library was armed.

    Args:
        library: The library; it was taken back.
        place: The root.
        armed: What it was armed for.

    Raises:
        SapwoodError: Something passed that should not have.
    """
    lines, peers = armed.lines, library.memory.peers
    if library.memory.waves:
        _count(library, place, armed)
    is_under_way = library.memory.frame_size > 0
    if is_under_way:
        _begin_again(library, armed)
    for number, frame in library.aside():
        place.bytes_received(lines[number].number, frame)
    if is_under_way:
        for number, line in enumerate(lines):
            if peers[number].got:
                place.bytes_received(line.number, library.answer(number))


def _count(library: ExchangeLibrary, place: NodeDriver, armed: ArmedStream) -> None:
    """Count the waves that are done."""
    memory = library.memory
    sent: list[tuple[Buffers, int]] = []
    arrived = [0] * len(armed.lines)
    for wave in library.passed():
        sent.append(([wave.frame], len(wave.frame) + MESSAGE_COST))
        arrived = list(map(add, arrived, wave.sizes))
    for line, nbytes in zip(armed.lines, arrived, strict=True):
        line.channel.passed(sent, nbytes)
        line.channel.link.last_sent = memory.time
        line.channel.link.heard(memory.time)
    place.post(ev.WavesPassed(armed.stream.spec.stream, len(sent)))
    armed.handle.exchanged(len(sent))


def _begin_again(library: ExchangeLibrary, armed: ArmedStream) -> None:
    """Let the place begin the wave that is under way, of which something was sent."""
    frame, peers = library.under_way(), library.memory.peers
    with ExitStack() as replays:
        for number, line in enumerate(armed.lines):
            sent = Sent(frame, peers[number].sent)
            replays.enter_context(line.channel.replay([sent]))
        armed.go_on(library.memory.owner, frame)
