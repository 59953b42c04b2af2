"""Invitations of a session, without the session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.nodes.invitations import Invitations

pytestmark = pytest.mark.row("C3-AGENT")


def test_those_by_a_revoked_credential_end_with_their_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[tuple[list[int], str]] = []
    session: Any = SimpleNamespace(
        host=SimpleNamespace(contract=lambda *given: removed.append(given)),
        requests=SimpleNamespace(serve=lambda *_: None),
        subscribe=lambda _told: None,
        call=lambda do, *given: do(*given),
    )
    monkeypatch.setattr(Invitations, "_open", lambda *_: None)
    made = Invitations(session, "127.0.0.1:0", 9, "night")
    for by in (("aa", "bb"), ("aa", "bb"), ("aa",), ()):
        made.create(1, 60.0, "", by)
    for rank, record in enumerate(made._store.list()):
        if rank:  # no agent has joined by the first
            found = made._agents[rank] = made._of(record.id)
            found.rank = rank
    made.deny(frozenset({"bb", "cc"}))
    assert [one.revoked for one in made._store.list()] == [True, True, False, False]
    assert removed == [([1], "the credential of who invited it was revoked")]
    assert next(one.state for one in made.current()) == "revoked"
