"""What a call changes in its process, no other call finds changed."""

from __future__ import annotations

import asyncio
import ctypes
import decimal
import gc
import locale
import os
import random
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sapwood

TREE = (1, 0)
PATIENCE = 60.0
UPWARD = 0x400000 if os.uname().machine == "aarch64" else 0x800
"""``FE_UPWARD``."""


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def standard_files() -> list[str]:
    return [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]  # noqa: PTH115 - no file


def third() -> float:
    one, three = [1.0], [3.0]
    return one[0] / three[0]


def replace_files() -> None:
    os.close(1)
    os.dup2(0, 2)


def variables() -> list[str | None]:
    return [os.environ.get(name) for name in ("SAPWOOD_TEST_NEW", "PATH", "TZ")] + [
        time.strftime("%H", time.localtime(0))
    ]


def change_variables() -> None:
    os.environ["SAPWOOD_TEST_NEW"] = "new"
    del os.environ["PATH"]
    os.environ["TZ"] = "XYZ-7"
    time.tzset()


def pending_alarm() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "folder": (lambda: os.chdir("/usr"), os.getcwd),
    "umask": (lambda: os.umask(0o246), umask),
    "warnings": (lambda: warnings.simplefilter("error"), lambda: warnings.filters[0][0]),
    "decimal": (
        lambda: setattr(decimal.getcontext(), "prec", 3),
        lambda: str(decimal.Decimal(1) / 3),
    ),
    "numpy": (lambda: np.seterr(all="raise"), np.geterr),
    "recursion": (lambda: sys.setrecursionlimit(4321), sys.getrecursionlimit),
    "locale": (
        lambda: locale.setlocale(locale.LC_ALL, "C"),
        lambda: locale.setlocale(locale.LC_ALL),
    ),
    "signals": (
        lambda: signal.signal(signal.SIGUSR1, print),
        lambda: str(signal.getsignal(signal.SIGUSR1)),
    ),
    "alarm": (lambda: signal.alarm(1000), lambda: pending_alarm() > 0),
    "variables": (change_variables, variables),
    "descriptors": (replace_files, standard_files),
    "rounding": (lambda: ctypes.CDLL("libm.so.6").fesetround(UPWARD), third),
    "collection": (gc.disable, gc.isenabled),
    "sockets": (lambda: socket.setdefaulttimeout(4), socket.getdefaulttimeout),
    "event loop": (
        lambda: asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy()),
        lambda: asyncio.events._event_loop_policy is None,  # type: ignore[attr-defined]
    ),
}


def changed(name: str) -> list[Any]:
    change, look = CHANGES[name]
    before = look()
    change()
    return [before, look()] if name != "descriptors" else [before]


@pytest.mark.parametrize("name", CHANGES)
def test_a_task_finds_the_state_that_no_other_task_has_changed(
    standing: sapwood.Cluster, name: str
) -> None:
    first = standing.submit(changed, name).result(PATIENCE)
    assert name == "descriptors" or first[0] != first[1]
    second = standing.submit(changed, name).result(PATIENCE)
    assert second == first


def test_variables_that_a_module_sets_when_it_is_imported_stay(
    standing: sapwood.Cluster, tmp_path: Path
) -> None:
    (tmp_path / "sets_variables.py").write_text("import os\nos.environ['SAPWOOD_TEST_SET'] = '1'")

    def import_it() -> None:
        sys.path.append(str(tmp_path))
        import sets_variables  # type: ignore[import-not-found]  # noqa: F401, PLC0415 - made above

    def value() -> str | None:
        return os.environ.get("SAPWOOD_TEST_SET")

    standing.submit(import_it).result(PATIENCE)
    assert standing.submit(value).result(PATIENCE) == "1"


def test_a_task_that_seeds_generators_does_not_make_others_repeat_numbers(
    standing: sapwood.Cluster,
) -> None:
    def draw(seed: int | None) -> list[float]:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - the one that is global
        return [random.random(), random.random(), np.random.rand()]  # noqa: NPY002, S311 - as above

    drawn = []
    for _ in range(3):
        assert standing.submit(draw, 7).result(PATIENCE) == draw(7)
        drawn += standing.submit(draw, None).result(PATIENCE)
    assert len(set(drawn)) == len(drawn)


class Program(sapwood.Program):
    """Changes state in its first iteration, and returns what it finds in all."""

    reduce: ClassVar[dict[str, str]] = {"found": "concat"}

    def init(self, data: Any) -> dict[str, Any]:
        del data
        return {"turn": 0, "found": []}

    def map(self, slice: Any, state: Any) -> dict[str, Any]:  # noqa: A002 - as the base class
        del slice
        if state["turn"] == 0:
            os.umask(0o135)
            decimal.getcontext().prec = 4
            os.environ["SAPWOOD_TEST_RUN"] = "on"
            np.random.seed(5)  # noqa: NPY002 - the one that is global
        found = (umask(), float(decimal.Decimal(1) / 3), "SAPWOOD_TEST_RUN" in os.environ)
        drawn = np.random.rand()  # noqa: NPY002 - as above
        return {"found": np.array([[*found, drawn]], float)}

    def update(self, state: Any, total: Any) -> dict[str, Any]:
        return {"turn": state["turn"] + 1, "found": [*state["found"], *total["found"].tolist()]}

    def done(self, state: Any) -> bool:
        return bool(state["turn"] >= 4)

    def result(self, state: Any) -> Any:
        return state["found"]


def look() -> tuple[int, int, bool]:
    """Return what :class:`Program` changes."""
    return umask(), decimal.getcontext().prec, "SAPWOOD_TEST_RUN" in os.environ


def test_a_run_finds_its_own_state_in_all_iterations_and_leaves_none(
    standing: sapwood.Cluster,
) -> None:
    first = standing.submit(look).result(PATIENCE)
    found = standing.run(Program, data=range(3)).result(PATIENCE)
    drawn = np.random.RandomState(5).rand(4)
    assert found == [[0o135, 0.3333, True, each] for each in drawn]
    assert standing.submit(look).result(PATIENCE) == first


def test_the_calls_of_streams_and_tasks_that_alternate_find_their_own_state(
    standing: sapwood.Cluster,
) -> None:
    def count(seed: int) -> list[float]:
        if seed:
            os.chdir("/usr")
            os.environ["SAPWOOD_TEST_RUN"] = "on"
            decimal.getcontext().prec = 4
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - the one that is global
        found = [os.getcwd() == "/usr", *look(), random.random(), np.random.rand()]  # noqa: NPY002, PTH109, S311 - as above
        return [float(each) for each in found]

    first = standing.submit(look).result(PATIENCE)
    seeds = (3, 4)
    drawn = [(random.Random(seed), np.random.RandomState(seed)) for seed in seeds]  # noqa: S311 - no secret
    with (
        standing.stream(count, reduce="concat") as one,
        standing.stream(count, reduce="concat") as other,
    ):
        for turn in range(3):
            for stream, seed, (python, numpy) in zip((one, other), seeds, drawn, strict=True):
                wave = stream.broadcast(seed if turn == 0 else 0).result(PATIENCE)
                assert list(wave.total) == [True, first[0], 4, True, python.random(), numpy.rand()]
            assert standing.submit(look).result(PATIENCE) == first
    assert standing.submit(look).result(PATIENCE) == first
