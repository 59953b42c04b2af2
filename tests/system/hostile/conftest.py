"""The clusters of all steps, the check that follows each step, and which steps are nightly.

Each step is done on a cluster in this process, in a session of a head, and on two nodes. `make
test` does some of them: of each method and each way to compute a few, which differ from cluster to
cluster.
"""

from __future__ import annotations

import contextlib
import operator
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import sapwood

from .programs import Total

AGENTS = 2
PATIENCE = 30.0
KINDS = ("local", "session", "nodes")

SAMPLES = {
    "test_methods": {"local": 3, "session": 1, "nodes": 1},
    "test_values": {"local": 16},
    "test_callbacks": {"local": 3},
    "test_sizes": {"local": 6},
}
"""How many steps of one group `make test` does, by module and kind of cluster."""

ELSEWHERE = {"local": 8}
"""The same for other modules."""

NewCluster = Callable[[], contextlib.AbstractContextManager[sapwood.Cluster]]
"""Makes another cluster of the same kind, with one agent."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Do each step on each kind of cluster."""
    if "kind_of_cluster" in metafunc.fixturenames:
        metafunc.parametrize("kind_of_cluster", KINDS, indirect=True, scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the nightly tests what is not in the sample of its group.

    A group is what differs in its last parameter only, such as the arguments of a method.
    """
    here = Path(__file__).parent
    groups: defaultdict[tuple[str, tuple[str, ...]], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.path.is_relative_to(here) and isinstance(item, pytest.Function):
            where = getattr(item, "callspec", None)
            if where is not None and "kind_of_cluster" in where.params:
                params = {**where.params}
                kind = params.pop("kind_of_cluster")
                step = (item.originalname, *[str(one) for one in params.values()][:-1])
                groups[kind, step].append(item)
    for (kind, _), group in groups.items():
        group.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        sample = SAMPLES.get(group[0].path.stem, ELSEWHERE)
        for item in group[sample.get(kind, 0) :]:
            item.add_marker(pytest.mark.nightly)


def computes(cluster: sapwood.Cluster) -> None:
    """Check an ordinary task and an ordinary sum."""
    assert cluster.submit(abs, -3).result(PATIENCE) == 3
    with cluster.stream(abs, reduce=operator.add) as stream:
        assert stream.broadcast(-5).result(PATIENCE).total == 5 * AGENTS


@pytest.fixture(scope="module")
def kind_of_cluster(request: pytest.FixtureRequest) -> str:
    """``local``, ``session`` or ``nodes``."""
    return str(request.param)


@pytest.fixture(scope="module")
def head(
    nothing_is_left_behind_by_all: None,
    kind_of_cluster: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """A head, where the cluster is a session."""
    del nothing_is_left_behind_by_all  # it looks when the head has ended
    if kind_of_cluster != "session":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        _sapwood("up", "--no-node")
        try:
            yield
        finally:
            _sapwood("down")


def _sapwood(*words: str) -> None:
    command = [sys.executable, "-m", "sapwood", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def _made(kind: str, agents: int) -> sapwood.Cluster:
    if kind == "session":
        return sapwood.connect().create_session(agents, on="local")
    return sapwood.local(agents) if kind == "local" else sapwood.start("nodes:2", agents=agents)


@pytest.fixture(scope="module")
def standing_cluster(head: None, kind_of_cluster: str) -> Iterator[sapwood.Cluster]:
    """A cluster for all steps of a module."""
    del head  # the session ends before it
    with _made(kind_of_cluster, AGENTS) as made:
        computes(made)  # both agents have runners then
        data = np.random.default_rng().random(200_000)  # in no node's cache: a thread sends them
        made.run(Total, data={"x": data}).result(PATIENCE)
        yield made


@pytest.fixture
def cluster(standing_cluster: sapwood.Cluster) -> Iterator[sapwood.Cluster]:
    """A cluster that has to compute after the test as before."""
    yield standing_cluster
    computes(standing_cluster)


@pytest.fixture
def new_cluster(head: None, kind_of_cluster: str) -> NewCluster:
    """Make another cluster of the same kind, for a test that ends it."""
    del head
    return lambda: _made(kind_of_cluster, 1)
