"""The last lines of a process: bounded, numbered, and what is lost is said."""

from __future__ import annotations

import json
import logging
import threading

import pytest

from sapwood.environment.log_ring import LINE_COST, MAX_LINE, LogRing, kept_lines
from sapwood.environment.logs import LEVELS, configure_logging, logger
from sapwood.environment.settings import LogSettings


def test_memory_is_bounded_and_what_is_lost_is_said() -> None:
    ring = LogRing(100 * (LINE_COST + 10))
    for number in range(1000):
        ring.append(b"%010d" % number, logging.INFO)
    page = ring.read()
    assert (len(page.lines), page.dropped, page.next, page.more) == (100, 900, 1000, False)
    assert page.lines[0] == b"0000000900"
    assert ring.read(950).dropped == 0
    assert len(ring.read(950).lines) == 50


def test_a_line_larger_than_the_ring_leaves_nothing() -> None:
    ring = LogRing(100)
    ring.append(b"x" * 200, logging.INFO)
    page = ring.read()
    assert (page.lines, page.dropped, page.next) == ([], 1, 1)


def test_pages_follow_each_other_without_a_gap() -> None:
    ring = LogRing()
    for number in range(100):
        ring.append(b"%d" % number, logging.INFO if number % 2 else logging.WARNING)
    found: list[int] = []
    at, more = 0, True
    while more:
        page = ring.read(at, logging.WARNING, limit=7)
        found += map(int, page.lines)
        at, more = page.next, page.more
    assert found == list(range(0, 100, 2))


@pytest.mark.parametrize("after", [-5, 7])
def test_a_number_that_was_never_there_does_no_harm(after: int) -> None:
    ring = LogRing()
    ring.append(b"one", logging.INFO)
    assert ring.read(after).next == 1


@pytest.mark.row("A-LOG-1")
def test_what_is_logged_is_kept_as_in_a_file() -> None:
    ring = LogRing()
    with kept_lines(ring):
        logger("comm.link").info("opened", peer=3, what=object)
        logger("comm").debug("not kept")
        try:
            raise ValueError("why")
        except ValueError:
            logger("head").exception("call failed")
    logger("comm").info("not kept any more")
    first, second = map(json.loads, ring.read().lines)
    assert (first["event"], first["level"], first["component"]) == ("opened", "info", "comm.link")
    assert first["peer"] == 3
    assert first["timestamp"].endswith("Z")
    assert first["what"] == "<class 'object'>"
    assert "ValueError: why" in second["exception"]


def test_a_line_that_is_too_long_says_so() -> None:
    ring = LogRing()
    with kept_lines(ring):
        logger("comm").info("much", text="x" * (2 * MAX_LINE))
    (line,) = ring.read().lines
    assert json.loads(line)["event"] == "much … (too long)"


def test_the_console_shows_what_it_did(capfd: pytest.CaptureFixture[str]) -> None:
    with configure_logging(LogSettings(console="warning")), kept_lines(LogRing()):
        logger("comm").info("quiet")
        logger("comm").warning("loud")
    said = capfd.readouterr().err
    assert "loud" in said
    assert "quiet" not in said


def test_many_threads_log_at_once() -> None:
    ring = LogRing()

    def log() -> None:
        for _ in range(200):
            ring.append(b"line", LEVELS["info"])

    threads = [threading.Thread(target=log) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ring.read().next == 800
