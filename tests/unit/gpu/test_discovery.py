from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sapwood.cli.main import app
from sapwood.gpu.devices.base import DeviceFacts
from sapwood.gpu.discovery import choose_device, device_items, suggest_block, visible_gpus

GPU = DeviceFacts(
    backend="cuda", index=0, name="NVIDIA L4", memory=2**34, architecture="sm_89", driver="550.1"
)
HOST = DeviceFacts(backend="host", index=0, name="CPU", kind="cpu")


@pytest.mark.row("A-GPU-1")
def test_no_gpu_is_in_order(tmp_path: Path) -> None:
    (found,) = device_items([HOST], tmp_path)
    assert (found.name, found.value, found.status) == ("GPU", "none", "ok")


@pytest.mark.row("A-GPU-1")
def test_devices_are_shown_in_a_line_each(tmp_path: Path) -> None:
    pocl = DeviceFacts(backend="opencl", index=0, name="pthread", kind="cpu", memory=2**30)
    found = [(one.name, one.value) for one in device_items([GPU, pocl, HOST], tmp_path)]
    assert found == [
        ("cuda 0", "NVIDIA L4, 16 GiB, sm_89, driver 550.1"),
        ("opencl 0", "pthread, 1 GiB, a cpu"),
    ]


def test_a_card_that_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (found,) = device_items([HOST], tmp_path)
    assert found.status == "warning"
    assert "sapwood[cuda]" in found.hint


@pytest.mark.row("B-HW-1")
def test_node_check_tells_the_devices() -> None:
    answer = CliRunner().invoke(app, ["node", "check", "--json"])
    shown = json.loads(answer.stdout)
    assert shown["devices"][-1]["backend"] == "host"
    assert any(item["group"] == "gpu" for item in shown["items"])


@pytest.mark.row("B-HW-1")
@given(st.integers(0, 10**9), st.integers(0, 200), st.integers(1, 2048), st.sampled_from([1, 32]))
def test_a_block_is_one_that_the_device_takes(
    items: int, units: int, max_block: int, warp: int
) -> None:
    facts = DeviceFacts(backend="x", index=0, name="", units=units, max_block=max_block, warp=warp)
    block = suggest_block(facts, items)
    assert 1 <= block <= max_block
    assert block % warp == 0 or max_block < warp


@pytest.mark.row("B-HW-1")
@given(st.integers(1, 5), st.integers(1, 40))
def test_agents_take_the_gpus_in_turn(gpus: int, agents: int) -> None:
    devices = [DeviceFacts(backend="opencl", index=i, name="") for i in range(gpus)]
    chosen = [choose_device([*devices, HOST], ordinal).index for ordinal in range(agents)]
    counts = [chosen.count(index) for index in range(gpus)]
    assert max(counts) - min(counts) <= 1


def test_without_a_gpu_the_other_devices_serve() -> None:
    assert choose_device([HOST], 3) is HOST


def test_what_an_administrator_hides_stays_hidden() -> None:
    assert [visible_gpus("2,5", 8, ordinal) for ordinal in range(3)] == ["2", "5", "2"]
    assert visible_gpus("", 8, 1) == ""
