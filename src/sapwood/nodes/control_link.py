"""The link of a node with its head, and the certificate that it shows there: two components."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.link import LinkState
from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.loop import Timer
from sapwood.core import typed
from sapwood.core.clock import Clock, MonotonicClock
from sapwood.core.failures import log_loop_failure
from sapwood.core.topology import ROOT
from sapwood.environment.component import ComponentContext, ComponentEvent
from sapwood.environment.lifecycle import State
from sapwood.environment.logs import logger
from sapwood.nodes import messages
from sapwood.nodes.head_way import HeadWay
from sapwood.nodes.joining import Joined
from sapwood.security.authority import make_request, valid_until
from sapwood.session.agent import Agent, IncomingRequest
from sapwood.session.member import MemberConfiguration
from sapwood.session.shared_reactor import SharedReactor

RENEW_AFTER = 2 / 3
"""Part of a certificate's life after which it is renewed."""

RENEW_PAUSE = 5.0
"""Seconds until a head that gave no certificate is asked again."""

FIRST_LINK = 5.0
"""Seconds for which a link that never was there counts as starting."""

RENEWED = "certificate.renewed"
"""Topic: the node shows another certificate from now on."""

JOINED = "link.joined"
"""Topic: the node has joined the head again, and shows the certificate that it got then."""

_log = logger("nodes")


class ControlLink:
    """The place of this machine in the control tree, and the link with the head.

    It is degraded without a link, while the daemon looks for the head.

    Args:
        joined: Its place in the cluster.
        patience: Seconds for which it looks for its place when the link is gone; by default what
            the head says.
        serve: Answers requests of the head.
        way: How the launcher leads connections to the head; None if it does not.

    Attributes:
        agent: The place.
        credentials: What this machine shows.
        heartbeat: Seconds between two looks at what may be silent.
        way: See above.
        linked: Whether what is asked of the head may reach it.
    """

    name = "link"

    def __init__(
        self,
        joined: Joined,
        patience: float | None,
        serve: Callable[[str, IncomingRequest], None],
        way: HeadWay | None = None,
    ) -> None:
        self.way = way
        self.loop = SharedReactor(partial(log_loop_failure, "the node"))
        self.linked = False
        self._patience = patience
        self._serve = serve
        self._names: tuple[str, ...] = ()
        self._clock: Clock = MonotonicClock()
        self._since = 0.0
        self._was_up = False
        self._publish: Callable[[str, Any], None] = _tell_nobody
        self.take_place(joined)

    def take_place(self, joined: Joined) -> None:
        """Get ready for a link with the head."""
        self.credentials = joined.credentials
        answer = joined.answer
        configuration = typed.unpacker(MemberConfiguration)(answer.configuration)
        timing = configuration.timing
        found = configuration.addresses
        if self._patience is not None:
            timing = msgspec.structs.replace(timing, give_up_after=self._patience)
        local = msgspec.structs.replace(
            configuration,
            timing=timing,
            folder="",  # a leaf listens nowhere
            host=answer.rank,
            addresses=self.way.added_to(found) if self.way else found,
            credentials=joined.credentials,
        )
        self.heartbeat = configuration.timing.heartbeat
        self.agent = Agent(local, answer.rank, answer.incarnation, self.loop)
        self.answer(self._names)
        self._publish(JOINED, None)

    def answer(self, names: tuple[str, ...]) -> None:
        """Have requests of these names served."""
        self._names = names
        self.agent.requests |= {name: partial(self._serve, name) for name in names}

    def run(self) -> None:
        """Run the loop until the head is gone or the loop is stopped."""
        self.linked = True
        _log.info("node joined", certificate=self.credentials.node)
        try:
            self.agent.run()
        finally:
            self.linked = False

    def ask(
        self, handler: str, body: Any, answered: Callable[[ev.Answered], None] | None = None
    ) -> None:
        """Ask the head something; a value is encoded here."""
        encoded = plain.encode(body)
        if answered is None:
            self.agent.ask(ROOT, handler, encoded)
        else:
            self.agent.ask(ROOT, handler, encoded, answered)

    def figures(self) -> LinkFigures | None:
        """Return what is known of the link; None while there is none."""
        return next(iter(self.agent.driver.figures()), None)

    # --- as a component ------------------------------------------------------------------------

    def start(self, context: ComponentContext) -> None:
        """Count from now how long the first link takes."""
        self._publish = context.publish
        self._clock = context.clock
        self._since = self._clock.now()

    def check(self) -> State:
        """Return READY while there is a link."""
        found = self.figures() if self.linked else None
        if found is not None and found.state == LinkState.UP.value:
            self._was_up = True
            return State.READY
        late = self._clock.now() - self._since > FIRST_LINK
        return State.DEGRADED if self._was_up or late else State.STARTING

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing: the daemon tells the head of events."""

    def stop(self) -> None:
        """End the link; what :meth:`run` is for is over with it."""
        self.agent.driver.close()
        if self.linked:
            self.loop.stop()


class CertificateRenewal:
    """Has the node's certificate renewed before it ends; the sessions here show the new one.

    Args:
        link: The link with the head.
    """

    name = "certificate"

    def __init__(self, link: ControlLink) -> None:
        self._link = link
        self._timer: Timer | None = None
        self._end = 0.0
        self._runs = False
        self._publish: Callable[[str, Any], None] = _tell_nobody

    def start(self, context: ComponentContext) -> None:
        """Plan the next renewal."""
        self._runs = True
        self._publish = context.publish
        self._plan()

    def check(self) -> State:
        """Return DEGRADED when the certificate has ended."""
        return State.READY if time.time() < self._end else State.DEGRADED

    def receive(self, event: ComponentEvent) -> None:
        """Plan the next renewal of another certificate."""
        if event.topic == JOINED:
            self._plan()

    def stop(self) -> None:
        """Renew no more."""
        self._runs = False
        self._cancel()

    def _plan(self) -> None:
        """Have the certificate of now renewed in time."""
        self._end = valid_until(self._link.credentials.certificate)
        self._later(max(self._end - time.time(), 0.0) * RENEW_AFTER)

    def _later(self, seconds: float) -> None:
        self._cancel()
        if self._runs:
            self._timer = self._link.loop.call_later(seconds, self._renew)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _renew(self) -> None:
        """Ask for another certificate, over the link that there is."""
        if not self._link.linked:
            self._later(self._link.heartbeat)
            return
        self._timer = None
        key, request = make_request()
        self._link.ask(messages.RENEW, request, partial(self._renewed, key))

    def _renewed(self, key: bytes, answer: ev.Answered) -> None:
        if answer.error is not None or answer.payload is not None:
            _log.warning("certificate not renewed", again_in=RENEW_PAUSE)
            self._later(RENEW_PAUSE)
            return
        link, certificate = self._link, bytes(plain.decode(answer.body))
        link.credentials = msgspec.structs.replace(
            link.credentials, certificate=certificate, key=key
        )
        link.agent.renew(link.credentials)
        _log.info("certificate renewed", until=round(valid_until(certificate)))
        self._plan()
        self._publish(RENEWED, None)


def _tell_nobody(_topic: str, _value: Any) -> None:
    pass
