"""Hosts for the tests of this folder, made once for each worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.system.hosts import cluster, ray_cluster
from tests.system.hosts.cluster import Slurm, slurm_cluster
from tests.system.hosts.network import Network, missing, network, until
from tests.system.hosts.ray_cluster import RayCluster

HOSTS = 4


@pytest.fixture(scope="session")
def _hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with network(tmp_path_factory.mktemp("hosts"), HOSTS) as made:
        yield made


@pytest.fixture
def hosts(_hosts: Network) -> Iterator[Network]:
    """Hosts on which nothing runs before the test, nor after it."""
    until(_hosts.is_clean)
    yield _hosts
    until(_hosts.is_clean)


@pytest.fixture(scope="session")
def _slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    reason = cluster.missing()
    if reason:
        pytest.skip(reason)
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def slurm(_slurm: Slurm) -> Iterator[Slurm]:
    """A Slurm cluster without a job before the test, nor after it."""
    until(_slurm.is_clean)
    yield _slurm
    until(_slurm.is_clean)


@pytest.fixture
def own_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm cluster of the test's own, whose nodes it may break."""
    reason = cluster.missing()
    if reason:
        pytest.skip(reason)
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def slurm_over_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Slurm, Network]]:
    """A Slurm cluster whose nodes are hosts with separate addresses, and these hosts."""
    reason = missing() or cluster.missing()
    if reason:
        pytest.skip(reason)
    hosts = Network(tmp_path_factory.mktemp("slurm-hosts"), HOSTS, prefix="sws", ssh=False)
    try:
        hosts.up()
        with slurm_cluster(tmp_path_factory.mktemp("slurm"), hosts) as made:
            yield made, hosts
            until(made.is_clean)
    finally:
        hosts.down()


@pytest.fixture(scope="session")
def _ray() -> Iterator[RayCluster]:
    reason = ray_cluster.missing()
    if reason:
        pytest.skip(reason)
    with ray_cluster.ray_cluster() as made:
        yield made


@pytest.fixture
def ray(_ray: RayCluster) -> Iterator[RayCluster]:
    """A Ray cluster in which nothing of ours runs before the test, nor after it."""
    until(_ray.is_clean)
    yield _ray
    until(_ray.is_clean)
