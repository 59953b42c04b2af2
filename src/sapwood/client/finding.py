"""How sessions are found: by their head, or on this machine by what their root has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ConfigurationError,
    NodeLostError,
    NotReadyError,
)
from sapwood.core.hints import command
from sapwood.session.session_life import SessionState

if TYPE_CHECKING:
    from sapwood.contexts.launchers.allocation import WaitCallback
    from sapwood.head.session_records import SessionRecord
    from sapwood.head_client.connection import ServiceClient

T = TypeVar("T")

LOOK: Final = 0.5
"""Seconds between two looks at a session that has not begun yet."""

CREATE_TIMEOUT: Final = 150.0
"""Seconds in which a session that is made must be ready, or wait for its machines."""

CALL_TIMEOUT: Final = 30.0
"""Seconds in which a head answers."""


def find_root(handle: str, cluster: str) -> tuple[str, str, str]:
    """Return where the root of a session listens, and its id and name.

    Raises:
        ConfigurationError: There is no such session, or its head is on another machine.
        NotReadyError: It has not begun yet.
        ClosedError: It has ended.
    """
    if "://" in cluster:
        shown = command("session", "credential", handle, cluster=cluster)
        raise ConfigurationError(
            f"a session at a head on another machine is named by its credential, not as '{handle}'",
            where=cluster,
            hint=f"give the line that {shown} prints",
        )
    from sapwood.head.parts.sessions import Sessions  # noqa: PLC0415 - cryptography is not needed
    from sapwood.head.session_notices import notices  # noqa: PLC0415 - as above
    from sapwood.head.watched import started  # noqa: PLC0415 - as above

    try:
        record = head_here(cluster).call_once(CALL_TIMEOUT, Sessions.find, handle)
    except (NodeLostError, CommunicationError):
        name, _, number = handle.rpartition("#")
        for one in notices(cluster):  # the head is down: sessions continue without it
            same = number == one.id if name else number in {one.name, one.id}
            if same and started(one.pid) == one.started:
                if one.ready:
                    return one.socket, one.id, one.name
                raise NotReadyError(
                    f"the session '{one.name}#{one.id}' waits still, and its head is gone",
                    hint=f"{command('up', cluster=cluster)} starts the head again",
                ) from None
        raise
    must_be_there(record)
    return record.socket, record.id, record.name


def must_be_there(record: SessionRecord) -> None:
    """Refuse a session that no client can attach to.

    Raises:
        NotReadyError: It has not begun yet.
        ClosedError: It has ended.
    """
    if SessionState(record.state).is_over:
        raise ClosedError(
            f"the session '{record.handle}' has ended: {record.reason}",
            hint="`sapwood session create` makes a new one",
        )
    if not record.socket:
        waits = "" if record.report is None else record.report.waits
        raise NotReadyError(
            f"the session '{record.handle}' "
            + (f"waits for its machines: {waits}" if waits else f"is still {record.state}"),
            hint="retry in a few seconds; it starts automatically",
        )


def once_there(find: Callable[[], T], on_wait: WaitCallback | None) -> T:
    """Return what is found of a session as soon as it has begun.

    Args:
        find: Finds it, or raises a ``NotReadyError``.
        on_wait: Told what it waits for, and since how many seconds.

    Raises:
        SapwoodError: It will not begin.
    """
    began = time.monotonic()
    pause = threading.Event()
    while True:
        try:
            return find()
        except NotReadyError as error:
            if on_wait is not None:
                on_wait(error.what, time.monotonic() - began)
        pause.wait(LOOK)


def head_here(cluster: str) -> ServiceClient:
    """Connect to a head on this machine.

    Raises:
        NodeLostError: No such head is up here.
    """
    from sapwood.head.folder import find_head  # noqa: PLC0415 - as in find_root
    from sapwood.head_client import connection  # noqa: PLC0415 - as in find_root

    return connection.ServiceClient(connection.UnixWay(find_head(cluster).socket, cluster))
