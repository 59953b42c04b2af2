"""C3-SESS-4: two sessions that are merged, with streams over both, and split again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import sapwood
from sapwood.client.merged import Merged
from sapwood.core import typed
from sapwood.environment.settings import Settings
from sapwood.roots import root_calls
from sapwood.roots.attached import AttachedSession, RootAddress
from sapwood.roots.merged_session import MergedSession, MergeOrder
from sapwood_simulation.root_here import attach_here, root_here

from .conftest import PATIENCE

pytestmark = pytest.mark.row("C3-SESS-4")


def merged_here(cluster: sapwood.Cluster, other: RootAddress) -> Merged:
    """Merge a session whose root is in this process, too."""
    socket = str(Path(os.environ["XDG_RUNTIME_DIR"]) / f"{other.session}.sock")
    order = MergeOrder(socket=socket, session=other.session, name=other.name)
    session = cluster.session
    assert isinstance(session, AttachedSession)
    asked = session.ask_root(root_calls.MERGE, msgspec.to_builtins(order))
    return cluster._merged(session, typed.convert(asked.result(PATIENCE), MergedSession))


@pytest.fixture(scope="module")
def two(nothing_is_left_behind_by_all: None) -> Iterator[tuple[RootAddress, RootAddress]]:
    """A session of two agents, and one of three below two junctions."""
    del nothing_is_left_behind_by_all
    settings = Settings()
    with root_here(settings, agents=2) as one, root_here(settings, agents=3, fanout=2) as other:
        yield one, other


@pytest.fixture
def pair(two: tuple[RootAddress, RootAddress]) -> Iterator[tuple[sapwood.Cluster, Merged]]:
    """The two merged, with a front end at the first."""
    with attach_here(two[0], Settings()) as cluster, merged_here(cluster, two[1]) as merged:
        yield cluster, merged


def test_a_sum_over_both(pair: tuple[sapwood.Cluster, Merged]) -> None:
    _, merged = pair
    with merged.stream("echo", reduce="sum") as stream:
        for value in (1, 2.5):
            result = stream.broadcast(value).result(PATIENCE)
            assert result.total == 5 * value
            assert list(merged.ranks_of(result).values()) == [[1, 2], [1, 2, 3]]
            assert not result.missing
