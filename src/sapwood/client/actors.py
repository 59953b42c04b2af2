"""Actors: objects with state on agents, whose methods are called from the client."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Self

import msgspec

from sapwood.activity.task_future import TaskFuture, follow
from sapwood.activity.tasks import TaskCall, TaskPool
from sapwood.client.user_code import CodeMaker, FunctionCode, name_of
from sapwood.code.runner import actor_calls
from sapwood.core.arguments import function, text, whole
from sapwood.core.errors import (
    ActorLostError,
    AgentLostError,
    ClosedError,
    ConfigurationError,
    ResourceError,
    RunnerCrashError,
    SapwoodError,
)
from sapwood.core.futures import when_done
from sapwood.core.shown import shown
from sapwood.core.staying import StaysHere

MAX_WAITING = 1000
"""Calls of one actor that have no result yet; a further one waits for room."""

ROOM_SECONDS = 60.0
"""Seconds for which a call waits for room."""

MAX_ACTORS = 100_000
"""Actors in one collection."""

_LOSSES = (RunnerCrashError, AgentLostError, ActorLostError)


class Maker(NamedTuple):
    """What actors are made with.

    Attributes:
        tasks: Takes their calls to agents.
        code: Encodes calls.
        method_code: The code of :func:`.actor_calls.call_method`.
        time_limit: Seconds that a call may take; 0 for any time.
        factory: Their class.
        args: What the class is called with.
        restarts: How often each of them may be made again.
        retry: Whether calls that were under way are made again then.
    """

    tasks: TaskPool
    code: CodeMaker
    method_code: FunctionCode
    time_limit: float
    factory: Callable[..., Any]
    args: tuple[Any, ...]
    restarts: int
    retry: bool


def make(maker: Maker, ranks: Sequence[int]) -> list[Actor]:
    """Construct an actor at each agent, and wait until all are there.

    Raises:
        Exception: What a constructor raises.
    """
    made = [Actor(_Connection(maker, rank)) for rank in ranks]
    try:
        for future in [actor._connection.construct() for actor in made]:  # noqa: SLF001 - of one family
            future.result()
    except BaseException:
        for actor in made:
            actor.close()
        raise
    return made


class _Connection:
    """An actor as the client sees it: where it is, and how often it was made.

    Args:
        maker: What it is made with.
        rank: Its agent.
    """

    def __init__(self, maker: Maker, rank: int) -> None:
        self.rank = rank
        self.factory = maker.factory
        self.name = name_of(maker.factory)
        self._key = uuid.uuid4().hex
        self._tasks = maker.tasks
        self._code = maker.code
        self._method_code = maker.method_code
        self._time_limit = maker.time_limit
        self._retry = maker.retry
        self._restarts = maker.restarts
        self._lock = threading.RLock()
        self._room = threading.BoundedSemaphore(MAX_WAITING)
        self._incarnation = 0
        self._ended: ActorLostError | None = None
        arguments = (self._key, maker.factory, maker.args)
        self._construct = self._encoded(actor_calls.construct, arguments)

    def construct(self) -> TaskFuture:
        """Have the actor made; calls that are submitted later wait for it."""
        return self._tasks.submit_at([self.rank], self._construct)[0]

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskFuture:
        """Call a method.

        Raises:
            ResourceError: Many calls have had no result for long.
            ClosedError: The cluster is closed.
            DataValueError: An argument cannot travel.
        """
        name = f"{self.name}.{method}"
        arguments = (self._key, method, args, kwargs)
        function, code = actor_calls.call_method, self._method_code
        call = self._code.call(function, code, arguments, {}, self._time_limit)
        call = msgspec.structs.replace(call, function=name)
        if not self._room.acquire(timeout=ROOM_SECONDS):
            raise ResourceError(
                f"{MAX_WAITING} calls of an actor have had no result for {ROOM_SECONDS:g} s",
                where=name,
                hint="wait for some results first",
            )
        future = TaskFuture(name, opens=call.pickles)
        when_done(future, self._leave)
        try:
            self._send(call, future)
        except BaseException:
            future.cancel()
            raise
        return future

    def close(self) -> None:
        """Drop the actor after the calls that wait."""
        with self._lock:
            if self._ended is None:
                self._ended = ActorLostError(
                    "the actor was closed", where=self.name, hint="make another one"
                )
                drop = self._encoded(actor_calls.drop, (self._key,))
                with contextlib.suppress(ClosedError):
                    self._tasks.submit_at([self.rank], drop)

    def _encoded(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> TaskCall:
        code = self._code.code(function)
        call = self._code.call(function, code, arguments, {}, self._time_limit)
        return msgspec.structs.replace(call, function=self.name)

    def _leave(self, _future: Future[Any]) -> None:
        self._room.release()

    def _send(self, call: TaskCall, future: TaskFuture) -> None:
        with self._lock:
            ended, incarnation = self._ended, self._incarnation
            if ended is None:
                sent = self._tasks.submit_at([self.rank], call)[0]
        if ended is not None:
            future.settle(None, ended)
            return
        future.begun = True
        future.on_cancel = functools.partial(_cancel, sent)
        when_done(sent, lambda _: self._answered(call, future, incarnation, sent))

    def _answered(
        self, call: TaskCall, future: TaskFuture, incarnation: int, sent: TaskFuture
    ) -> None:
        if sent.cancelled():
            future.cancel()
            return
        error = Future.exception(sent, 0)
        if isinstance(error, _LOSSES) and self._is_newer(incarnation):
            has_not_run = isinstance(error, ActorLostError)
            if has_not_run or self._retry:
                self._resend(call, future)
                return
        follow(future, sent)

    def _resend(self, call: TaskCall, future: TaskFuture) -> None:
        try:
            self._send(call, future)
        except SapwoodError as error:
            future.settle(None, error)

    def _is_newer(self, incarnation: int) -> bool:
        """Return whether there is a newer actor than a lost one; make it if that is allowed."""
        with self._lock:
            if self._ended is not None:
                return False
            if incarnation == self._incarnation:
                if not self._restarts:
                    self._ended = ActorLostError(
                        f"the process with the actor's state ended at agent {self.rank}, "
                        "and the state is gone",
                        where=self.name,
                        hint="make the actor again, or give it restarts=…",
                    )
                    return False
                self._restarts -= 1
                self._incarnation += 1
                try:
                    self._move()
                    self.construct()
                except SapwoodError:  # the cluster is closed
                    return False
            return True

    def _move(self) -> None:
        """Choose another agent if the actor's agent is gone."""
        loads = self._tasks.demand().loads
        if self.rank not in loads and loads:
            self.rank = min(loads, key=lambda rank: (loads[rank], rank))


class Actor(StaysHere):
    """An object with state on an agent; made by :meth:`.Cluster.actor`.

    It has the methods of its class: each call returns a future at once. The calls of one client
    are made one after the other, in their order. A method with the name ``agent``, ``call`` or
    ``close``, or that begins with ``_``, is called by :meth:`call`.

    Example:
        ::

            counter = cluster.actor(Counter, 10)
            counter.add(1).result()  # 11
    """

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    @property
    def agent(self) -> int:
        """The rank of the agent that has it."""
        return self._connection.rank

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> TaskFuture:
        """Call a method by its name; the future has its result.

        With :data:`MAX_WAITING` calls without a result, it waits until one has one.

        Raises:
            ResourceError: None has one after a minute.
            DataValueError: An argument cannot be pickled.
            ClosedError: The cluster is closed.
        """
        return self._connection.call(text(method, "method"), args, kwargs)

    def close(self) -> None:
        """Free the actor's state after the calls that wait; later ones fail."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., TaskFuture]:
        _check_method(self._connection.factory if name[:1] != "_" else None, name)
        return functools.partial(self.call, name)

    def __repr__(self) -> str:
        return f"<Actor {self._connection.name} at agent {self.agent}>"


class Actors(StaysHere):
    """Actors of one class, addressed by dimensions; made by :meth:`.Cluster.actors`.

    Methods are called on all of them. They are ordered by position, the last dimension fastest.

    Example:
        ::

            grid = cluster.actors(Counter, shape={"host": 2, "gpu": 4})
            [future.result() for future in grid.slice(host=0).add(1)]  # [1, 1, 1, 1]
            grid[1, 3].add(1).result()  # 1
    """

    def __init__(self, actors: Sequence[Actor], shape: Mapping[str, int]) -> None:
        self._actors = tuple(actors)
        self._shape = dict(shape)

    @property
    def shape(self) -> dict[str, int]:
        """The length of each dimension."""
        return dict(self._shape)

    def slice(self, **positions: int | _Slice) -> Actors:
        """Return the actors at some positions.

        Args:
            **positions: By dimension, a number from 0, which removes the dimension, or a
                ``slice``.

        Raises:
            ConfigurationError: There is no such dimension or position.
        """
        for name in positions:
            if name not in self._shape:
                raise ConfigurationError(
                    f"the actors have no dimension {shown(name)}",
                    hint=f"the dimensions are {', '.join(self._shape) or 'none'}",
                )
        kept: dict[str, int] = {}
        ranges: list[Sequence[int]] = []
        for name, length in self._shape.items():
            wanted = positions.get(name, _ALL)
            if isinstance(wanted, _Slice):
                try:
                    ranges.append(range(length)[wanted])
                except (TypeError, ValueError) as error:
                    raise ConfigurationError(
                        f"{name}: {error}", hint="give whole numbers"
                    ) from error
                kept[name] = len(ranges[-1])
            else:
                index = whole(wanted, name, ConfigurationError)
                if not -length <= index < length:
                    raise ConfigurationError(
                        f"{name} is {index}", hint=f"give 0 to {length - 1}, or a slice"
                    )
                ranges.append([index % length])
        lengths = list(self._shape.values())
        found = [self._actors[_offset(place, lengths)] for place in itertools.product(*ranges)]
        return Actors(found, kept)

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> list[TaskFuture]:
        """Call a method of each of them by its name; the futures are ordered by position.

        Raises:
            ResourceError: Many calls of one actor have had no result for a minute.
            DataValueError: An argument cannot be pickled.
            ClosedError: The cluster is closed.
        """
        return [actor.call(method, *args, **kwargs) for actor in self._actors]

    def close(self) -> None:
        """Free their states after the calls that wait; later ones fail."""
        for actor in self._actors:
            actor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., list[TaskFuture]]:
        actors = self._actors if name[:1] != "_" else ()
        _check_method(actors[0]._connection.factory if actors else None, name)  # noqa: SLF001 - of one family
        return functools.partial(self.call, name)

    def __getitem__(self, position: int | tuple[int, ...]) -> Actor:
        """Return the actor at a position: a number for each dimension.

        Raises:
            IndexError: There is none.
        """
        place = position if isinstance(position, tuple) else (position,)
        lengths = list(self._shape.values())
        if len(place) != len(lengths):
            raise ConfigurationError(
                f"{shown(position)} is not a position in {len(lengths)} dimensions",
                hint=f"give one number for each of {', '.join(self._shape)}, or use slice(…)",
            )
        found = []
        for index, length in zip(place, lengths, strict=True):
            number = whole(index, "a position", ConfigurationError)
            if not -length <= number < length:
                raise IndexError(f"no actor at {shown(position)}: the shape is {self._shape}")
            found.append(number % length)
        return self._actors[_offset(found, lengths)]

    def __iter__(self) -> Iterator[Actor]:
        return iter(self._actors)

    def __len__(self) -> int:
        return len(self._actors)

    def __repr__(self) -> str:
        return f"<{len(self)} Actors {self._shape}>"


def _cancel(future: TaskFuture) -> None:
    future.cancel()


_Slice = slice
_ALL = slice(None)


def _offset(place: Sequence[int], lengths: Sequence[int]) -> int:
    offset = 0
    for index, length in zip(place, lengths, strict=True):
        offset = offset * length + index
    return offset


def _check_method(factory: Any, name: str) -> None:
    """Raise AttributeError if a class has no such method."""
    if factory is None or (isinstance(factory, type) and not hasattr(factory, name)):
        kind = "an actor" if factory is None else name_of(factory)
        raise AttributeError(f"{kind} has no method {name!r}")


class MakesActors:
    """What makes actors: a cluster."""

    _tasks: TaskPool
    _maker: CodeMaker
    _time_limit: float

    def actor(
        self,
        factory: Callable[..., Any],
        /,
        *args: Any,
        agent: int | None = None,
        restarts: int = 0,
        retry: bool = False,
    ) -> Actor:
        """Make an object with state on an agent, and wait until it is made.

        It shares the agent's process with tasks and with other actors there.

        Args:
            factory: Its class. ``functools.partial(Counter, start=10)`` gives it keyword
                arguments.
            *args: What the class is called with, there.
            agent: The rank of the agent; by default the one with the fewest actors of yours.
            restarts: How often it is made again, as new, when its process ends.
            retry: Whether calls that were under way then are made again; otherwise they fail.

        Raises:
            ConfigurationError: There is no such agent.
            DataValueError: The class or an argument cannot be pickled.
            Exception: What the constructor raises.

        Example:
            ::

                counter = cluster.actor(Counter, 10)
                counter.add(1).result()  # 11
        """
        agents = None if agent is None else [agent]
        shape = {"actor": 1}
        made = self.actors(
            factory, *args, shape=shape, agents=agents, restarts=restarts, retry=retry
        )
        return made[0]

    def actors(
        self,
        factory: Callable[..., Any],
        /,
        *args: Any,
        shape: Mapping[str, int],
        agents: Iterable[int] | None = None,
        restarts: int = 0,
        retry: bool = False,
    ) -> Actors:
        """Make actors of one class on several agents, addressed by dimensions.

        Neighbours in the order of positions share an agent, where there are more actors than
        agents.

        Args:
            factory: As in :meth:`actor`; also the other arguments.
            *args: What the class is called with, for each of them.
            shape: The length of each dimension, such as ``{"host": 2, "gpu": 4}``.
            agents: Ranks of the agents; all by default.
            restarts: How often each of them is made again.
            retry: Whether calls that were under way then are made again.

        Raises:
            ConfigurationError: The shape has no dimension, or a length below 1; there is no such
                agent.
            DataValueError: The class or an argument cannot be pickled.
            Exception: What a constructor raises.

        Example:
            ::

                grid = cluster.actors(Counter, shape={"host": 2, "gpu": 4})
                grid.slice(host=0).add(1)
        """
        function(factory, "factory")
        if whole(restarts, "restarts", ConfigurationError) < 0:
            raise ConfigurationError(f"restarts is {restarts}", hint="give 0 or more")
        lengths = _checked_shape(shape)
        ranks = self._agents_of(agents)
        if not ranks:
            raise ConfigurationError("actors need an agent", hint="name at least one: agents=[1]")
        count = math.prod(lengths.values())
        if count < len(ranks):
            held = Counter(actor.agent for actor in self._held)
            ranks = sorted(ranks, key=lambda rank: (held[rank], rank))[:count]
            ranks.sort()
        places = [ranks[index * len(ranks) // count] for index in range(count)]
        code = self._maker.code(actor_calls.call_method)
        limit = self._time_limit
        maker = Maker(self._tasks, self._maker, code, limit, factory, args, restarts, retry)
        made = make(maker, places)
        self._held.update(made)
        return Actors(made, lengths)

    @functools.cached_property
    def _held(self) -> weakref.WeakSet[Actor]:
        """The actors that the client may still call."""
        return weakref.WeakSet()

    def _agents_of(self, agents: Iterable[int] | None) -> Sequence[int]:
        raise NotImplementedError


def _checked_shape(shape: Any) -> dict[str, int]:
    """Return the length of each dimension.

    Raises:
        ConfigurationError: It is not a shape.
    """
    if not isinstance(shape, Mapping) or not shape:
        raise ConfigurationError(
            f"shape is {shown(shape)}", hint='give the length of each dimension: {"host": 2}'
        )
    lengths = {
        text(name, "a dimension"): whole(length, f"shape[{shown(name)}]", ConfigurationError)
        for name, length in shape.items()
    }
    for name, length in lengths.items():
        if length < 1:
            raise ConfigurationError(
                f"{shown(name)} has the length {length}", hint="give 1 or more"
            )
    if math.prod(lengths.values()) > MAX_ACTORS:
        raise ConfigurationError(
            f"the shape has more than {MAX_ACTORS} actors", hint="give shorter dimensions"
        )
    return lengths
