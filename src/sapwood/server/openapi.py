"""The reference of the API as OpenAPI 3.1, made of the table of endpoints and the types in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from sapwood.server.endpoints import Endpoint
from sapwood.server.problems import MEDIA_TYPE as PROBLEM
from sapwood.server.problems import Problem

_REF: Final = "#/components/schemas/{name}"

_REFUSALS: Final[Mapping[str, str]] = {
    "400": "The request is not what it should be.",
    "401": "The request has no valid credential.",
    "403": "The credential does not give the right, or a page of another site has asked.",
    "404": "There is no such thing.",
    "408": "The request did not come in time.",
    "413": "The body is too large.",
    "415": "The body is of another type.",
    "421": "The request is for another host.",
    "503": "The head is gone, or too much is asked at once.",
}


def document(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """Return the reference.

    Args:
        endpoints: The endpoints.
        version: Of Sapwood.
    """
    table = list(endpoints)
    kinds: list[Any] = [Problem]
    for one in table:
        kinds += [one.answer, one.query]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    schema_of = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sapwood",
            "version": version,
            "description": "The HTTP API of a cluster that stays (`sapwood up`).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "credential": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The text of a credential: `sapwood credential issue`.",
                }
            },
        },
        "security": [{"credential": []}],
    }


def _operation(
    one: Endpoint, schema_of: Mapping[int, Any], components: Mapping[str, Any]
) -> dict[str, Any]:
    query = components[one.query.__name__]
    described = _attributes(one.query)
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": about,
            "schema": {"type": "string", "minLength": 1},
        }
        for name, about in one.parts.items()
    ]
    parameters += [
        {
            "name": name,
            "in": "query",
            "required": name in query.get("required", []),
            "description": described.get(name, ""),
            "schema": schema,
        }
        for name, schema in query.get("properties", {}).items()
    ]
    content = {one.media: {"schema": schema_of[id(one.answer)]}}
    made: dict[str, Any] = {
        "operationId": operation_id(one),
        "summary": one.about,
        "description": f"Needs the right `{one.right}`." if one.right else "Needs no credential.",
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{
                status: {
                    "description": about,
                    "content": {PROBLEM: {"schema": {"$ref": _REF.format(name="Problem")}}},
                }
                for status, about in _REFUSALS.items()
            },
        },
    }
    if not one.right:
        made["security"] = []
    return made


def operation_id(one: Endpoint) -> str:
    """Return the name of an endpoint for generated clients."""
    return str(getattr(one.handler, "__name__", "endpoint"))


def _attributes(kind: type) -> dict[str, str]:
    """Return what the docstring of a type says of its attributes, by name."""
    found: dict[str, str] = {}
    _, _, section = inspect.getdoc(kind).partition("Attributes:\n")  # type: ignore[union-attr]  # every one has a docstring
    name = ""
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 4 and ": " in line:
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found
