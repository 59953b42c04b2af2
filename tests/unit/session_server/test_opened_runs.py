"""What agents keep for a client that is killed is forgotten."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from sapwood.activity import agent_requests
from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.payload import Payload
from sapwood.data.slice import SliceRef
from sapwood.data.stored import StoredRows
from sapwood.session_server.opened_runs import OpenedRuns


def opening(run: str, rank: int, handle: str = "", image: bytes = b"") -> ev.Ask:
    rows = StoredRows("csv", (), (), (), handle=handle) if handle else None
    order = agent_requests.OpenRun(
        run, image, msgspec.msgpack.encode(SliceRef(0, 1, (), rows=rows)), 0, 1, "f"
    )
    encoded = values.encode(msgspec.to_builtins(order, builtin_types=(bytes,)))
    payload = Payload(bytes(encoded.payload())) if encoded.nbytes else None
    return ev.Ask(rank, agent_requests.OPEN_RUN, 1, encoded.body, payload)


def asking(handler: str, rank: int, value: Any) -> ev.Ask:
    return ev.Ask(rank, handler, 2, plain.encode(value), None)


def test_runs_that_nobody_has_closed_are_closed() -> None:
    opened = OpenedRuns()
    for rank in (1, 2):
        opened.asked(opening("a", rank))
        opened.asked(opening("b", rank, image=bytes(200_000)))
    opened.asked(asking(agent_requests.CLOSE_RUN, 1, "a"))
    close = agent_requests.CLOSE_RUN
    wanted = [(1, close, "b"), (2, close, "a"), (2, close, "b")]
    assert sorted((rank, name, plain.decode(body)) for rank, name, body in opened.left()) == wanted
    assert opened.left() == []


def test_persistent_slices_that_nobody_has_released_are_released() -> None:
    opened = OpenedRuns()
    for rank, handle in ((1, "x"), (1, "y"), (2, "x")):
        opened.asked(opening("a", rank, handle))
        opened.asked(asking(agent_requests.CLOSE_RUN, rank, "a"))
    opened.asked(asking(agent_requests.RELEASE_DATA, 2, "x"))
    release = agent_requests.RELEASE_DATA
    wanted = [(1, release, "x"), (1, release, "y")]
    assert [(rank, name, plain.decode(body)) for rank, name, body in opened.left()] == wanted


@pytest.mark.parametrize("body", [b"", b"\xc1", plain.encode({"run": 1}), plain.encode([1])])
def test_what_is_malformed_is_left_to_its_agent(body: bytes) -> None:
    opened = OpenedRuns()
    opened.asked(ev.Ask(1, agent_requests.OPEN_RUN, 1, body, None))
    opened.asked(ev.Ask(1, agent_requests.CLOSE_RUN, 1, body, None))
    assert all(handler == agent_requests.CLOSE_RUN for _, handler, _ in opened.left())


def test_arrays_are_not_looked_at() -> None:
    encoded = values.encode({"x": np.ones(3)})
    opened = OpenedRuns()
    opened.asked(ev.Ask(1, agent_requests.CALL_TASK, 1, encoded.body, None))
    assert opened.left() == []
