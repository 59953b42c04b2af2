"""What a zygote imports and forks."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import msgspec

from sapwood.contexts import runner_factory


class Opened(Protocol):
    """Something with a descriptor that a process has from before its fork."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def abort(self) -> None:
        """Close it here; who else has it keeps it."""


class Assembled:
    """A member of the tree before its fork.

    Attributes:
        run: What its process does.
        opened: What its process has open already; the zygote closes its own side of it.
    """

    __slots__ = ("opened", "run")

    def __init__(self, run: Callable[[], object], opened: Sequence[Opened] = ()) -> None:
        self.run = run
        self.opened = opened


Entry = Callable[[bytes, int, int, runner_factory.RunnerFactory], Assembled]
"""What a member of the tree is: ``entry(configuration, rank, incarnation, runner_factory)``
assembles it in the zygote. It may connect with others, but says nothing: it has no process yet."""

RunnerEntry = Callable[[bytes, int, list[int]], NoReturn]
"""What a runner runs: ``entry(options, parent, descriptors)``; it sets itself up."""


class ZygotePlan(msgspec.Struct, frozen=True):
    """What a zygote imports and forks.

    Attributes:
        first: Modules to import before anything is forked.
        later: Modules to import once the first processes are forked.
        runner: ``module:function`` of runners; empty if there are none.
        rehearsal: ``module:function`` that is given the configuration before the first fork: what
            it makes and remembers, its children share.
        interpreter: The command that starts Python, for example another one under an emulator;
            empty for the one that runs.
    """

    first: tuple[str, ...]
    later: tuple[str, ...] = ()
    runner: str = ""
    rehearsal: str = ""
    interpreter: tuple[str, ...] = ()


def find_entry(name: str) -> Any:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
