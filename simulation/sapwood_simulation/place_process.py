"""Processes with one place of a tree each, over sockets, without a session around them.

``python -m sapwood_simulation.place_process '{…}' '{…}'`` forks one for each :class:`Options`,
which are JSON, so that all together import what they need once. It says on a line which processes
they are, and for each that has ended, on a separate line, which it was and its exit code.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.driver import NodeDriver, reconnect
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.links import Handlers
from sapwood.comm.loop import Loop
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.reactor import Reactor
from sapwood.comm.reduction import gathering
from sapwood.comm.transport.base import ConnectionHandler, Failed, Transport
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core import typed
from sapwood.core.errors import CommunicationError
from sapwood.core.topology import Tree, plan
from sapwood.security.credentials import Credentials


class Options(msgspec.Struct, frozen=True):
    """The options of a place.

    Attributes:
        rank: Its place in the tree.
        agents: Agents of the tree.
        fanout: Children of each junction; 0 for none.
        parent: Address of the parent at home.
        others: Addresses of other places that may become the parent, by their rank.
        listen: Address to listen at; empty for an agent.
        machine: What decides about shared memory; by default each place has its own.
        certificates: Folder with ``RANK.pem``, ``RANK.key`` and ``authority.pem``; with it,
            addresses are ``NODEID@host:port`` and the transport is TCP with TLS, without it Unix
            sockets.
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


def node_id(rank: int) -> str:
    """Return what the certificate of a place names it."""
    return f"place-{rank}.grove.sapwood"


def transport_of(rank: int, certificates: str) -> Transport:
    """Return TCP with the certificates of a folder, or Unix sockets without one."""
    if not certificates:
        return UnixTransport()
    names = (f"{rank}.pem", f"{rank}.key", "authority.pem")
    pems = [Path(certificates, name).read_bytes() for name in names]
    return TlsTransport(Credentials(node_id(rank), *pems), "sapwood-tree/grove")


def new_place(
    options: Options, handlers: Handlers, loop: Loop, problems: list[str]
) -> tuple[NodeDriver, Transport]:
    """Return a place and what connects it."""
    tree: Tree = plan(options.agents, options.fanout)
    machine = options.machine or f"machine {options.rank}"
    identity = Identity("grove", options.rank, 1, os.getpid(), machine)
    transport = transport_of(options.rank, options.certificates)
    node = Node(identity, tree, options.timing, gathering())

    def make_again(link: int, attempt: int) -> None:
        parent = place.channels[link].link.rank
        address = options.others.get(parent, options.parent)

        def connect(handler: ConnectionHandler, failed: Failed) -> None:
            transport.connect(address, handler, loop, failed)

        reconnect(place, link, attempt, connect, loop)

    def unreachable(rank: int, _error: CommunicationError) -> None:
        place.post(ev.Unreachable(rank))

    def try_to_reach(rank: int) -> None:
        address = options.others.get(rank, options.parent)
        transport.connect(address, place, loop, partial(unreachable, rank))

    def seek(effect: ev.Connect) -> None:
        loop.call_later(effect.pause, try_to_reach, effect.rank)

    place = NodeDriver(node, {**handlers, ev.Connect: seek}, loop, problems.append, make_again)
    return place, transport


def live(options: Options) -> None:
    """Be a place until the parent is lost."""
    with closing(Reactor()) as loop:
        _live(options, loop)


def _live(options: Options, loop: Reactor) -> None:
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
        ev.ParentLost: lambda _effect: loop.stop(),
    }
    place, transport = new_place(options, handlers, loop, problems)
    if options.listen:
        transport.listen(options.listen, place, loop)
    place.post(ev.Begin())
    place.start()
    loop.run()
    place.close()


def fork(options: Options) -> int:
    """Begin a process that is a place; return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            live(options)
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
