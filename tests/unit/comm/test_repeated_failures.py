"""How long links are kept that fail again and again."""

from __future__ import annotations

from sapwood.comm.repeated_failures import LONGEST_PAUSE, QUIET, RepeatedFailures


def test_pauses_grow_up_to_a_bound() -> None:
    failures = RepeatedFailures()
    pauses = [failures.pause(1, 0.0) for _ in range(2000)]
    assert pauses[:7] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert set(pauses[7:]) == {LONGEST_PAUSE}


def test_a_quiet_time_forgets_what_failed() -> None:
    failures = RepeatedFailures()
    assert [failures.pause(1, 0.0), failures.pause(1, QUIET)] == [0.0, 0.1]
    assert failures.pause(1, 2 * QUIET + 0.1) == 0.0
