import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.activity.measure import FunctionMeter
from sapwood.activity.statistics import (
    AgentStatistics,
    FunctionStatistics,
    added,
    by_function_and_node,
)
from sapwood.code.transfers import DeviceTransfers
from sapwood.core import typed

pytestmark = pytest.mark.row("A-ACT-3")


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=50), st.integers(0, 5))
def test_the_figures_are_those_of_the_calls(durations: list[float], failures: int) -> None:
    meter = FunctionMeter("assign")
    for seconds in durations:
        meter.succeeded(seconds, 10, 3)
    for _ in range(failures):
        meter.failed()
    found = meter.statistics()
    count = len(durations)
    assert (found.name, found.calls, found.errors) == ("assign", count + failures, failures)
    assert found.total == pytest.approx(sum(durations))
    assert found.mean == pytest.approx(sum(durations) / count)
    assert found.maximum == max(durations)
    assert (found.bytes_in, found.bytes_out) == (10 * count, 3 * count)
    for quantile, share in ((found.p50, 0.5), (found.p95, 0.95)):
        exact = sorted(durations)[math.ceil(share * count) - 1]
        assert quantile == pytest.approx(exact, rel=0.023)
    assert found.p50 <= found.p95 <= found.maximum


def test_without_calls_everything_is_zero() -> None:
    found = FunctionMeter("f").statistics()
    assert (found.calls, found.mean, found.p50, found.p95, found.maximum) == (0, 0, 0, 0, 0)


def test_failed_calls_have_no_duration() -> None:
    meter = FunctionMeter("f")
    meter.failed()
    found = meter.statistics()
    assert (found.calls, found.errors, found.mean, found.p95) == (1, 1, 0, 0)


@given(
    parts=st.lists(
        st.tuples(st.lists(st.floats(1e-6, 10.0), max_size=20), st.integers(0, 3)),
        min_size=1,
        max_size=5,
    )
)
def test_figures_of_parts_add_up_to_those_of_all(parts: list[tuple[list[float], int]]) -> None:
    """However the calls were spread over agents, and whatever was put together first."""
    every = FunctionMeter("f")
    found = []
    for durations, failures in parts:
        meter = FunctionMeter("f")
        for one in (meter, every):
            for seconds in durations:
                one.succeeded(seconds, 2, 1, DeviceTransfers(launches=1, launch_seconds=0.5))
            for _ in range(failures):
                one.failed()
        found.append(meter.statistics())
    for order in (found, found[::-1]):
        (both,) = by_function_and_node(order)
        wanted = every.statistics()
        assert both.agents == len(parts)
        assert both.durations == wanted.durations
        assert (
            both.device_seconds == wanted.device_seconds == wanted.calls * 0.5 - 0.5 * both.errors
        )
        assert (both.calls, both.errors, both.maximum) == (
            wanted.calls,
            wanted.errors,
            wanted.maximum,
        )
        assert (both.p50, both.p95) == (wanted.p50, wanted.p95)
        assert both.total == pytest.approx(wanted.total)


def test_machines_are_kept_apart() -> None:
    one, two = (FunctionStatistics(name="f", node=node, calls=1) for node in ("n1", "n2"))
    assert by_function_and_node([two, one]) == (one, two)


def test_a_second_part_of_a_run_forgets_nothing_of_the_first() -> None:
    meter = FunctionMeter("f")
    parts = []
    for seconds in (1.0, 3.0):
        meter.succeeded(seconds, 5, 7)
        moved = DeviceTransfers(launches=2, launch_seconds=seconds)
        parts.append(AgentStatistics(agent=1, pid=7, functions=(meter.statistics(),), device=moved))
    both = added(*parts)
    (function,) = both.functions
    assert (function.calls, function.total, function.agents) == (3, 5.0, 1)
    assert (function.bytes_in, function.bytes_out, function.maximum) == (15, 21, 3.0)
    assert both.device == DeviceTransfers(launches=4, launch_seconds=4.0)
    assert added(AgentStatistics(agent=1, pid=7), parts[0]).functions == parts[0].functions
    assert added(parts[0], AgentStatistics(agent=1, pid=7)).device == parts[0].device


def test_statistics_come_back_from_json_as_they_were() -> None:
    meter = FunctionMeter("f")
    meter.succeeded(0.1, 1, 1)
    told = json.loads(msgspec.json.encode(meter.statistics()))
    assert typed.convert(told, FunctionStatistics) == meter.statistics()
