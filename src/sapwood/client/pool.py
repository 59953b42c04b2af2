"""``sapwood.Pool``: the interface of ``multiprocessing.Pool``, with agents as its processes."""

from __future__ import annotations

import contextlib
import enum
import itertools
import multiprocessing
import secrets
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from multiprocessing import pool as standard
from typing import Any, Final, Generic, NoReturn, Self, TypeVar

import numpy as np

from sapwood.client.cluster import Cluster
from sapwood.client.local import local
from sapwood.client.shared_files import SHARED_SIZE, SharedBuffer, SharedBuffers
from sapwood.client.submitting import TaskOptions
from sapwood.client.user_code import name_of
from sapwood.code.pickling import pickle_of
from sapwood.code.runner.pool_calls import PoolCall, PoolMap, PoolProcess, PoolStarMap
from sapwood.code.shared_buffers import packed
from sapwood.core.arguments import function, wait_time, whole
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    DataValueError,
    SapwoodError,
    UserCodeError,
)
from sapwood.core.failures import start_thread
from sapwood.core.futures import CallerFuture, dispatch, when_done
from sapwood.core.shown import shown

T = TypeVar("T")

CHUNKS: Final = 4
"""Chunks that ``map`` makes for each process, as in the standard library."""

MAX_AHEAD: Final = 1000
"""Chunks of one ``imap`` that are submitted and not done."""

_RemoteTraceback: Final[Any] = standard.RemoteTraceback  # type: ignore[attr-defined] # not in its stub


class PoolArgumentError(ConfigurationError, ValueError):
    """An argument of a pool is out of range; also a ``ValueError``, as in the standard library."""


class PoolClosedError(ClosedError, ValueError):
    """A pool takes no more calls; also a ``ValueError``, as in the standard library."""


class PoolState(enum.Enum):
    """What a pool does: it takes calls, finishes its calls, or is terminated."""

    RUNNING = "running"
    CLOSED = "closed"
    TERMINATED = "terminated"


class AsyncResult(Generic[T]):
    """The result of calls of a pool; made by its methods ``..._async``.

    Args:
        futures: The calls, or chunks of calls.
        combined: Makes the result of their results.
        callback: Called with the result.
        error_callback: Called with the exception, if a call fails.
    """

    def __init__(
        self,
        futures: Sequence[Future[Any]],
        combined: Callable[[list[Any]], T],
        callback: Callable[[T], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> None:
        self._futures = futures
        self._combined = combined
        self._callback = callback
        self._error_callback = error_callback
        self._lock = threading.RLock()
        self._outcome: tuple[bool, Any] | None = None
        self._missing = len(futures)
        self._called_back = threading.Event()
        if not futures or (callback is None and error_callback is None):
            self._called_back.set()
            return
        for one in futures:
            when_done(one, self._one_done)

    def get(self, timeout: float | None = None) -> T:
        """Wait for the result and return it.

        Args:
            timeout: Seconds to wait; None for any time.

        Raises:
            multiprocessing.TimeoutError: It has not arrived in time; the calls continue.
            CancelledError: The pool was terminated.
            SapwoodError: A call did not finish.
            Exception: What a function has raised.
        """
        self.wait(timeout)
        if not self.ready():
            raise multiprocessing.TimeoutError
        succeeded, value = self._settled()
        if succeeded:
            result: T = value
            return result
        try:
            raise value
        finally:
            del value, self  # no cycle through the traceback

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the result has arrived and its callback has returned, or for some seconds."""
        timeout = wait_time(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        wait(self._futures, timeout)
        self._called_back.wait(_left(end))

    def ready(self) -> bool:
        """Whether all calls are over and the callback has returned."""
        return self._called_back.is_set() and all(one.done() for one in self._futures)

    def successful(self) -> bool:
        """Whether no call has failed.

        Raises:
            ValueError: They are not over.
        """
        if not self.ready():
            raise ValueError("the result is not ready")
        return self._settled()[0]

    def _settled(self) -> tuple[bool, Any]:
        """Return whether the calls succeeded, and their result or the first exception."""
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = True, self._combined([_result(one) for one in self._futures])
                except BaseException as error:  # noqa: BLE001 - whatever a function has raised
                    self._outcome = False, error.with_traceback(None)
                self._futures = ()
            return self._outcome

    def _one_done(self, _future: Future[Any]) -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        dispatch(self._call_back)

    def _call_back(self) -> None:
        try:
            succeeded, value = self._settled()
            wanted: Callable[[Any], object] | None
            wanted = self._callback if succeeded else self._error_callback
            if wanted is not None:
                wanted(value)
        finally:
            self._called_back.set()


class PoolResults(Iterator[T]):
    """The results of ``imap`` and ``imap_unordered`` of a pool.

    Args:
        ordered: Whether they come in the order of the arguments, or as soon as they have arrived.
    """

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._changed = threading.Condition()
        self._futures: deque[Future[list[T]]] = deque()
        self._chunk: deque[T] = deque()
        self._left = 0
        self._all_submitted = False

    def next(self, timeout: float | None = None) -> T:
        """Return the next result.

        Args:
            timeout: Seconds to wait for it; None for any time.

        Raises:
            multiprocessing.TimeoutError: It has not arrived in time; ask again.
            StopIteration: There are no more.
            Exception: What the function, or the iterable of its arguments, has raised.
        """
        timeout = wait_time(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with contextlib.suppress(IndexError):
                return self._chunk.popleft()
            future = self._take(end)
            self._chunk.extend(_result(future))
            del future

    def __next__(self) -> T:
        return self.next()

    def _take(self, end: float | None) -> Future[list[T]]:
        """Take the next chunk, which has arrived."""
        with self._changed:
            if not self._changed.wait_for(self._has_one, _left(end)):
                raise multiprocessing.TimeoutError
            if not self._futures:
                raise StopIteration
            future = self._futures.popleft()
            self._left -= 1
        if not wait([future], _left(end)).done:
            with self._changed:
                self._futures.appendleft(future)
                self._left += 1
                self._changed.notify_all()
            raise multiprocessing.TimeoutError
        return future

    def _has_one(self) -> bool:
        return bool(self._futures) or (self._all_submitted and not self._left)

    def _submitted(self, future: Future[Any]) -> None:
        with self._changed:
            self._left += 1
        if self._ordered:
            self._show(future)
        else:
            when_done(future, self._show)

    def _show(self, future: Future[Any]) -> None:
        with self._changed:
            self._futures.append(future)
            self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._all_submitted = True
            self._changed.notify_all()


class Pool:
    """The interface of :class:`multiprocessing.pool.Pool`, with agents as its processes.

    Args:
        processes: Agents of a cluster on this machine that ends with the pool; by default one for
            each core.
        initializer: A function that each process calls before its first call.
        initargs: Its arguments; their large arrays are sent to each machine once.
        maxtasksperchild: Calls, or chunks of calls, after which a process is replaced.
        cluster: The cluster to use instead of a separate one, also with
            :meth:`options <sapwood.Cluster.options>`; it stays open after the pool.

    Raises:
        ValueError: A number is out of range.
        ConfigurationError: ``processes`` and ``cluster`` are both given, or of a wrong type.
        DataValueError: The initializer or its arguments cannot be sent.

    Example:
        ::

            with sapwood.Pool(4) as pool:
                print(pool.map(math.factorial, range(10)))
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        *,
        cluster: Cluster | TaskOptions | None = None,
    ) -> None:
        self._state = PoolState.TERMINATED  # until it is made
        max_tasks = _number(maxtasksperchild, "maxtasksperchild") or 0
        agents = _number(processes, "processes")
        if initializer is not None:
            function(initializer, "initializer")
        if not isinstance(cluster, Cluster | TaskOptions | None):
            raise ConfigurationError(
                f"cluster is {shown(cluster)}",
                where="sapwood.Pool",
                hint="give what sapwood.local(…) or sapwood.connect().start(…) returns",
            )
        if cluster is not None and agents is not None:
            raise ConfigurationError(
                "processes and cluster are both given",
                where="sapwood.Pool",
                hint="leave processes out: the pool uses all agents of the cluster",
            )
        self._lock = threading.Lock()
        self._feeders: set[threading.Thread] = set()
        self._finisher: threading.Thread | None = None
        self._own = local(agents) if cluster is None else None
        self._calls = (self._own or cluster).options()  # type: ignore[union-attr] # one of them is
        self._cluster = _cluster_of(self._calls)
        self._shared = SharedBuffers(self._cluster)
        self._taken: list[SharedBuffer] = []
        try:
            pickled: tuple[bytes, tuple[Any, ...]] = (b"", ())
            if initializer is not None:
                pickled = self._pickled(initializer, tuple(initargs))
        except BaseException:
            self._end()
            raise
        pickles = self._calls._maker.pickle  # noqa: SLF001 - of one family
        self._process = PoolProcess(secrets.token_hex(8), max_tasks, pickles, *pickled)
        self._content = [one.ref for one in self._taken if one.ref.sha256]
        self._state = PoolState.RUNNING

    def apply(
        self,
        func: Callable[..., T],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
    ) -> T:
        """Call a function and return its result.

        Raises:
            ValueError: The pool is closed.
            Exception: What the function raises.
        """
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., T],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callable[[T], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[T]:
        """Call a function in the background.

        Args:
            func: The function.
            args: Its positional arguments.
            kwds: Its keyword arguments.
            callback: Called with the result, on a thread of this process.
            error_callback: Called with the exception, if the call fails.

        Raises:
            ValueError: The pool is closed.
        """
        given = (tuple(args), dict(kwds or {}))
        futures = self._submitted(PoolCall, func, [given])
        return AsyncResult(futures, _only, callback, error_callback)

    def map(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[T]:
        """Return what a function makes of each item, in their order.

        Raises:
            ValueError: The pool is closed, or ``chunksize`` out of range.
            Exception: What the function raises, when all calls are over.
        """
        return self.map_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[[Any], T],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[list[T]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[T]]:
        """Call a function for each item in the background.

        Args:
            func: The function.
            iterable: The items.
            chunksize: Calls that travel together; by default so many that each process gets four
                chunks.
            callback: Called with the list of results, on a thread of this process.
            error_callback: Called with the first exception, if a call fails.

        Raises:
            ValueError: The pool is closed, or ``chunksize`` out of range.
        """
        return self._mapped(PoolMap, func, iterable, chunksize, callback, error_callback)

    def starmap(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
    ) -> list[T]:
        """Return what a function makes of each tuple of arguments, in their order.

        Raises:
            ValueError: The pool is closed, or ``chunksize`` out of range.
            Exception: What the function raises, when all calls are over.
        """
        return self.starmap_async(func, iterable, chunksize).get()

    def starmap_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[list[T]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[T]]:
        """Call a function for each tuple of arguments in the background; as :meth:`map_async`.

        Raises:
            ValueError: The pool is closed, or ``chunksize`` out of range.
        """
        return self._mapped(PoolStarMap, func, iterable, chunksize, callback, error_callback)

    def imap(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1
    ) -> PoolResults[T]:
        """Return an iterator over what a function makes of each item, in their order.

        A thread takes the items, at most 1,000 chunks ahead of the calls that are over.

        Raises:
            ValueError: The pool is closed, or ``chunksize`` out of range.
        """
        return self._iterated(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1
    ) -> PoolResults[T]:
        """As :meth:`imap`, but each result comes as soon as it has arrived.

        Raises:
            ValueError: The pool is closed, or ``chunksize`` out of range.
        """
        return self._iterated(func, iterable, chunksize, ordered=False)

    def close(self) -> None:
        """Take no more calls; the pool ends when its calls are over."""
        with self._lock:
            if self._state is not PoolState.RUNNING:
                return
            self._state = PoolState.CLOSED
            feeders = list(self._feeders)
            self._finisher = start_thread("sapwood-pool", self._finish, feeders, daemon=None)

    def terminate(self) -> None:
        """End the pool at once: calls that are not over are cancelled."""
        with self._lock:
            if self._state is PoolState.TERMINATED:
                return
            self._state = PoolState.TERMINATED
        self._calls.shutdown(wait=False)
        futures = self._calls._open_futures()  # noqa: SLF001 - of one family
        for is_begun in (False, True):  # an agent that is free would take the next one
            for future in futures:
                if future.begun is is_begun:
                    future.cancel()
        self._end()

    def join(self) -> None:
        """Wait until the pool has ended, after :meth:`close` or :meth:`terminate`.

        Raises:
            ValueError: The pool still takes calls.
        """
        if self._state is PoolState.RUNNING:
            raise PoolArgumentError("the pool is still running", hint="call close() before join()")
        if self._finisher is not None:
            self._finisher.join()

    # --- how calls are made --------------------------------------------------------------------

    def _mapped(
        self,
        kind: type[PoolCall],
        func: Callable[..., T],
        iterable: Iterable[Any],
        chunksize: int | None,
        callback: Callable[[list[T]], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> AsyncResult[list[T]]:
        self._must_run()
        size = _number(chunksize, "chunksize")
        items = iterable if isinstance(iterable, list | tuple) else list(iterable)
        if size is None:
            size = -(-len(items) // (CHUNKS * self._processes)) or 1
        chunks = ((items[at : at + size],) for at in range(0, len(items), size))
        futures = self._submitted(kind, func, chunks)
        return AsyncResult(futures, _joined, callback, error_callback)

    def _iterated(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int, *, ordered: bool
    ) -> PoolResults[T]:
        size = _number(chunksize, "chunksize") or 1
        items = iter(iterable)
        chunks = iter(lambda: list(itertools.islice(items, size)), [])
        results = PoolResults[T](ordered=ordered)
        submit = self._submitter(PoolMap, func)
        with self._lock:
            self._must_run()
            feeder = start_thread("sapwood-imap", self._feed, submit, chunks, results)
            self._feeders.add(feeder)
        return results

    def _feed(
        self,
        submit: Callable[[tuple[Any, ...]], Future[Any]],
        chunks: Iterator[list[Any]],
        results: PoolResults[Any],
    ) -> None:
        """Submit chunks, as long as there are some and the pool is not terminated."""
        room = threading.Semaphore(MAX_AHEAD)
        try:
            for chunk in chunks:
                room.acquire()
                if self._state is PoolState.TERMINATED:
                    break
                future = submit((chunk,))
                results._submitted(future)  # noqa: SLF001 - of one family
                when_done(future, lambda _: room.release())
        except Exception as error:  # noqa: BLE001 - also what the iterable raises: a result, too
            results._submitted(_failed(error))  # noqa: SLF001 - as above
        finally:
            results._end()  # noqa: SLF001 - as above
            with self._lock:
                self._feeders.discard(threading.current_thread())

    def _submitted(
        self,
        kind: type[PoolCall],
        func: Callable[..., Any],
        calls: Iterable[tuple[Any, ...]],
    ) -> list[Future[Any]]:
        """Submit calls; one that cannot be sent is one that fails, as in the standard library."""
        self._must_run()
        submit = self._submitter(kind, func)
        return [submit(call) for call in calls]

    def _submitter(
        self, kind: type[PoolCall], func: Callable[..., Any]
    ) -> Callable[[tuple[Any, ...]], Future[Any]]:
        """Return what submits calls of a function, which is pickled once."""
        name = name_of(function(func, "func"))
        made = kind(func, name, self._process)
        submit = self._calls._submitter_holding(  # noqa: SLF001 - as above
            made, self._content, name, pickled=True
        )

        def submit_or_fail(args: tuple[Any, ...]) -> Future[Any]:
            try:
                return submit(args)
            except SapwoodError as error:
                return _failed(error)

        return submit_or_fail

    @property
    def _processes(self) -> int:
        return max(len(self._cluster.agents), 1)

    def _pickled(
        self, initializer: Callable[..., object], initargs: tuple[Any, ...]
    ) -> tuple[bytes, tuple[Any, ...]]:
        """Return the pickle of the initializer's call, with large buffers in files."""
        buffers: list[Any] = []

        def stays(buffer: Any) -> bool:
            raw = buffer.raw()
            known = self._shared.take(raw) if raw.nbytes >= SHARED_SIZE else None
            if known is None:
                buffers.append(np.frombuffer(raw, np.uint8))
            else:
                self._taken.append(known)
                buffers.append(packed(known.ref))
            return False

        try:
            data = pickle_of(partial(initializer, *initargs), stays)
        except SapwoodError:
            raise
        except Exception as error:
            raise DataValueError(
                f"the initializer cannot be sent to an agent: {error}",
                where=name_of(initializer),
                hint="open files, make locks and connections inside the function",
            ) from error
        return data, tuple(buffers)

    # --- its end -------------------------------------------------------------------------------

    def _finish(self, feeders: Iterable[threading.Thread]) -> None:
        for feeder in feeders:
            feeder.join()
        self._calls.shutdown()
        self._end()

    def _end(self) -> None:
        self._shared.close()
        if self._own is not None:
            self._own.close()

    def _must_run(self) -> None:
        if self._state is not PoolState.RUNNING:
            raise PoolClosedError("the pool is not running", hint="make a new one: sapwood.Pool()")

    def __enter__(self) -> Self:
        self._must_run()
        return self

    def __exit__(self, *exc: object) -> None:
        self.terminate()

    def __del__(self) -> None:
        if self._state is not PoolState.RUNNING:
            return
        warnings.warn(f"unclosed running pool {self}", ResourceWarning, source=self, stacklevel=2)
        if self._own is not None:
            with contextlib.suppress(RuntimeError):  # the interpreter ends, and with it the agents
                start_thread("sapwood-pool", self._own.close)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DataValueError(
            "a pool cannot be sent to an agent", hint="call its methods in your process"
        )

    def __repr__(self) -> str:
        return f"<Pool: {self._state.value}, {self._processes} processes>"


def _number(value: Any, name: str) -> int | None:
    """Return a number of at least one, or None.

    Raises:
        PoolArgumentError: It is something else.
    """
    if value is None:
        return None
    number = whole(value, name, PoolArgumentError)
    if number < 1:
        raise PoolArgumentError(f"{name} is {number}", where="sapwood.Pool", hint="at least 1")
    return number


def _cluster_of(calls: Any) -> Cluster:
    while isinstance(calls, TaskOptions):
        calls = calls._parent  # noqa: SLF001 - of one family
    found: Cluster = calls
    return found


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())


def _only(results: list[Any]) -> Any:
    return results[0]


def _joined(results: list[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(results))


def _failed(error: BaseException) -> Future[Any]:
    future: Future[Any] = CallerFuture()
    future.set_exception(error)
    return future


def _result(future: Future[Any]) -> Any:
    """Return a result, or raise what the function has raised.

    As in the standard library that is the exception itself, caused by its traceback on the agent.
    """
    try:
        return future.result()
    except UserCodeError as error:
        raised = error.__cause__
        if raised is None:
            raise
        raised.__cause__ = _RemoteTraceback(error.details.get("traceback", str(error)))
        raise raised from raised.__cause__
    finally:
        del future
