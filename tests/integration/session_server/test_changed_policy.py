"""Sessions that live when the policy of their cluster is changed, over a real head."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.head.head import Head

from .conftest import PATIENCE, Until

MANY = 400


def run(*words: str) -> str:
    done = CliRunner().invoke(app, [*words], prog_name="sapwood")
    assert done.exit_code == 0, done.output
    return done.stdout


def shown(session: str) -> dict[str, Any]:
    """Return each value of the policy by which a session acts, and its origin."""
    found = json.loads(run("session", "show", session, "--json"))
    return {one["key"]: (one["value"], one["origin"]) for one in found["policy"]}


def counting(path: str) -> Callable[[int], Iterator[int]]:
    """Return what pushes numbers and writes down how many it was let push."""

    def count(n: int) -> Iterator[int]:
        for number in range(n):
            yield number
            with open(path, "a") as file:  # noqa: PTH123 - at an agent
                file.write(".")

    return count


@pytest.mark.row("C4-POLICY")
def test_a_session_that_lives_acts_by_the_changed_policy(
    head: Head, tmp_path: Path, until: Until
) -> None:
    """One agent waits before it pushes; it continues when the policy says that nothing waits."""
    pushed = tmp_path / "pushed"
    pushed.touch()
    head.policy.set("disconnect.output", "block", "")
    try:
        session = sapwood.connect().create_session(1, name="lives", on="local")
        until(lambda: shown("lives")["disconnect.output"][0] == '"block"')
        stream = session.stream(counting(str(pushed)), sync="none")
        stream.broadcast(MANY)
        stream.flush()
        session.detach()
        until(lambda: pushed.stat().st_size > 0)
        assert pushed.stat().st_size < MANY // 2, "its window is 64 values"
        said = run("policy", "set", "disconnect.output", "drop")
        assert "keep what they were made with" not in said
        until(lambda: pushed.stat().st_size == MANY)
        until(lambda: shown("lives")["disconnect.output"][0] == '"drop"')
        assert "set by the user of the head" in shown("lives")["disconnect.output"][1]
        assert "disconnect.output" in run("session", "show", "lives")
        with sapwood.attach("lives") as owner:
            (left,) = owner.kept_streams
            assert left.query().dropped > MANY // 2
            assert owner.submit(pow, 2, 3).result(PATIENCE) == 8
            left.close()
    finally:
        head.policy.set("disconnect.output", "", "")
    until(lambda: shown("lives")["disconnect.output"] == ('"buffer"', "default"))
    head.sessions.end("lives").result(PATIENCE)


@pytest.mark.row("C4-POLICY")
def test_an_idle_session_ends_by_the_changed_policy_unless_its_creator_has_chosen(
    head: Head, until: Until
) -> None:
    run("session", "create", "chosen", "--on", "local", "--agents", "1", "--idle", "2h")
    sapwood.connect().create_session(1, name="follows", on="local").detach()
    try:
        said = run("policy", "set", "idle.session", "100ms")
        assert "Sessions that keep what they were made with: chosen#" in said
        assert "follows" not in said
        until(lambda: head.sessions.find("follows").state == "ended")
        assert "no client was attached for 0.1 s" in head.sessions.find("follows").reason
        assert shown("chosen")["idle.session"] == ('"2 h"', "chosen when the session was made")
        assert head.sessions.find("chosen").state == "detached"
    finally:
        head.policy.set("idle.session", "", "")
    head.sessions.end("chosen").result(PATIENCE)


def test_the_command_says_what_a_change_does_not_reach(head: Head) -> None:
    said = run("policy", "set", "limits.credential_life", "90d")
    assert "It applies to credentials that are issued from now on." in said
    head.policy.set("limits.credential_life", "", "")
