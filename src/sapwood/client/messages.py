"""Messages and queries, as the client sends and asks them."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.comm import values
from sapwood.comm.messaging.envelope import ANY, check_places, check_receive, ranks_of
from sapwood.core.arguments import wait_time
from sapwood.core.errors import ConfigurationError, SapwoodError, TimeLimitError
from sapwood.core.rankset import fold
from sapwood.core.request import Message, Request, take_message
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT
from sapwood.session.interface import SessionInterface

if TYPE_CHECKING:
    from sapwood.activity.tasks import TaskCall, TaskPool
    from sapwood.session.interface import RequestFuture


class QueryResult(msgspec.Struct, frozen=True):
    """The answers to a query.

    Attributes:
        answers: The answer of each agent that gave one, by rank.
        reasons: Why others gave none, by rank: their error, or that they took too long.
    """

    answers: dict[int, Any]
    reasons: dict[int, SapwoodError]

    @property
    def missing(self) -> str:
        """The agents without an answer, such as ``agent[2-4,7]``; empty if none."""
        return fold("agent", self.reasons) if self.reasons else ""

    @property
    def complete(self) -> bool:
        """Whether all that were asked answered."""
        return not self.reasons


class Messaging:
    """What a cluster can send, receive and ask; the client's rank is 0."""

    _session: SessionInterface
    _tasks: "TaskPool"

    def send(self, destination: int | Iterable[int], value: Any, tag: int = 0) -> None:
        """Send a message to an agent, or to several, and wait until it is there.

        It is encoded once and travels each link of the tree once. A message whose arrays are
        large arrives when it is received.

        Args:
            destination: Rank of the agent, or several.
            value: The values and arrays to send; nothing is pickled.
            tag: By which the receiver may choose, from 0.

        Raises:
            AgentLostError: The agent is gone.
            DataValueError: The value cannot travel.
            ConfigurationError: There is no such agent or tag.
            ClosedError: The cluster is closed.

        Example:
            ::

                def double():
                    here = sapwood.here()
                    value, source, tag = here.receive()
                    here.send(source, 2 * value)

                with sapwood.local(agents=4) as cluster:
                    done = cluster.submit_to(3, double)
                    cluster.send(3, 21)
                    print(cluster.receive(3).value)  # 42
        """
        self.send_later(destination, value, tag).result()

    def send_later(self, destination: int | Iterable[int], value: Any, tag: int = 0) -> Request:
        """Send a message and return at once; the request ends when it is there.

        ``request.cancel()`` asks for it back; the request ends with ``CancelledError`` if it had
        not arrived. ``request.progress()`` says how much of a large one has.
        """
        return self._session.send(self._places(destination), value, tag)

    def receive(self, source: int = ANY, tag: int = ANY, timeout: float | None = None) -> Message:
        """Wait for a message to the client and return it.

        Args:
            source: Rank of the agent that it must be from, or ``sapwood.types.ANY``.
            tag: Tag that it must have, or ``sapwood.types.ANY``.
            timeout: Seconds to wait; by default as long as it takes.

        Raises:
            TimeoutError: There was none in time; a later receive may get it.
            AgentLostError: The source is gone.
            ClosedError: The cluster is closed.
        """
        timeout = wait_time(timeout)
        return take_message(self.receive_later(source, tag), timeout)

    def receive_later(self, source: int = ANY, tag: int = ANY) -> Request:
        """Ask for a message and return at once; the request's result is the message."""
        self._session.thread.refuse_forked_child()
        check_receive(source, tag, self._session.tree.agent_ranks)
        return self._session.receive(source, tag)

    def query(
        self,
        question: Callable[..., Any] | str,
        *args: Any,
        timeout: float | None = None,
        agents: Iterable[int] | None = None,
    ) -> QueryResult:
        """Ask all agents, or some, and return what they answer, without those that do not.

        Args:
            question: A function, which is called on each agent, or the name of a handler.
            *args: Its arguments; a handler takes at most one.
            timeout: Seconds to wait; agents that have not answered are missing, and the call there
                is taken back.
            agents: Ranks that are asked; all by default.

        Raises:
            ConfigurationError: There is no such agent.

        Example:
            ::

                result = cluster.query(os.getloadavg, timeout=2.0)
                print(result.answers, "missing:", result.missing)
        """
        timeout = wait_time(timeout)
        ranks = self._places(self._session.tree.agent_ranks if agents is None else agents)
        asked = self._ask_all(ranks, question, args)
        answers: dict[int, Any] = {}
        reasons: dict[int, SapwoodError] = {}
        _, late = wait(asked.values(), timeout)
        for rank, future in asked.items():
            if future in late:
                self._session.withdraw(future)
                reasons[rank] = TimeLimitError(f"agent {rank} did not answer in {timeout:g} s")
                continue
            error = future.exception()
            if isinstance(error, SapwoodError):
                reasons[rank] = error
            else:
                answers[rank] = future.result()
        return QueryResult(answers, reasons)

    def submit_to(
        self, agent: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "RequestFuture":
        """Call a function on a certain agent; the future has its result.

        Other than with ``submit`` the call is made there and nowhere else: if the agent is lost,
        the future ends with ``AgentLostError``.

        Raises:
            ConfigurationError: There is no such agent.
        """
        rank = self._one_place(agent)
        if rank == ROOT:
            raise ConfigurationError(
                "rank 0 is the client, not an agent", hint="call the function directly"
            )
        return self._call_on((rank,), function, args, kwargs)[rank]

    # --- how ---------------------------------------------------------------------------------

    def _call_of(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "TaskCall":
        raise NotImplementedError

    def _ask_all(
        self, ranks: tuple[int, ...], question: Callable[..., Any] | str, args: tuple[Any, ...]
    ) -> "Mapping[int, RequestFuture]":
        if not isinstance(question, str):
            return self._call_on(ranks, question, args, {})
        if len(args) > 1:
            raise ConfigurationError(
                f"the handler {shown(question)} takes one argument, not {len(args)}",
                hint="put them into a list or a dictionary",
            )
        encoded = values.encode(args[0] if args else None).owned()
        ask = self._session.ask_encoded
        return {rank: ask(rank, question, encoded.body, encoded) for rank in ranks}

    def _call_on(
        self,
        ranks: tuple[int, ...],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> "Mapping[int, RequestFuture]":
        return self._tasks.ask(ranks, self._call_of(function, args, kwargs))

    def _one_place(self, rank: int) -> int:
        found = self._places(rank)
        if len(found) != 1:
            raise ConfigurationError(f"{shown(rank)} is not a rank", hint="give one rank")
        return found[0]

    def _places(self, ranks: int | Iterable[int]) -> tuple[int, ...]:
        """Return ranks of the client and agents.

        Raises:
            ConfigurationError: One of them is not.
            ClosedError: The cluster is another process's.
        """
        self._session.thread.refuse_forked_child()
        found = ranks_of(ranks)
        check_places(found, self._session.tree.agent_ranks)
        return found
