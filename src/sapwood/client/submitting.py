"""Single calls as users submit them: a ``concurrent.futures.Executor``."""

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial
from typing import Any

import msgspec

from sapwood.activity.task_future import TaskFuture, futures_in, with_results
from sapwood.activity.tasks import TaskCall, TaskPool
from sapwood.client.map_results import MapResults
from sapwood.client.task_batch import TaskBatch
from sapwood.client.user_code import CodeMaker, Function, FunctionCode, name_of
from sapwood.code.program import NativeFunctionRef
from sapwood.code.runner.calling_each import call_each
from sapwood.content.refs import ContentRef
from sapwood.core.arguments import duration, wait_time, whole
from sapwood.core.errors import ClosedError, ConfigurationError
from sapwood.environment.tracing import Carrier, TraceSpan, inside, seam

_OPTIONS = frozenset({"time_limit", "retries"})


class Submitting(Executor):
    """What calls functions on agents: a cluster, and a cluster with options."""

    _maker: CodeMaker
    _tasks: TaskPool
    _time_limit: float
    _retries: int = 0
    _span: TraceSpan | None = None

    def submit(self, fn: Function, /, *args: Any, **kwargs: Any) -> TaskFuture:
        """Call a function on some agent; the future has its result.

        Arguments and results may be any objects that can be pickled. A future among the
        arguments, also in lists, tuples, sets and dictionaries, stands for its result: the call
        waits for it, and fails if it fails.

        Args:
            fn: A Python function, or a native one: ``program["name"]``.
            *args: Positional arguments.
            **kwargs: Keyword arguments, all of the function; see :meth:`options` for a time limit.

        Raises:
            ClosedError: The cluster is closed.
            DataValueError: The function or an argument cannot be pickled.

        Example:
            ::

                total = cluster.submit(sum, [1, 2, 3])
                cluster.submit(pow, total, 2).result()  # 36
        """
        self._must_be_open()
        return self._submit_all(fn, self._maker.code(fn), [(args, kwargs)])[0]

    def _submit_holding(
        self, fn: Function, args: tuple[Any, ...], content: Sequence[ContentRef], name: str
    ) -> TaskFuture:
        """Call a function at an agent that has some content, which is fetched where it is missing.

        Args:
            fn: A Python function.
            args: Plain values and arrays.
            content: What the call reads; it must be offered until the future is done.
            name: What the call is named in messages and statistics.

        Raises:
            ClosedError: The cluster is closed.
            DataValueError: An argument cannot travel.
        """
        return self._submitter_holding(fn, content, name)(args)

    def _submitter_holding(
        self, fn: Function, content: Sequence[ContentRef], name: str, *, pickled: bool = False
    ) -> Callable[[tuple[Any, ...]], TaskFuture]:
        """Return what makes calls as :meth:`_submit_holding`, of a function that is pickled once.

        Args:
            fn: As there.
            content: As there.
            name: As there.
            pickled: Whether arguments are pickled, where that is allowed, although they could
                travel as plain values: many small ones take less time so.

        Raises:
            ClosedError: The cluster is closed.
            DataValueError: The function cannot travel.
        """
        self._must_be_open()
        maker = self._maker
        code = maker.code(fn)
        make = maker.pickled_call if pickled and maker.pickle else maker.call

        def submit(args: tuple[Any, ...]) -> TaskFuture:
            self._must_be_open()
            call = make(fn, code, args, {}, self._time_limit)
            call = msgspec.structs.replace(call, function=name, content=(*call.content, *content))
            return self._began(self._tasks.submit(call, self._retries))

        return submit

    def submit_each(self, fn: Function, /, *iterables: Iterable[Any]) -> list[TaskFuture]:
        """Call a function once for each item, or each tuple of items, of the iterables.

        Returns:
            The futures, in the order of the items.

        Example:
            ::

                for future in concurrent.futures.as_completed(cluster.submit_each(load, paths)):
                    print(future.result())
        """
        self._must_be_open()
        code = self._maker.code(fn)
        return self._submit_all(fn, code, ((items, {}) for items in zip(*iterables, strict=False)))

    def map(
        self,
        fn: Function,
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> MapResults:
        """Return the results of a function, called once for each tuple of items, in their order.

        All calls are submitted at once, or ``buffersize`` of them ahead; the iterator waits for the
        results, and ``async for`` does so in a coroutine. When it is closed, or a call fails, the
        calls that are not done are cancelled.

        Args:
            fn: A Python function, or a native one.
            *iterables: What it is called with; the shortest one says how often.
            timeout: Seconds from now until which a result must be there.
            chunksize: Calls that travel together: more is faster where calls take less than
                a few milliseconds. Native functions travel alone.
            buffersize: Calls, or chunks of calls, that are submitted before their results are
                asked for, for long or endless iterables: the next items are taken as results are.
                By default all.

        Raises:
            TimeoutError: A result is not there in time; the iterator raises it.

        Example:
            ::

                list(cluster.map(pow, [2, 3], [10, 2]))  # [1024, 9]
        """
        if whole(chunksize, "chunksize", ConfigurationError) < 1:
            raise ConfigurationError(f"chunksize is {chunksize}", hint="give at least 1")
        if buffersize is not None and whole(buffersize, "buffersize", ConfigurationError) < 1:
            raise ConfigurationError(f"buffersize is {buffersize}", hint="give at least 1")
        timeout = wait_time(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        self._must_be_open()
        items = zip(*iterables, strict=False)
        if chunksize == 1 or isinstance(fn, NativeFunctionRef):
            calls = ((item, dict[str, Any]()) for item in items)
            return self._mapped(fn, calls, name_of(fn), buffersize, end)
        chunks = iter(lambda: list(itertools.islice(items, chunksize)), [])
        calls = (((chunk,), dict[str, Any]()) for chunk in chunks)
        each = partial(call_each, fn)
        return self._mapped(each, calls, name_of(fn), buffersize, end, chunked=True)

    def _mapped(
        self,
        function: Function,
        calls: Iterator[tuple[tuple[Any, ...], dict[str, Any]]],
        name: str,
        buffersize: int | None,
        end: float | None,
        *,
        chunked: bool = False,
    ) -> MapResults:
        """Submit calls, at most so many ahead, and return an iterator of their results."""
        code = self._maker.code(function)
        futures = self._submit_all(function, code, itertools.islice(calls, buffersize), name)
        more = (self._submit_all(function, code, [call], name)[0] for call in calls)
        return MapResults(deque(futures), more, end, chunked=chunked)

    def options(
        self, *, time_limit: float | None = None, retries: int | None = None
    ) -> "TaskOptions":
        """Return an executor whose calls have other limits.

        Args:
            time_limit: Seconds that one call may take, 0 for any time; then it is ended, and its
                future has a ``TimeLimitError``. By default ``limits.time``.
            retries: How often a call is made again when it raises an exception, crashes or takes
                too long. By default not at all; only a call whose *agent* is lost is made again.

        Raises:
            ConfigurationError: There is no such limit.

        Example:
            ::

                careful = cluster.options(time_limit=60, retries=2)
                careful.submit(fetch, url).result()
        """
        if time_limit is not None:
            time_limit = duration(time_limit, "time_limit")
        if retries is not None and whole(retries, "retries", ConfigurationError) < 0:
            raise ConfigurationError(f"retries is {retries}", hint="give 0 or more")
        return self._new_options(
            self._time_limit if time_limit is None else time_limit,
            self._retries if retries is None else retries,
        )

    def _new_options(self, time_limit: float, retries: int) -> "TaskOptions":
        return TaskOptions(self, self._maker, self._tasks, time_limit, retries)

    def _submit_all(
        self,
        function: Function,
        code: FunctionCode,
        arguments: Iterable[tuple[tuple[Any, ...], dict[str, Any]]],
        name: str = "",
    ) -> list[TaskFuture]:
        """Submit calls that belong together; all of them are one span, where traces are wanted."""
        tracer = seam.tracer
        if tracer is None:
            return [self._submit(function, code, args, kwargs) for args, kwargs in arguments]
        with inside(self._span), TaskBatch(tracer, name or name_of(function)) as batch:
            futures = []
            for args, kwargs in arguments:
                futures.append(self._submit(function, code, args, kwargs, batch.carrier()))
                batch.add(futures[-1])
            return futures

    def _submit(
        self,
        function: Function,
        code: FunctionCode,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace: Carrier | None = None,
    ) -> TaskFuture:
        limit, maker = self._time_limit, self._maker
        call = maker.plain_call(function, code, args, kwargs, limit, trace)
        if call is None:
            awaited = futures_in((args, kwargs))
            if awaited:
                return self._submit_later(awaited, function, code, args, kwargs, trace)
            call = maker.pickled_call(function, code, args, kwargs, limit, trace)
        return self._began(self._tasks.submit(call, self._retries))

    def _began(self, future: TaskFuture) -> TaskFuture:
        """Note a task that was submitted."""
        return future

    def _submit_later(
        self,
        awaited: "list[Future[Any]]",
        function: Function,
        code: FunctionCode,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace: Carrier | None,
    ) -> TaskFuture:
        limit, maker = self._time_limit, self._maker

        def make() -> TaskCall:
            known_args, known_kwargs = with_results((args, kwargs))
            return maker.call(function, code, known_args, known_kwargs, limit, trace)

        name = name_of(function)
        future = self._tasks.submit_later(awaited, make, self._retries, name, pickles=maker.pickle)
        return self._began(future)

    def _must_be_open(self) -> None:
        raise NotImplementedError


class TaskOptions(Submitting):
    """A cluster whose tasks have other limits; made by :meth:`.Cluster.options`.

    It is an executor like the cluster; its ``shutdown`` waits for its own calls only, and leaves
    the cluster as it is.
    """

    def __init__(
        self,
        parent: Submitting,
        maker: CodeMaker,
        tasks: TaskPool,
        time_limit: float,
        retries: int,
    ) -> None:
        self._parent = parent
        self._maker = maker
        self._tasks = tasks
        self._time_limit = time_limit
        self._retries = retries
        self._span = parent._span  # noqa: SLF001 - of one family
        self._submitted: weakref.WeakSet[TaskFuture] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_shut = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as executors have it
        """Take no more calls.

        Args:
            wait: Whether to wait until those that were submitted here are done.
            cancel_futures: Whether to cancel those that no agent has begun.
        """
        with self._lock:
            self._is_shut = True
            futures = list(self._submitted)
        if cancel_futures:
            for future in futures:
                if not future.running():
                    future.cancel()
        if wait:
            _wait(futures)

    def _open_futures(self) -> list[TaskFuture]:
        """Return the futures of the calls that are not over."""
        with self._lock:
            return [future for future in self._submitted if not future.done()]

    def _began(self, future: TaskFuture) -> TaskFuture:
        with self._lock:
            self._submitted.add(future)
        return future

    def _must_be_open(self) -> None:
        if self._is_shut:
            raise ClosedError("these options were shut down", hint="make new ones: .options(…)")
        self._parent._must_be_open()  # noqa: SLF001 - of one family

    def __repr__(self) -> str:
        return f"<TaskOptions: time_limit={self._time_limit:g}, retries={self._retries}>"


def _wait(futures: Iterable["Future[Any]"]) -> None:
    wait(futures)
