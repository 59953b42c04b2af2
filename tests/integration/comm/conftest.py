"""Trees of places in separate processes, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trustme

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.driver import NodeDriver
from sapwood.comm.link import LinkTiming
from sapwood.comm.messages import StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.transport.base import Listener
from sapwood.core.topology import ROOT, plan
from sapwood_simulation.place_process import Options, new_place, node_id

PATIENCE = 60.0
NETWORK = f"127.{1 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:])}.0"
"""Addresses of this machine that no other test uses at the same time, nor who connects."""
TIMING = LinkTiming(heartbeat=0.5, failure_after=30.0, grace=20.0)
E = TypeVar("E", bound=ev.Effect)


def place_of(address: str) -> tuple[str, int]:
    """Return host and port of an address."""
    host, port = address.rpartition("@")[2].split(":")
    return host, int(port)


class Proxy:
    """Passes bytes on between a listener and a connecting place, until the test cuts them off.

    Args:
        address: Where to listen.
        target: Where to connect; both are paths or ``NODEID@host:port``.
    """

    def __init__(self, address: str, target: str) -> None:
        self.address = address
        self.target = target
        self.passed = 0
        self.cuts = 0
        self.cut_at: list[int] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen."""
        if "/" in self.address:
            self._server = await asyncio.start_unix_server(self._accept, self.address)
        else:
            host, port = place_of(self.address)
            self._server = await asyncio.start_server(self._accept, host, port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "/" in self.target:
            far_reader, far_writer = await asyncio.open_unix_connection(self.target)
        else:
            far_reader, far_writer = await asyncio.open_connection(*place_of(self.target))
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        self._writers -= {writer, far_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
                self.passed += len(data)
                if self.cut_at and self.passed >= self.cut_at[0]:
                    del self.cut_at[0]
                    self.cut()
        except OSError:
            pass
        writer.close()

    def cut(self) -> None:
        """Abort what is connected; who connects anew is served."""
        self.cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    def close(self) -> None:
        """Listen no more."""
        self.cut()
        if self._server is not None:
            self._server.close()


class Nursery:
    """What forks the places of a tree, and hears of their ends.

    Args:
        places: The configuration of each place.
    """

    def __init__(self, places: Sequence[Options]) -> None:
        told = [msgspec.json.encode(options).decode() for options in places]
        command = [sys.executable, "-m", "sapwood_simulation.place_process", *told]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._said = self._process.stdout
        self.pids = [int(word) for word in self._said.readline().split()]
        self._ended: dict[int, int] = {}

    def wait(self, pid: int) -> int:
        """Wait until a place has ended; return its exit code."""
        while pid not in self._ended:
            ended, code = self._said.readline().split()
            self._ended[int(ended)] = int(code)
        return self._ended[pid]

    def close(self) -> None:
        """End all places."""
        for pid in self.pids:
            if pid not in self._ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._said.close()
        self._process.wait()


class Grove:
    """A tree of processes whose root is here.

    Args:
        folder: For sockets and certificates.
        kind: ``unix`` or ``tls``.
        agents: Number of agents.
        fanout: Children of a junction.
        proxied: Places that reach their parent through a proxy.
        machine: Identity of the machine of all places; by default each has its own.
        timing: When links speak, worry and are given up.
        foreign: Scripts that are agents in the place of ours, by rank; told address and rank.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        agents: int,
        fanout: int,
        proxied: tuple[int, ...] = (),
        machine: str = "",
        timing: LinkTiming = TIMING,
        foreign: Mapping[int, Path] | None = None,
    ) -> None:
        self.tree = plan(agents, fanout)
        self.loop = asyncio.new_event_loop()
        self.problems: list[str] = []
        self.effects: list[ev.Effect] = []
        self.pids: dict[int, int] = {}
        self._foreign: list[subprocess.Popen[bytes]] = []
        self.proxies: dict[int, Proxy] = {}
        self._folder, self._kind = folder, kind
        certificates = self._certificates() if kind == "tls" else ""
        addresses = {
            rank: self._address(rank)
            for rank in range(self.tree.size)
            if not self.tree.is_agent(rank)
        }
        kinds = (ev.PlaceJoined, ev.PlacesLost, ev.WaveCompleted, ev.Answered, ev.SweepDone)
        handlers: dict[Any, Any] = dict.fromkeys(kinds, self.effects.append)
        root = Options(ROOT, agents, fanout, "", {}, "", machine, certificates, timing)
        self.driver: NodeDriver
        self.driver, transport = new_place(root, handlers, self.loop, self.problems)
        self._listener: Listener = transport.listen(addresses[ROOT], self.driver, self.loop)
        self.driver.start()
        places: dict[int, Options] = {}
        for rank in range(1, self.tree.size):
            home = self.tree.parents[rank]
            parent = addresses[home]
            if rank in proxied:
                proxy = self.proxies[rank] = Proxy(self._address(home, 100 + rank), parent)
                self.loop.run_until_complete(proxy.start())
                parent = proxy.address
            others = {one: addresses[one] for one in addresses if one != home}
            listen = addresses.get(rank, "")
            if foreign is not None and rank in foreign:
                command = [sys.executable, str(foreign[rank]), parent, str(rank)]
                self._foreign.append(subprocess.Popen(command))
                continue
            places[rank] = Options(
                rank, agents, fanout, parent, others, listen, machine, certificates, timing
            )
        self.nursery = Nursery([*places.values()])
        self.pids |= zip(places, self.nursery.pids, strict=True)
        self.until(lambda: len(self.seen(ev.PlaceJoined)) == self.tree.size - 1)

    def _certificates(self) -> str:
        """Make the certificates that members show each other."""
        authority = trustme.CA()
        for rank in range(self.tree.size):
            issued = authority.issue_cert(node_id(rank))
            for pem in issued.cert_chain_pems:
                pem.write_to_path(self._folder / f"{rank}.pem", append=True)
            issued.private_key_pem.write_to_path(self._folder / f"{rank}.key")
        authority.cert_pem.write_to_path(self._folder / "authority.pem")
        return str(self._folder)

    def _address(self, rank: int, number: int | None = None) -> str:
        """Return an address for a place, another one for each number."""
        number = rank if number is None else number
        if self._kind == "unix":
            return str(self._folder / f"{number}.sock")
        host = f"{NETWORK}.{number % 100 + 1}"
        with socket.create_server((host, 0)) as probe:
            return f"{node_id(rank)}@{host}:{probe.getsockname()[1]}"

    def seen(self, kind: type[E]) -> list[E]:
        """Return the effects of a kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def until(self, condition: Callable[[], object], patience: float = PATIENCE) -> None:
        """Let the loop run until something is so."""
        deadline = self.loop.time() + patience
        while not condition():
            assert self.loop.time() < deadline, (self.effects[-3:], self.problems)
            self.loop.run_until_complete(asyncio.sleep(0.002))

    def broadcast(self, value: Any) -> Any:
        """Send a wave and return the sum of the answers."""
        if 1 not in self.driver.node.streams:
            members = ((1, self.tree.agents + 1),)
            self.driver.post(ev.OpenStream(StreamSpec(1, "x", members, {"x": "sum"})))
        before = len(self.seen(ev.WaveCompleted))
        encoded = values.encode(value)
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        self.driver.post(ev.Broadcast(1, encoded.body, payload))
        self.until(lambda: len(self.seen(ev.WaveCompleted)) > before)
        total: Any = self.seen(ev.WaveCompleted)[-1].total
        return total["x"]

    def close(self) -> None:
        """End all processes."""
        self._listener.close()
        self.driver.close()
        for proxy in self.proxies.values():
            proxy.close()
        self.nursery.close()
        for process in self._foreign:
            process.kill()
            process.wait()
        self.loop.run_until_complete(asyncio.sleep(0.01))
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.01))
        self.loop.close()


@pytest.fixture
def plant_grove(tmp_path: Path) -> Iterator[Callable[..., Grove]]:
    """Make trees of processes that end with the test."""
    grown: list[Grove] = []

    def plant(*arguments: Any, **options: Any) -> Grove:
        grown.append(Grove(tmp_path, *arguments, **options))
        return grown[-1]

    yield plant
    for grove in grown:
        grove.close()
