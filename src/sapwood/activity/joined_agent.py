"""A process that Sapwood did not start becomes an agent of a session by an invitation.

It has its own zygote for its runners, and nothing else that a node would have. It ends with
the session, or when the session removes it, or when it leaves.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sapwood.activity.agent_process import AgentProcess
from sapwood.activity.agent_requests import decode_settings
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.transport.base import Connection, ConnectionHandler, Failed
from sapwood.contexts import orders
from sapwood.contexts.process import describe_status
from sapwood.contexts.spawner import Spawner
from sapwood.core.errors import CommunicationError, ResourceError, SapwoodError
from sapwood.core.failures import log_loop_failure
from sapwood.core.topology import ROOT
from sapwood.environment.logs import logger
from sapwood.security.invitations import AGENTS, Invitation
from sapwood.session.agent import (
    END_AGENT,
    LEAVE_SESSION,
    READY,
    Agent,
    Contribution,
    IncomingRequest,
)
from sapwood.session.member import MemberConfiguration, read_configuration
from sapwood.session.shared_reactor import SharedReactor

if TYPE_CHECKING:
    from sapwood.nodes.joining import JoinedAgent

LEAVE_TIMEOUT = 15.0
"""Seconds that an agent which wants to leave waits until its session lets it go."""

END_TIMEOUT = 5.0
"""Seconds that a stopping agent waits until its link is closed."""

ZYGOTE_LOOK = 5.0
"""Seconds between two looks at the zygote."""

ZYGOTE_LOOKS = 12
"""A zygote that gives no sign of life at so many looks is taken for dead."""


def join_as_agent(line: str, *, on_join: Callable[[int, str], None] | None = None) -> str:
    """Work as an agent of a session until the session ends.

    The session ends it, or removes it, or it is lost. In the main thread, SIGTERM and SIGINT have
    it leave: what it was asked for is done first; the same signal once more ends it at once.

    Args:
        line: An invitation, as :meth:`.Cluster.invite` returns it.
        on_join: Told when the session knows the agent: its rank, and the session's name.

    Returns:
        Why it ended, if the session or this process wanted that.

    Raises:
        SecurityError: The session refuses the invitation, or did not make it.
        CommunicationError: The session cannot be reached, or not any more.
        ResourceError: Runners cannot be started.

    Example:
        ::

            sapwood.join_as_agent(os.environ["SAPWOOD_INVITATION"])
    """
    from sapwood.nodes.joining import (  # noqa: PLC0415 - whoever has a wrong line needs no more
        join_session,
    )

    invitation = AGENTS.parse(line)
    process = JoinedAgentProcess(invitation, join_session(invitation))
    if on_join is not None:
        process.when_ready(lambda: on_join(process.rank, process.session))
    with _signals(process.leave):
        return process.run()


class JoinedAgentProcess:
    """An agent in this process.

    Args:
        invitation: What the session's owner has given.
        joined: Its place.

    Attributes:
        rank: Its rank.
        session: Name of the session.
    """

    def __init__(self, invitation: Invitation, joined: JoinedAgent) -> None:
        place = joined.place
        self.rank = place.rank
        self.session = place.session
        self._loop = SharedReactor(partial(log_loop_failure, "the agent"))
        self._error: SapwoodError | None = None
        self._reason = ""
        self._leaves = False
        try:
            configuration = _localised(invitation, joined)
            self._spawner = Spawner(
                place.plan,
                orders.ConfigureProcesses("", b"", place.environment),
                _reported,
                self._zygote_gone,
            )
            self._spawner.start()
        except BaseException:
            self._loop.close()
            raise
        self._agent = _Leaf(configuration, place.rank, 1, self._loop, self._ended)
        self._agent.requests[END_AGENT] = self._end_requested
        self._factory = self._spawner.new_runner_factory()
        settings = decode_settings(configuration.extra)
        self._process = AgentProcess(self._agent, settings, self._factory)

    def when_ready(self, function: Callable[[], None]) -> None:
        """Have a function called when the session knows that the agent is there."""
        note = self._agent.waves[READY]

        def ready(contribution: Contribution) -> None:
            self._agent.waves[READY] = note
            note(contribution)
            function()

        self._agent.waves[READY] = ready

    def run(self) -> str:
        """Be the agent until it is over; return why it is.

        Raises:
            CommunicationError: The session cannot be reached any more, or has given the agent up.
            ResourceError: No runners can be started any more.
        """
        try:
            self._spawner.listen(self._loop)
            self._loop.call_later(ZYGOTE_LOOK, self._look)
            self._agent.begin()
            self._loop.run()
        finally:
            self._process.close()
            self._agent.close()
            self._factory.close()
            self._spawner.detach()
            self._spawner.close()
            self._loop.close()
        if self._error is not None:
            raise self._error
        return self._reason

    def leave(self) -> None:
        """Leave the session, then end; from any thread, or a signal."""
        self._loop.call_soon_threadsafe(self._leave)

    # --- on the loop -----------------------------------------------------------------------------

    def _leave(self) -> None:
        if self._leaves:  # once more: at once
            self._end("it left at once")
            return
        self._leaves = True
        self._agent.ask(ROOT, LEAVE_SESSION, plain.encode(None))
        self._loop.call_later(LEAVE_TIMEOUT, self._end, "the session did not let it go in time")

    def _end_requested(self, request: IncomingRequest) -> None:
        self._reason = self._reason or str(request.value())
        request.reply(None)
        self._loop.call_later(END_TIMEOUT, self._end, self._reason)  # the root ends the link before

    def _ended(self, reason: str) -> None:
        """No place takes this one any more."""
        if self._reason:
            self._end(self._reason)
        elif self._leaves:
            self._end("it left")
        elif reason == REMOVED:
            self._end("the session has removed it")
        else:
            self._fail(CommunicationError(f"the session is lost: {reason}", where=self.session))

    def _zygote_gone(self) -> None:
        self._fail(ResourceError("the process that starts its runners has ended"))

    def _look(self) -> None:
        self._loop.call_later(ZYGOTE_LOOK, self._look)  # first: also after a look that fails
        if self._spawner.is_silent(ZYGOTE_LOOKS, ZYGOTE_LOOKS):
            self._fail(ResourceError("the process that starts its runners hangs"))

    def _fail(self, error: SapwoodError) -> None:
        if not self._reason:
            self._error = self._error or error
        self._loop.stop()

    def _end(self, reason: str) -> None:
        if self._error is None:
            self._reason = self._reason or reason
        self._loop.stop()


REMOVED = "this place was removed"
"""What the root tells a place that it lets go."""


class _Leaf(Agent):
    """An agent that reports its end, with the reason."""

    def __init__(
        self,
        configuration: MemberConfiguration,
        rank: int,
        incarnation: int,
        loop: SharedReactor,
        ended: Callable[[str], None],
    ) -> None:
        super().__init__(configuration, rank, incarnation, loop)
        self._on_end = ended
        self._connections: set[Connection] = set()

    def close(self) -> None:
        """Close all connections at once, also those that wait for the other side's end."""
        self.driver.close()
        for connection in tuple(self._connections):
            connection.abort()

    def _dial(self, rank: int, handler: ConnectionHandler, failed: Failed) -> None:
        super()._dial(rank, _Noting(handler, self._connections), failed)

    def _parent_lost(self, effect: ev.ParentLost) -> None:
        self._on_end(effect.reason)


class _Noting:
    """Notes which connections there are.

    Args:
        handler: Hears of them.
        connections: Those that are open.
    """

    def __init__(self, handler: ConnectionHandler, connections: set[Connection]) -> None:
        self._handler = handler
        self._connections = connections
        self._numbers: dict[int, Connection] = {}
        self.bytes_received = handler.bytes_received

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Note a connection."""
        self._connections.add(connection)
        number = self._handler.connection_opened(connection, initiator=initiator)
        self._numbers[number] = connection
        return number

    def connection_closed(self, number: int, reason: str) -> None:
        """Forget it."""
        self._connections.discard(self._numbers.pop(number))
        self._handler.connection_closed(number, reason)


def _localised(invitation: Invitation, joined: JoinedAgent) -> MemberConfiguration:
    """Return the configuration of the root, completed with the settings of this process."""
    place = joined.place
    found = read_configuration(place.configuration)
    head = f"head.{joined.credentials.node.partition('.')[2]}"
    addresses = dict.fromkeys([joined.address, *invitation.addresses])
    return msgspec.structs.replace(
        found,
        folder="",  # a leaf listens nowhere
        host=-place.rank,
        machine="",  # it shares no memory
        addresses={ROOT: f"tls://{head}@{','.join(addresses)}"},
        credentials=joined.credentials,
        transport="",
    )


def _reported(report: orders.Report) -> None:
    """Log the loss of a runner; this process notices all other ends itself."""
    if isinstance(report, orders.RunnerLost):
        reason = describe_status(report.status)
        logger("activity").warning("runner lost", pid=report.pid, reason=reason)


@contextmanager
def _signals(leave: Callable[[], None]) -> Iterator[None]:
    """Have the signals that end programs call a function, where they can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: leave()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
