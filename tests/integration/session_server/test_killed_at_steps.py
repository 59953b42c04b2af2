"""A root, a head or both are killed while a session is made, changed, left and ended.

Each round kills at a chosen step of a program, a moment later that is drawn from a seed. Then the
next head begins, and each session is there, with all that belongs to it, or it is over.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import sapwood
from sapwood.core.errors import NodeLostError
from sapwood.head.folder import find_head
from sapwood.head.session_notices import notices
from sapwood.head.watched import started

from .conftest import PATIENCE, Script, Until
from .test_head_killed import asked, kill, state, up

__all__ = ["state"]  # a fixture

STEPS = ("create", "expand", "detach", "attach", "contract", "delete")

USER = """
import subprocess, sys
import sapwood

def step(name):
    print(name, flush=True)

try:
    step("create")
    cluster = sapwood.connect().create_session(1, name="night", on="local")
    step("expand")
    added = cluster.expand(1)
    step("detach")
    handle = cluster.detach()
    step("attach")
    cluster = sapwood.attach(handle)
    step("contract")
    cluster.contract(added)
    cluster.detach()
    step("delete")
    words = [sys.executable, "-m", "sapwood", "session", "delete", "night"]
    subprocess.run(words, capture_output=True)
except Exception as error:
    step(f"failed: {error!r}")
finally:
    step("over")
"""

MERGING_STEPS = ("merge", "wave", "split")

MERGING = """
import sapwood

def step(name):
    print(name, flush=True)

try:
    sapwood.connect().create_session(1, name="day", on="local").detach()
    cluster = sapwood.connect().create_session(1, name="night", on="local")
    step("merge")
    merged = cluster.merge("day")
    step("wave")
    with merged.stream("echo", reduce="sum", on_loss="fail") as stream:
        stream.broadcast(1).result(20)
    step("split")
    merged.split()
    cluster.detach()
except Exception as error:
    step(f"failed: {error!r}")
finally:
    step("over")
"""

Begin = Callable[..., Script]


def roots() -> list[int]:
    return [one.pid for one in notices("default") if started(one.pid) == one.started]


def kill_if_there(pid: int) -> None:
    try:
        kill(pid)
    except ProcessLookupError:
        return


@pytest.mark.row("C3-SESS-1", "C3-SESS-3")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("victims", "seed"),
    [
        pytest.param(victims, seed, marks=pytest.mark.nightly)
        for seed, victims in enumerate((["head"], ["root"], ["head", "root"]))
    ],
    ids=str,
)
def test_after_a_kill_a_session_is_there_or_over(
    state: Path, until: Until, begin: Begin, victims: list[str], seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    for chosen in STEPS:
        head = up_if_gone()
        script = begin(USER)
        while (said := script.says()) not in {chosen, "over"}:
            assert said, "it ended without a word"
        threading.Event().wait(chance.uniform(0.0, 0.6))
        if "head" in victims:
            kill_if_there(head)
        if "root" in victims:
            for pid in roots():
                kill_if_there(pid)
        while script.says() not in {"over", ""}:
            pass
        script.kill()
        up_if_gone()
        until(settled)
        for one in asked("session", "list", "--all")["sessions"]:
            if one["state"] in {"ready", "detached"}:
                with sapwood.attach(f"{one['name']}#{one['id']}") as cluster:
                    assert cluster.submit(pow, 2, 5).result(PATIENCE) == 32
                    assert len(cluster.agents) in {1, 2}
                assert asked("session", "delete", one["id"])["state"] == "ended"
        assert not roots()
        assert not list((state / "sapwood/heads/default/sessions").glob("*.json"))
        until(no_root_listens)


@pytest.mark.row("C3-SESS-4")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("victims", "seed"),
    [
        pytest.param(victims, seed, marks=pytest.mark.nightly)
        for seed, victims in enumerate((["head"], ["night"], ["day"], ["head", "night", "day"]))
    ],
    ids=str,
)
def test_after_a_kill_two_sessions_are_merged_or_not(
    state: Path, until: Until, begin: Begin, victims: list[str], seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    for chosen in MERGING_STEPS:
        head = up_if_gone()
        script = begin(MERGING)
        while (said := script.says()) not in {chosen, "over"}:
            assert said, "it ended without a word"
        threading.Event().wait(chance.uniform(0.0, 0.2))
        if "head" in victims:
            kill_if_there(head)
        for one in notices("default"):
            if one.name in victims:
                kill_if_there(one.pid)
        while script.says() not in {"over", ""}:
            pass
        script.kill()
        up_if_gone()
        until(settled)
        until(both_sides_agree)
        for one in asked("session", "list")["sessions"]:
            with sapwood.attach(one["id"]) as cluster:
                assert cluster.submit(pow, 2, 5).result(PATIENCE) == 32
                for merged in cluster.merged:
                    with merged.stream("echo", reduce="sum") as stream:
                        assert stream.broadcast(1).result(PATIENCE).total == 2
                    merged.split()
                assert not cluster.merged
        for one in asked("session", "list")["sessions"]:
            assert asked("session", "delete", one["id"])["state"] == "ended"
        assert not roots()
        assert not list((state / "sapwood/heads/default/sessions").glob("*.json"))
        until(no_root_listens)


def both_sides_agree() -> bool:
    """Whether each pair of merged sessions names each other."""
    shown = asked("session", "list")["sessions"]
    above = {(one["handle"], other) for one in shown for other in one["merged"]}
    below = {(other, one["handle"]) for one in shown for other in one["part_of"]}
    return above == below


def no_root_listens() -> bool:
    return not list(Path(os.environ["XDG_RUNTIME_DIR"]).glob("sapwood-*/root.sock"))


def settled() -> bool:
    """Whether no session is between, and none is there whose root is not."""
    living = set(roots())
    records = asked("session", "list", "--all")["sessions"]
    over = {"ended", "failed"}
    return all(
        one["state"] in over or (one["state"] in {"ready", "detached"} and one["pid"] in living)
        for one in records
    ) and living == {one["pid"] for one in records if one["state"] not in over}


def up_if_gone() -> int:
    """Return the process of the head that is up; begin one if there is none."""
    try:
        pid = find_head().pid
    except NodeLostError:
        return up()
    return pid if started(pid) else up()
