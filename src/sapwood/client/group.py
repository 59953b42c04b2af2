"""Agents that do something together, started from the client."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from sapwood.activity.task_future import TaskFuture
from sapwood.code.runner.collectives import take_part
from sapwood.comm.groups.handle import NOTHING, Group, GroupOptions, group_time
from sapwood.comm.messages.groups import LEFT, ONCE
from sapwood.comm.reductions import make_reduction
from sapwood.core.arguments import items, text
from sapwood.core.errors import (
    AgentLostError,
    ClosedError,
    ConfigurationError,
    GroupError,
    SapwoodError,
)
from sapwood.core.failures import start_thread
from sapwood.core.rankset import fold
from sapwood.core.request import Request
from sapwood.core.staying import StaysHere
from sapwood.session.interface import SessionInterface

CallAt = Callable[[Sequence[int], Callable[..., Any], Any, Any], "list[TaskFuture]"]
"""Has agents make a call each."""

FAREWELL = 5.0
"""Seconds in which an agent that left says why."""

_numbers = itertools.count(1)

_CONSEQUENCES = (GroupError, ClosedError)
"""Errors that a member has because another one failed."""


class AgentGroup(StaysHere):
    """Some agents, and the values that they keep by name; made by :meth:`.Cluster.group`.

    The operations start at the client and need no function that runs on the agents. A value
    is kept in each agent's runner, where functions find it as ``sapwood.here().values[name]``;
    it is gone when the runner is replaced.

    With ``wait=False`` a method returns a :class:`sapwood.types.Request` instead of waiting.

    Attributes:
        agents: Their ranks, in order.
    """

    def __init__(self, agents: tuple[int, ...], session: SessionInterface, call_at: CallAt) -> None:
        self.agents = agents
        self._session = session
        self._groups = session.groups
        self._call_at = call_at

    def barrier(self, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Return when all agents have done what they were to do before.

        Args:
            timeout: Seconds to wait; None for any time.
            wait: Whether to wait, or to return a request.

        Raises:
            GroupError: An agent did not come in time.
            AgentLostError: An agent is gone.
        """
        return self._start("barrier", lambda group: group.barrier(), timeout=timeout, wait=wait)

    def broadcast(
        self, name: str, value: Any, *, timeout: float | None = None, wait: bool = True
    ) -> Any:
        """Have every agent keep a value.

        Args:
            name: What it is called.
            value: The value.
            timeout: Seconds to wait; None for any time.
            wait: Whether to wait, or to return a request.
        """

        def operate(group: Group) -> None:
            group.broadcast(value)

        return self._start("broadcast", operate, name, timeout=timeout, wait=wait)

    def scatter(
        self, name: str, values: Sequence[Any], *, timeout: float | None = None, wait: bool = True
    ) -> Any:
        """Give every agent a different value to keep.

        Args:
            name: What it is called.
            values: One for each agent, in order; types and sizes may differ.
            timeout: Seconds to wait; None for any time.
            wait: Whether to wait, or to return a request.

        Raises:
            ConfigurationError: There is not one value for each agent.
        """
        values = items(values, "values")
        if len(values) != len(self.agents):
            raise ConfigurationError(
                f"scatter needs {len(self.agents)} values, one for each agent, "
                f"and got {len(values)}",
                hint="np.array_split(array, len(group.agents)) cuts an array",
            )

        def operate(group: Group) -> None:
            group.scatter([None, *values])  # the client, rank 0, gets none

        return self._start("scatter", operate, name, timeout=timeout, wait=wait)

    def gather(self, name: str, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Return what the agents keep, as a list in the order of :attr:`agents`.

        Args:
            name: What it is called.
            timeout: Seconds to wait; None for any time.
            wait: Whether to wait, or to return a request.

        Raises:
            DataMissingError: An agent keeps nothing of that name.
        """
        return self._start("gather", _gathered, name, timeout=timeout, wait=wait)

    def allgather(
        self, name: str, *, into: str, timeout: float | None = None, wait: bool = True
    ) -> Any:
        """Return what the agents keep as a list, and have every agent keep that list.

        Args:
            name: What it is called.
            into: What the list is called.
            timeout: Seconds to wait; None for any time.
            wait: Whether to wait, or to return a request.

        Raises:
            DataMissingError: An agent keeps nothing of that name.
        """

        def operate(group: Group) -> Any:
            return group.broadcast(_gathered(group))

        return self._start("gather", operate, name, into=into, timeout=timeout, wait=wait)

    def reduce(
        self,
        name: str,
        reduction: str = "sum",
        *,
        into: str = "",
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Return what a reduction makes of the values that the agents keep.

        Args:
            name: What they are called.
            reduction: A reduction by name, as in a program's ``reduce``.
            into: Have every agent keep the result under this name, too: then it is what
                others call an allreduce.
            timeout: Seconds to wait; None for any time.
            wait: Whether to wait, or to return a request.

        Raises:
            ProgramError: There is no such reduction.
            DataMissingError: An agent keeps nothing of that name.
            ExecutionError: The values do not fit together.
        """
        make_reduction(reduction)

        def operate(group: Group) -> Any:
            total = group.reduce(NOTHING, reduction)
            return group.broadcast(total) if into else total

        options = {"reduction": reduction, "into": into}
        return self._start("reduce", operate, name, **options, timeout=timeout, wait=wait)

    def allreduce(
        self,
        name: str,
        reduction: str = "sum",
        *,
        into: str,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """As :meth:`reduce`, and every agent keeps the result under the name ``into``."""
        return self.reduce(name, reduction, into=into, timeout=timeout, wait=wait)

    def call(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "list[TaskFuture]":
        """Call a function at every agent of the group; the futures are in their order.

        The function may enter groups with the others: ``sapwood.here().group(members)``.
        """
        return self._call_at(self.agents, function, args, kwargs)

    def join(
        self,
        *,
        name: str = "",
        timeout: float | None = None,
        enter_timeout: float | None = 60.0,
        piece_bytes: int = 0,
    ) -> Group:
        """Enter a group with these agents, as rank 0; return when all have entered.

        The agents enter it in functions: ``sapwood.here().group([0, *agents])``.

        Args:
            name: Tells groups of the same members apart.
            timeout: Seconds that each call may wait for the others; None for any time.
            enter_timeout: Seconds that the others may take to enter.
            piece_bytes: Reduce larger arrays in pieces of so many bytes, so that junctions add
                while they receive; the same at every member. It pays where links take time,
                between machines, and not on one. 0 is for in one piece.
        """
        options = GroupOptions(timeout, piece_bytes)
        group: Group = self._groups.enter([*self.agents], name, options, enter_timeout).result()
        return group

    def _start(
        self,
        operation: str,
        operate: Callable[[Group], Any],
        name: str = "",
        *,
        reduction: str = "",
        into: str = "",
        timeout: float | None,
        wait: bool,
    ) -> Any:
        text(name, "name")
        text(into, "into")
        timeout = group_time(timeout)  # before the agents are asked: they would wait for this one
        self._must_be_there()
        unique = f"{ONCE}operation {next(_numbers)} of the client"
        members = [0, *self.agents]
        futures = self._call_at(
            self.agents, take_part, (members, unique, operation, name, reduction, into), {}
        )
        entered = self._groups.enter([*self.agents], unique, GroupOptions(timeout), timeout)
        if wait:
            return _finish(entered, operate, futures)
        request = Request()

        def run() -> None:
            try:
                request.set_result(_finish(entered, operate, futures))
            except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
                request.set_exception(error)

        start_thread("sapwood-group", run)
        return request

    def _must_be_there(self) -> None:
        """Raise AgentLostError where an agent is gone: the others would wait for it."""
        gone = [one.rank for one in self._session.processes(self.agents) if one.is_gone]
        if gone:
            raise self._session.failure or AgentLostError(
                f"{fold('agent', gone)} is being replaced",
                hint="the values that it kept are lost; try again when it is back",
            )

    def __len__(self) -> int:
        return len(self.agents)

    def __repr__(self) -> str:
        return f"<AgentGroup: {fold('agent', self.agents)}>"


def _gathered(group: Group) -> Any:
    return group.gather(NOTHING)


def _finish(
    entered: Request, operate: Callable[[Group], Any], futures: "Iterable[Future[Any]]"
) -> Any:
    try:
        with entered.result() as group:
            result = operate(group)
    except SapwoodError as error:
        raise _cause(futures, error) from None
    for future in futures:
        future.result()
    return result


def _cause(futures: "Iterable[Future[Any]]", error: SapwoodError) -> BaseException:
    """Return what was wrong at an agent, rather than what that meant for the others."""
    try:
        for future in as_completed(futures, FAREWELL if LEFT in error.details else 0):
            found = future.exception()
            if found is not None and not isinstance(found, _CONSEQUENCES):
                return found
    except FutureTimeoutError:
        pass  # an agent that does something else may take its time
    return error
