"""The reference of the API: each endpoint is in it, and each type that it names."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from sapwood.head.role_table import CALLS
from sapwood.security.rights import RIGHTS
from sapwood.server.api import endpoints
from sapwood.server.metrics import ServerMetrics
from sapwood.server.openapi import document

TABLE = endpoints(None, ServerMetrics)


def made() -> Any:
    return json.loads(msgspec.json.encode(document(TABLE, "1.2.3")))


def test_has_every_endpoint() -> None:
    found = made()
    operations = [(path, method) for path, one in found["paths"].items() for method in one]
    assert sorted(operations) == sorted((one.path, one.method.lower()) for one in TABLE)
    names = [one[method]["operationId"] for one in found["paths"].values() for method in one]
    assert len(set(names)) == len(names)


def test_every_type_is_there() -> None:
    found = made()
    text = json.dumps(found)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in found["components"]["schemas"]


def test_parts_of_paths_and_rights_are_known() -> None:
    assert {one.right for one in CALLS.values()} <= set(RIGHTS)
    for one in TABLE:
        assert set(re.findall(r"\{(\w+)\}", one.path)) == set(one.parts)
        assert one.right in RIGHTS
        assert one.about.endswith(".")


def test_nothing_is_changed_by_get() -> None:
    changing = {"cancel_run", "session_end"}
    for one in TABLE:
        name = getattr(one.handler, "__name__", "")
        assert (one.method == "GET") == (name not in changing)
