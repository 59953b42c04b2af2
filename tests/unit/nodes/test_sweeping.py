"""Processes are found by what they inherit, also those that leave their group and session."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

from sapwood.nodes import sweeping

SLEEP = "import os, time; os.setsid(); print('there', flush=True); time.sleep(600)"
"""A process in its own session."""


def started(mark: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", SLEEP],
        stdout=subprocess.PIPE,
        env={**os.environ, sweeping.VARIABLE: f"outer.1. {mark}2."},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    return process


@pytest.fixture
def mark() -> str:
    return f"{secrets.token_hex(8)}."


def test_what_carries_a_mark_is_killed_and_nothing_else(mark: str) -> None:
    with started(mark) as mine, started("another.") as other:
        assert sweeping.marked(mark) == [mine.pid]
        assert sweeping.marked("no such mark.", session=other.pid) == [other.pid]
        sweeping.sweep(mark, session=mine.pid)
        assert mine.wait(10) == -9
        assert other.poll() is None
        other.kill()


def test_the_process_beside_a_daemon_sweeps_when_the_daemon_is_gone(mark: str) -> None:
    sweeper = subprocess.Popen(
        [sys.executable, "-I", "-S", sweeping.__file__, mark], stdin=subprocess.PIPE
    )
    assert sweeper.stdin is not None
    with started(mark) as mine:
        assert mine.poll() is None
        sweeper.stdin.close()
        assert mine.wait(10) == -9
    assert sweeper.wait(10) == 0
