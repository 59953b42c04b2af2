"""What a zygote imports and forks."""

import importlib
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from sapwood.contexts import runner_factory

Main = Callable[[], object]
"""What a forked process runs until it ends."""

Entry = Callable[[bytes, int, int, runner_factory.RunnerFactory], Main]
"""What a member of the tree is: ``entry(configuration, rank, incarnation, runner_factory)``
assembles it in the zygote, before the fork, and returns what its process runs. It opens nothing."""

RunnerEntry = Callable[[bytes, int, list[int]], NoReturn]
"""What a runner runs: ``entry(options, parent, descriptors)``; it sets itself up."""


class ZygotePlan(msgspec.Struct, frozen=True):
    """What a zygote imports and forks.

    Attributes:
        first: Modules to import before anything is forked.
        later: Modules to import once the first processes are forked.
        runner: ``module:function`` of runners; empty if there are none.
        interpreter: The command that starts Python, for example another one under an emulator;
            empty for the one that runs.
    """

    first: tuple[str, ...]
    later: tuple[str, ...] = ()
    runner: str = ""
    interpreter: tuple[str, ...] = ()


def find_entry(name: str) -> Any:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
