"""C3-TOPO: the predicted cost of a wave equals the counted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from link_measurement import measure_links
from sapwood.comm import values
from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import ROOT
from sapwood.session.embedded import embedded
from wave_cost import LinkCost, WaveLoad, predict

TIMEOUT = 60.0
TREE = (8, 0)
WAVES = 3
LINK = LinkCost(1e-5, 1e-5, 1e-9)
SHAPES = ["flat", "kary:2", "kary:3", "knomial:2", "knomial:3", "file"]
FILE = 'root = ["left", "8"]\nleft = ["1", "right", "7"]\nright = ["2-6"]\n'


@pytest.mark.row("C3-TOPO")
@pytest.mark.parametrize("size", [3, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("shape", SHAPES)
def test_messages_and_bytes_are_those_that_places_count(
    standing: sapwood.Cluster, tmp_path: Path, shape: str, size: int
) -> None:
    value: dict[str, Any] = {"x": np.arange(size, dtype=float)}
    encoded = values.encode(value)
    nbytes = len(encoded.body) + len(encoded.payload())
    if shape == "file":
        path = tmp_path / "tree"
        path.write_text(FILE)
        shape = f"file:{path}"
    with (
        standing.topology(shape=shape) as topology,
        topology.stream("echo", reduce={"x": "sum"}) as stream,
    ):
        for _ in range(WAVES):
            total = stream.broadcast(value).result(TIMEOUT).total
            np.testing.assert_array_equal(total["x"], 8 * value["x"])
        counters = stream.counters(TIMEOUT)
        tree = embedded(topology.session).tree
    cost = predict(tree, WaveLoad(nbytes, nbytes), LINK)
    assert [place.rank for place in cost.places] == [place.rank for place in counters.places]
    for place in cost.places:
        counted = counters[place.rank]
        assert (counted.messages_down, counted.bytes_down) == (WAVES, WAVES * nbytes)
        assert counted.messages_up == WAVES * place.messages_up
        assert counted.bytes_up == WAVES * place.bytes_up


@pytest.mark.row("C3-TOPO")
@pytest.mark.parametrize("shape", ["flat", "kary:2", "knomial:2"])
def test_bytes_of_what_is_gathered_are_those_that_places_count(
    standing: sapwood.Cluster, shape: str
) -> None:
    """Each junction adds the words around its parts: the arrays are what is predicted."""
    value = np.arange(20_000, dtype=float)
    with (
        standing.topology(shape=shape) as topology,
        topology.stream("echo", reduce="concat") as stream,
    ):
        assert len(stream.broadcast(value).result(TIMEOUT).total) == 8 * len(value)
        counters = stream.counters(TIMEOUT)
        tree = embedded(topology.session).tree
    cost = predict(tree, WaveLoad(value.nbytes, value.nbytes, grows=True), LINK)
    for place in cost.places:
        assert counters[place.rank].messages_up == place.messages_up
        assert 0 <= counters[place.rank].bytes_up - place.bytes_up < 100 * tree.agents


@pytest.mark.row("C3-TOPO")
def test_a_cluster_has_the_shape_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    path.write_text('root = ["left", "3"]\nleft = ["1-2"]\n')
    with sapwood.local(shape=f"file:{path}") as cluster:
        tree = embedded(cluster.session).tree
        assert cluster.stream("echo").broadcast(1).result(TIMEOUT).agents == [1, 2, 3]
        assert tree.children(ROOT) == [4, 3]


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ("round", "is not a shape"),
        ("kary", "is not a shape"),
        ("kary:1", "at least 2"),
        ("flat:2", "is not a shape"),
        ("file:/nowhere/tree", "cannot be read"),
    ],
)
def test_what_is_no_shape_is_refused(standing: sapwood.Cluster, shape: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        standing.topology(shape=shape)


def test_a_file_of_another_number_of_agents_is_refused(
    standing: sapwood.Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "tree"
    path.write_text('root = ["1-3"]')
    with pytest.raises(ConfigurationError, match="3 agents"):
        standing.topology(shape=f"file:{path}")
    with pytest.raises(ConfigurationError, match="both given"):
        standing.topology(2, shape="flat")
    with pytest.raises(ConfigurationError, match="both given"):
        sapwood.local(2, fanout=2, shape="flat")


def test_links_are_measured() -> None:
    cost = measure_links(waves=10)
    assert 0 < cost.overhead < 1
    assert 0 < cost.latency < 1
    assert 0 <= cost.per_byte < 1e-3
