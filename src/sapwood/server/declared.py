"""The endpoints that calls of the head declare: all of them follows from the declaration."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.head.protocol.call import HeadCall, Http
from sapwood.server.endpoints import ApiRequest, Endpoint, NoFields
from sapwood.server.problems import HttpError

_PART = re.compile(r"\{(\w+)\}")


def declared_endpoint(prefix: str, call: HeadCall[..., Any], http: Http) -> Endpoint:
    """Return the endpoint of a call.

    Args:
        prefix: The path of the API.
        call: The call.
        http: The declared endpoint.
    """
    meanings = parameter_meanings(call)
    parts = {name: meanings[name] for name in _PART.findall(http.path)}
    query = _query(call, http, meanings, parts)
    answer: Any = call.answer
    if http.key:
        answer = msgspec.defstruct(
            f"{_title(call.name)}Answer", [(http.key, call.answer)], frozen=True
        )

    async def handler(asked: ApiRequest) -> Any:
        given: dict[str, Any] = {**asked.path, **msgspec.structs.asdict(asked.query)}
        try:
            found = await asked.connection.call(call, **given)
        except ConfigurationError as error:
            if not parts:
                raise
            where = ", ".join(asked.path.values())[:100]
            raise HttpError(404, error.what, where=where, hint=error.hint) from error
        return answer(found) if http.key else found

    handler.__name__ = call.name.replace(".", "_")
    about, _, _ = inspect.cleandoc(call.__doc__ or "").partition("\n\n")
    return Endpoint(
        method=http.method,
        path=prefix + http.path,
        handler=handler,
        about=" ".join(about.split()),
        answer=answer,
        query=query,
        right=call.right,
        parts=parts,
    )


def _query(
    call: HeadCall[..., Any], http: Http, meanings: Mapping[str, str], parts: Mapping[str, str]
) -> type[msgspec.Struct]:
    """Return the structure of the parameters that are given in the query."""
    fields = [one for one in msgspec.structs.fields(call.arguments) if one.name not in parts]
    if not http.query or not fields:
        return NoFields
    about = "\n".join(f"    {one.name}: {meanings[one.name]}" for one in fields)
    return msgspec.defstruct(
        f"{call.name.replace('.', ' ').title().replace(' ', '')}Query",
        [
            (one.name, one.type) if one.required else (one.name, one.type, one.default)
            for one in fields
        ],
        namespace={"__doc__": f"Parameters of {call.name}.\n\nAttributes:\n{about}\n"},
        frozen=True,
        forbid_unknown_fields=True,
    )


def parameter_meanings(call: HeadCall[..., Any]) -> dict[str, str]:
    """Return what the docstring of a call says of its parameters, by name."""
    _, _, section = inspect.cleandoc(call.__doc__ or "").partition("Args:\n")
    section, _, _ = section.partition("\n\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        words = line.strip()
        if re.match(r" {4}\w+: ", line):
            name, _, words = words.partition(": ")
            found[name] = words
        elif name:
            found[name] += f" {words}"
    return found


def _title(name: str) -> str:
    """Return the name of a call as a part of the name of a struct, which no other call has."""
    return "".join(word.capitalize() for word in re.split(r"[._]", name))
