"""The hold of a session on the processes of one node: events in, orders out.

::

    ABSENT --ready--> OPEN --cut off--> AWAY --way back--> RETURNING
                        ^                 |                    |
                        |                 +-------ready--------+
                        |                           v
                        +--------resumed--------- RESUMING

The node has the session open in all states but ABSENT; when it loses that, the hold is ENDED. A
hold that the session releases is CLOSED, which is final. Commands wait in all states but OPEN.

:meth:`NodeHold.step` is the only place that decides when the processes of a session on a node are
lost, and when a command is sent to the node. It does no I/O, has no threads and reads no clock:
:class:`~sapwood.nodes.processes.NodeProcesses` gives it events and carries out its orders.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sapwood.contexts import orders as reports
from sapwood.core.errors import invariant
from sapwood.core.states import StateTable


class HoldState(enum.Enum):
    """States of a session's hold on the processes of one node."""

    ABSENT = "absent"
    OPEN = "open"
    AWAY = "away"
    RETURNING = "returning"
    RESUMING = "resuming"
    ENDED = "ended"
    CLOSED = "closed"


class HoldEvent(enum.Enum):
    """What happens to a hold."""

    READY = "ready"
    CUT_OFF = "cut off"
    WAY_BACK = "way back"
    RESUMED = "resumed"
    NOT_ANSWERED = "not answered"
    GONE = "gone"
    RELEASED = "released"


_S, _E = HoldState, HoldEvent

_HELD = (_S.OPEN, _S.AWAY, _S.RETURNING, _S.RESUMING)

HOLD_TRANSITIONS: StateTable[HoldState, HoldEvent] = StateTable(
    "the hold on a node",
    {
        (_S.ABSENT, _E.READY): _S.OPEN,
        (_S.OPEN, _E.CUT_OFF): _S.AWAY,
        (_S.AWAY, _E.WAY_BACK): _S.RETURNING,
        (_S.AWAY, _E.READY): _S.RESUMING,
        (_S.RETURNING, _E.READY): _S.RESUMING,
        (_S.RETURNING, _E.CUT_OFF): _S.AWAY,
        (_S.RESUMING, _E.RESUMED): _S.OPEN,
        (_S.RESUMING, _E.NOT_ANSWERED): _S.RETURNING,
        (_S.RESUMING, _E.READY): _S.RESUMING,
        (_S.RESUMING, _E.CUT_OFF): _S.AWAY,
        **{(state, _E.GONE): _S.ENDED for state in _HELD},
        **{(state, _E.RELEASED): _S.CLOSED for state in _S if state is not _S.CLOSED},
    },
)
"""(state, event) → next state; an event without a transition changes nothing."""


# --- commands: events, and orders once they are sent to the node ---------------------------------


@dataclass(frozen=True)
class SpawnOnNode:
    """Have the node start processes.

    Attributes:
        processes: The processes.
        given_up: Why the node will not come back; empty if it may.
        is_over: Whether no other node will come back either.
    """

    processes: tuple[reports.ProcessSpec, ...]
    given_up: str = ""
    is_over: bool = False


@dataclass(frozen=True)
class KillOnNode:
    """Have the node kill a process."""

    pid: int


@dataclass(frozen=True)
class ConfigureOnNode:
    """Have the node give another configuration to processes that start from now on."""

    configuration: bytes


NodeCommand = SpawnOnNode | KillOnNode | ConfigureOnNode

# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeUsable:
    """Processes of the session can start on the node, on a new daemon or the one before."""


@dataclass(frozen=True)
class NodeLost:
    """The node is lost; it may come back."""

    reason: str


@dataclass(frozen=True)
class NodeRemoved:
    """The node has left for good."""

    reason: str
    is_over: bool = False


@dataclass(frozen=True)
class NodeGivenUp:
    """The node will not come back.

    Attributes:
        reason: Why.
        is_over: Whether no other node will come back either.
    """

    reason: str
    is_over: bool = False


@dataclass(frozen=True)
class ProcessesEnded:
    """The node reports that all processes of the session have ended."""

    reason: str


@dataclass(frozen=True)
class WayLost:
    """Nothing can be sent to the node for now; its processes keep running."""


@dataclass(frozen=True)
class WayBack:
    """The way to nodes is back.

    Attributes:
        ready: Whether the node is ready as well.
    """

    ready: bool


@dataclass(frozen=True)
class CommandFailed:
    """A command or the opening was not carried out.

    Attributes:
        request: The command, or the opening.
        reason: Why.
        away: Whether the way to the node is lost.
        lost: Whether the reason is that the node is lost: that is reported separately.
    """

    request: NodeCommand | OpenOnNode
    reason: str
    away: bool = False
    lost: bool = False


@dataclass(frozen=True)
class FoundRunning:
    """The node has answered which processes of the session are running.

    Attributes:
        number: Which request it answers.
        living: The processes.
    """

    number: int
    living: tuple[reports.Spawned, ...]


@dataclass(frozen=True)
class NothingFound:
    """The node has not answered which processes of the session are running.

    Attributes:
        number: Which request it did not answer.
        reason: Why.
        unreached: Whether the reason is that the node, or the way to it, is lost again.
    """

    number: int
    reason: str
    unreached: bool


@dataclass(frozen=True)
class AlarmDue:
    """The time of a :class:`WakeIn` is over."""

    alarm: int


@dataclass(frozen=True)
class ReportToSession:
    """The report on a process: an event where the node has sent it, and an order to pass it on."""

    report: reports.Report


@dataclass(frozen=True)
class HoldReleased:
    """The session does not need the node any more."""


HoldInput = (
    NodeCommand
    | ReportToSession
    | NodeUsable
    | NodeLost
    | NodeRemoved
    | NodeGivenUp
    | ProcessesEnded
    | WayLost
    | WayBack
    | CommandFailed
    | FoundRunning
    | NothingFound
    | AlarmDue
    | HoldReleased
)

# --- orders --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenOnNode:
    """Have the node open the session, and report to the session that it is open."""

    configuration: bytes


@dataclass(frozen=True)
class AskWhatRuns:
    """Ask the node which processes of the session are running."""

    number: int


@dataclass(frozen=True)
class CloseOnNode:
    """Have the node end all processes of the session, if it holds the session."""

    held: bool


@dataclass(frozen=True)
class ReportEnd:
    """Report that all processes on the node are gone: the hold is replaced by another one."""

    reason: str


@dataclass(frozen=True)
class WakeIn:
    """Send :class:`AlarmDue` after some seconds."""

    seconds: float
    alarm: int


HoldOrder = (
    NodeCommand | OpenOnNode | AskWhatRuns | CloseOnNode | ReportToSession | ReportEnd | WakeIn
)


@dataclass(frozen=True)
class HoldPolicy:
    """The limits and the words of a hold.

    Attributes:
        returning: Seconds in which a node has to come back after the way to it did.
        patience: Seconds for which processes wait for an absent node; 0 for ever.
        name: Returns what users call the node.
        hint: Returns what users can do where the node is gone.
    """

    returning: float
    patience: float
    name: Callable[[], str]
    hint: Callable[[], str]


class NodeHold:
    """Decides on the processes of a session on one node.

    Args:
        configuration: What processes of the node receive.
        policy: The limits.

    Attributes:
        state: Where it is in its life.

    Example:
        >>> policy = HoldPolicy(15.0, 0.0, lambda: "oak", lambda: "start it again")
        >>> hold = NodeHold(b"", policy)
        >>> hold.step(KillOnNode(7))
        []
        >>> hold.step(NodeUsable())
        [OpenOnNode(configuration=b''), KillOnNode(pid=7)]
        >>> hold.step(NodeLost("no power"))
        [ReportEnd(reason='the node oak is gone: no power')]
        >>> hold.state.value
        'ended'
    """

    def __init__(self, configuration: bytes, policy: HoldPolicy) -> None:
        self.state = HoldState.ABSENT
        self._configuration = configuration
        self._policy = policy
        self._specs: dict[int, reports.ProcessSpec] = {}
        self._waiting: list[NodeCommand] = []
        self._alarm = self._alarms = self._resumes = 0
        self._orders: list[HoldOrder] = []
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            SpawnOnNode: self._spawn,
            KillOnNode: self._command,
            ConfigureOnNode: self._configure,
            NodeUsable: lambda _event: self._ready(),
            NodeLost: lambda event: self._gone(self._is_gone(event.reason)),
            NodeRemoved: self._removed,
            NodeGivenUp: self._given_up,
            ReportToSession: self._pass_on,
            ProcessesEnded: lambda event: self._gone(f"{self._name}: {event.reason}"),
            WayLost: self._cut_off,
            WayBack: self._way_back,
            CommandFailed: self._failed,
            FoundRunning: self._resumed,
            NothingFound: self._not_resumed,
            AlarmDue: self._time_up,
            HoldReleased: self._release,
        }

    def step(self, event: HoldInput) -> list[HoldOrder]:
        """Take one event and return what is to be done about it, in this order.

        Args:
            event: What happened.
        """
        invariant(not self._orders, "a step is over before the next one begins")
        try:
            self._handlers[type(event)](event)
            return self._orders
        finally:
            self._orders = []

    def check(self) -> None:
        """Check what always holds between two steps.

        Raises:
            InternalError: It does not.
        """
        which = f"the hold is {self.state.value}"
        over = self.state in _OVER
        invariant(not over or not self._waiting, f"{which}: no command waits")
        spawns = any(isinstance(one, SpawnOnNode) for one in self._waiting)
        invariant(self.state is not _S.OPEN or not spawns, f"{which}: processes were ordered")
        waits = self.state in {_S.ABSENT, _S.RETURNING}
        invariant(waits or not self._alarm, f"{which}: it waits for no time")
        invariant(self._alarm or self.state is not _S.RETURNING, f"{which}: not for ever")

    @property
    def _name(self) -> str:
        return self._policy.name()

    def _is_gone(self, reason: str) -> str:
        return f"the node {self._name} is gone: {reason}"

    def _advance(self, event: HoldEvent) -> bool:
        """Go to the next state if the event means something in this one; return whether."""
        if (self.state, event) not in HOLD_TRANSITIONS:
            return False
        self.state = HOLD_TRANSITIONS.after(self.state, event)
        self._alarm = 0
        if self.state in _OVER:
            self._waiting.clear()
        return True

    def _wake_in(self, seconds: float) -> None:
        self._alarms += 1
        self._alarm = self._alarms
        self._orders.append(WakeIn(seconds, self._alarm))

    # --- commands --------------------------------------------------------------------------------

    def _command(self, command: NodeCommand) -> None:
        if self.state is HoldState.OPEN:
            self._orders.append(command)
        elif self.state not in _OVER:
            self._waiting.append(command)

    def _send_waiting(self) -> None:
        self._orders += self._waiting
        self._waiting.clear()

    def _spawn(self, command: SpawnOnNode) -> None:
        self._specs |= {spec.rank: spec for spec in command.processes}
        if command.given_up:
            self._given_up(NodeGivenUp(command.given_up, command.is_over))
        self._command(command)
        waits = self.state is HoldState.ABSENT and not command.given_up and not self._alarm
        if waits and self._policy.patience:
            self._wake_in(self._policy.patience)

    def _configure(self, command: ConfigureOnNode) -> None:
        self._configuration = command.configuration
        if self.state is not HoldState.ABSENT:  # its opening brings the configuration
            self._command(command)

    def _failed(self, event: CommandFailed) -> None:
        """Give a command again that may be given twice, if it was lost with the way.

        Whether processes were started is found when the way is back.
        """
        request = event.request
        if event.away:
            if self.state in _OVER:
                return
            if isinstance(request, ConfigureOnNode):  # there may be a newer one
                self._waiting.append(ConfigureOnNode(self._configuration))
            elif isinstance(request, KillOnNode):
                self._waiting.append(request)
        elif not event.lost:
            self._gone(f"{self._name}: {event.reason}")

    # --- the node and the way to it --------------------------------------------------------------

    def _ready(self) -> None:
        if not self._advance(HoldEvent.READY):
            return
        if self.state is HoldState.OPEN:
            self._orders.append(OpenOnNode(self._configuration))
            self._send_waiting()
        else:
            self._resumes += 1
            self._orders.append(AskWhatRuns(self._resumes))

    def _cut_off(self, _event: WayLost) -> None:
        self._advance(HoldEvent.CUT_OFF)

    def _way_back(self, event: WayBack) -> None:
        if self._advance(HoldEvent.WAY_BACK) and not event.ready:
            self._wake_in(self._policy.returning)
        if event.ready and self.state is not HoldState.RESUMING:
            self._ready()

    def _resumed(self, event: FoundRunning) -> None:
        if event.number != self._resumes or not self._advance(HoldEvent.RESUMED):
            return
        ordered = [one for one in self._waiting if isinstance(one, SpawnOnNode)]
        known = {(spec.rank, spec.incarnation) for one in ordered for spec in one.processes}
        known |= {(one.rank, one.incarnation) for one in event.living}
        self._orders += map(ReportToSession, event.living)
        for spec in self._specs.values():
            if (spec.rank, spec.incarnation) not in known:
                gone = "it ended while the head was away"
                self._orders.append(
                    ReportToSession(reports.Exited(spec.rank, spec.incarnation, 0, 0, gone))
                )
        self._send_waiting()

    def _not_resumed(self, event: NothingFound) -> None:
        if event.number != self._resumes:
            return
        if not event.unreached:
            self._gone(f"{self._name}: {event.reason}")
        elif self._advance(HoldEvent.NOT_ANSWERED):
            self._wake_in(self._policy.returning)

    def _pass_on(self, event: ReportToSession) -> None:
        if self.state not in _OVER:
            self._orders.append(event)

    # --- losses ----------------------------------------------------------------------------------

    def _gone(self, reason: str) -> None:
        """All processes are gone: another hold takes the place of this one."""
        if self._advance(HoldEvent.GONE):
            self._orders.append(ReportEnd(reason))

    def _removed(self, event: NodeRemoved) -> None:
        if self.state in _HELD:
            self._gone(self._is_gone(event.reason))  # the next hold learns that it is given up
        else:
            self._given_up(NodeGivenUp(event.reason, event.is_over))

    def _given_up(self, event: NodeGivenUp) -> None:
        text = event.reason
        if not event.is_over:
            text = f"the node {self._name} is given up: {event.reason}"
        self._report_gone(text, may_return=False)

    def _report_gone(self, reason: str, *, may_return: bool) -> None:
        """Report that the processes cannot start."""
        if self.state is HoldState.CLOSED:
            return
        for spec in self._specs.values():
            failed = reports.SpawnFailed(
                spec.rank,
                spec.incarnation,
                reason,
                self._policy.hint(),
                machine_gone=True,
                may_return=may_return,
            )
            self._orders.append(ReportToSession(failed))

    def _time_up(self, event: AlarmDue) -> None:
        if event.alarm != self._alarm:
            return  # its state has changed since
        if self.state is HoldState.RETURNING:
            self._gone(f"the node {self._name} did not come back to its head")
            return
        seconds = self._policy.patience
        what = f"the node {self._name} did not come back within {seconds:g} s"
        self._report_gone(what, may_return=True)
        self._wake_in(seconds)

    def _release(self, _event: HoldReleased) -> None:
        held = self.state in _HELD
        if self._advance(HoldEvent.RELEASED):
            self._orders.append(CloseOnNode(held))


_OVER = frozenset({HoldState.ENDED, HoldState.CLOSED})
