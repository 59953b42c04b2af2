"""What head and nodes tell each other arrives whole, or is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import ProtocolError
from sapwood.nodes import messages

ALL = [
    messages.OpenProcesses(
        session="s",
        host=2,
        plan=ZygotePlan(()),
        configuration=b"\0\xff",
        environment={"A": "b"},
        life=3,
    ),
    messages.SpawnProcesses("s", [orders.ProcessSpec("m:f", 1, 2)]),
    messages.KillProcess("s", 7, 9),
    messages.ProcessesReported("s", 1, orders.Spawned(1, 2, 3)),
    messages.ProcessesReported("s", 1, orders.Exited(1, 2, 3, -9, "why")),
    messages.ProcessesReported("s", 1, None, "the zygote ended"),
]


@pytest.mark.parametrize("message", ALL, ids=lambda one: type(one).__name__)
def test_a_message_arrives_as_it_was_sent(message: msgspec.Struct) -> None:
    assert messages.from_value(messages.to_value(message), type(message)) == message


@pytest.mark.parametrize("value", [None, 1, "text", [], {}, b"", b"\xc1", b"\x80", b"\x91" * 9999])
def test_what_is_none_is_a_protocol_error(value: object) -> None:
    with pytest.raises(ProtocolError, match="this is no SpawnProcesses"):
        messages.from_value(value, messages.SpawnProcesses)


@pytest.mark.parametrize("message", ALL, ids=lambda one: type(one).__name__)
def test_one_message_is_not_another(message: msgspec.Struct) -> None:
    other = messages.KillProcess
    if not isinstance(message, other):
        with pytest.raises(ProtocolError):
            messages.from_value(messages.to_value(message), other)


@given(st.binary(max_size=64))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for kind in (messages.OpenProcesses, messages.ProcessesReported):
        try:
            messages.from_value(data, kind)
        except ProtocolError:
            continue
