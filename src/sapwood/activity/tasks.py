"""Single calls: spread over the agents, one answer each, ``concurrent.futures`` semantics."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.crash_site import name_crash_site
from sapwood.activity.task_future import TaskFuture
from sapwood.comm import plain, values
from sapwood.content.refs import ContentRef
from sapwood.core.errors import (
    AgentLostError,
    CancelledError,
    ClosedError,
    ExecutionError,
    ResourceError,
    SapwoodError,
    UserCodeError,
)
from sapwood.core.failures import log_failure, start_thread
from sapwood.core.futures import when_done
from sapwood.session.interface import PlacesChanged, RequestFuture, SessionInterface

MAX_QUEUED_TASKS = 1_000_000
"""Tasks that may wait for an agent."""

AHEAD = 2
"""Tasks that an agent has at a time: one runs, the next is there when it ends.

The second one is taken back when another agent has nothing to do.
"""

MAX_ATTEMPTS = 3
"""How often a task is tried when its agent is lost; at each agent, as often when its
runner is killed."""


class TaskCall(msgspec.Struct, frozen=True):
    """A call of a user's function.

    Attributes:
        procedure: The runner's procedure that makes the call.
        function: What the function is called, for messages and statistics.
        argument: Encoded argument of the procedure.
        time_limit: Seconds that the call may take; 0 for no limit.
        debug_files: Debug information of each native library, for crashes.
        pickles: Whether result and exception may come pickled.
        content: What the function needs and an agent may have to fetch.
    """

    procedure: str
    function: str
    argument: values.Encoded
    time_limit: float = 0.0
    debug_files: dict[str, Path] = {}
    pickles: bool = False
    content: tuple[ContentRef, ...] = ()

    def order(self, attempts: int) -> bytes:
        """Return what an agent is sent, beside the arrays of the argument.

        Args:
            attempts: How often the call may start, if its runner is killed.
        """
        body, limit = self.argument.body, self.time_limit
        return plain.encode(
            agent_requests.CallTask(
                self.procedure, self.function, body, limit, attempts, list(self.content)
            )
        )


class TaskDemand(msgspec.Struct, frozen=True):
    """What the agents of a cluster have to do.

    Attributes:
        waiting: Tasks that no agent has yet.
        loads: How many tasks each agent has, by rank, of the agents that are there.
        bound: Agents that were called by rank: functions may have left state there.
    """

    waiting: int
    loads: dict[int, int]
    bound: frozenset[int] = frozenset()

    @property
    def backlog(self) -> int:
        """How many tasks wait, there or behind others, less the agents that have none.

        Example:
            >>> TaskDemand(waiting=3, loads={1: 2, 2: 1, 3: 0}).backlog
            3
        """
        behind = sum(max(load - 1, 0) for load in self.loads.values())
        idle = sum(not load for load in self.loads.values())
        return self.waiting + behind - idle


class Task:
    """A call and its future.

    Args:
        call: The call.
        future: Gets the result.
        rank: The only agent that may do it; 0 for any.
        retries: How often it is tried again when it fails.
    """

    __slots__ = (
        "answer",
        "arrays",
        "attempts",
        "body",
        "debug_files",
        "future",
        "is_wanted_back",
        "rank",
        "retries",
    )

    def __init__(self, call: TaskCall, future: TaskFuture, rank: int = 0, retries: int = 0) -> None:
        self.arrays = call.argument
        self.body = call.order(1 if rank else MAX_ATTEMPTS)
        self.future = future
        self.debug_files = call.debug_files
        self.attempts = 0
        self.rank = rank
        self.retries = retries
        self.answer: RequestFuture | None = None
        self.is_wanted_back = False


class TaskPool:
    """Gives tasks to agents that have room for one.

    Args:
        session: Where the agents live.
    """

    def __init__(self, session: SessionInterface) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._placing = threading.Lock()
        self._queue: deque[Task] = deque()
        ranks = session.tree.agent_ranks
        self._given: dict[int, list[Task]] = {rank: [] for rank in ranks}
        self._load = dict.fromkeys(ranks, 0)
        self._direct: list[tuple[int, Future[Any]]] = []
        self._taking_back = 0
        self._later: set[TaskFuture] = set()
        self._gone: set[int] = set()
        self._bound: set[int] = set()
        self._closed: SapwoodError | None = None
        self._refusal: SapwoodError | None = None
        self._to_prepare: deque[Callable[[], None]] = deque()
        self._is_preparing = False
        self._unsubscribe = session.subscribe(self._places_changed)

    def submit(self, call: TaskCall, retries: int = 0) -> TaskFuture:
        """Queue a call and return its future.

        Args:
            call: The call.
            retries: How often it is tried again when it fails.

        Raises:
            ClosedError: The cluster is closed.
            AgentLostError: All agents are gone for good.
            ResourceError: Too many tasks wait.
        """
        future = TaskFuture(call.function, opens=call.pickles)
        self._enqueue(Task(call, future, retries=retries), is_new=True)
        return future

    def submit_later(
        self,
        awaited: "Sequence[Future[Any]]",
        make: Callable[[], TaskCall],
        retries: int = 0,
        function: str = "",
        *,
        pickles: bool = False,
    ) -> TaskFuture:
        """Queue a call when all of some futures are done; one that fails, fails it too.

        Args:
            awaited: The futures.
            make: Returns the call; on a separate thread.
            retries: How often it is tried again when it fails.
            function: Name of the called function, for messages.
            pickles: Whether result and exception may come pickled.

        Raises:
            ClosedError: The cluster is closed.
        """
        future = TaskFuture(function, opens=pickles)
        missing = [len(awaited)]

        def begin() -> None:
            try:
                if not future.cancelled():
                    self._enqueue(Task(make(), future, retries=retries))
            except BaseException as error:  # noqa: BLE001 - also what an awaited task has raised
                future.settle(None, error)
            finally:
                with self._lock:
                    self._later.discard(future)

        def done(_one: "Future[Any]") -> None:
            with self._lock:
                missing[0] -= 1
                if missing[0]:
                    return
                self._to_prepare.append(begin)
                if self._is_preparing:
                    return
                self._is_preparing = True
            # Not here, on the loop's thread: values may be large, and encoding may call user code.
            start_thread("sapwood-tasks", self._prepare)

        with self._lock:
            self._must_accept()
            self._later.add(future)
        for one in awaited:
            when_done(one, done)
        return future

    def submit_at(self, ranks: Sequence[int], call: TaskCall) -> list[TaskFuture]:
        """Have agents make a call each, in the order in which this method is called.

        Raises:
            ClosedError: The cluster is closed.
        """
        tasks = [Task(call, TaskFuture(call.function, opens=call.pickles), rank) for rank in ranks]
        # One after the other: tasks that wait for each other must not meet crosswise.
        with self._placing:
            with self._lock:
                if self._closed is not None:
                    raise self._closed
                self._bound.update(ranks)
                for task in tasks:
                    self._give(task.rank, task)
            for task in tasks:
                task.future.on_cancel = partial(self._cancelled, task)
                self._send(task.rank, task)
        return [task.future for task in tasks]

    def ask(self, ranks: Iterable[int], call: TaskCall) -> dict[int, TaskFuture]:
        """Have agents make a call each at once, past the tasks that wait."""
        body, asked = call.order(attempts=1), dict[int, TaskFuture]()
        for rank in ranks:
            future = TaskFuture(call.function, opens=call.pickles)
            future.begun = True
            future.on_cancel = partial(self._session.withdraw, future)
            self._trust(rank, future)
            asked[rank] = future
            self._session.ask_encoded(rank, agent_requests.CALL_TASK, body, call.argument, future)
            with self._lock:  # no callback: a waiting thread may take the answer where it arrives
                self._load[rank] += 1
                self._bound.add(rank)
                self._direct.append((rank, future))
        return asked

    def demand(self) -> TaskDemand:
        """Return what the agents have to do, of those that are there.

        Raises:
            ClosedError: The cluster is closed.
        """
        with self._lock:
            self._must_accept(is_new=False)
            self._count_direct()
            loads = {rank: self._load[rank] for rank in self._there()}
            return TaskDemand(len(self._queue), loads, frozenset(self._bound))

    def retire(self, ranks: Iterable[int]) -> list[int]:
        """Give no more tasks to those agents that have none; return their ranks."""
        with self._lock:
            self._count_direct()
            there = set(self._there()) - self._bound
            idle = [rank for rank in ranks if rank in there and not self._load[rank]]
            self._gone.update(idle)
        return idle

    def reinstate(self, ranks: Iterable[int]) -> None:
        """Give tasks to agents again that stay after all."""
        with self._lock:
            self._gone.difference_update(ranks)
        self._dispatch()

    def refuse(self, *, cancel: bool = False) -> None:
        """Take no more tasks.

        Args:
            cancel: Cancel those that no agent has begun.
        """
        with self._lock:
            self._refusal = ClosedError(
                "the cluster was shut down", hint="submit before shutdown() or the end of `with`"
            )
            waiting = [*(task.future for task in self._queue), *self._later] if cancel else []
        for future in waiting:
            future.cancel()

    def wait(self) -> None:
        """Wait until all tasks are done."""
        while self._closed is None:
            with self._lock:
                given = [task for tasks in self._given.values() for task in tasks]
                futures = [*(task.future for task in (*self._queue, *given)), *self._later]
            undone = [future for future in futures if not future.done()]
            if not undone:
                return
            wait(undone)

    def close(self) -> None:
        """Fail the tasks that wait, and all that come."""
        self._unsubscribe()
        self._refuse(ClosedError("the cluster is closed"))

    def _prepare(self) -> None:
        """Queue the tasks whose awaited futures are done, until there are no more."""
        while True:
            with self._lock:
                if not self._to_prepare:
                    self._is_preparing = False
                    return
                begin = self._to_prepare.popleft()
            try:
                begin()
            except Exception as error:  # noqa: BLE001 - other tasks are prepared all the same
                log_failure("preparing a task", error)

    def _must_accept(self, *, is_new: bool = True) -> None:
        reason = self._closed or (self._refusal if is_new else None)
        if reason is not None:
            raise reason

    def _refuse(self, reason: SapwoodError) -> None:
        with self._lock:
            self._closed = reason
            waiting, self._queue = self._queue, deque()
            later, self._later = self._later, set()
        for task in waiting:
            task.future.settle(None, reason)
        for future in later:
            future.settle(None, reason)

    # --- from task to agent --------------------------------------------------------------------

    def _enqueue(self, task: Task, *, is_new: bool = False) -> None:
        task.future.on_cancel = partial(self._cancelled, task)
        with self._lock:
            self._must_accept(is_new=is_new)
            if len(self._queue) >= MAX_QUEUED_TASKS:
                raise ResourceError(
                    f"more than {MAX_QUEUED_TASKS} tasks wait", hint="wait for some results first"
                )
            self._queue.append(task)
        self._dispatch()

    def _dispatch(self) -> None:
        while True:
            with self._lock:
                free = self._there()
                if not free:
                    return
                if self._direct:
                    self._count_direct()
                if not self._queue:
                    if max(self._load.values()) < AHEAD:
                        return
                    wanted = self._to_take_back(free)
                    break
                rank = min(free, key=self._load.__getitem__)
                if len(self._given[rank]) >= AHEAD:
                    return
                task = self._queue.popleft()
                if task.future.was_cancelled:
                    continue
                self._give(rank, task)
            self._send(rank, task)
        for rank, task in wanted:
            self._take_back(rank, task)

    def _there(self) -> list[int]:
        """Return the agents that take tasks; with the lock held."""
        tree = self._session.tree
        return [rank for rank in self._load if rank not in self._gone and rank in tree]

    def _give(self, rank: int, task: Task) -> None:
        self._given[rank].append(task)
        self._load[rank] += 1

    def _count_direct(self) -> None:
        """Count the calls no more that were made past the queue and are done."""
        direct, self._direct = self._direct, []
        for rank, future in direct:
            if future.done():
                self._load[rank] -= 1
            else:
                self._direct.append((rank, future))

    def _send(self, rank: int, task: Task) -> None:
        future = task.future
        if not task.attempts:
            if future.was_cancelled:
                self._room(rank, task)
                return
            future.begun = True
        task.attempts += 1
        task.is_wanted_back = False
        try:
            answer = self._session.ask_encoded(
                rank, agent_requests.CALL_TASK, task.body, task.arrays
            )
        except SapwoodError as error:  # it is closed, or the argument is too large to be sent
            self._room(rank, task)
            future.settle(None, error)
            return
        task.answer = answer
        when_done(answer, lambda done: self._answered(rank, task, done))
        if future.was_cancelled:  # meanwhile, before there was an answer to withdraw
            self._session.withdraw(answer)

    def _answered(self, rank: int, task: Task, done: "Future[Any]") -> None:
        error = done.exception()
        with self._lock:  # one step: `wait` finds a task that is tried again at any moment
            self._release(rank, task)
            is_queued = error is not None and self._again(task, error)
        if error is None:
            value = done.result()
            if type(value) is values.Pickled:
                self._trust(rank, task.future)
            task.future.settle(value, None)
        elif not is_queued:
            name_crash_site(error, task.debug_files)
            if isinstance(error, UserCodeError) and error.exception:
                self._trust(rank, task.future)
            task.future.settle(None, error)
        self._dispatch()

    def _trust(self, rank: int, future: TaskFuture) -> None:
        """Forbid a future to open pickles of an agent that joined by an invitation."""
        if any(one.joined for one in self._session.processes([rank])):
            future.distrust()

    def _again(self, task: Task, error: BaseException) -> bool:
        """Queue a task once more, if it may be tried once more; with the lock held."""
        if self._closed is not None or task.future.cancelled():
            return False
        if isinstance(error, CancelledError) and agent_requests.GIVEN_BACK in error.details:
            task.attempts -= 1  # it has not begun
            self._queue.appendleft(task)
            return True
        if isinstance(error, AgentLostError) and not task.rank and task.attempts < MAX_ATTEMPTS:
            self._queue.appendleft(task)
            return True
        if task.retries and _may_differ(error):
            task.retries -= 1
            task.attempts = 1
            self._queue.append(task)
            return True
        return False

    def _room(self, rank: int, task: Task) -> None:
        with self._lock:
            self._release(rank, task)

    def _release(self, rank: int, task: Task) -> None:
        """Take a task from the agent that had it; with the lock held."""
        task.answer = None
        self._given[rank].remove(task)
        self._load[rank] -= 1

    def _cancelled(self, task: Task) -> None:
        """Have the agent that has a task drop it, or end its call."""
        answer = task.answer
        if answer is not None:
            self._session.withdraw(answer)

    # --- from a busy agent to an idle one ------------------------------------------------------

    def _to_take_back(self, free: list[int]) -> list[tuple[int, Task]]:
        """Return tasks that wait behind others at their agents, one for each idle agent."""
        loads = [self._load[rank] for rank in free]
        idle = loads.count(0) - self._taking_back
        if idle <= 0:
            return []
        found: list[tuple[int, Task]] = []
        for rank in free:
            given = self._given[rank]
            if self._load[rank] < AHEAD or not given:
                continue
            task = given[-1]
            if task.answer is None:  # another thread is about to send it, and looks again then
                continue
            if not task.rank and not task.is_wanted_back and len(found) < idle:
                task.is_wanted_back = True
                found.append((rank, task))
        self._taking_back += len(found)
        return found

    def _take_back(self, rank: int, task: Task) -> None:
        """Ask an agent to give a task back; it does if it has not begun it."""
        answer = task.answer
        if answer is None:  # it is done
            self._taken_back()
            return
        try:
            reply = self._session.ask(rank, agent_requests.GIVE_BACK_TASK, answer.number)
        except ClosedError:
            return
        when_done(reply, self._taken_back)

    def _taken_back(self, _reply: "Future[Any] | None" = None) -> None:
        with self._lock:
            self._taking_back -= 1
        self._dispatch()

    def _places_changed(self, change: PlacesChanged) -> None:
        with self._lock:
            if change.added:
                for rank in change.agents:
                    self._given.setdefault(rank, [])
                    self._load.setdefault(rank, 0)
            if change.back:
                self._gone.difference_update(change.agents)
            else:
                self._gone.update(change.agents)
        failure = self._session.failure
        if failure is not None and len(self._gone) == len(self._load):
            self._refuse(failure)
        self._dispatch()


def _may_differ(error: BaseException) -> bool:
    """Whether a call that ended with an error may end otherwise when it is made again."""
    return isinstance(error, (ExecutionError, AgentLostError)) and not isinstance(
        error, CancelledError
    )
