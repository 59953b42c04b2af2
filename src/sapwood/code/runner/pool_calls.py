"""Calls of a pool in a runner: its initializer first, and a new process after so many of them."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from sapwood.code import pickling
from sapwood.code.runner.calling_each import call, call_each, finished
from sapwood.code.shared_buffers import open_shared
from sapwood.core.errors import ProcessSpentError

MAX_POOLS: Final = 16
"""Pools that a process remembers; another one calls its initializer again."""

_MARK: Final = "__sapwood_pool__"
"""Global variable of functions that travel as code: the pool whose variables they have."""


class PoolProcess(NamedTuple):
    """What a pool wants of the processes that make its calls.

    Attributes:
        pool: Its name.
        max_tasks: Calls, or chunks of calls, that one process makes; 0 for any number.
        pickles: Whether results may be pickled: many small ones take less time so.
        initializer: The pickle of a function and its arguments that each process calls first;
            empty for none.
        buffers: The buffers of that pickle.
    """

    pool: str
    max_tasks: int
    pickles: bool
    initializer: bytes
    buffers: tuple[Any, ...]


class _Pool:
    """A pool in this process.

    Args:
        variables: The global variables of its initializer, after the call.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.calls = 0
        self._variables = variables

    def give_variables(self, function: Any, pool: str) -> None:
        """Set the variables of the initializer where a function of its module has other ones.

        Functions that no file holds travel as code, each with a copy of the globals that it uses.
        """
        own, known = _globals_of(function), self._variables
        same_module = known.get("__name__", "") == own.get("__name__")
        if same_module and own is not known and own.get(_MARK) != pool:
            own.update((key, one) for key, one in known.items() if not key.startswith("__"))
            own[_MARK] = pool


_pools: OrderedDict[str, _Pool] = OrderedDict()


class PoolCall:
    """A function as a process of a pool calls it.

    Args:
        function: The function.
        name: What people call it.
        process: What the pool wants of its processes.
    """

    def __init__(self, function: Callable[..., Any], name: str, process: PoolProcess) -> None:
        self.__qualname__ = name
        self._function = function
        self._process = process

    def __call__(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call it once."""
        return call(self._ready(), *args, **kwargs)

    def _packed(self, results: list[Any]) -> Any:
        if not self._process.pickles:
            return results
        return pickling.dump(
            results,
            f"a result of {self.__qualname__}",
            "return what can be pickled: no open files, locks, connections or generators",
        )

    def _ready(self) -> Callable[..., Any]:
        """Return the function, in a process that is ready for it.

        Raises:
            ProcessSpentError: This process has made its calls: the agent takes a new one.
            Exception: What the initializer raises.
        """
        process = self._process
        known = _pools.get(process.pool)
        if known is None:
            variables = _initialize(process) if process.initializer else {}
            known = _pools[process.pool] = _Pool(variables)
            if len(_pools) > MAX_POOLS:
                _pools.popitem(last=False)
        _pools.move_to_end(process.pool)
        if process.max_tasks and known.calls >= process.max_tasks:
            raise ProcessSpentError("this process has made as many calls as its pool lets it")
        known.calls += 1
        known.give_variables(self._function, process.pool)
        return self._function


class PoolMap(PoolCall):
    """A function as a process of a pool calls it for each of some arguments."""

    def __call__(self, arguments: Iterable[Any]) -> Any:  # type: ignore[override] # other arguments
        """Return what it makes of each."""
        return self._packed(finished(list(map(self._ready(), arguments))))


class PoolStarMap(PoolCall):
    """A function as a process of a pool calls it for each of some tuples of arguments."""

    def __call__(self, arguments: Iterable[tuple[Any, ...]]) -> Any:  # type: ignore[override] # as above
        """Return what it makes of each."""
        return self._packed(call_each(self._ready(), arguments))


def _initialize(process: PoolProcess) -> dict[str, Any]:
    """Call the initializer and return its global variables."""
    initializer = open_shared(process.initializer, process.buffers)
    call(initializer)
    return _globals_of(initializer)


def _globals_of(function: Any) -> dict[str, Any]:
    """Return the global variables of a function, method, partial or object that is called."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    found = getattr(function, "__globals__", None)
    if found is None:
        found = getattr(type(function).__call__, "__globals__", None)
    return {} if found is None else found
