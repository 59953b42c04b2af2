"""What an agent answers when it is asked for a stack, with and without py-spy."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.activity.agent_stack import read_stack
from sapwood.code.runner import py_spy
from sapwood.code.runner.stack_reader import StackText
from sapwood.code.stacks import StackInfo
from sapwood.core import typed

WRITTEN = """Current thread 0x00007f10 (most recent call first):
  File "/home/a.py", line 6 in work
  File "/x/sapwood/code/runner/child.py", line 9 in serve
"""

SPIED = [
    {
        "frames": [
            {"name": "spin", "filename": "a.c", "module": "/opt/a.so", "line": 3},
            {"name": "ffi_call", "filename": "", "module": "/lib/libffi.so.8", "line": 0},
            {"name": "call", "filename": "/x/sapwood/code/a.py", "module": None, "line": 1},
            {"name": "work", "filename": "/home/a.py", "module": None, "line": 6},
            {"name": "serve", "filename": "/x/sapwood/code/runner/child.py", "module": None},
        ]
    },
    {"frames": [{"name": "wait", "filename": "threading.py", "module": None, "line": 2}]},
]

Answer = Callable[..., StackInfo]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Return what is answered about this process, by a py-spy that is a script."""

    def ask(script: str, *, busy: bool = True) -> StackInfo:
        command = tmp_path / "py-spy"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o700)
        monkeypatch.setattr(py_spy, "installed", lambda: str(command) if script else "")
        loop = asyncio.new_event_loop()
        found: asyncio.Future[Any] = loop.create_future()
        job = SimpleNamespace(function="fit", begun=loop.time() - 2.0) if busy else None
        written = WRITTEN if busy else ""
        runner: Any = SimpleNamespace(
            pid=os.getpid(), running=job, read_stack=lambda on: on(StackText(written))
        )
        agent: Any = SimpleNamespace(rank=3, loop=loop)
        request: Any = SimpleNamespace(reply=found.set_result)
        try:
            loop.call_soon(read_stack, agent, runner, request)
            return typed.convert(loop.run_until_complete(found), StackInfo)
        finally:
            loop.close()

    return ask


def test_py_spy_adds_native_frames(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "said.json").write_text(json.dumps(SPIED))
    found = answer(f"cat {tmp_path / 'said.json'}")
    assert (found.agent, found.state, found.function, found.note) == (3, "busy", "fit", "")
    assert found.seconds >= 2.0
    main, beside = found.threads
    assert [str(one) for one in main.frames] == ["spin (a.c:3)", "work (/home/a.py:6)"]
    assert [one.native for one in main.frames] == [True, False]
    assert [str(one) for one in beside.frames] == ["wait (threading.py:2)"]


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo 'Error: no Python' >&2; exit 1", "py-spy failed: no Python"),
        ("echo nonsense", "py-spy is of another version"),
        ("", ""),
    ],
)
def test_without_it_the_runner_itself_is_asked(answer: Answer, script: str, note: str) -> None:
    found = answer(script)
    assert [str(one) for one in found.threads[0].frames] == ["work (/home/a.py:6)"]
    assert (found.state, found.note) == ("busy", note)


def test_an_idle_runner_is_not_looked_into(answer: Answer, tmp_path: Path) -> None:
    found = answer(f"touch {tmp_path / 'looked'}", busy=False)
    assert (found.state, found.threads) == ("idle", ())
    assert not (tmp_path / "looked").exists()
