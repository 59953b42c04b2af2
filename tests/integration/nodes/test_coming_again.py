"""Nodes that come again by their certificates to a head that did not know them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.core.errors import CommunicationError, SecurityError
from sapwood.lifecycle import events as lev
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree
from sapwood.nodes.joining import JoinAnswer, JoinRequest
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.authority import Authority, make_request
from sapwood.security.invitations import NODES, InvitationStore
from sapwood.session_server.making import session_options, site_variables

from .conftest import QUICK

SETTINGS = msgspec.structs.replace(
    QUICK, nodes=msgspec.structs.replace(QUICK.nodes, listen="127.0.0.1:0")
)


@pytest.fixture
def second() -> Iterator[ControlTree]:
    """The second head of a cluster, whose first one had let nodes in."""
    authority = Authority.create("grove")
    base = session_options(SETTINGS, site_variables(SETTINGS))
    tokens = InvitationStore(NODES, authority.pin, time.time)
    made = ControlTree(None, base, SETTINGS.nodes, authority, tokens, 2)
    made.start()
    yield made
    made.close()


def ask(control: ControlTree, peer: str, request: bytes | None = None) -> JoinAnswer:
    """Ask as the machine that has the certificate of a node."""
    wanted = JoinRequest("", make_request()[1] if request is None else request, NodeFacts.here("a"))
    answer = control.session._thread.call(control.desk.admit, wanted, peer, "10.0.0.9:7")
    return answer.result(0)


def test_a_node_keeps_its_id(second: ControlTree) -> None:
    """So denying one id denies all certificates that the node ever got."""
    assert ask(second, "n7-1.grove").node == "n7-1.grove"


def test_a_certificate_is_for_one_place(second: ControlTree) -> None:
    """A node that asks again and again gets no second one."""
    ask(second, "n7-1.grove")
    with pytest.raises(CommunicationError, match="not known to be gone"):
        ask(second, "n7-1.grove")
    assert len(second.nodes) == 1


def test_a_node_whose_answer_got_lost_asks_again(
    second: ControlTree, until: Callable[[Callable[[], object]], None]
) -> None:
    """It gets its place, which no process took; earlier answers are void."""
    first = ask(second, "n7-1.grove")
    found: list[JoinAnswer] = []

    def is_let_in() -> bool:
        with contextlib.suppress(CommunicationError):
            found.append(ask(second, "n7-1.grove"))
        return bool(found)

    until(is_let_in)
    assert (found[0].rank, found[0].incarnation) == (first.rank, first.incarnation + 1)
    assert len(second.nodes) == 1


def test_a_request_that_is_refused_takes_no_place(second: ControlTree) -> None:
    with pytest.raises(SecurityError, match="malformed"):
        ask(second, "n7-1.grove", b"none")
    assert not second.nodes


@pytest.mark.parametrize("peer", ["", "f1-1.grove", "head.grove"])
def test_strangers_get_nothing_signed(
    second: ControlTree, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signature costs the head's loop time, and a stranger may ask as often as it likes."""
    signed: list[bytes] = []
    monkeypatch.setattr(second.authority, "sign", lambda request, *_: signed.append(request))
    with pytest.raises(SecurityError, match="join token"):
        ask(second, peer)
    assert signed == []


@pytest.mark.parametrize("body", ["text", 2**40, -1, None, [1], b"x" * 20_000, b"no request"])
@pytest.mark.parametrize("handler", [messages.RENEW, messages.CERTIFY_PLACES])
def test_whatever_a_node_asks_the_head_goes_on(
    second: ControlTree, handler: str, body: object
) -> None:
    """A number once was how many bytes the head took; whatever was raised cut off all nodes."""
    rank = ask(second, "n7-1.grove").rank
    answers: list[ev.Answer] = []
    requests, thread = second.session.requests, second.session._thread

    def asked() -> None:
        requests._post, before = answers.append, requests._post  # type: ignore[assignment]
        try:
            requests.asked(ev.Asked(rank, handler, 5, plain.encode(body), None))
        finally:
            requests._post = before

    thread.call(asked)
    (answer,) = answers
    assert answer.error is not None
    assert answer.error.code in {"SW401", "SW600"}
    assert ask(second, "n8-1.grove").node == "n8-1.grove"  # the head continues


@pytest.mark.parametrize("peer", ["", "f1-1.grove", "head.grove", "n.grove", "n1-1-1-1.grove"])
def test_certificates_of_others_make_no_nodes(second: ControlTree, peer: str) -> None:
    with pytest.raises(SecurityError, match="needs a join token"):
        ask(second, peer)


def test_a_node_that_was_lost_too_often_gets_another_place(second: ControlTree) -> None:
    """A node that is given up and comes again is treated like a new one."""
    first = ask(second, "n7-1.grove")
    places = second.session.supervisor.processes

    def lose_for_good() -> None:
        record = places[first.rank]
        record.failures = 10**6  # its restarts are used up
        second.session.supervisor.post(lev.Restart(first.rank, record.incarnation, "it ended"))

    second.session._thread.call(lose_for_good)
    again = ask(second, "n7-1.grove")
    assert (again.node, again.name) == (first.node, first.name)
    assert again.rank > first.rank
    assert [view.host for view in second.nodes] == [again.rank]
    assert places[first.rank].state.value == "left"
