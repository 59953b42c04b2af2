"""Orders at the head's own socket, each field of which has a value that it must not have.

No right refuses them there: the head and the node do.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sapwood.content import messages as sm
from sapwood.content.file_trees import FileEntry, FileTree
from sapwood.content.staged import StageStore
from sapwood.core.errors import InternalError, SapwoodError
from sapwood.head.folder import find_head
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.orders import RIGHT_OF_ORDER, Orders
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.nodes import messages

from .conftest import PATIENCE, Cli
from .test_rights_sweep import MALFORMED, body_of

BATCH = 25
UPWARDS = ["../" * levels + "victim" for levels in range(1, 6)]
VALUES = [
    *MALFORMED,
    "a\0b",
    b"a\0b",
    b"x/a\0b",
    {"a=b": "x"},
    {"a": "x\0"},
    *UPWARDS,
    *(one.encode() for one in UPWARDS),
]
TREE = FileTree("x", [FileEntry(b"x", "folder"), FileEntry(b"x/y", "link", target=b"z")])
STAGED = {
    sm.LOOK: TREE,
    sm.KEEP: TREE,
    sm.WRITE: sm.StagePieces([sm.StagePiece("0" * 64, 1, 0, b"x")]),
    sm.FIND: sm.FindFiles("~"),
    sm.READ: sm.ReadPiece("~", b"x", 0, 1),
}


def changed(value: Any) -> Iterator[Any]:
    """Return a value with each part of it replaced by each malformed one, down to its leaves."""
    yield from VALUES
    if isinstance(value, bytes) and value[:1] > b"\x7f":  # a message, packed
        yield from map(msgspec.msgpack.encode, changed(msgspec.msgpack.decode(value)))
    if not isinstance(value, dict | list):
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        for other in changed(value[key]):
            copied = value.copy()
            copied[key] = other
            yield copied


@pytest.mark.row("C5-INFRA")
def test_malformed_orders_at_the_socket_of_the_head_end_nothing(
    own_cli: Cli, own_head: Any, tmp_path: Path
) -> None:
    own_cli.environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    node = own_cli.join(own_head["join"], "n1")
    (record,) = own_cli.records()
    (staged,) = tmp_path.glob("**/stage/n1-*")
    outside = {one for one in tmp_path.rglob("*") if staged not in one.parents}
    victims = [folder / "victim" for folder in (*staged.parents[:3], staged)]
    for victim in victims:
        victim.write_text("safe")
    client = ServiceClient(UnixWay(find_head().socket))
    try:
        for order in RIGHT_OF_ORDER:
            body = messages.to_value(STAGED[order]) if order in STAGED else body_of(order, "me")
            asked = []
            for value in changed(body):
                given = {"host": record["host"], "handler": order, "value": value}
                asked.append((value, client.ask_raw(Orders.give.name, {"order": given})))
                if len(asked) % BATCH == 0:
                    wait([answer for _, answer in asked], PATIENCE)
            for value, answer in asked:
                error = answer.exception(PATIENCE)
                assert error is None or isinstance(error, SapwoodError), (order, value)
                assert error is None or error.code != InternalError.code, (order, value, error)
                assert "cannot do this" not in str(error), (order, value, error)
            assert not client.is_over, f"{order} ended the connection"
            assert node.poll() is None, f"{order} ended the node"
        assert client.call_within(PATIENCE, WholeCluster.facts).pid == own_head["pid"]
    finally:
        client.close()
    assert [one.read_text() for one in victims] == ["safe"] * len(victims)
    found = {one for one in tmp_path.rglob("*") if staged not in one.parents} - {*victims}
    assert found - outside == set()
    assert {one.name for one in StageStore(staged, 0).facts().names} == {"x"}
    assert own_cli.states() == {"n1": "ready"}
