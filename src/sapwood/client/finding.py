"""How sessions on this machine are found: by their head, or by what their root has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from sapwood.activity.dashboard_page import DashboardPage
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ConfigurationError,
    NodeLostError,
    SapwoodError,
)
from sapwood.session.port import SessionState

if TYPE_CHECKING:
    from sapwood.head.calls import SessionRecord

T = TypeVar("T")

CALL_TIMEOUT: Final = 30.0
"""Seconds in which a head answers."""


def find_root(handle: str, cluster: str) -> tuple[str, str, str]:
    """Return where the root of a session listens, and its id and name.

    Raises:
        ConfigurationError: There is no such session.
        ClosedError: It has ended.
    """
    from sapwood.head import calls  # noqa: PLC0415 - on one machine nobody needs cryptography
    from sapwood.head.session_notices import notices  # noqa: PLC0415 - as above
    from sapwood.head.watched import started  # noqa: PLC0415 - as above

    try:
        record = asked(cluster, calls.FIND_SESSION, handle)
    except (NodeLostError, CommunicationError):
        name, _, number = handle.rpartition("#")
        for one in notices(cluster):  # there is no head: a session goes on without
            same = number == one.id if name else number in {one.name, one.id}
            if same and one.ready and started(one.pid) == one.started:
                return one.socket, one.id, one.name
        raise
    if SessionState(record.state).is_over:
        raise ClosedError(
            f"the session '{record.handle}' has ended: {record.reason}",
            hint="`sapwood session create` makes a new one",
        )
    if not record.socket:
        raise ConfigurationError(
            f"the session '{record.handle}' is {record.state} still", hint="try again soon"
        )
    return record.socket, record.id, record.name


def page_of(cluster: str, page: str) -> DashboardPage:
    """Return a page of the dashboard of a head on this machine; none if it is not there."""
    from sapwood.head import calls  # noqa: PLC0415 - on one machine nobody needs cryptography

    try:
        facts = _called(cluster, calls.HELLO, None, CALL_TIMEOUT, calls.HeadFacts)
    except SapwoodError:
        return DashboardPage()
    return DashboardPage.at(facts.urls, page, cluster)


def asked(cluster: str, name: str, value: Any, timeout: float = CALL_TIMEOUT) -> SessionRecord:
    """Call a head on this machine, which answers with a session.

    Raises:
        NodeLostError: No such head is up here.
        SapwoodError: What the head says.
    """
    from sapwood.head import calls  # noqa: PLC0415 - on one machine nobody needs cryptography

    return _called(cluster, name, value, timeout, calls.SessionRecord)


def _called(cluster: str, name: str, value: Any, timeout: float, kind: type[T]) -> T:
    from sapwood.head.folder import find_head  # noqa: PLC0415 - as above
    from sapwood.head.service import ServiceClient, UnixWay  # noqa: PLC0415 - as above

    client = ServiceClient(UnixWay(find_head(cluster).socket))
    try:
        return typed.convert(client.call(name, value, timeout), kind)
    finally:
        client.close()
