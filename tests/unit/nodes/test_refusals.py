"""What the log tells of peers that were not let in."""

from __future__ import annotations

from sapwood.nodes.refusals import LOGGED_REFUSALS, MAX_KINDS, Refusals, RefusalsByKind


def test_a_log_is_not_filled_by_those_who_are_not_let_in() -> None:
    now = 0.0
    told: list[tuple[str, str, int]] = []
    refused = Refusals(lambda *words: told.append(words), lambda: now)
    for number in range(1000):
        refused(f"10.0.0.1:{number}", "no certificate")
    assert len(told) == LOGGED_REFUSALS
    now = 61.0
    refused("10.0.0.2:1", "no certificate")
    assert told[-1] == ("10.0.0.2:1", "no certificate", 1000 - LOGGED_REFUSALS)


def test_many_refusals_of_a_kind_do_not_hide_those_of_another_one() -> None:
    refused = RefusalsByKind(lambda: 0.0)
    told = [refused.count("noisy") for _ in range(1000)]
    assert told == [0] * LOGGED_REFUSALS + [None] * (1000 - LOGGED_REFUSALS)
    assert refused.count("quiet") == 0


def test_kinds_that_are_too_many_are_counted_together_until_others_are_quiet() -> None:
    now = 0.0
    refused = RefusalsByKind(lambda: now)
    told = [refused.count(kind) for kind in range(1000)]
    assert len(told) - told.count(None) == MAX_KINDS + LOGGED_REFUSALS
    for _ in range(LOGGED_REFUSALS):
        refused.count(0)
    now = 61.0
    assert refused.count("new") == 0  # it has a place again
    told = [refused.count(kind) for kind in range(2 * MAX_KINDS)]
    left_out = 1000 - MAX_KINDS - LOGGED_REFUSALS + 1  # and one of those of kind 0
    assert sum(one or 0 for one in told) == left_out
