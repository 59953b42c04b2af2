"""Clusters of two nodes on this machine, which talk by TLS only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sapwood
from sapwood.client.hosts import several
from sapwood.environment.settings import CommSettings, NodeSettings, RestartSettings, Settings
from sapwood.nodes.control import ControlTree
from sapwood.session.embedded import embedded

PATIENCE = 60.0
SILENCE = 4.0
"""Seconds after which a place is taken for dead; a busy machine keeps a living one from less."""

QUICK = Settings(
    comm=CommSettings(heartbeat=0.5, failure_after=SILENCE),
    restart=RestartSettings(limit=100, backoff=0.01, backoff_max=0.05),
    nodes=NodeSettings(start_timeout=60.0),
)
"""Notices losses soon, and waits for nodes while other tests keep the machine busy."""

OnNodes = Callable[..., sapwood.Cluster]


@pytest.fixture
def on_nodes() -> Iterator[OnNodes]:
    """Make clusters over two nodes, which end with the test."""
    made: list[sapwood.Cluster] = []

    def make(agents: int = 4, machines: int = 2, **changed: Any) -> sapwood.Cluster:
        made.append(several(machines, agents, settings=msgspec.structs.replace(QUICK, **changed)))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def control_of(cluster: sapwood.Cluster) -> ControlTree:
    """Return the control tree of a cluster."""
    found: ControlTree = embedded(cluster.session).host._nodes._access._control  # type: ignore[union-attr]  # of these tests
    return found


def daemons(cluster: sapwood.Cluster) -> list[int]:
    """Return the process ids of the daemons of the nodes."""
    return [one.pid for one in control_of(cluster).session.processes()]


def places(cluster: sapwood.Cluster) -> dict[int, int]:
    """Return the process ids of all places, by rank."""
    return {place.rank: place.pid for place in embedded(cluster.session).supervisor.processes}


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def state(pid: int) -> str:
    """Return the state of a process as the kernel names it; empty if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def processes() -> dict[int, int]:
    """Return the parent of each process of this machine."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return {pid: parent(pid) for pid in pids}


def below(*tops: int) -> list[int]:
    """Return processes and all their descendants."""
    parents = processes()
    found = [top for top in tops if top in parents]
    for one in found:
        found += [pid for pid, above in parents.items() if above == one]
    return found
