"""The bound of each field of each message, and that a message of such fields fits its channel.

The fields are read from the structs: a field of variable size without a bound here fails. The
bounds name the constants that producers check, so that a change of one is compared with the rest.
"""

from __future__ import annotations

import typing
from types import ModuleType
from typing import Any

import msgspec
import pytest
from msgspec import inspect as kinds

from sapwood.activity import agent_requests
from sapwood.activity.agent_calls import MAX_METERS, RECENT_CALLS
from sapwood.client.stream_opening import MAX_CODE
from sapwood.code.image import INLINE_BYTES
from sapwood.code.pickling import MAX_EXCEPTION
from sapwood.code.runner import calls
from sapwood.comm import frames, messages, plain
from sapwood.comm.array_types import MAX_DTYPE_TEXT
from sapwood.comm.messages.groups import MAX_NAME as GROUP_NAME
from sapwood.comm.streams.control import MAX_PROBLEM
from sapwood.content import messages as stage_messages
from sapwood.content.file_trees import MAX_ENTRIES
from sapwood.content.messages import MAX_SOURCES
from sapwood.content.refs import CHUNK
from sapwood.contexts import orders, runner_factory, spawner
from sapwood.core import errors
from sapwood.core.topology import kary
from sapwood.nodes import messages as node_messages
from sapwood.session.streams import MAX_PARAMETERS
from sapwood.session_server import wire

NUMBER = 9
"""Bytes of a number, a truth value or None."""

LENGTH = 5
"""Bytes that say how long a text, a list or a table is."""

AGENTS = 4096
"""Places of the largest tree that the bounds are compared for; ``limits.agents`` is 1024."""

WORD = 64
"""Bytes of what this program itself names: a state, an action, a handler, an entry."""

NAME = 512
"""Bytes of the name of a machine, a cluster or the context of a run."""

CREDENTIAL = 16 * 1024
"""Bytes of what a process shows of itself in a greeting."""

PATH = 4096
"""Bytes of a path: that of Linux."""

RANGES = LENGTH + AGENTS // 2 * (1 + 2 * NUMBER)
"""Ranks: at worst each second one."""

ERROR = (
    4 * (errors.MAX_RECORD + errors.MAX_DETAILS * errors.MAX_TITLE)
    + MAX_EXCEPTION
    + 64 * (LENGTH + WORD)
)
"""An error record, as ``SapwoodError.to_record`` makes it: four bytes a character."""

REPORT = 12 * NUMBER + 4 * WORD + 4 * MAX_PROBLEM
"""What a place says of a stream, but for one problem: see ``with_one_problem``."""

SPEC = plain.MAX_BODY
"""A stream that is opened: ``check_spec`` looks at all of it."""

BODY = plain.MAX_BODY
"""An encoded value: ``values.encode`` and ``plain.check_body`` bound it."""

MESSAGES: dict[str, int] = {
    "cluster": NAME,
    "machine": NAME,
    "credential": CREDENTIAL,
    "reason": errors.MAX_RECORD_TEXT,
    "spec": SPEC,
    "body": BODY,
    "ranks": RANGES,
    "members": RANGES,
    "missing": RANGES,
    "spares": RANGES,
    "added": RANGES,
    "removed": RANGES,
    "reached": RANGES,
    "back": RANGES,
    "homes": RANGES,
    "error": ERROR,
    "places": AGENTS * (6 * NUMBER),
    "addresses": AGENTS * (6 * NUMBER),
    "gone": AGENTS * 3 * NUMBER,
    "upto": AGENTS * 3 * NUMBER,
    "streams": 4096 * NUMBER,  # opening.MAX_STREAMS
    "quiet": 4096 * NUMBER,
    "action": WORD,
    "filters": MAX_CODE + WORD,  # of a sweep
    "reports": AGENTS * REPORT + ERROR,
    "parameters": MAX_PARAMETERS,
    "code": WORD,
    "name": GROUP_NAME,
    "call": 2 * NAME + MAX_DTYPE_TEXT,
    "label": WORD,
    "message": BODY + 16 * NUMBER + WORD,  # a routed one
}
"""The fields of messages on links, by name."""

ORDERS: dict[str, int] = {
    "folder": PATH,
    "environment": 16 * 1024,
    "configuration": 128 * 1024,
    "processes": spawner.BATCH * (WORD + 3 * NUMBER),
    "architecture": WORD,
    "libc": WORD,
    "python": WORD,
    "reason": PATH,
    "hint": PATH,
}
"""The fields of orders to zygotes, and of their reports."""

RUNNER_CALLS: dict[str, int] = {
    "procedure": WORD,
    "context": NAME,
    "body": calls.INLINE + NAME,
    "payload": calls.INLINE + NAME,
    "free": 2048 * NUMBER,
    "error": 0,  # it is shortened until all of the result fits
}
"""The fields of calls of runners and their results."""

FORKS: dict[str, int] = {"options": 3 * PATH, "reason": PATH}
"""The fields of what a process asks its zygote."""


ENVIRONMENT = 16 * 1024
"""Bytes of the variables that a session exports to its processes."""

NODE_REQUESTS: dict[str, int] = {
    "session": NAME,
    "plan": 2 * PATH,
    "configuration": 128 * 1024,
    "environment": ENVIRONMENT,
    "credential": 16 * NAME,
    "user": NAME,
    "living": AGENTS * (WORD + 3 * NUMBER),
    "listen": NAME,
    "processes": AGENTS * (WORD + 6 * NUMBER),
    "report": 2 * PATH + 4 * NUMBER,
    "reason": errors.MAX_RECORD_TEXT,
    "data": CHUNK,
    "arguments": node_messages.MAX_WORDS * 4 * node_messages.MAX_WORD,  # as they are reported
    "component": NAME,
    "components": 64 * 4 * NAME,
    "closed": PATH,
    "sha256": WORD,
    "digest": WORD,
    "pieces": CHUNK + 64 * (2 * WORD + 3 * NUMBER),
    "parts": MAX_ENTRIES * (WORD + 5 * NUMBER),
    "address": PATH,
    "others": MAX_SOURCES * PATH,
    "name": NAME,
    "path": PATH,
    "inner": PATH,
}
"""The fields of what nodes and the head ask of each other, by name."""

AGENT_REQUESTS: dict[str, int] = {
    "recent": RECENT_CALLS * 6 * (NUMBER + WORD),
    "node": NAME,
    "kind": NAME,
    "statistics": MAX_METERS * 8 * NAME,
    "pulse": RECENT_CALLS * 6 * (NUMBER + WORD),
    "runner": 8 * PATH,
    "content_folder": PATH,
}
"""The fields of what a client and its agents ask of each other, by name."""

WHOLE = {
    *("StartCommand", "CommandInput"),  # ControlTree.ask
    *("SessionActivity", "NodeActivity", "StageFacts"),  # ActiveMessages.answer
    *("OpenRun", "HelpRun", "DeliverRun", "CallTask"),  # PendingRequests.ask
    "UserCode",  # check_spec
    "FilterCall",  # in shared memory where it is long
}
"""Messages that hold values of users, or many entries: the sender checks the whole message."""


def _structs(module: ModuleType) -> tuple[type[msgspec.Struct], ...]:
    """Return the messages that a module defines, but for those that are checked as a whole."""
    return tuple(
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, msgspec.Struct)
        and found.__module__ == module.__name__
        and found.__name__ not in WHOLE
    )


CHANNELS: dict[str, tuple[tuple[Any, ...], dict[str, int], int]] = {
    "links": (typing.get_args(messages.AnyMessage), MESSAGES, frames.MAX_HEADER),
    "orders": (
        (*typing.get_args(orders.Order), *typing.get_args(orders.Report)),
        ORDERS,
        orders.MAX_ORDER,
    ),
    "requests of nodes": (
        (*_structs(node_messages), *_structs(stage_messages)),
        NODE_REQUESTS,
        BODY,
    ),
    "requests of agents": (_structs(agent_requests), AGENT_REQUESTS, BODY),
    "runner calls": ((calls.Call, calls.Result), RUNNER_CALLS, calls.MAX_DATAGRAM),
    "forks": (
        (runner_factory.Fork, *typing.get_args(runner_factory.News)),
        FORKS,
        runner_factory.MAX_MESSAGE,
    ),
}
"""Messages, the bounds of their fields, and how long a message may be."""

INSTEAD = {"RoutedMessage": "error"}
"""A field that is sent in place of the body."""


def _is_fixed(kind: kinds.Type) -> bool:
    if isinstance(kind, kinds.UnionType):
        return all(map(_is_fixed, kind.types))
    if isinstance(kind, kinds.TupleType):
        return all(map(_is_fixed, kind.item_types))
    if isinstance(kind, kinds.StructType):
        return all(_is_fixed(field.type) for field in kind.fields)
    if isinstance(kind, kinds.EnumType | kinds.LiteralType):
        return True  # this program defines the values
    numbers = (kinds.IntType, kinds.FloatType, kinds.BoolType, kinds.NoneType)
    return isinstance(kind, numbers)


def _size(message: type[msgspec.Struct], bounds: dict[str, int]) -> int:
    """Return how long a message may be, with the names of its fields where they are written."""
    described = kinds.type_info(message)
    assert isinstance(described, kinds.StructType)
    left_out = INSTEAD.get(message.__name__)
    names = 0 if described.array_like else sum(len(field.name) + 1 for field in described.fields)
    fields = [field for field in described.fields if field.name != left_out]
    missing = [one.name for one in fields if not _is_fixed(one.type) and one.name not in bounds]
    assert not missing, f"{message.__name__} has fields without a bound: {missing}"
    sizes = [16 * NUMBER if _is_fixed(one.type) else LENGTH + bounds[one.name] for one in fields]
    return 3 * LENGTH + names + sum(sizes)


@pytest.mark.parametrize("channel", CHANNELS)
def test_messages_whose_fields_keep_to_their_bounds_fit(channel: str) -> None:
    members, bounds, limit = CHANNELS[channel]
    sizes = {member.__name__: _size(member, bounds) for member in members}
    too_large = {name: size for name, size in sizes.items() if size > limit}
    assert not too_large, f"{channel} carry {limit} bytes at most"


@pytest.mark.parametrize("channel", CHANNELS)
def test_bounds_are_of_fields_that_there_are(channel: str) -> None:
    members, bounds, _ = CHANNELS[channel]
    assert bounds.keys() <= {field for member in members for field in member.__struct_fields__}


def test_a_field_without_a_bound_fails() -> None:
    class Extended(messages.Close, tag=99, frozen=True):
        more: dict[str, str] = {}  # noqa: RUF012 - a struct

    with pytest.raises(AssertionError, match="without a bound: \\['more'\\]"):
        _size(Extended, MESSAGES)


def test_what_a_stream_keeps_of_its_filters_fits_into_its_opening() -> None:
    """A place that comes back receives the filters, those staged and those that follow."""
    assert 3 * MAX_CODE + 4 * MAX_PARAMETERS <= SPEC


def test_what_a_client_sends_into_the_tree_fits_there() -> None:
    """The root passes events of clients on: it refuses those that no link of the tree takes."""
    assert BODY < wire.MAX_EVENT
    assert wire.MAX_EVENT + 2**16 <= frames.MAX_HEADER
    events = {kind for kind in wire.TO_SERVER.values() if kind.__module__.endswith("events")}
    assert events == {wire.TO_SERVER[code] for code in wire.TO_SERVER if code >= wire.FIRST_EVENT}


def test_an_order_has_room_for_the_ranks_that_a_session_may_give() -> None:
    """Ranks are never used again; the documentation says how many there may be."""
    tree = kary(28_000, 16)
    assert tree.size > 29_800
    hosts = tuple(rank % 200 for rank in range(tree.size))
    encoded = [msgspec.msgpack.encode(part) for part in (tree, hosts)]
    assert sum(map(len, encoded)) + ORDERS["environment"] < orders.MAX_ORDER


def test_what_names_a_program_fits_beside_a_value() -> None:
    """``HelpRun`` has the image of a program and a state."""
    assert INLINE_BYTES + plain.MAX_BODY + 2**19 <= frames.MAX_HEADER


def test_error_records_keep_to_their_bound() -> None:
    widest = "\N{LINEAR B SYLLABLE B008 A}" * (errors.MAX_RECORD_TEXT + 5)
    details = {f"{widest}{number}": widest for number in range(40)}
    error = errors.SapwoodError(widest, where=widest, hint=widest, details=details)
    assert len(msgspec.msgpack.encode(error.to_record())) <= ERROR
    short = errors.SapwoodError("x", details={"output": "y" * errors.MAX_RECORD_TEXT})
    assert short.to_record().details == short.details
