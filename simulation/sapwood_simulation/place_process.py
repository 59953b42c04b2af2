"""Processes with one place of a tree each, over sockets, without a session around them.

``python -m sapwood_simulation.place_process '{…}' '{…}'`` forks one for each :class:`Options`,
which are JSON, so that all together import what they need once. It says on a line which processes
they are, and of each that has ended, on a line of its own, which it was and its exit code.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.driver import Handlers, NodeDriver, reconnect
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import gathering
from sapwood.comm.transport.base import Transport
from sapwood.comm.transport.tcp import TcpTransport
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core import typed
from sapwood.core.errors import CommunicationError
from sapwood.core.topology import Tree, plan


class Options(msgspec.Struct, frozen=True):
    """What a place is told.

    Attributes:
        rank: Its place in the tree.
        agents: Agents of the tree.
        fanout: Children of each junction; 0 for none.
        parent: Address of the parent at home.
        others: Addresses of other places that may become the parent, by their rank.
        listen: Address to listen at; empty for an agent.
        machine: What decides about shared memory; by default each place has its own.
        certificates: Folder with ``member.pem`` and ``authority.pem``; with it, addresses are
            ``host:port`` and the transport is TCP with TLS, without it Unix sockets.
        timing: When links speak and worry.
    """

    rank: int
    agents: int
    fanout: int
    parent: str
    others: dict[int, str] = {}
    listen: str = ""
    machine: str = ""
    certificates: str = ""
    timing: LinkTiming = LinkTiming()


def transport_of(certificates: str) -> Transport:
    """Return TCP with the certificates of a folder, or Unix sockets without one."""
    if not certificates:
        return UnixTransport()
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(Path(certificates) / "member.pem")
        context.load_verify_locations(Path(certificates) / "authority.pem")
        contexts.append(context)
    return TcpTransport(*contexts)


def new_place(
    options: Options, handlers: Handlers, loop: asyncio.AbstractEventLoop, problems: list[str]
) -> tuple[NodeDriver, Transport]:
    """Return a place and what connects it."""
    tree: Tree = plan(options.agents, options.fanout)
    machine = options.machine or f"machine {options.rank}"
    identity = Identity("grove", options.rank, 1, os.getpid(), machine)
    transport = transport_of(options.certificates)
    tasks: set[asyncio.Task[None]] = set()

    def make_again(link: int, attempt: int) -> None:
        parent = place.channels[link].link.rank
        connect = partial(transport.connect, options.others.get(parent, options.parent))
        task = loop.create_task(reconnect(place, link, attempt, connect, asyncio.sleep))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    node = Node(identity, tree, options.timing, gathering())

    async def try_to_reach(effect: ev.Connect) -> None:
        await asyncio.sleep(effect.pause)
        try:
            address = options.others.get(effect.rank, options.parent)
            await transport.connect(address, place)
        except CommunicationError:
            place.post(ev.Unreachable(effect.rank))

    def seek(effect: ev.Connect) -> None:
        task = loop.create_task(try_to_reach(effect))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    place = NodeDriver(node, {**handlers, ev.Connect: seek}, loop, problems.append, make_again)
    return place, transport


async def live(options: Options) -> None:
    """Be a place until the parent is lost."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    seen = 0

    def contribute(wave: ev.WaveArrived) -> None:
        view = wave.payload.view if wave.payload is not None else b""
        encoded = values.encode({"x": values.decode(wave.body, view)["x"] * options.rank})
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        number = wave.spec.stream
        place.post(ev.Contribute(number, wave.wave, 1.0, encoded.body, payload))

    def answer(asked: ev.Asked) -> None:
        nonlocal seen
        checksum = zlib.crc32(asked.payload.view) if asked.payload is not None else 0
        body = plain.encode([seen, checksum])
        seen += 1
        place.post(ev.Answer(asked.source, asked.number, body, None))

    problems: list[str] = []
    handlers: dict[type[ev.Effect], Any] = {
        ev.WaveArrived: contribute,
        ev.Asked: answer,
        ev.ParentLost: lambda _effect: ended.set(),
    }
    place, transport = new_place(options, handlers, loop, problems)
    if options.listen:
        await transport.listen(options.listen, place)
    place.post(ev.Begin())
    place.start()
    await ended.wait()
    place.close()


def fork(options: Options) -> int:
    """Begin a process that is a place; return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(live(options))
        except BaseException:  # noqa: BLE001 - the last frame of a process reports everything
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return pid


def tend(places: Sequence[Options]) -> None:
    """Fork places and wait until all have ended."""
    sys.stdout.write(" ".join([str(fork(options)) for options in places]) + "\n")
    sys.stdout.flush()
    for _ in places:
        pid, status = os.wait()
        sys.stdout.write(f"{pid} {os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    tend([typed.json_reader(Options)(text) for text in sys.argv[1:]])
