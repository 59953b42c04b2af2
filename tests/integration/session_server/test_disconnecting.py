"""Output that arrives while no client is attached: buffer, drop, block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from sapwood.comm import values
from sapwood.environment.settings import (
    CommSettings,
    DisconnectPolicy,
    PolicySettings,
    Settings,
)
from sapwood.session_server.keeping import EFFECT_COST, KeptStreams
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.server_link import SessionAddress
from sapwood_simulation.local_session_server import attach_here, local_session_server, root_of

from .conftest import PATIENCE, Until

BUFFER = 64 * EFFECT_COST
MANY = 400
LOST_AFTER = 1.0
"""Seconds of silence after which an agent would count as lost."""


def settings_of(output: Literal["buffer", "drop", "block"]) -> Settings:
    policy = PolicySettings(disconnect=DisconnectPolicy(output=output, buffer=BUFFER))
    comm = CommSettings(heartbeat=0.1, failure_after=LOST_AFTER)
    return Settings(policy=policy, comm=comm)


def counting(path: str) -> Callable[[int], Iterator[int]]:
    """Return what pushes numbers and writes down how many it was let push."""

    def count(n: int) -> Iterator[int]:
        for number in range(1000, 1000 + n):
            yield number
            with open(path, "a") as file:  # noqa: PTH123 - at an agent
                file.write(".")

    return count


class Leaving:
    """A session of two agents, of which the first has begun to push when its owner leaves."""

    def __init__(self, address: SessionAddress, settings: Settings, file: Path) -> None:
        self.address, self.settings, self.file = address, settings, file
        file.touch()
        owner = attach_here(address, settings)
        root = root_of(owner)
        assert isinstance(root, ServedSession)
        self.root = root
        self.stream = owner.stream(counting(str(file)), sync="none", agents=[1])
        self.stream.flush()
        owner.detach()

    def begin(self) -> None:
        """Have the agent push, as if the owner had asked for that at its last moment."""
        with attach_here(self.address, self.settings) as owner:
            (stream,) = owner.kept_streams
            stream.broadcast(MANY)
            stream.flush()
            owner.detach()

    @property
    def pushed(self) -> int:
        return self.file.stat().st_size

    @property
    def kept(self) -> tuple[int, int]:
        """How much of the stream waits, and how much was left out."""

        def look() -> tuple[int, int]:
            ((owner, mine),) = self.root.of_stream.values()
            if not isinstance(owner, KeptStreams):
                return 0, 0  # the owner is still leaving
            found = owner._results[mine]
            return len(found.kept), found.dropped

        found: tuple[int, int] = self.root.call(look)
        return found


def received(stream: Any, count: int) -> list[int]:
    came = stream.waves(PATIENCE)
    return [next(came).total for _ in range(count)]


@pytest.mark.row("C3-SESS-3")
@pytest.mark.parametrize("output", ["buffer", "drop"])
def test_what_comes_is_kept_or_dropped_and_each_value_is_counted(
    output: Literal["buffer", "drop"], tmp_path: Path, until: Until
) -> None:
    settings = settings_of(output)
    with local_session_server(settings, agents=1) as address:
        left = Leaving(address, settings, tmp_path / "pushed")
        left.begin()
        until(lambda: sum(left.kept) >= MANY and left.pushed == MANY)
        with attach_here(address, settings) as owner:
            (stream,) = owner.kept_streams
            lost = stream.query().dropped
            if output == "buffer":
                kept = BUFFER // (EFFECT_COST + len(values.encode(1000).body))
                assert (lost, kept < MANY) == (MANY - kept, True)
                assert received(stream, kept) == list(range(1000 + lost, 1000 + MANY))
            else:
                assert lost == MANY
            # The agent continues, though more was left out than it may have unread.
            stream.broadcast(MANY)
            assert received(stream, MANY) == list(range(1000, 1000 + MANY))
            stream.close()


@pytest.mark.row("C3-SESS-3")
def test_agents_that_push_wait_and_nobody_else_does(tmp_path: Path, until: Until) -> None:
    settings = settings_of("block")
    with local_session_server(settings, agents=2) as address:
        left = Leaving(address, settings, tmp_path / "pushed")
        left.begin()
        with attach_here(address, settings, ClientRole.USER) as other:
            before = [one.pid for one in other.agents]
            until(lambda: left.pushed and left.kept[0] >= left.pushed)
            end = time.monotonic() + 3 * LOST_AFTER
            with other.stream(abs, reduce="sum") as stream:
                while time.monotonic() < end:  # longer than a place may be silent
                    assert stream.exchange(-1, PATIENCE).total == 2
            assert other.submit(pow, 2, 5).result(PATIENCE) == 32
            assert [one.pid for one in other.agents] == before
            blocked = left.pushed
            assert 0 < blocked < MANY // 2, "its window is 64 values"
        with attach_here(address, settings) as owner:
            (stream,) = owner.kept_streams
            assert stream.query().dropped == 0
            assert received(stream, MANY) == list(range(1000, 1000 + MANY))
            until(lambda: left.pushed == MANY)
            stream.close()
