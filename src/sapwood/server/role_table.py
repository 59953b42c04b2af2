"""Which role may use which endpoint of the HTTP API, derived from the table of endpoints."""

from __future__ import annotations

from collections.abc import Collection

from sapwood.head.parts.sessions import Sessions
from sapwood.head.role_table import Permission, access_to_call, table_of_roles
from sapwood.security.rights import ADMIN, ATTACH, DELETE, OBSERVE, ROLES
from sapwood.server.api import endpoints
from sapwood.server.endpoints import Endpoint
from sapwood.server.metrics import ServerMetrics


def all_endpoints() -> list[Endpoint]:
    """Return the endpoints of the API."""
    return endpoints(None, ServerMetrics)


def access_to_endpoint(one: Endpoint, rights: Collection[str]) -> Permission:
    """Return whether a client with these rights may use an endpoint."""
    if one.right not in rights and not (one.right == OBSERVE and ADMIN in rights):
        return Permission.NO
    if one.right == ATTACH:
        return access_to_call(Sessions.credential.name, rights)
    return Permission.OWN if one.right == DELETE and ADMIN not in rights else Permission.ALL


def endpoint_table() -> str:
    """Return a Markdown table of all endpoints, with a column for each role."""
    found = {f"{one.method} {one.path}": one for one in all_endpoints()}
    rows = {
        name: [access_to_endpoint(one, rights) for rights in ROLES.values()]
        for name, one in found.items()
    }
    return table_of_roles("endpoint", {name: one.right for name, one in found.items()}, rows)
