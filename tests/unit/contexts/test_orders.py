from typing import Any

import msgspec
import pytest

from sapwood.contexts import orders


@pytest.mark.parametrize(
    "order",
    [
        orders.ConfigureProcesses("/folder", b"configuration", {"A": "b"}),
        orders.Spawn([orders.ProcessSpec("a:b", 1, 1), orders.ProcessSpec("c:d", 2, 5)]),
        orders.Kill(100, 9),
    ],
    ids=str,
)
def test_orders_arrive_as_they_were_given(order: Any) -> None:
    assert orders.decode_order(orders.encode(order)) == order


@pytest.mark.parametrize(
    "report",
    [
        orders.Ready(1, 0.5),
        orders.Spawned(1, 2, 3),
        orders.SpawnFailed(1, 2, "no more processes"),
        orders.Exited(1, 2, 3, -9),
    ],
    ids=str,
)
def test_reports_arrive_as_they_were_made(report: Any) -> None:
    assert orders.decode_report(orders.encode(report)) == report


def test_an_order_is_no_report() -> None:
    with pytest.raises(msgspec.ValidationError):
        orders.decode_report(orders.encode(orders.Kill(1, 9)))
