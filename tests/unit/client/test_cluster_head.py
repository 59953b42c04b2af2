"""``sapwood.connect``: the head of a long-lived cluster, and the form that it had before."""

from __future__ import annotations

from typing import Any

import pytest

import sapwood
from sapwood.client import cluster_head


def test_connecting_with_agents_works_for_one_release(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        cluster_head, "at_head", lambda *args, **kwargs: started.append((args, kwargs))
    )
    with pytest.warns(DeprecationWarning, match=r"sapwood\.connect\(NAME\)\.start\(AGENTS\)"):
        sapwood.connect("nw", agents=2, credential="a.credential")
    assert started == [(("nw", 2), {"credential": "a.credential", "key": None})]


def test_the_cluster_by_its_former_name_works_for_one_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        cluster_head, "at_head", lambda *args, **kwargs: started.append((args, kwargs))
    )
    monkeypatch.setattr(cluster_head.ClusterHead, "check", lambda _head: None)
    with pytest.warns(DeprecationWarning, match=r"use sapwood\.connect\(NAME\)\.start"):
        sapwood.connect(cluster="nw", agents=2)
    assert started == [(("nw", 2), {"credential": None, "key": None})]
    with pytest.warns(DeprecationWarning, match=r"use sapwood\.connect\(NAME\);") as noted:
        head = sapwood.connect(cluster="nw")
    assert noted[0].filename == __file__
    assert isinstance(head, cluster_head.ClusterHead)
    assert head.name == "nw"


def test_an_option_that_sessions_do_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="agent_per_node"):
        cluster_head.ClusterHead("nw").request_session(agent_per_node=2)  # type: ignore[call-arg]


def test_a_head_that_is_not_up_is_reported_at_once(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPWOOD_STATE_HOME", str(tmp_path))
    with pytest.raises(sapwood.errors.NodeLostError, match="no-such-cluster"):
        sapwood.connect("no-such-cluster")


def test_what_is_done_at_a_head_is_done_with_its_credential(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: dict[str, tuple[Any, ...]] = {}

    def note(name: str) -> Any:
        return lambda *args, **kwargs: calls.__setitem__(name, (args, kwargs))

    for name in ("at_head", "create_session", "request_session", "runs", "Stage"):
        monkeypatch.setattr(cluster_head, name, note(name))
    head = cluster_head.ClusterHead("nw", credential="a.credential", key="a.key")
    assert (head.name, repr(head)) == ("nw", "<ClusterHead of nw>")
    head.start(4, agents_per_node=2)
    head.create_session(4, name="night", idle=0)
    head.request_session(4, name="day", on="slurm:2")
    _ = head.runs
    head.stage()
    proof = {"credential": "a.credential", "key": "a.key"}
    assert calls["at_head"] == (
        ("nw", 4),
        {"agents_per_node": 2, "settings": None, "environment": None, **proof},
    )
    assert calls["runs"] == (("nw",), proof)
    assert calls["Stage"] == (("nw",), {"settings": None, **proof})
    assert calls["create_session"][1]["cluster"] == "nw"
    assert calls["request_session"][1]["cluster"] == "nw"
    assert calls["request_session"][1]["on"] == "slurm:2"
