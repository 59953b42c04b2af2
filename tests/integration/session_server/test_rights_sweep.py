"""Every call of a session's root in every role, as the table of the roots says."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from sapwood.core.errors import SapwoodError, SecurityError
from sapwood.environment.settings import Settings
from sapwood.session_server import session_calls
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.rights import (
    ALL,
    NEED_OF_CALL,
    Allowed,
    CallNeed,
    ClientRole,
    require_call,
)
from sapwood_simulation.local_session_server import attach_here, local_session_server

PATIENCE = 30.0

CALLS = {
    value
    for name, value in vars(session_calls).items()
    if name.isupper() and isinstance(value, str) and not name.startswith("_")
}

MAY_MAKE = {
    CallNeed.ATTACHED: {"owner", "user", "watch", "merge"},
    CallNeed.CONTENT: {"owner", "user", "merge"},
    CallNeed.WORKING: {"owner", "user"},
    CallNeed.INVITING: {"owner", "user", "watch", "merge"},
    CallNeed.OWNING: {"owner", "user"},
    CallNeed.OWNER: {"owner"},
}
"""The roles of clients with a credential that lets them be all of them."""


def is_allowed(call: str, role: ClientRole | None, allowed: Allowed = ALL) -> bool:
    try:
        require_call(call, role, allowed)
    except SecurityError:
        return False
    return True


def test_each_call_is_in_the_table() -> None:
    assert NEED_OF_CALL.keys() == CALLS


@pytest.mark.parametrize("role", ClientRole)
def test_the_table(role: ClientRole) -> None:
    for call, need in NEED_OF_CALL.items():
        assert is_allowed(call, role) == (role.value in MAY_MAKE[need]), call


def test_who_may_not_own_a_session_changes_nothing_of_it() -> None:
    users = Allowed(frozenset({ClientRole.WATCHER, ClientRole.USER}))
    refused = {call for call in CALLS if not is_allowed(call, ClientRole.USER, users)}
    assert refused == {
        call
        for call, need in NEED_OF_CALL.items()
        if need in {CallNeed.INVITING, CallNeed.OWNING, CallNeed.OWNER}
    }


def test_every_call_in_every_role() -> None:
    """A real root refuses a call from a role that may not make it, with any value."""
    ends = {session_calls.END, session_calls.DETACH}
    with local_session_server(Settings(), agents=1) as address:
        for role in (ClientRole.OWNER, ClientRole.USER, ClientRole.WATCHER):
            with attach_here(address, Settings(), role) as cluster:
                session = cluster.session
                assert isinstance(session, AttachedSession)
                wrong: list[Any] = []
                for call in sorted(CALLS - ends):
                    error: BaseException | None = None
                    with contextlib.suppress(SapwoodError):
                        error = session.link.ask(call, None).exception(PATIENCE)
                    if isinstance(error, SecurityError) == is_allowed(call, role):
                        wrong.append((role, call, error))
                assert not wrong


def test_a_watcher_sends_no_events() -> None:
    with (
        local_session_server(Settings(), agents=1) as address,
        attach_here(address, Settings(), ClientRole.WATCHER) as cluster,
        pytest.raises(SapwoodError, match="watches"),
    ):
        cluster.submit(pow, 2, 10).result(PATIENCE)
