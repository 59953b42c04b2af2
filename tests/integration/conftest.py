"""Clusters as users make them, and the programs of these tests."""

import contextlib
import operator
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.code import load_program
from sapwood.environment.settings import RestartSettings, Settings
from sapwood_simulation.local_session_server import attach_here, local_session_server, root_of

PATIENCE = 30.0
PROGRAMS = Path(__file__).with_name("client") / "programs.py"
QUICK = RestartSettings(limit=20, backoff=0.01, backoff_max=0.05)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Call the tests of modules with ``ROOTS`` for each place that the root of a session may be."""
    roots = getattr(metafunc.module, "ROOTS", None)
    if roots is not None and "root" in metafunc.fixturenames:
        metafunc.parametrize("root", roots, indirect=True, scope="module")


@pytest.fixture(scope="module")
def root(request: pytest.FixtureRequest) -> str:
    """Where the root of a session is: embedded in the client, or attached to."""
    return str(getattr(request, "param", "embedded"))


@contextlib.contextmanager
def new_cluster(root: str, agents: int, fanout: int, settings: Settings) -> Iterator[Any]:
    """Have a cluster, whose root is where the test wants it."""
    if root == "embedded":
        cluster = sapwood.local(agents, fanout=fanout, settings=settings)
        try:
            yield cluster
        finally:
            cluster.close()  # at once, whatever a test has left to do
        return
    with local_session_server(settings, agents, fanout) as address:
        cluster = attach_here(address, settings)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.fixture
def make_cluster(root: str) -> Iterator[Callable[..., sapwood.Cluster]]:
    """Make clusters that end with the test."""
    with contextlib.ExitStack() as made:

        def make(agents: int, fanout: int = 0, **sections: Any) -> sapwood.Cluster:
            settings = Settings(**{"restart": QUICK, **sections})
            cluster = made.enter_context(new_cluster(root, agents, fanout, settings))
            assert isinstance(cluster, sapwood.Cluster)
            return cluster

        yield make


@pytest.fixture
def cluster(make_cluster: Callable[..., sapwood.Cluster]) -> sapwood.Cluster:
    """A cluster of three agents."""
    return make_cluster(3)


@pytest.fixture(scope="module")
def standing_cluster(
    nothing_is_left_behind_by_all: None, request: pytest.FixtureRequest, root: str
) -> Iterator[sapwood.Cluster]:
    """A cluster for all tests of a module; its ``TREE`` says how many agents and which fan-out."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    agents, fanout = request.module.TREE
    settings = Settings(restart=QUICK)
    with new_cluster(root, agents, fanout, settings) as cluster:
        yield cluster


@pytest.fixture
def standing(standing_cluster: sapwood.Cluster) -> Iterator[sapwood.Cluster]:
    """The cluster of the module, for a test that harms none of its places."""

    def places() -> dict[int, int]:
        return {place.rank: place.pid for place in root_of(standing_cluster).supervisor.processes}

    with standing_cluster.stream(abs, reduce=operator.add) as stream:
        stream.broadcast(-1).result(PATIENCE)  # runners, and those of filters, are there now
    before = places()
    yield standing_cluster
    assert places() == before, "a test that harms places needs its own cluster"


@pytest.fixture
def program() -> Callable[..., sapwood.Program]:
    """Load a program of these tests by name."""

    def load(name: str, **parameters: Any) -> sapwood.Program:
        return load_program(f"{PROGRAMS}::{name}", parameters)

    return load


@pytest.fixture
def edit() -> Callable[[Path, str], None]:
    """Replace what is in a file as editors do: whoever looks at it sees no half of it."""

    def replace(path: Path, text: str) -> None:
        new = path.with_name(f"{path.name}.new")
        new.write_text(text)
        new.replace(path)

    return replace


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Wait until something is so."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it does not become so"
            time.sleep(0.002)

    return wait
