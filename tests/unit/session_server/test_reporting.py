"""What a root tells its head, and hears from it, by a head of the test's own."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sapwood.core.errors import ClosedError, CommunicationError, ProtocolError
from sapwood.head import calls, session_records
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.policy import Policy, PolicyRow
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol.call import HeadCall
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.session_server import reporting
from sapwood.session_server.reporting import HeadReports

REPORT = session_records.SessionReport(id="5b9a", state="ready")


class StandIn:
    """Is asked in the place of a head."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.came = threading.Condition()
        self.denied = DenialUpdate(since=0, epoch=1, ids=["aa"], generation=1)
        self.policy: list[PolicyRow] = []
        self.errors: list[Exception] = []
        self.wants: bool | None = None
        self.tell: Callable[[str, Any], None] = print
        self.connections = 0

    def connect(self, _way: object, noticed: Any, _ended: object) -> StandIn:
        self.tell = noticed
        self.connections += 1
        return self

    def call_within(self, _timeout: float, call: HeadCall[..., Any], *args: Any) -> Any:
        with self.came:
            self.asked.append((call.name, args[0] if args else None))
            self.came.notify_all()
        if call is IssuedCredentials.denials:
            return self.denied
        if call is Policy.rows:
            return self.policy
        if self.errors:
            raise self.errors.pop(0)
        return self.wants if call is Sessions.report else None

    def close(self) -> None:
        """Nothing is open."""

    def wait_for(self, name: str, count: int = 1) -> list[Any]:
        def found() -> list[Any]:
            return [value for asked, value in self.asked if asked == name]

        with self.came:
            assert self.came.wait_for(lambda: len(found()) >= count, 30.0), f"no {name}"
        return found()


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()

    class Info:
        socket = "nowhere"

    monkeypatch.setattr(reporting, "find_head", lambda _name: Info())
    monkeypatch.setattr(reporting, "ServiceClient", made.connect)
    monkeypatch.setattr(reporting, "PAUSE", 0.01)
    return made


def begun(
    denials: Denials,
    disowned: Callable[[str], None] = print,
    policy: Callable[[list[PolicyRow]], None] = print,
) -> HeadReports:
    made = HeadReports("default", lambda _client: math.inf, denials, disowned, policy)
    made.start()
    return made


@pytest.mark.row("C5-CRED")
def test_a_root_hears_what_was_revoked_also_what_it_has_missed(head: StandIn) -> None:
    denials = Denials()
    reports = begun(denials)
    try:
        head.wait_for(IssuedCredentials.denials.name)
        update = DenialUpdate(since=1, epoch=2, ids=["bb"], generation=1)
        head.tell("nodes", [])  # which is not for it
        head.tell(calls.DENIED, {"malformed": 1})
        reports.tell(REPORT)
        head.wait_for(Sessions.report.name)
        assert "aa" in denials
        head.tell(calls.DENIED, msgspec.to_builtins(update))
        assert "bb" in denials, "at once, by whoever hears it"
        head.denied = DenialUpdate(since=0, epoch=4, ids=["aa", "bb", "cc", "dd"], generation=1)
        head.tell(
            calls.DENIED,
            msgspec.to_builtins(DenialUpdate(since=3, epoch=4, ids=["dd"], generation=1)),
        )
        assert "dd" in denials
        head.wait_for(IssuedCredentials.denials.name, 2)
        reports.refused(
            session_records.ClientRefused(session="5b9a", reason="why", credential="dd")
        )
        (told,) = head.wait_for(Sessions.report_refused.name)
        assert (told.reason, told.credential) == ("why", "dd")
        assert "cc" in denials
    finally:
        reports.close()


@pytest.mark.row("C4-POLICY")
def test_a_root_hears_the_policy_of_each_head_and_after_each_change(head: StandIn) -> None:
    row = PolicyRow(key="idle.session", value="5.0", origin="", expected="", about="")
    told: list[list[PolicyRow]] = []
    reports = begun(Denials(), policy=told.append)
    try:
        head.wait_for(Policy.rows.name)
        head.policy = [row]
        head.tell(calls.POLICY_CHANGED, [])
        head.wait_for(Policy.rows.name, 2)
    finally:
        reports.close()
    assert told == [[], [row]]


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ZeroDivisionError("a mistake"), logging.ERROR),
        (ProtocolError("no such state"), logging.WARNING),
        (CommunicationError("gone"), logging.DEBUG),
    ],
)
def test_whatever_goes_wrong_the_head_is_told_again_and_the_log_says_why(
    head: StandIn, error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    head.errors = [error]
    with caplog.at_level(logging.DEBUG, "sapwood"):
        reports = begun(Denials())
        try:
            reports.tell(REPORT)
            assert head.wait_for(Sessions.report.name, 2)[1].state == "ready"
        finally:
            reports.close()
    assert level in {one.levelno for one in caplog.records if one.name.endswith("session")}
    assert head.connections == 2


@pytest.mark.row("C3-SESS-1")
@pytest.mark.parametrize("wants", [True, False, None])
def test_a_root_ends_when_its_head_has_its_session_as_ended(
    head: StandIn, wants: bool | None
) -> None:
    """It could not be found; a head of an older version answers nothing, and keeps it."""
    head.wants = wants
    why: list[str] = []
    reports = begun(Denials(), why.append)
    reports.tell(REPORT)
    head.wait_for(Sessions.report.name)
    reports.close()
    assert why == (["its head has it as ended"] if wants is False else [])


@pytest.mark.row("C3-SESS-1")
def test_the_last_report_arrives_though_the_session_ends_while_it_is_announced(
    head: StandIn,
) -> None:
    announced, ending = threading.Event(), threading.Event()

    def announce(_client: object) -> float:
        announced.set()
        assert ending.wait(30.0)
        raise ClosedError("the loop of the session has ended")

    reports = HeadReports("default", announce, Denials(), print, print)
    reports.start()
    assert announced.wait(30.0)
    reports.tell(REPORT)
    closing = threading.Thread(target=reports.close)
    closing.start()
    while closing.is_alive() and not reports.is_closed:
        closing.join(0.001)
    ending.set()
    closing.join(30.0)
    assert head.wait_for(Sessions.report.name) == [REPORT]
