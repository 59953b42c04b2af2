"""Letters that somebody else exchanged are counted as if they had gone the common way."""

from __future__ import annotations

import pytest

from sapwood.comm import events as ev
from sapwood.comm import messages
from sapwood.comm.letters import events as le
from sapwood.comm.letters.active import ACTIVE, REQUEST, Active
from sapwood.comm.letters.exchange import Outlook
from sapwood.comm.letters.letters import Letters
from sapwood.comm.letters.parcel import Absence, Parcel
from sapwood.comm.letters.transfers import Transfers
from sapwood.comm.link import Identity, Link, LinkTiming
from sapwood.comm.messages import letters as msg
from sapwood.comm.messages.tree import Placed
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.core.topology import plan

EPOCH = 1 << 32
THERE = 3 << 32


class Front:
    """The letters of a front end with two agents, of which one answers by hand."""

    def __init__(self) -> None:
        identity = Identity("it", 0, 1, 99, "here", b"secret")
        near = Neighbourhood(identity, plan(2, 0), LinkTiming())
        self.link = near.neighbours[1] = Link(7, initiator=False, now=0.0)
        self.link.rank = 1
        assert near.router.attach(Placed(1, 3, 1, 0, 0))
        self.letters = Letters(near)
        self.active = Active(self.letters, Transfers(self.letters))

    def ask(self, number: int) -> msg.Letter:
        (sent,) = self.active.ask(0.0, ev.Ask(1, "ping", number, b"\x01", None))
        assert isinstance(sent, ev.Transmit)
        assert isinstance(sent.message, msg.Letter)
        return sent.message

    def answer(self, number: int, tag: int) -> Effects:
        reply = msg.Letter(1, 0, ACTIVE, THERE, 1, number, 0, 2, tag, body=b"\x02")
        return self.letters.on_letter(self.link, reply, None)

    def outlook(self) -> Outlook | None:
        return self.letters.exchange.outlook(ACTIVE, 1)

    def pass_by(self, *numbers: int) -> None:
        parcels = [Parcel(REQUEST, number, label="ping", handle=number) for number in numbers]
        self.letters.exchange.count(0.0, ACTIVE, 1, parcels)

    def receipts(self) -> list[messages.AnyMessage]:
        """Return what is sent when the agent may want a receipt."""
        return _sent(self.letters.acknowledge(0.0, le.Acknowledge(ACTIVE, 1)))


def _sent(effects: Effects) -> list[messages.AnyMessage]:
    return [effect.message for effect in effects if isinstance(effect, ev.Transmit)]


@pytest.fixture
def front() -> Front:
    front = Front()
    assert front.ask(41).number == 1
    assert front.answer(1, 41)
    return front


def test_who_was_never_asked_has_no_outlook() -> None:
    front = Front()
    assert front.outlook() is None
    front.ask(41)
    assert front.outlook() is None  # nothing is known of what it numbers


def test_the_outlook_is_what_comes_next(front: Front) -> None:
    outlook = front.outlook()
    assert outlook == Outlook(EPOCH, 0, 2, 255, THERE, 2)
    letter = front.ask(42)
    assert (letter.epoch, letter.peer, letter.number) == (EPOCH, outlook.peer, outlook.number)
    assert front.answer(outlook.number_there, 42) == [ev.Answered(42, b"\x02", None, None)]


def test_what_passed_is_counted_both_ways(front: Front) -> None:
    front.pass_by(42, 43, 44)
    assert front.outlook() == Outlook(EPOCH, 0, 5, 252, THERE, 5)
    assert front.ask(45).number == 5
    assert front.answer(5, 45) == [ev.Answered(45, b"\x02", None, None)]
    assert front.answer(4, 44) != [ev.Answered(44, b"\x02", None, None)]  # it came already


def test_what_passed_is_sent_again_until_there_is_a_receipt(front: Front) -> None:
    front.pass_by(42)
    again = _sent(front.letters.tick(1e3, ev.Tick()))
    assert [one.number for one in again if isinstance(one, msg.Letter)] == [1, 2]
    receipt = msg.Receipt(1, 0, ACTIVE, EPOCH, 3, 0, 2)
    front.letters.on_receipt(front.link, receipt, None)
    assert _sent(front.letters.tick(2e3, ev.Tick())) == []


def test_many_that_passed_are_acknowledged_at_once(front: Front) -> None:
    front.pass_by(42)
    assert front.receipts() == []
    front.pass_by(*range(43, 42 + Active.prompt))
    (receipt,) = front.receipts()
    assert isinstance(receipt, msg.Receipt)
    assert (receipt.epoch, receipt.upto) == (THERE, 1 + Active.prompt)
    assert front.receipts() == []


def test_where_something_waits_or_is_gone_there_is_no_outlook(front: Front) -> None:
    front.answer(3, 43)  # early
    assert front.outlook() is None
    front.answer(2, 42)
    assert front.outlook() is not None
    front.letters.gone[2] = Absence(1, "it was killed")
    assert front.outlook() is None


def test_a_lost_place_forgets_what_passed(front: Front) -> None:
    front.pass_by(42)
    front.letters.lose(0.0, 1, 3, "it was killed")
    assert front.outlook() is None
    assert _sent(front.letters.tick(1e3, ev.Tick())) == []
    assert front.receipts() == []
