"""Programs of the tests: each is loaded by its name from this file."""

import os
import signal
import sys
import time
from typing import Any

import numpy as np

from sapwood import Program, parameter


class Moments(Program):
    """One iteration: what numpy says of a whole array."""

    reduce = {  # noqa: RUF012 - the declared form of programs
        "sum": "sum",
        "least": "min",
        "greatest": "max",
        "mean": "mean",
        "firsts": "concat",
        "agents": "count",
    }

    def init(self, data: Any) -> dict[str, Any]:
        return {"items": len(data)}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {
            "sum": slice.data.sum(axis=0),
            "least": slice.data.min(axis=0),
            "greatest": slice.data.max(axis=0),
            "mean": slice.data.mean(axis=0),
            "firsts": slice.data[:1],
            "agents": 1,
        }

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return {**state, **total}


class Steps(Program):
    """As many iterations as wanted; the result is what they add up to."""

    reduce = {"x": "sum"}  # noqa: RUF012 - the declared form of programs
    steps: int = parameter(10, minimum=1, maximum=1_000_000)

    def init(self, data: Any) -> dict[str, Any]:
        return {"step": 0, "x": 0.0}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {"x": float(slice.data.sum()) * (state["step"] + 1)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return {"step": state["step"] + 1, "x": state["x"] + total["x"]}

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["step"] >= self.steps)

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        return {"x": state["x"]}

    def iterations(self) -> int:
        return self.steps

    def result(self, state: dict[str, Any]) -> Any:
        return state["x"]


class Lasting(Steps):
    """Goes on until a file ``end`` is in ``folder``; the result is what Steps would give."""

    folder: str = parameter("")
    steps: int = parameter(1_000_000)

    def done(self, state: dict[str, Any]) -> bool:
        return os.path.exists(f"{self.folder}/end")  # noqa: PTH110 - in each iteration


class Cores(Program):
    """One iteration: how many cores each agent's map may use, and the first of them."""

    reduce = {"cores": "concat"}  # noqa: RUF012 - the declared form of programs

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        usable = os.sched_getaffinity(0)
        return {"cores": np.array([[len(usable), min(usable)]])}


class Faulty(Steps):
    """Does something wrong at a place that is named."""

    place: str = parameter("map", choices=("init", "map", "update", "done", "metrics", "result"))

    def _fail(self, place: str) -> None:
        if place == self.place:
            raise ValueError(f"wrong in {place}")

    def init(self, data: Any) -> dict[str, Any]:
        self._fail("init")
        return super().init(data)

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        if slice.stop == slice.data[-1] + 1 and slice.start == 0:
            return super().map(slice, state)
        print("about to fail")  # noqa: T201 - printing is what is tested
        self._fail("map")
        return super().map(slice, state)

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        self._fail("update")
        return super().update(state, total)

    def done(self, state: dict[str, Any]) -> bool:
        self._fail("done")
        return super().done(state)

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        self._fail("metrics")
        return super().metrics(state)

    def result(self, state: dict[str, Any]) -> Any:
        self._fail("result")
        return super().result(state)


class WrongResult(Program):
    """Its map returns what it should not."""

    reduce = {"x": "sum"}  # noqa: RUF012 - the declared form of programs
    kind: str = parameter("missing")

    def init(self, data: Any) -> dict[str, Any]:
        return {}

    def map(self, slice: Any, state: dict[str, Any]) -> Any:  # noqa: A002 - as Program.map
        return {
            "missing": {},
            "unknown": {"x": 1, "y": 2},
            "number": 5,
            "shape": {"x": np.zeros(len(slice) + slice.start)},
            "object": {"x": object()},
            "text": {"x": "text"},
        }[self.kind]

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return total


class WrongState(Program):
    """Its state is nothing that can travel."""

    reduce = {"x": "sum"}  # noqa: RUF012 - the declared form of programs
    kind: str = parameter("object")

    def init(self, data: Any) -> Any:
        return {"object": {"a": object()}, "list": [1, 2], "none": None}[self.kind]

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {"x": 1}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return total


class Deadly(Steps):
    """Ends its process in one way or another."""

    how: str = parameter("SIGSEGV")

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        if slice.start == 0:
            print("last words", flush=True)  # noqa: T201 - printing is what is tested
            if self.how == "exit":
                sys.exit(3)
            if self.how.startswith("_exit"):
                os._exit(0 if self.how == "_exit_0" else 3)
            if self.how == "spin":
                while True:
                    pass
            if self.how == "memory":
                bytearray(2**40)
            os.kill(os.getpid(), signal.Signals[self.how])
        return super().map(slice, state)


class Waiting(Steps):
    """One iteration; each map says in ``folder`` who it is, and waits until ``go`` is there."""

    folder: str = parameter("")
    steps: int = parameter(1)

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        begun = f"{self.folder}/begun-{os.getpid()}-{slice.start}"
        os.close(os.open(begun, os.O_CREAT))
        while not os.path.exists(f"{self.folder}/go"):  # noqa: PTH110 - it waits
            time.sleep(0.002)
        return super().map(slice, state)


class Endless(Steps):
    """Says where it is, then never ends; ``folder`` is where it says so."""

    folder: str = parameter("")

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        with open(f"{self.folder}/{os.getpid()}", "w") as file:  # noqa: PTH123 - short
            file.write("here")
        while True:
            pass


class Odd(Steps):
    """Returns, at one place, what a program must not; ``where`` says at which."""

    where: str = parameter("")

    def init(self, data: Any) -> dict[str, Any]:
        if self.where == "exit":
            raise SystemExit(5)
        return super().init(data)

    def done(self, state: dict[str, Any]) -> Any:
        return np.zeros(3) if self.where == "done" else super().done(state)

    def metrics(self, state: dict[str, Any]) -> Any:
        wrong = {"metrics": 3, "array": {"a": np.zeros(3)}, "complex": {"a": 1j}}
        return wrong.get(self.where, {})

    def iterations(self) -> Any:
        if self.where == "iterations raise":
            raise ValueError("no number")
        return "many" if self.where == "iterations" else None
