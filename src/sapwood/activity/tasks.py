"""Single calls: spread over the agents, one answer each, ``concurrent.futures`` semantics."""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from sapwood.activity import orders
from sapwood.activity.crash_site import name_crash_site
from sapwood.comm import plain, values
from sapwood.core.errors import (
    AgentLostError,
    ClosedError,
    DataValueError,
    ResourceError,
    SapwoodError,
)
from sapwood.session.options import PlacesChanged
from sapwood.session.session import Session

MAX_QUEUED_TASKS = 1_000_000
"""Tasks that may wait for an agent."""

AHEAD = 2
"""Tasks that an agent has at a time: one runs, the next is there when it ends."""

MAX_ATTEMPTS = 3
"""How often a task is tried when the agent it is on is lost; at each agent, as often when somebody
kills its runner."""


class Call(msgspec.Struct, frozen=True):
    """What is to be called.

    Attributes:
        procedure: The runner's procedure that makes the call.
        function: What the function is called, for messages and statistics.
        argument: Argument of the procedure.
        time_limit: Seconds that the call may take; 0 for no limit.
        debug_files: Debug information of each native library, for crashes.
    """

    procedure: str
    function: str
    argument: dict[str, Any]
    time_limit: float = 0.0
    debug_files: dict[str, Path] = {}


class Task:
    """A call and its future.

    Args:
        call: What is to be called.
        future: Gets the result.
        rank: The only agent that may do it; 0 for any.

    Raises:
        DataValueError: The argument cannot travel.
    """

    __slots__ = ("arrays", "attempts", "body", "debug_files", "future", "rank")

    def __init__(self, call: Call, future: "Future[Any]", rank: int = 0) -> None:
        self.arrays = values.encode(call.argument)
        order = orders.CallTask(
            call.procedure,
            call.function,
            self.arrays.body,
            call.time_limit,
            attempts=1 if rank else MAX_ATTEMPTS,
        )
        self.body = plain.encode(order)
        self.future = future
        self.debug_files = call.debug_files
        self.attempts = 0
        self.rank = rank


class TaskPool:
    """Gives tasks to agents that have room for one.

    Args:
        session: Where the agents live.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._placing = threading.Lock()
        self._queue: deque[Task] = deque()
        self._load = dict.fromkeys(range(1, session.tree.agents + 1), 0)
        self._gone: set[int] = set()
        self._closed: SapwoodError | None = None
        self._unsubscribe = session.subscribe(self._places_changed)

    def submit(self, call: Call) -> "Future[Any]":
        """Queue a call and return its future.

        Raises:
            ClosedError: The cluster is closed.
            AgentLostError: All agents are gone for good.
            ResourceError: Too many tasks wait.
        """
        future: Future[Any] = Future()
        task = Task(call, future)
        with self._lock:
            if self._closed is not None:
                raise self._closed
            if len(self._queue) >= MAX_QUEUED_TASKS:
                raise ResourceError(
                    f"more than {MAX_QUEUED_TASKS} tasks wait", hint="wait for some results first"
                )
            self._queue.append(task)
        self._dispatch()
        return future

    def submit_at(self, ranks: Sequence[int], call: Call) -> "list[Future[Any]]":
        """Have agents make a call each, in the order in which this method is called.

        Raises:
            ClosedError: The cluster is closed.
        """
        tasks = [Task(call, Future(), rank) for rank in ranks]
        # One after the other: tasks that wait for each other must not meet crosswise.
        with self._placing:
            with self._lock:
                if self._closed is not None:
                    raise self._closed
                for rank in ranks:
                    self._load[rank] += 1
            for task in tasks:
                self._send(task.rank, task)
        return [task.future for task in tasks]

    def close(self) -> None:
        """Fail the tasks that wait, and all that come."""
        self._unsubscribe()
        self._refuse(ClosedError("the cluster is closed"))

    def _refuse(self, reason: SapwoodError) -> None:
        with self._lock:
            self._closed = reason
            waiting, self._queue = self._queue, deque()
        for task in waiting:
            # One that was sent before, to an agent that was lost, runs already.
            if task.attempts or task.future.set_running_or_notify_cancel():
                task.future.set_exception(reason)

    def _dispatch(self) -> None:
        while True:
            with self._lock:
                free = [rank for rank in self._load if rank not in self._gone]
                if not self._queue or not free:
                    return
                rank = min(free, key=self._load.__getitem__)
                if self._load[rank] >= AHEAD:
                    return
                task = self._queue.popleft()
                self._load[rank] += 1
            self._send(rank, task)

    def _send(self, rank: int, task: Task) -> None:
        if not task.attempts and not task.future.set_running_or_notify_cancel():
            self._room(rank)
            return
        task.attempts += 1
        try:
            answer = self._session.ask_encoded(rank, orders.CALL_TASK, task.body, task.arrays)
        except ClosedError as error:
            self._room(rank)
            task.future.set_exception(error)
            return
        answer.add_done_callback(lambda done: self._answered(rank, task, done))

    def _answered(self, rank: int, task: Task, done: "Future[Any]") -> None:
        self._room(rank)
        error = done.exception()
        if error is None:
            task.future.set_result(done.result())
        elif isinstance(error, AgentLostError) and self._again(task):
            pass
        else:
            name_crash_site(error, task.debug_files)
            task.future.set_exception(error)
        self._dispatch()

    def _again(self, task: Task) -> bool:
        """Queue a task once more, if it may be tried once more."""
        with self._lock:
            if self._closed is not None or task.attempts >= MAX_ATTEMPTS or task.rank:
                return False
            self._queue.appendleft(task)
        return True

    def _room(self, rank: int) -> None:
        with self._lock:
            self._load[rank] -= 1

    def _places_changed(self, change: PlacesChanged) -> None:
        with self._lock:
            if change.back:
                self._gone.difference_update(change.agents)
            else:
                self._gone.update(change.agents)
        failure = self._session.failure
        if failure is not None and len(self._gone) == len(self._load):
            self._refuse(failure)
        self._dispatch()


def can_travel(value: Any) -> bool:
    """Whether a value can be sent without being part of the code."""
    try:
        values.encode(value)
    except DataValueError:
        return False
    return True
