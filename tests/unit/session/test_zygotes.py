"""Orders reach the zygote of the interpreter that a place runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sapwood.contexts.orders import ProcessSpec
from sapwood.session.zygotes import Command, Zygotes

ARM = ("qemu", "python3")


class Spawner:
    """Notes what it is told."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.told: list[Any] = []

    def start(self) -> None:
        self.told.append("start")

    def listen(self, loop: Any) -> None:
        self.told.append(("listen", loop))

    def spawn(self, specs: Sequence[ProcessSpec]) -> None:
        self.told.append([spec.rank for spec in specs])

    def kill(self, pid: int) -> None:
        self.told.append(("kill", pid))

    def close(self) -> None:
        self.told.append("close")


class Made:
    """Zygotes whose spawners are notes."""

    def __init__(self, interpreters: dict[int, Command]) -> None:
        self.spawners: list[Spawner] = []
        self.zygotes = Zygotes(self._make, interpreters)

    def _make(self, command: Command) -> Any:
        self.spawners.append(Spawner(command))
        return self.spawners[-1]


SPECS = [ProcessSpec("a:b", rank, 1) for rank in range(1, 5)]


def test_each_interpreter_has_one_zygote() -> None:
    made = Made({2: ARM, 4: ARM})
    assert [spawner.command for spawner in made.spawners] == [(), ARM]
    made.zygotes.start(SPECS)
    assert [spawner.told for spawner in made.spawners] == [["start", [1, 3]], ["start", [2, 4]]]
    made.zygotes.kill(4, 77)
    assert made.spawners[1].told[-1] == ("kill", 77)
    assert [made.zygotes.runs_on(rank, ARM) for rank in (1, 2)] == [False, True]


def test_only_the_zygote_that_ended_is_replaced() -> None:
    made = Made({2: ARM})
    made.zygotes.start(SPECS)
    loop = cast("Any", object())
    made.zygotes.replace(ARM, loop)
    default, old, new = made.spawners
    assert (old.told[-1], new.command, new.told) == ("close", ARM, ["start", ("listen", loop)])
    assert "close" not in default.told
    assert made.zygotes.of(2) is cast("Any", new)
    assert made.zygotes.main is cast("Any", default)


def test_without_other_interpreters_there_is_one() -> None:
    made = Made({})
    made.zygotes.start(SPECS)
    assert [spawner.told for spawner in made.spawners] == [["start", [1, 2, 3, 4]]]
