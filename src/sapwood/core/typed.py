"""Readers of typed messages, files and values; threads may ask for them at the same time.

msgspec looks at the fields of a structure when it is first asked to read one, and notes what it
found at the structure before it is done. Another thread that comes meanwhile takes the unfinished
note, and the process ends with a segmentation fault. Here one thread at a time looks at types.
"""

import functools
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, overload

import msgspec

T = TypeVar("T")

Data = bytes | memoryview

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A size, offset or count in a message; peers may send any number, so it is checked on arrival."""

SignalNumber = Annotated[int, msgspec.Meta(ge=1, le=64)]
"""A signal of Linux."""

_looking = threading.RLock()


@overload
def unpacker(kind: type[T]) -> Callable[[Data], T]: ...
@overload
def unpacker(kind: Any) -> Callable[[Data], Any]: ...
def unpacker(kind: Any) -> Callable[[Data], Any]:
    """Return what reads a type from msgpack; it raises ``msgspec.DecodeError`` on wrong data."""
    return _unpacker(kind).decode


def unpacker_with(kind: Any, hook: Callable[[type[Any], Any], Any]) -> Callable[[Data], Any]:
    """Return what reads a type from msgpack that holds others than msgspec knows.

    Args:
        kind: The type.
        hook: ``hook(kind, value)`` makes an object of this type from a plain value.
    """
    with _looking:
        return msgspec.msgpack.Decoder(kind, dec_hook=hook).decode


@overload
def json_reader(kind: type[T], *, strict: bool = True) -> Callable[[Data | str], T]: ...
@overload
def json_reader(kind: Any, *, strict: bool = True) -> Callable[[Data | str], Any]: ...
def json_reader(kind: Any, *, strict: bool = True) -> Callable[[Data | str], Any]:
    """Return what reads a type from JSON; it raises ``msgspec.DecodeError`` on wrong data.

    Args:
        kind: The type.
        strict: Whether numbers must not be written as text.
    """
    return _json_reader(kind, strict).decode


@overload
def convert(value: Any, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Return a plain value as a type.

    Args:
        value: The value.
        kind: The type.
        strict: Whether numbers must not be written as text.

    Raises:
        msgspec.ValidationError: It does not fit.
    """
    _unpacker(kind)  # afterwards all types in it have been looked at
    return msgspec.convert(value, kind, strict=strict)


@functools.cache
def _unpacker(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    with _looking:
        return msgspec.msgpack.Decoder(kind)


@functools.cache
def _json_reader(kind: Any, strict: bool) -> msgspec.json.Decoder[Any]:  # noqa: FBT001 - for the cache
    with _looking:
        return msgspec.json.Decoder(kind, strict=strict)
