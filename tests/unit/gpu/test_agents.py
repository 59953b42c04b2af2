from __future__ import annotations

import pytest

from sapwood.environment.cores import usable_cores
from sapwood.gpu.agents import agents_by_default


@pytest.mark.parametrize(
    ("gpus", "visible", "agents"),
    [(8, None, 8), (8, "1,5", 2), (2, "0,1,2,3", 2)],
)
def test_several_gpus_have_an_agent_each(
    gpus: int, visible: str | None, agents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert agents_by_default(gpus, visible) == agents


@pytest.mark.parametrize(("gpus", "visible"), [(0, None), (1, None), (4, ""), (4, "2")])
def test_else_each_core_has_one(
    gpus: int, visible: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert agents_by_default(gpus, visible) == usable_cores()


def test_what_may_be_seen_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4,5")
    assert agents_by_default(8) == 3
