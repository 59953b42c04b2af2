"""A local cluster for all steps of a module, and the check that follows each step."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import pytest

import sapwood

AGENTS = 2
PATIENCE = 30.0


def computes(cluster: sapwood.Cluster) -> None:
    """Check an ordinary task and an ordinary sum."""
    assert cluster.submit(abs, -3).result(PATIENCE) == 3
    with cluster.stream(abs, reduce=operator.add) as stream:
        assert stream.broadcast(-5).result(PATIENCE).total == 5 * AGENTS


@pytest.fixture(scope="module")
def local_cluster(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    del nothing_is_left_behind_by_all  # it looks when the cluster is closed
    with sapwood.local(AGENTS) as made:
        computes(made)  # both agents have runners then
        yield made


@pytest.fixture
def cluster(local_cluster: sapwood.Cluster) -> Iterator[sapwood.Cluster]:
    """A cluster that has to compute after the test as before."""
    yield local_cluster
    computes(local_cluster)
