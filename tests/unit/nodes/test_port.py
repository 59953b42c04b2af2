"""What the log tells of peers that were not let in."""

from __future__ import annotations

from sapwood.nodes.port import LOGGED_REFUSALS, Refusals


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
