"""Calls of a head with values that it does not expect: each is that call's error, and no more."""

from __future__ import annotations

import contextlib
from concurrent.futures import wait
from typing import Any

import msgspec

from sapwood.core.errors import SapwoodError
from sapwood.head.folder import find_head
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.protocol import greeting
from sapwood.head.role_table import CALLS
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood_simulation.hostile import HostilePeer

from .conftest import PATIENCE, Cli

VALUES = 25
LEFT_OUT = {WholeCluster.down.name, greeting.GREET, greeting.PRESENT}
"""Ends the head, and the connection of a client that presents nothing valid."""

NAMES = sorted({*CALLS, "unknown"} - LEFT_OUT)


def test_a_head_survives_whatever_it_is_called_with(own_cli: Cli, own_head: Any) -> None:
    name, source = own_head["name"], HostilePeer(5)
    client = ServiceClient(UnixWay(find_head(name).socket))
    try:
        for call in NAMES:
            answers = []
            for _ in range(VALUES):
                with contextlib.suppress(msgspec.MsgspecError, OverflowError):
                    answers.append(client.ask_raw(call, source.value()))
            _, left = wait(answers, PATIENCE)
            assert not left, f"{call} is not answered"
            errors = [answer.exception() for answer in answers]
            assert all(error is None or isinstance(error, SapwoodError) for error in errors)
            assert not client.is_over, f"{call} ended the connection"
        facts = client.call_within(PATIENCE, WholeCluster.facts)
        assert facts.pid == own_head["pid"]
    finally:
        client.close()
    assert own_cli.json("node", "list") is not None
