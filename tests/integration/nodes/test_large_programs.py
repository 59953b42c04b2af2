"""Programs that are too large for a message, on machines that do not see this one's files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.environment.settings import ClusterSettings

from .conftest import OnNodes


def _added(a: float, b: float) -> float:
    return a + b


@pytest.mark.parametrize("reduce", ["sum", _added])
def test_each_machine_fetches_a_large_program(
    on_nodes: OnNodes, tmp_path: Any, reduce: Any
) -> None:
    class Table(sapwood.Program):
        table = np.arange(200_000.0)

        def map(self, slice: Any, state: Any) -> Any:  # noqa: A002 - as Program.map
            return {"s": float(slice.data.sum() + self.table[-1])}

    Table.reduce = {"s": reduce}
    cluster = on_nodes(2, cluster=ClusterSettings(content_folder=str(tmp_path / "content")))
    assert cluster.run(Table, data=np.ones(10)).result()["s"] == 10.0 + 2 * 199_999
