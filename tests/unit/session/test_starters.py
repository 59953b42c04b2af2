"""The set of starters of a session."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from sapwood.contexts.orders import ProcessSpec
from sapwood.core.errors import ResourceError
from sapwood.lifecycle.starters import OnHost, StarterKey
from sapwood.session.starters import Starters

ARM = ("qemu", "python3")


class Starter:
    """Records the calls that it receives."""

    def __init__(self, key: StarterKey) -> None:
        self.key = key
        self.told: list[Any] = []

    def start(self) -> None:
        self.told.append("start")

    def listen(self, loop: Any) -> None:
        self.told.append(("listen", loop))

    def spawn(self, specs: Sequence[ProcessSpec]) -> None:
        self.told.append([spec.rank for spec in specs])

    def kill(self, pid: int) -> None:
        self.told.append(("kill", pid))

    def detach(self) -> None:
        self.told.append("detach")

    def close(self) -> None:
        self.told.append("close")


class Made:
    """Starters that are records."""

    def __init__(self, *keys: StarterKey) -> None:
        self.made: list[Starter] = []
        self.starters = Starters(self._make)
        for key in keys:
            self.starters.start(key)

    def _make(self, key: StarterKey) -> Starter:
        self.made.append(Starter(key))
        return self.made[-1]


def test_each_key_has_one_starter() -> None:
    made = Made((), ARM, ())
    assert [one.key for one in made.made] == [(), ARM]
    assert made.starters.get(ARM) is made.made[1]
    assert made.starters.main is cast("Any", made.made[0])
    assert made.starters.get(OnHost(1)) is None


def test_only_the_starter_that_ended_is_replaced() -> None:
    made = Made((), ARM)
    loop = cast("Any", object())
    made.starters.listen(loop)
    made.starters.replace(ARM)
    default, old, new = made.made
    assert old.told[-1] == "close"
    assert (new.key, new.told) == (ARM, ["start", ("listen", loop)])
    assert "close" not in default.told
    assert made.starters.get(ARM) is new


def test_a_starter_that_fails_is_closed_and_made_again_when_it_is_needed() -> None:
    made = Made()
    fails = True

    class Failing(Starter):
        def start(self) -> None:
            super().start()
            if fails:
                raise ResourceError("too many processes")

    def make(key: StarterKey) -> Starter:
        made.made.append(Failing(key))
        return made.made[-1]

    made.starters = Starters(make)
    with pytest.raises(ResourceError, match="too many processes"):
        made.starters.start(())
    assert made.made[0].told == ["start", "close"]
    with pytest.raises(ResourceError, match="the zygote is gone"):
        _ = made.starters.main
    fails = False
    assert made.starters.start(()) is made.made[1]


def test_starters_that_hang_are_waited_for_at_once() -> None:
    made = Made((), ARM, ("/other/python",))
    together = threading.Barrier(3, timeout=10.0)
    for one in made.made:
        one.close = together.wait  # type: ignore[method-assign, assignment]
    made.starters.close()  # one after the other, the first would wait for ever
    assert not together.broken


def test_one_that_is_closed_alone_is_waited_for_at_the_end() -> None:
    made = Made((), OnHost(1))
    made.starters.close_one(OnHost(1))
    made.starters.close_one(OnHost(1))  # it is closed already
    made.starters.close()
    assert made.made[1].told[1:] == ["detach", "close"]


def test_a_starter_that_cannot_be_ended_is_an_error_and_the_others_are_ended() -> None:
    made = Made((), ARM)

    def fail() -> None:
        raise ResourceError("no such process")

    made.made[1].close = fail  # type: ignore[method-assign]
    with pytest.raises(ResourceError, match="no such process"):
        made.starters.close()
    assert made.made[0].told[-1] == "close"
