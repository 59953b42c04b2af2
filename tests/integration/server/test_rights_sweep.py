"""Every HTTP endpoint in every role, about own objects and those of others, as the table says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from sapwood.head import calls, session_records
from sapwood.head.role_table import Permission
from sapwood.security.rights import ROLES
from sapwood.server.endpoints import Endpoint
from sapwood.server.role_table import access_to_endpoint, all_endpoints

from .conftest import WebHead

IDS = {"me": "00000001", "other": "00000002"}
ODD = ["%00", "..%2F..%2Fhead.json", "%1B%5D0%3Bx%07", "x" * 2000, "-5", "%FF", "9" * 40]
MALFORMED = "after=-5&limit=-5&limit=x&since=nan&nodes=%1B&unknown=1&kinds=%00"


@pytest.fixture
def sessions(web: WebHead, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebHead]:
    """A head that knows a session of each of two owners, which have no processes."""
    registry = web.head.sessions
    for owner, number in IDS.items():
        creator = session_records.SessionCreator(names=list(ROLES["user"]), ids=("x",), owner=owner)
        registry._records[number] = session_records.SessionRecord(
            id=number, name=owner, state="ready", on="head", created=1.0, creator=creator
        )
    nodes = [
        calls.NodeRecord(host=at, name=number, node=f"n{at}", state="ready")
        for at, number in enumerate(IDS.values(), 1)
    ]
    runs = {
        number: calls.RunRecord(id=number, program="x", session="", state="done", created=1.0)
        for number in IDS.values()
    }
    monkeypatch.setattr(web.head.nodes, "records", lambda: nodes)
    monkeypatch.setattr(web.head.runs, "find", runs.__getitem__)
    monkeypatch.setattr(web.head.runs, "records", lambda: list(runs.values()))
    deleted = registry.records()[0]
    monkeypatch.setattr(registry, "end", lambda _: web.head.front.pool.submit(lambda: deleted))
    yield web
    for number in IDS.values():
        del registry._records[number]


def status_of(client: httpx.Client, one: Endpoint, part: str, query: str = "") -> int:
    path = re.sub(r"\{\w+\}", part, one.path)
    with client.stream(one.method, f"{path}?{query}" if query else path) as answer:
        return answer.status_code


@pytest.mark.row("C5-INFRA")
@pytest.mark.parametrize("role", ["none", *ROLES])
def test_every_endpoint_in_every_role(sessions: WebHead, role: str) -> None:
    wrong = []
    rights = ROLES.get(role, ())
    with sessions.client(*rights, subject="me") as client:
        for one in all_endpoints():
            access = access_to_endpoint(one, rights)
            for owner, number in IDS.items():
                found = status_of(client, one, number)
                may = access is Permission.ALL or (access is Permission.OWN and owner == "me")
                refused = found == 403 or (role == "none" and found == 401)
                if refused == may or found == 500:
                    wrong.append((one.method, one.path, owner, found))
    assert not wrong


@pytest.mark.parametrize("role", ["owner", "watcher"])
def test_malformed_requests_are_no_errors_of_the_server(web: WebHead, role: str) -> None:
    wrong = []
    with web.client(*ROLES[role]) as client:
        for one in all_endpoints():
            for part in ODD if "{" in one.path else ["x"]:
                found = [status_of(client, one, part), status_of(client, one, part, MALFORMED)]
                wrong += [(one.path, part, found)] if max(found) >= 500 else []
    assert not wrong
