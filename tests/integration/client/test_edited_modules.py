"""Modules that are edited while a cluster runs."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sapwood

PATIENCE = 60.0


def test_tasks_streams_and_runs_use_a_module_as_it_was_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(factor: int) -> None:
        file = tmp_path / "edited_here.py"
        file.write_text(
            f"def f(x): return {factor} * x\nclass Box:\n    def get(self): return {factor}\n"
        )
        os.utime(file, (factor, factor))
        importlib.invalidate_caches()

    write(10)
    with sapwood.local(agents=2) as cluster:
        monkeypatch.syspath_prepend(tmp_path)  # later than the cluster
        edited: Any = importlib.import_module("edited_here")
        try:

            class Program(sapwood.Program):
                reduce: ClassVar[dict[str, str]] = {"v": "max"}

                def map(self, slice: Any, state: Any) -> dict[str, int]:  # noqa: A002
                    return {"v": edited.f(1)}

            def results() -> list[Any]:
                calls: list[Callable[[], Any]] = [
                    lambda: cluster.submit(edited.f, 1).result(PATIENCE),
                    lambda: cluster.submit(lambda: edited.f(1)).result(PATIENCE),
                    lambda: cluster.submit(edited.Box().get).result(PATIENCE),
                    lambda: list(cluster.map(edited.f, [1, 1]))[1],
                    lambda: cluster.run(Program, data=range(3)).result(PATIENCE)["v"],
                ]
                return [call() for call in calls]

            with cluster.stream(edited.f, reduce="max") as stream:
                assert stream.broadcast(1).result(PATIENCE).total == 10
            assert results() == [10] * 5
            write(20)
            importlib.reload(edited)
            assert results() == [20] * 5
            with cluster.stream(edited.f, reduce="max") as stream:
                assert stream.broadcast(1).result(PATIENCE).total == 20
            write(30)  # an edit alone: what agents import is the file
            assert cluster.submit(edited.f, 1).result(PATIENCE) == 30
        finally:
            del sys.modules["edited_here"]
