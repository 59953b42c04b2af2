"""A session whose agents are in the client's process and take turns on the thread that asks.

Nothing runs beside the user's code: each request and each wave is answered when the method that
sends it returns, in the order of the agents' ranks. The agents run the production code of an agent
and of a runner, without the processes, links and time limits between them.
"""

from __future__ import annotations

import bdb
import itertools
import os
import platform
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from sapwood.activity import agent_requests
from sapwood.activity.in_process_agent import InProcessAgent
from sapwood.activity.in_process_runner import InProcessRunner, LiveCode, alone, encoded_payload
from sapwood.activity.in_process_stream import InProcessStream, raised_by
from sapwood.comm import values
from sapwood.comm.messages import StreamSpec
from sapwood.comm.reduction import Accumulator
from sapwood.contexts.process import c_library
from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.rankset import to_ranges
from sapwood.core.request import Request
from sapwood.core.topology import flat
from sapwood.lifecycle.processes import ProcessState
from sapwood.session.interface import (
    ContentInterface,
    GroupInterface,
    InvitationInterface,
    NewAgent,
    PlacesChanged,
    ProcessView,
    RequestFuture,
    StreamInterface,
    StreamOptions,
)
from sapwood.session.streams import check_spec

_NO_OPTIONS = StreamOptions()


def interrupts(problem: BaseException | None) -> bool:
    """Whether an exception is to end what the user's program does: Ctrl-C, ``quit`` in pdb.

    Example:
        >>> interrupts(KeyboardInterrupt()), interrupts(ValueError())
        (True, False)
    """
    return problem is not None and isinstance(problem, bdb.BdbQuit) | (
        not isinstance(problem, Exception)
    )


class _NoThread:
    """The thread of a loop that there is not: every thread may call the session."""

    is_current = False

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def in_forked_child(self) -> bool:
        """Whether this process was forked from the one that has the cluster."""
        return os.getpid() != self._pid

    def refuse_forked_child(self) -> None:
        """Raise ClosedError in a forked process, as for other clusters."""
        if self.in_forked_child:
            raise ClosedError(
                f"the cluster belongs to process {self._pid}, from which this one was forked",
                hint="make one here with sapwood.local()",
            )


class InProcessSession:
    """A :class:`SessionInterface` without processes.

    Args:
        agents: How many.

    Attributes:
        tree: The client and its agents, without junctions.
        code: The functions and programs of this process.
        interruption: The exception by which the user has ended the last call, such as Ctrl-C.
    """

    hosts = ()
    failure = None

    def __init__(self, agents: int) -> None:
        self.tree = flat(agents)
        self.code = LiveCode()
        self.closed = False
        self.thread = _NoThread()
        self.interruption: BaseException | None = None
        ranks = self.tree.agent_ranks
        self._agents = {rank: InProcessAgent(rank, ranks, self.code) for rank in ranks}
        self._root = InProcessRunner(self.code, None)
        self._turn = threading.RLock()  # one call at a time, whichever thread wants it
        self._streams: list[InProcessStream] = []
        self._numbers = itertools.count(1)

    # --- what it is ------------------------------------------------------------------------------

    def ready_hosts(self) -> list[int]:
        """Return no machine: there are no others."""
        return []

    def shares_machine(self, _rank: int | None = None) -> bool:
        """Return that all agents see the memory and files of the client."""
        return True

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of this process."""
        return ((platform.machine(), c_library()),)

    @property
    def pythons(self) -> tuple[str, ...]:
        """The version of this Python."""
        return (platform.python_version(),)

    def processes(self, ranks: Iterable[int] | None = None) -> list[ProcessView]:
        """Return the agents, all in this process."""
        wanted = self.tree.agent_ranks if ranks is None else ranks
        return [ProcessView(rank, os.getpid(), ProcessState.READY, 1) for rank in wanted]

    # --- what it does ----------------------------------------------------------------------------

    def open_stream(
        self,
        handler: str,
        reduce: Mapping[str, str],
        members: Sequence[int] | None = None,
        context: str = "",
        options: StreamOptions = _NO_OPTIONS,
    ) -> StreamInterface:
        """Open a stream to agents.

        Raises:
            ConfigurationError: It is for a generator, whose values agents send when they like.
            ClosedError: The session is closed.
        """
        self._must_be_open()
        if handler == agent_requests.CALL and agent_requests.decode_code(options.code).steps:
            raise alone("streams of generators")
        Accumulator(reduce)
        spec = StreamSpec(
            next(self._numbers),
            handler,
            to_ranges(self.tree.agent_ranks if members is None else members),
            dict(reduce),
            context,
            options.code,
            options.sync,
            options.on_loss,
            options.filters,
            {1: options.parameters} if options.filters else {},
        )
        check_spec(spec)
        stream = InProcessStream(spec, self._agents, self._root, self._turn)
        self._streams = [known for known in self._streams if known.closed is None]
        self._streams.append(stream)
        return stream

    def ask(self, rank: int, handler: str, value: Any) -> RequestFuture:
        """Have a handler called at an agent; the future has its answer."""
        encoded = values.encode(value)
        return self.ask_encoded(rank, handler, encoded.body, encoded)

    def ask_encoded(
        self,
        rank: int,
        handler: str,
        body: bytes,
        arrays: values.Encoded,
        future: RequestFuture | None = None,
    ) -> RequestFuture:
        """As :meth:`ask`, with a body that the caller encoded and the arrays that belong to it."""
        self._must_be_open()
        future = RequestFuture() if future is None else future
        future.number = next(self._numbers)
        agent = self._agents[rank]
        if handler == agent_requests.PULSE:  # the watch of a run asks while agents work
            self._answer(agent, handler, body, arrays, future)
            return future
        with self._turn:
            self._answer(agent, handler, body, arrays, future)
        return future

    def _answer(
        self,
        agent: InProcessAgent,
        handler: str,
        body: bytes,
        arrays: values.Encoded,
        future: RequestFuture,
    ) -> None:
        agent.runner.problem = None
        try:
            answer = agent.answer(handler, future.number, body, encoded_payload(arrays))
        except BaseException as problem:  # noqa: BLE001 - no task may wait for ever for its answer
            if interrupts(problem):
                self.interruption = problem
            future.set_exception(problem)
            return
        if answer.error is not None:
            error = SapwoodError.from_record(answer.error)
            future.set_exception(raised_by(error, agent.runner.problem))
            return
        payload = bytearray(answer.payload.view) if answer.payload is not None else b""
        future.set_result(values.decode(answer.body, payload))

    def withdraw(self, answer: RequestFuture) -> None:
        """Do nothing: the answer is there."""

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Do nothing: agents ask the client for nothing."""

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Return what ends the subscription: nothing is ever lost."""
        del listener
        return lambda: None

    def drain(self, streams: Sequence[StreamInterface], seconds: float) -> None:
        """Do nothing: everything has arrived."""

    def start(self) -> None:
        """Do nothing: the agents are ready."""

    def close(self) -> None:
        """Close all streams and forget what agents hold."""
        if self.closed:
            return
        self.closed = True
        for stream in self._streams:
            stream.close(ClosedError("the cluster was closed"))
        for agent in self._agents.values():
            agent.close()

    def _must_be_open(self) -> None:
        self.thread.refuse_forked_child()
        if self.closed:
            raise ClosedError("the cluster is closed")

    # --- what needs agents that work at the same time --------------------------------------------

    @property
    def groups(self) -> GroupInterface:
        """Refuse: the members of a group wait for one another."""
        raise alone("groups")

    @property
    def content(self) -> ContentInterface:
        """Refuse: nothing has to be fetched."""
        raise alone("offers of content")

    @property
    def invitations(self) -> InvitationInterface:
        """Refuse: no other process takes part."""
        raise alone("invitations")

    def send(self, destination: int | Iterable[int], value: Any, tag: int) -> Request:
        """Refuse: no agent is there to receive it."""
        raise alone("messages")

    def receive(self, source: int, tag: int) -> Request:
        """Refuse: no agent is there to send it."""
        raise alone("messages")

    def expand(self, places: Sequence[NewAgent]) -> NoReturn:
        """Refuse: no process can be started."""
        raise alone("more agents")

    def contract(self, ranks: Sequence[int], seconds: float = 0.0, reason: str = "") -> NoReturn:
        """Refuse: no process can be ended."""
        raise alone("fewer agents")
