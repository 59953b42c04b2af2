import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.activity import measure
from sapwood.activity.measure import FunctionMeter


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
    assert sum(value <= found.p50 for value in durations) * 2 >= count
    assert sum(value < found.p50 for value in durations) * 2 <= count
    assert min(durations) <= found.p50 <= found.p95 <= found.maximum


def test_without_calls_everything_is_zero() -> None:
    found = FunctionMeter("f").statistics()
    assert (found.calls, found.mean, found.p50, found.p95, found.maximum) == (0, 0, 0, 0, 0)


def test_failed_calls_have_no_duration() -> None:
    meter = FunctionMeter("f")
    meter.failed()
    found = meter.statistics()
    assert (found.calls, found.errors, found.mean, found.p95) == (1, 1, 0, 0)


def test_only_so_many_durations_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "REMEMBERED_CALLS", 10)
    meter = FunctionMeter("f")
    for seconds in [9.0] * 10 + [1.0] * 10:
        meter.succeeded(seconds, 0, 0)
    found = meter.statistics()
    assert found.p95 == 1.0
    assert found.maximum == 9.0
    assert found.total == 100.0
