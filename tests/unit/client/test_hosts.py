"""``sapwood.start``: which options machines of a kind have."""

from __future__ import annotations

from typing import Any

import pytest

import sapwood
from sapwood.client import hosts
from sapwood.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("spec", "options", "unknown"),
    [
        ("local", {"time": "1:00"}, "'time'"),
        ("ssh:n1", {"gpus_per_node": 1, "fanout": 2}, "'fanout' or 'gpus_per_node'"),
        ("nodes:2", {"credential": "a.credential"}, "'credential'"),
        ("session:night", {"agents_per_node": 2}, "'agents_per_node'"),
        ("slurm:2", {"nodes": 3}, "'nodes'"),  # the text says it
    ],
)
def test_an_option_that_machines_do_not_have_is_refused(
    spec: str, options: dict[str, Any], unknown: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        sapwood.start(spec, **options)
    assert f"'{spec}' has no option {unknown}" in raised.value.what
    assert "settings" in raised.value.hint


@pytest.mark.parametrize("given", [{"agents": 2}, {"environment": {"MODE": "test"}}])
def test_a_session_has_its_agents_already(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a session has its agents"):
        sapwood.start("session:night", **given)


@pytest.mark.parametrize(
    ("spec", "first"),
    [
        ("ssh:n1,gpu[1-2]", ["n1", "gpu[1-2]"]),
        ("slurm", None),
        ("slurm:4", 4),
        ("ray:2", 2),
        ("dask:tcp://h:1", "tcp://h:1"),
        ("kubernetes:3", 3),
        ("head", "default"),
        ("head:nw", "nw"),
        ("session:nw/night", "nw/night"),
    ],
)
def test_options_go_to_the_function_for_these_machines(
    spec: str, first: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = spec.partition(":")[0]
    calls: list[tuple[Any, dict[str, Any]]] = []

    def made(place: Any, agents: int | None = None, *, extra: int = 0, **more: Any) -> Any:
        calls.append((place, {"agents": agents, "extra": extra, **more}))

    monkeypatch.setitem(hosts._STARTERS, kind, (made, hosts._STARTERS[kind][1]))
    sapwood.start(spec, 8, extra=3)
    assert calls == [(first, {"agents": 8, "extra": 3, "settings": None, "environment": None})]
