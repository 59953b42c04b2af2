"""Machines that join get an answer, whatever goes wrong at the desk or on the answer's way."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from sapwood.core.errors import CommunicationError, InternalError, SecurityError
from sapwood.environment.settings import NodeSettings, RestartSettings
from sapwood.lifecycle import machine_events as mev
from sapwood.nodes.join_desk import JoinDesk, JoinPolicy
from sapwood.nodes.joining import JoinAnswer, JoinRequest
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.authority import Authority, make_request
from sapwood.security.invitations import NODES, Invitation, InvitationStore


class Desk:
    """A desk with the parts that it uses, on this thread.

    Attributes:
        asked: What it asked the life cycle of machines.
        refusal: What the life cycle raises instead of admitting a machine.
        waiting: Redemptions that are under way; run with :meth:`redeem`. None: they run at once.
    """

    def __init__(self) -> None:
        self.authority = Authority.create("grove")
        self.tokens = InvitationStore(NODES, self.authority.pin, time.time)
        self.asked: list[mev.JoinAsked] = []
        self.refusal: Exception | None = None
        self.waiting: list[Callable[[], None]] | None = None
        self.denied: set[str] = set()
        machines = SimpleNamespace(
            join=self._join,
            post=lambda _event: None,
            configuration_of=lambda _rank: b"",
            life=SimpleNamespace(must_wait=lambda _name: False),
        )
        record = SimpleNamespace(admitted=lambda *_: None)
        registry = SimpleNamespace(of=lambda _rank: record, name_of=lambda rank: f"m{rank}")
        issuer = SimpleNamespace(
            check=lambda: None, sign=self.authority.sign, authority=self.authority, spare=60.0
        )
        policy = JoinPolicy(NodeSettings(), RestartSettings(), 0, self.denied.__contains__)
        self.desk = JoinDesk(
            cast("Any", machines),
            cast("Any", registry),
            cast("Any", issuer),
            self.tokens,
            policy,
            lambda *_event, **_facts: None,
            lambda _seconds, function, *args: function(*args),
            self._off_loop,
        )

    def _join(self, asked: mev.JoinAsked) -> mev.Admit:
        self.asked.append(asked)
        if self.refusal is not None:
            raise self.refusal
        return mev.Admit(rank=7, incarnation=len(self.asked), replaces=False)

    def _off_loop(self, _name: str, function: Callable[..., None], *args: Any) -> None:
        if self.waiting is None:
            function(*args)
        else:
            self.waiting.append(lambda: function(*args))

    def admit(self, request: JoinRequest) -> Future[JoinAnswer]:
        return self.desk.admit(request, "", "10.0.0.7")


def request_of(token: Invitation, name: str = "gpu1", csr: bytes | None = None) -> JoinRequest:
    facts = msgspec.structs.replace(
        NodeFacts.here(name), python=platform.python_version(), clock=time.time()
    )
    return JoinRequest(token.text, csr or make_request()[1], facts)


# --- answers that are lost ------------------------------------------------------------------------


def test_a_machine_whose_answer_was_lost_becomes_the_same_node() -> None:
    made = Desk()
    token = made.tokens.create()
    request = request_of(token)
    first = made.admit(request).result(0.0)
    again = made.admit(request).result(0.0)
    assert first.node == again.node == "n7.grove"
    assert [(one.name, one.node) for one in made.asked] == [("gpu1", ""), ("gpu1", "n7.grove")]
    assert made.tokens.list() == []


@pytest.mark.parametrize("other", ["name", "key", "secret"])
def test_a_used_token_is_valid_for_no_other_machine(other: str) -> None:
    made = Desk()
    token = made.tokens.create()
    request = request_of(token)
    made.admit(request).result(0.0)
    if other == "name":
        request = request_of(token, "gpu2", request.request)
    elif other == "key":
        request = request_of(token)
    else:
        guess = NODES.create(token.pin)
        request = request_of(
            Invitation(NODES, token.id, guess.secret, token.pin), csr=request.request
        )
    with pytest.raises(SecurityError, match="was used before, or revoked"):
        made.admit(request).result(0.0)
    assert len(made.asked) == 1


def test_a_machine_that_asks_again_uses_a_token_for_several_once() -> None:
    made = Desk()
    token = made.tokens.create(uses=3)
    request = request_of(token)
    for _ in range(4):
        made.admit(request).result(0.0)
    assert [one.uses for one in made.tokens.list()] == [2]


def test_a_machine_that_is_put_off_after_its_token_was_redeemed_may_ask_again() -> None:
    made = Desk()
    request = request_of(made.tokens.create(slot=7))
    made.refusal = CommunicationError("the node is not known to be gone yet")
    with pytest.raises(CommunicationError):
        made.admit(request).result(0.0)
    made.refusal = None
    assert made.admit(request).result(0.0).node == "n7.grove"
    assert [one.slot for one in made.asked] == [7, 7]


def test_a_machine_that_asks_while_its_token_is_being_redeemed_is_put_off() -> None:
    made = Desk()
    made.waiting = []
    request = request_of(made.tokens.create())
    first = made.admit(request)
    with pytest.raises(CommunicationError, match="still in progress"):
        made.admit(request).result(0.0)
    made.waiting.pop()()
    assert first.result(0.0).node == "n7.grove"
    assert made.admit(request).result(0.0).node == "n7.grove"


def test_a_token_that_could_not_be_redeemed_is_still_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Desk()
    request = request_of(made.tokens.create())

    def away(_token: Invitation, _name: str) -> None:
        raise CommunicationError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(made.tokens, "redeem", away)
        with pytest.raises(CommunicationError, match="the store is away"):
            made.admit(request).result(0.0)
    assert made.admit(request).result(0.0).node == "n7.grove"


def test_a_used_token_ends_when_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Desk()
    request = request_of(made.tokens.create(lifetime=60.0))
    made.admit(request).result(0.0)
    later = time.time() + 61.0
    facts = msgspec.structs.replace(request.facts, clock=later)
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(SecurityError, match="was used before, or revoked"):
        made.admit(msgspec.structs.replace(request, facts=facts)).result(0.0)


def test_a_used_token_that_is_revoked_admits_nobody() -> None:
    made = Desk()
    token = made.tokens.create()
    request = request_of(token)
    made.admit(request).result(0.0)
    made.desk.revoke_token(token.id)
    with pytest.raises(SecurityError, match="was used before, or revoked"):
        made.admit(request).result(0.0)


def test_a_removed_node_does_not_return_by_its_token() -> None:
    made = Desk()
    request = request_of(made.tokens.create())
    made.denied.add(made.admit(request).result(0.0).node)
    with pytest.raises(SecurityError, match="the node was removed"):
        made.admit(request).result(0.0)


def test_a_refusal_names_the_machines_that_used_the_token() -> None:
    made = Desk()
    token = made.tokens.create(uses=2)
    for name in ("gpu1", "gpu2"):
        made.admit(request_of(token, name)).result(0.0)
    made.admit(request_of(token, "gpu3"))
    (refused,) = made.desk.refusals
    assert refused.reason == "the join token was used before, or revoked; it let in gpu[1-2]"


# --- what is not expected -------------------------------------------------------------------------


def test_a_store_that_fails_unexpectedly_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Desk()

    def redeem(_token: Invitation, _name: str) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(made.tokens, "redeem", redeem)
    error = made.admit(request_of(made.tokens.create())).exception(0.0)
    assert isinstance(error, InternalError)
    assert "the disk is gone" in error.what
    (refused,) = made.desk.refusals
    assert (refused.name, refused.address) == ("gpu1", "10.0.0.7")


def test_a_machine_that_cannot_be_admitted_after_all_gets_an_answer() -> None:
    made = Desk()
    made.refusal = AttributeError("a part of the desk is not there")
    error = made.admit(request_of(made.tokens.create())).exception(0.0)
    assert isinstance(error, InternalError)
    assert "AttributeError" in error.what
