"""The call that the documentation adds: all that its page promises follows from it."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sapwood.core.errors import ProtocolError
from sapwood.head import calls
from sapwood.head.parts import nodes
from sapwood.head.protocol.call import HeadCall, Http
from sapwood.head.protocol.framing import raw
from sapwood.server.declared import declared_endpoint
from sapwood.server.openapi import document

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "add-a-call.md"
_, CODE, _ = re.split(r"^```python\n|^```\n", PAGE.read_text(), maxsplit=2, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def added() -> HeadCall[..., Any]:
    """The call, as a method of a part in the file of nodes."""
    names = dict(vars(nodes))
    exec(f"class Added(Nodes):\n{textwrap.indent(CODE, '    ')}", names)  # noqa: S102 - of our page
    (found,) = names["Added"].declared()
    assert isinstance(found, HeadCall)
    return found


class HeadConnection:
    """The connection of the HTTP server to a head with two nodes."""

    def __init__(self) -> None:
        self.nodes = [
            calls.NodeRecord(host=host, name=f"n{host}", node=f"x{host}", state=state)
            for host, state in ((1, "ready"), (2, "lost"))
        ]

    async def call(self, call: HeadCall[..., Any], **given: Any) -> Any:
        part: Any = SimpleNamespace(_table=SimpleNamespace(records=lambda: self.nodes))
        values = call.read_values(raw(call.with_values(**given)))
        return call.read_answer(raw(call.function(part, **values)))


def test_the_call_has_at_most_ten_lines() -> None:
    assert len([line for line in CODE.splitlines() if line.strip()]) <= 10


def test_message_and_right_follow(added: HeadCall[..., Any]) -> None:
    assert (added.name, added.right, added.answer) == ("node.names", "connect", list[str])
    assert added.read_values(raw({})) == {"state": "ready"}
    assert added.read_values(raw({"state": "lost"})) == {"state": "lost"}
    with pytest.raises(ProtocolError, match=r"malformed call 'node\.names'"):
        added.read_values(raw({"state": 5}))


def test_the_endpoint_follows(added: HeadCall[..., Any]) -> None:
    assert added.http is not None
    endpoint = declared_endpoint("/api/v1", added, added.http)
    asked: Any = SimpleNamespace(
        connection=HeadConnection(), path={}, query=endpoint.query(state="lost")
    )

    async def answer() -> bytes:
        return msgspec.json.encode(await endpoint.handler(asked))

    assert asyncio.run(answer()) == b'{"names":["n2"]}'


def test_two_calls_may_have_the_same_member_in_their_answers(added: HeadCall[..., Any]) -> None:
    assert added.http is not None
    every = nodes.Nodes.every
    http = Http("GET", "/nodes", key=added.http.key)
    both = [
        declared_endpoint("/api/v1", added, added.http),
        declared_endpoint("/api/v1", every, http),
    ]
    answers = document(both, "1")["components"]["schemas"]
    assert {"NodeNamesAnswer", "NodesAnswer"} <= answers.keys()


def test_the_entry_of_the_reference_follows(added: HeadCall[..., Any]) -> None:
    assert added.http is not None
    found = document([declared_endpoint("/api/v1", added, added.http)], "1")
    operation = found["paths"]["/api/v1/node-names"]["get"]
    assert operation["summary"] == "Return the names of the nodes in a state."
    (parameter,) = operation["parameters"]
    about = "The state, as ``sapwood node list`` shows it."
    assert (parameter["name"], parameter["description"]) == ("state", about)
    assert parameter["required"] is False
