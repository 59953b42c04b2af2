"""The OpenCL example finds what k-means of numpy finds, and copies the points once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.gpu.devices.opencl import OpenClBackend

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "clusters"

pytestmark = pytest.mark.skipif(
    not OpenClBackend().discover(), reason="this machine has no OpenCL device"
)


def by_numpy(points: Any, centres: Any, rounds: int) -> Any:
    for _ in range(rounds):
        nearest = ((points[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.array([points[nearest == k].mean(axis=0) for k in range(len(centres))])
    return centres


@pytest.mark.row("A-GPU-2")
def test_it_finds_what_numpy_finds_and_the_points_stay_on_the_device() -> None:
    points = np.random.default_rng(3).normal(size=(5000, 3)).astype(np.float32)
    program = sapwood.load_program(FOLDER, {"k": 4, "rounds": 6})
    with sapwood.local(agents=2) as cluster:
        run = cluster.run(program, {"points": points})
        found = run.result(timeout=100)
    np.testing.assert_allclose(found, by_numpy(points, points[::1250], 6), atol=1e-3)
    for agent in run.statistics.agents:
        device = agent.device
        assert device is not None
        assert device.launches == 6
        assert device.copies_in == 1 + 6  # the points once, the centres in every iteration
        assert device.bytes_in == agent.items * 12 + 6 * 4 * 12
        assert device.reused == 5
        assert device.copies_out == 2 * 6
        assert device.seconds_in > 0
    assert "to device" in str(run.statistics)
