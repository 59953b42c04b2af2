"""How each public method is called with one hostile argument: a table that a test keeps complete.

A recipe takes the object and the argument. What a recipe makes, it also closes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import sapwood
from sapwood.activity.run import Run
from sapwood.activity.task_future import TaskFuture
from sapwood.client.attaching import end_session
from sapwood.client.group import AgentGroup
from sapwood.client.persistent import PersistentDataset
from sapwood.client.stream import Stream
from sapwood.comm.groups.handle import Group
from sapwood.core import errors

from .conftest import NewCluster
from .programs import DATA, Total

PATIENCE = 30.0
SOON = 0.05
Recipe = Callable[[Any, Any], object]


class Hostile:
    """An object whose named methods raise the exception that it was made with."""

    def __init__(self, kind: type[BaseException], *methods: str) -> None:
        self.kind = kind
        self.methods = methods

    def _refuse(self, method: str) -> None:
        if method in self.methods:
            raise self.kind(f"{method} of a hostile object")

    def __add__(self, other: object) -> Hostile:
        self._refuse("add")
        return self

    def __radd__(self, other: object) -> Hostile:
        self._refuse("add")
        return self

    def __eq__(self, other: object) -> bool:
        self._refuse("compare")
        return self is other

    def __hash__(self) -> int:
        self._refuse("compare")
        return 1

    def __repr__(self) -> str:
        self._refuse("print")
        return "Hostile()"

    def __bool__(self) -> bool:
        self._refuse("compare")
        return True

    def __len__(self) -> int:
        self._refuse("compare")
        return 1

    def __getstate__(self) -> dict[str, Any]:
        self._refuse("pickle")
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._refuse("load")


def nested() -> list[Any]:
    """Return a list deeper than any recursion limit."""
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    return deep


ARGUMENTS: dict[str, Callable[[], Any]] = {
    "compared": lambda: Hostile(ValueError, "compare"),
    "printed": lambda: Hostile(ValueError, "print"),
    "pickled": lambda: Hostile(ValueError, "pickle"),
    "nested": nested,
    "surrogate": lambda: "\ud800",
    "nul": lambda: "\0" * 3,
    "long": lambda: "x" * 10**6,
    "large": lambda: 1 << 100_000,
    "not-a-number": lambda: float("nan"),
    "none": lambda: None,
    "negative": lambda: -1,
    "generator": lambda: (one for one in range(3)),
    "type": lambda: Hostile,
}
EVERY = tuple(ARGUMENTS)
NO = ("none",)


class Row(NamedTuple):
    """How a method is called, with which arguments, and which errors are its own.

    An ``InputError`` is always one: of the call, about its argument.
    """

    call: Recipe
    arguments: tuple[str, ...]
    errors: tuple[type[BaseException], ...] = ()


def settled(future: Future[Any]) -> object:
    return future.result(PATIENCE)


def all_settled(futures: list[Future[Any]]) -> object:
    return [future.result(PATIENCE) for future in futures]


def closed(thing: Any) -> None:
    thing.close()


def requested(request: Any) -> object:
    try:
        return request.result(SOON)
    finally:
        request.cancel()


def streamed(cluster: sapwood.Cluster, value: Any) -> None:
    with cluster.stream("echo", reduce=value) as stream:
        stream.exchange(1, PATIENCE)


def detached(cluster: sapwood.Cluster) -> None:
    handle = cluster.detach()
    with sapwood.attach(handle) as again:
        assert again.submit(abs, -3).result(PATIENCE) == 3
    end_session(handle, "default")


def told(cluster: sapwood.Cluster, value: Any) -> None:
    cluster.tell_runs(value)
    try:
        assert cluster.run(Total, data=DATA).result(PATIENCE)["total"] == 6
    finally:
        cluster.tell_runs(id)


def received() -> None:
    """Take a message, on an agent; large ones are not sent before."""
    with contextlib.suppress(TimeoutError):
        sapwood.here().receive(tag=7, timeout=0.3)


def sent(cluster: sapwood.Cluster, value: Any) -> None:
    receiver = cluster.submit_to(1, received)
    try:
        cluster.send(1, value, tag=7)
    finally:
        receiver.result(PATIENCE)


def sent_later(cluster: sapwood.Cluster, value: Any) -> None:
    receiver = cluster.submit_to(1, received)
    try:
        cluster.send_later(1, value, tag=7).result(PATIENCE)
    finally:
        receiver.result(PATIENCE)


def released(cluster: sapwood.Cluster, value: Any) -> None:
    cluster.persist(value).release()


CLUSTER: dict[str, Row] = {
    "actor": Row(
        lambda cluster, value: closed(cluster.actor(id, value, restarts=0)),
        EVERY,
    ),
    "actors": Row(
        lambda cluster, value: closed(cluster.actors(dict, shape={"one": value})),
        EVERY,
    ),
    "autoscale": Row(lambda cluster, value: cluster.autoscale(1, value).stop(), EVERY),
    "contract": Row(
        lambda cluster, value: cluster.contract(value),
        EVERY,
    ),
    "create_session": Row(
        lambda cluster, value: closed(cluster.create_session(1, name=value)),
        EVERY,
    ),
    "expand": Row(lambda cluster, value: cluster.expand(value), EVERY),
    "group": Row(lambda cluster, value: cluster.group(value), EVERY),
    "invite": Row(lambda cluster, value: cluster.invite(value), EVERY),
    "map": Row(
        lambda cluster, value: list(cluster.map(type, [value], timeout=PATIENCE)),
        EVERY,
    ),
    "merge": Row(lambda cluster, value: closed(cluster.merge(value)), EVERY),
    "options": Row(
        lambda cluster, value: settled(cluster.options(retries=value).submit(abs, -1)),
        EVERY,
    ),
    "persist": Row(released, EVERY),
    "query": Row(
        lambda cluster, value: cluster.query(id, value, timeout=PATIENCE),
        EVERY,
    ),
    "receive": Row(
        lambda cluster, value: cluster.receive(value, timeout=SOON),
        EVERY,
        (TimeoutError,),
    ),
    "receive_later": Row(
        lambda cluster, value: requested(cluster.receive_later(value)),
        EVERY,
        (TimeoutError,),
    ),
    "revoke_invitation": Row(
        lambda cluster, value: cluster.revoke_invitation(value),
        EVERY,
    ),
    "run": Row(
        lambda cluster, value: cluster.run(value, data=DATA).result(PATIENCE),
        EVERY,
    ),
    "send": Row(sent, EVERY),
    "send_later": Row(sent_later, EVERY),
    "split": Row(
        lambda cluster, value: cluster.split(value, timeout=SOON),
        EVERY,
    ),
    "stream": Row(
        streamed,
        EVERY,
        (errors.ProgramError,),
    ),
    "submit": Row(
        lambda cluster, value: settled(cluster.submit(value)),
        EVERY,
        (errors.UserCodeError,),
    ),
    "submit_each": Row(
        lambda cluster, value: all_settled(cluster.submit_each(type, [value])),
        EVERY,
    ),
    "submit_to": Row(
        lambda cluster, value: settled(cluster.submit_to(value, abs, -1)),
        EVERY,
    ),
    "profile": Row(lambda cluster, value: cluster.profile(0.1, rate=value), EVERY),
    "stacks": Row(lambda cluster, value: cluster.stacks(value), EVERY),
    "task_statistics": Row(lambda cluster, value: cluster.task_statistics(value), EVERY),
    "tell_runs": Row(told, EVERY),
    "topology": Row(
        lambda cluster, value: closed(cluster.topology(value)),
        EVERY,
    ),
    "watch": Row(lambda cluster, value: closed(cluster.watch(value)), EVERY),
}
ENDING: dict[str, Row] = {
    "close": Row(lambda cluster, _: (cluster.close(), cluster.close()), NO),
    "detach": Row(lambda cluster, _: detached(cluster), NO),
    "shutdown": Row(
        lambda cluster, value: cluster.shutdown(wait=value),
        EVERY,
        (ValueError,),  # an object that raises it when it is asked whether it is true
    ),
}
"""Of clusters, too; each call has its own cluster."""

STREAM: dict[str, Row] = {
    "broadcast": Row(
        lambda stream, value: settled(stream.broadcast(value)),
        EVERY,
        (errors.ExecutionError,),
    ),
    "catch_up": Row(lambda stream, value: stream.catch_up([], [], value), EVERY),
    "close": Row(lambda stream, value: stream.close(timeout=value), EVERY),
    "configure": Row(lambda stream, value: stream.configure(factor=value), EVERY),
    "counters": Row(
        lambda stream, value: stream.counters(value),
        EVERY,
        (TimeoutError,),
    ),
    "exchange": Row(
        lambda stream, value: stream.exchange(value, PATIENCE),
        EVERY,
        (errors.ExecutionError,),
    ),
    "filters": Row(
        lambda stream, value: stream.filters(value),
        EVERY,
        (TimeoutError,),
    ),
    "flush": Row(
        lambda stream, value: stream.flush(value),
        EVERY,
        (TimeoutError,),
    ),
    "query": Row(lambda stream, _: stream.query(), NO),
    "quiesce": Row(
        lambda stream, value: stream.quiesce(value),
        EVERY,
        (TimeoutError,),
    ),
    "resume": Row(
        lambda stream, value: stream.resume(value),
        EVERY,
        (TimeoutError,),
    ),
    "update_filter": Row(
        lambda stream, value: stream.update_filter(value, timeout=PATIENCE),
        EVERY,
    ),
    "waves": Row(lambda stream, value: next(iter(stream.waves(value)), None), EVERY),
}
FUTURE: dict[str, Row] = {
    "add_done_callback": Row(
        lambda future, value: (future.add_done_callback(value), settled(future)), EVERY
    ),
    "cancel": Row(lambda future, _: (future.cancel(), future.cancel()), NO),
    "cancelled": Row(lambda future, _: future.cancelled(), NO),
    "distrust": Row(lambda future, _: future.distrust(), NO),
    "done": Row(lambda future, _: future.done(), NO),
    "exception": Row(
        lambda future, value: future.exception(value),
        EVERY,
        (TimeoutError,),
    ),
    "result": Row(
        lambda future, value: future.result(value),
        EVERY,
        (TimeoutError,),
    ),
    "running": Row(lambda future, _: future.running(), NO),
    "set_exception": Row(lambda future, value: future.set_exception(value), EVERY),
    "set_result": Row(lambda future, value: future.set_result(value), EVERY),
    # That of the standard library, where the task is done by then.
    "set_running_or_notify_cancel": Row(
        lambda future, _: future.set_running_or_notify_cancel(), NO, (RuntimeError,)
    ),
    "settle": Row(lambda future, value: future.settle(value, None), EVERY),
}
RUN: dict[str, Row] = {
    "add_done_callback": Row(
        lambda run, value: (run.add_done_callback(value), run.result(PATIENCE)), EVERY
    ),
    "cancel": Row(lambda run, _: (run.cancel(), run.cancel()), NO),
    "cancelled": Row(lambda run, _: run.cancelled(), NO),
    "done": Row(lambda run, _: run.done(), NO),
    "drain": Row(lambda run, value: run.drain(value), EVERY),
    "exception": Row(
        lambda run, value: run.exception(value),
        EVERY,
        (TimeoutError,),
    ),
    "result": Row(
        lambda run, value: run.result(value),
        EVERY,
        (TimeoutError,),
    ),
    "running": Row(lambda run, _: run.running(), NO),
    "show": Row(lambda run, _: run.show(), NO),
    "wait": Row(lambda run, value: run.wait(value), EVERY),
}
GROUP: dict[str, Row] = {
    "allgather": Row(lambda group, value: group.allgather(value), EVERY),
    "allreduce": Row(
        lambda group, value: group.allreduce(value),
        EVERY,
        (errors.ExecutionError,),
    ),
    "barrier": Row(lambda group, value: group.barrier(timeout=value), EVERY),
    "broadcast": Row(lambda group, value: group.broadcast(value, root=0), EVERY),
    "close": Row(lambda group, _: group.close(), NO),
    "gather": Row(lambda group, value: group.gather(value, root=0), EVERY),
    "reduce": Row(
        lambda group, value: group.reduce(value, root=0),
        EVERY,
        (errors.ExecutionError,),
    ),
    "scatter": Row(
        lambda group, value: group.scatter(value, root=0),
        EVERY,
    ),
}
MEMBER: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "allgather": ((1,), {}),
    "allreduce": ((1,), {}),
    "barrier": ((), {}),
    "broadcast": ((), {"root": 0}),
    "gather": ((1,), {"root": 0}),
    "reduce": ((1,), {"root": 0}),
    "scatter": ((), {"root": 0}),
}
"""What an agent gives to the operation that the client gives a hostile value to."""

AGENTS_GROUP: dict[str, Row] = {
    "allgather": Row(lambda group, value: group.allgather("one", into=value), EVERY),
    "allreduce": Row(
        lambda group, value: group.allreduce("one", value, into="other"),
        EVERY,
    ),
    "barrier": Row(lambda group, value: group.barrier(timeout=value), EVERY),
    "broadcast": Row(lambda group, value: group.broadcast("given", value), EVERY),
    "call": Row(lambda group, value: all_settled(group.call(type, value)), EVERY),
    "gather": Row(lambda group, value: group.gather(value), EVERY),
    "join": Row(
        lambda group, value: closed(group.join(name=value, enter_timeout=SOON)),
        EVERY,
        (errors.GroupError,),
    ),
    "reduce": Row(lambda group, value: group.reduce("one", value), EVERY),
    "scatter": Row(
        lambda group, value: group.scatter("given", value),
        EVERY,
    ),
}
DATASET: dict[str, Row] = {
    "array": Row(lambda data, value: data.array(value), EVERY),
    "check": Row(lambda data, value: data.check(value), EVERY),
    "fingerprint": Row(lambda data, _: data.fingerprint(), NO),
    "prototype": Row(lambda data, value: data.prototype(value), EVERY),
    "publish": Row(lambda data, value: data.publish(value), EVERY),
    "published_for": Row(
        lambda data, value: data.published_for(value, finite=True),
        EVERY,
    ),
    "release": Row(lambda data, _: (data.release(), data.release()), NO),
    "renamed": Row(lambda data, value: data.renamed(value), EVERY),
    "require": Row(
        lambda data, value: data.require("x", ndim=value),
        EVERY,
    ),
    "require_finite": Row(lambda data, value: data.require_finite(value), EVERY),
    "rows": Row(lambda data, value: data.rows(0, value), EVERY),
    "sample": Row(lambda data, value: data.sample(value, 0), EVERY),
    "split": Row(lambda data, value: data.split(value), EVERY),
    "taken": Row(lambda data, value: data.taken(value), EVERY),
}
POOL: dict[str, Row] = {
    "apply": Row(lambda pool, value: pool.apply(type, (value,)), EVERY),
    "apply_async": Row(
        lambda pool, value: pool.apply_async(value).get(PATIENCE),
        EVERY,
        (TypeError,),  # a class that wants arguments raises it
    ),
    "close": Row(lambda pool, _: (pool.close(), pool.close()), NO),
    "imap": Row(lambda pool, value: list(pool.imap(type, [value])), EVERY),
    "imap_unordered": Row(lambda pool, value: pool.imap_unordered(type, [], value), EVERY),
    "join": Row(lambda pool, _: (pool.close(), pool.join()), NO),
    "map": Row(lambda pool, value: pool.map(type, [value]), EVERY),
    "map_async": Row(lambda pool, value: pool.map_async(type, [1], value).get(PATIENCE), EVERY),
    "starmap": Row(lambda pool, value: pool.starmap(type, [(value,)]), EVERY),
    "starmap_async": Row(
        lambda pool, value: pool.starmap_async(type, [(1,)]).get(timeout=value), EVERY
    ),
    "terminate": Row(lambda pool, _: (pool.terminate(), pool.terminate()), NO),
}
TABLE: dict[type, dict[str, Row]] = {
    sapwood.Cluster: CLUSTER | ENDING,
    Stream: STREAM,
    TaskFuture: FUTURE,
    Run: RUN,
    Group: GROUP,
    AgentGroup: AGENTS_GROUP,
    sapwood.Pool: POOL,
    PersistentDataset: DATASET,
}


def take_part(operation: str) -> None:
    """Do, on an agent, what the client does with a hostile value."""
    with sapwood.here().group([0, 1, 2], timeout=5.0, enter_timeout=5.0) as group:
        if operation in MEMBER:
            args, kwargs = MEMBER[operation]
            getattr(group, operation)(*args, **kwargs)


@contextlib.contextmanager
def joined(cluster: sapwood.Cluster, method: str) -> Iterator[Group]:
    agents = cluster.group()
    futures = agents.call(take_part, method)
    try:
        with agents.join(timeout=5.0, enter_timeout=5.0) as group:
            yield group
    finally:
        for future in futures:
            future.exception(PATIENCE)


@contextlib.contextmanager
def subject(
    cluster: sapwood.Cluster, new_cluster: NewCluster, kind: type, method: str
) -> Iterator[Any]:
    """Make an object of a class whose method is called."""
    if kind is sapwood.Cluster and method in ENDING:
        with new_cluster() as own:
            yield own
    elif kind is sapwood.Cluster:
        yield cluster
    elif kind is Stream:
        with cluster.stream("echo", reduce="sum") as stream:
            yield stream
    elif kind is TaskFuture:
        yield cluster.submit(abs, -3)
    elif kind is Run:
        yield cluster.run(Total, data=DATA)
    elif kind is Group:
        with joined(cluster, method) as group:
            yield group
    elif kind is sapwood.Pool:
        with sapwood.Pool(cluster=cluster) as pool:
            yield pool
    elif kind is AgentGroup:
        agents = cluster.group()
        agents.broadcast("one", 1)
        yield agents
    else:
        with cluster.persist(DATA) as data:
            yield data
