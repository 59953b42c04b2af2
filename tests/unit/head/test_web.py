"""Where an HTTP server may listen without TLS, and tickets for browsers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.head.web import MAX_TICKETS, TICKET_LIFE, HttpListen, HttpService


@pytest.mark.parametrize("address", ["", "127.0.0.1:8787", "[::1]:0", "localhost:80", "/run/a"])
def test_this_machine_only(address: str) -> None:
    HttpListen(address=address).check()


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        (HttpListen(address="0.0.0.0:8787"), "for this machine only"),
        (HttpListen(address="10.0.0.5:8787"), "for this machine only"),
        (HttpListen(address="127.0.0.1.example:1"), "for this machine only"),
        (HttpListen(address="8787"), "for this machine only"),
        (HttpListen(address="127.0.0.1"), "wants HOST:PORT"),
        (HttpListen(address="127.0.0.1:99999"), "wants HOST:PORT"),
        (HttpListen(no_token=True), "needs --http"),
    ],
)
def test_nowhere_else(listen: HttpListen, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as error:
        listen.check()
    assert error.value.hint


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def service(clock: Clock) -> HttpService:
    nothing = cast("Any", None)
    return HttpService("lab", Path("/nowhere"), nothing, nothing, HttpListen(), clock)


def test_a_ticket_is_good_once() -> None:
    made = service(Clock())
    ticket, expires = made.new_ticket("credential")
    assert expires == 100.0 + TICKET_LIFE
    assert made.redeem(ticket) == "credential"
    with pytest.raises(SecurityError, match="used before"):
        made.redeem(ticket)
    with pytest.raises(SecurityError, match="used before"):
        made.redeem("")


def test_a_ticket_ends() -> None:
    clock = Clock()
    made = service(clock)
    ticket, expires = made.new_ticket("credential")
    clock.now = expires + 1
    with pytest.raises(SecurityError, match="too old"):
        made.redeem(ticket)


def test_tickets_are_bounded() -> None:
    made = service(Clock())
    tickets = [made.new_ticket(str(number))[0] for number in range(MAX_TICKETS + 1)]
    with pytest.raises(SecurityError):
        made.redeem(tickets[0])
    assert made.redeem(tickets[1]) == "1"
