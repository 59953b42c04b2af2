"""Metrics: what they say, how large they are with many nodes, and what promtool says of them."""

from __future__ import annotations

import re
import shutil
import subprocess

import msgspec
import pytest

from sapwood.head import calls, session_records
from sapwood.head.parts.cluster import HeadFacts
from sapwood.server.metrics import (
    MAX_NODES,
    ClusterMetrics,
    ServerMetrics,
    as_list,
    as_text,
    series,
)

NAME = re.compile(r"sapwood_[a-z0-9_]+")


def figures(nodes: int, **of_first: object) -> ClusterMetrics:
    snapshots = [
        calls.NodeSnapshot(
            host=number,
            name=f"gpu-node-{number:04}.cluster",
            state="ready",
            cores=128,
            skew=0.0012,
            certificate_end=1.795e9,
            link="up",
            round_trip=0.00123,
            sent=123456789012 + number,
            received=98765432109 + number,
            queued=4096,
            load=12.34,
            free_memory=48 * 2**30 + number,
            sessions=["sapwood-1"],
            processes=4,
        )
        for number in range(nodes)
    ]
    head = HeadFacts(
        name="lab", cluster="sw-1", version="1", pid=1, started=1.7e9, addresses=[], clients=3
    )
    return ClusterMetrics(
        head=head,
        snapshot=calls.ClusterSnapshot(time=1.0, nodes=snapshots),
        runs=[calls.RunRecord(id="a", program="p", session="", state="done", created=1.0)],
        events=17,
        server=ServerMetrics(requests={200: 5, 401: 1}, connections=2),
    )


def values(text: bytes) -> dict[str, float]:
    found = {}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, "a series is there twice"
            found[name] = float(value)
    return found


@pytest.mark.row("D-7")
def test_says_how_the_cluster_is() -> None:
    found = values(as_text(series(figures(2))))
    assert found['sapwood_nodes{state="ready"}'] == 2
    assert found['sapwood_nodes{state="lost"}'] == 0
    assert found['sapwood_node_round_trip_seconds{node="gpu-node-0001.cluster"}'] == 0.00123
    assert found['sapwood_runs{state="done"}'] == 1
    assert found["sapwood_processes"] == 8
    assert found["sapwood_ledger_events_total"] == 17
    assert found['sapwood_http_responses_total{status="401"}'] == 1
    assert found['sapwood_call_seconds_bucket{le="+Inf"}'] == 0  # alerts see zeros


@pytest.mark.row("D-7")
def test_says_what_agents_have_done() -> None:
    made = figures(1)
    work = session_records.WorkMetrics(
        agents=64, busy=3, memory=2**30, calls=10, errors=1, seconds=4.5, bytes_in=5, bytes_out=6,
        buckets=[0, 2, 0, 6, 0, 0, 1],
    )  # fmt: skip
    snapshot = msgspec.structs.replace(made.snapshot, work=work)
    found = values(as_text(series(msgspec.structs.replace(made, snapshot=snapshot))))
    assert found['sapwood_calls_total{result="ok"}'] == 9
    assert found['sapwood_calls_total{result="error"}'] == 1
    assert found['sapwood_call_bytes_total{direction="out"}'] == 6
    assert (found["sapwood_agents_busy"], found["sapwood_agents_memory_bytes"]) == (3, 2**30)
    buckets = [found[f'sapwood_call_seconds_bucket{{le="{le}"}}'] for le in ("0.01", "10.0")]
    assert buckets == [2, 8]
    assert found['sapwood_call_seconds_bucket{le="+Inf"}'] == found["sapwood_call_seconds_count"]
    assert found["sapwood_call_seconds_sum"] == 4.5


def test_names_follow_the_rules() -> None:
    for name, kind, about, samples in series(figures(1)):
        assert NAME.fullmatch(name)
        assert (kind == "counter") == name.endswith("_total")
        assert about.endswith(".")
        assert samples


@pytest.mark.row("D-7")
def test_a_thousand_nodes_are_less_than_a_megabyte() -> None:
    text = as_text(series(figures(1000)))
    assert 100_000 < len(text) < 1_000_000


def test_of_very_many_nodes_there_are_sums_only() -> None:
    text = as_text(series(figures(MAX_NODES + 1)))
    assert len(text) < 10_000
    assert values(text)['sapwood_nodes{state="ready"}'] == MAX_NODES + 1


def test_what_is_not_known_has_no_value() -> None:
    made = figures(1)
    unknown = calls.NodeSnapshot(host=1, name='a"\\\n', state="lost")
    snapshot = calls.ClusterSnapshot(time=1.0, nodes=[unknown])
    text = as_text(series(ClusterMetrics(head=made.head, snapshot=snapshot)))
    assert b'sapwood_node_up{node="a\\"\\\\\\n"} 0\n' in text
    assert b"load1" not in text
    assert b"round_trip" not in text


def test_json_has_the_same() -> None:
    found = as_list(series(figures(2)))
    (up,) = [one for one in found.metrics if one.name == "sapwood_node_up"]
    assert [one.value for one in up.samples] == [1.0, 1.0]
    assert up.samples[0].labels == {"node": "gpu-node-0000.cluster"}


@pytest.mark.nightly
def test_promtool_finds_no_fault() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here (Debian: package prometheus)")
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=as_text(series(figures(3))),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
