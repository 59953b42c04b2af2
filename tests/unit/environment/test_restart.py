from hypothesis import given
from hypothesis import strategies as st

from sapwood.environment.restart import RestartBudget
from sapwood.environment.settings import RestartSettings


def test_the_window_moves_on() -> None:
    budget = RestartBudget(RestartSettings(limit=2, window=10, backoff=1, backoff_max=100))
    assert [budget.next_wait(now) for now in (0.0, 5.0, 9.9)] == [1, 2, None]
    assert budget.next_wait(10.0) == 2  # the first has left the window
    assert budget.next_wait(14.0) is None
    assert budget.next_wait(100.0) == 1


def test_no_restarts_at_all() -> None:
    assert RestartBudget(RestartSettings(limit=0)).next_wait(0) is None


@given(st.lists(st.floats(0, 100), max_size=50), st.integers(0, 5), st.floats(0.1, 50))
def test_never_more_than_the_limit_in_any_window(
    gaps: list[float], limit: int, window: float
) -> None:
    budget = RestartBudget(RestartSettings(limit=limit, window=window, backoff_max=1000))
    now, granted = 0.0, []
    for gap in gaps:
        now += gap
        wait = budget.next_wait(now)
        if wait is not None:
            assert wait > 0
            granted.append(now)
    for time in granted:
        assert sum(time - window < other <= time for other in granted) <= limit
