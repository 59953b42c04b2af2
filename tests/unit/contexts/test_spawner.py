"""Orders to a zygote that takes none for a while."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.contexts import orders, spawner
from sapwood.contexts.plan import ZygotePlan
from sapwood.contexts.spawner import Spawner
from sapwood.core.errors import ResourceError

MANY = 20_000
"""Processes whose orders do not fit in the buffer of a socket."""


class Zygote:
    """The other end of the socket: it reads when the test wants."""

    def __init__(self) -> None:
        ours, self.end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.spawner = Spawner(
            ZygotePlan(()),
            orders.ConfigureProcesses("", b""),
            lambda _report: None,
            lambda: None,
            borrow=lambda: ours,
        )
        self.spawner.start()
        self.writable: list[Any] = []
        self.loop: Any = SimpleNamespace(
            add_reader=lambda *_: None,
            remove_reader=lambda *_: None,
            add_writer=lambda _number, function: self.writable.append(function),
            remove_writer=lambda _number: self.writable.clear(),
        )

    def ranks(self) -> list[int]:
        """Read all orders, as the client sends them; return the processes."""
        found: list[int] = []
        self.end.settimeout(0)
        while True:
            try:
                order = orders.decode_order(self.end.recv(orders.MAX_ORDER))
            except BlockingIOError:
                if not self.writable:
                    return found
                self.writable[0]()
                continue
            if isinstance(order, orders.Spawn):
                found += [one.rank for one in order.processes]

    def close(self) -> None:
        self.end.close()
        self.spawner.detach()
        self.spawner.close()


def test_more_processes_than_fit_in_the_socket_are_ordered_without_blocking() -> None:
    zygote = Zygote()
    zygote.spawner.spawn([orders.ProcessSpec("module:function", rank, 1) for rank in range(MANY)])
    zygote.spawner.listen(zygote.loop)
    assert zygote.ranks() == list(range(MANY))
    assert not zygote.writable
    zygote.close()


def test_a_zygote_that_takes_nothing_is_named_after_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spawner, "HAND_OVER_TIMEOUT", 0.02)
    zygote = Zygote()
    zygote.spawner.spawn([orders.ProcessSpec("module:function", rank, 1) for rank in range(MANY)])
    with pytest.raises(ResourceError, match="has not taken earlier orders"):
        zygote.spawner.lend()
    zygote.spawner.listen(zygote.loop)
    assert len(zygote.ranks()) == MANY
    zygote.spawner.lend().close()
    zygote.close()
