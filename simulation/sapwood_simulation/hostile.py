"""Bytes that a broken or hostile peer might send: made from every message of the protocol."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from sapwood.comm import frames
from sapwood.comm.messages import AnyMessage
from sapwood.comm.messages.base import WireMessage

INTEGERS = (0, 1, -1, 2, 3, 7, 127, 128, 255, 2**16, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63))
FLOATS = (0.0, 1.0, -1.0, 1e308, -1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "map", "sum", "\x00", "é" * 50, "concat", "../..", "1" * 2000)
BLOBS = (
    b"",
    b"\xc0",
    b"\x80",
    b"\x81\xa1x\x01",
    b"\xff" * 40,
    b"\x91" * 500,
    b"\xdd\xff\xff\xff\xff",
)
DEEP = 2000
"""Nested arrays in a header that is nothing but that."""

HUGE = 2**33
"""Bytes that a prefix announces and that never come."""


class HostilePeer:
    """A source of frames, most of them wrong in some way.

    Args:
        seed: Decides all of them.

    Example:
        >>> HostilePeer(1).frame() == HostilePeer(1).frame()
        True
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self._kinds: list[type[WireMessage]] = list(get_args(AnyMessage))
        self._makers: Sequence[Callable[[], bytes]] = (
            self.message,
            self.message,
            self.message,
            self._changed_message,
            self._changed_message,
            self._damaged,
            self._noise,
            self._announced,
            self._nested,
            self._reference,
        )

    def frame(self) -> bytes:
        """Return what looks like a frame, or does not."""
        return self.chance.choice(self._makers)()

    def message(self) -> bytes:
        """Return a well-formed message with hostile values in its fields."""
        kind = self.chance.choice(self._kinds)
        tag = kind.__struct_config__.tag
        fields = [self._value(field.type) for field in msgspec.structs.fields(kind)]
        payload = self.chance.choice((b"", b"", b"abc", bytes(100)))
        return _framed(msgspec.msgpack.encode([tag, *fields]), payload)

    # --- wrong in one way each -------------------------------------------------------------------

    def _changed_message(self) -> bytes:
        """One field of a message is of another type, missing, or one too many."""
        kind = self.chance.choice(self._kinds)
        fields: list[Any] = [kind.__struct_config__.tag]
        fields += [self._value(field.type) for field in msgspec.structs.fields(kind)]
        place = self.chance.randrange(len(fields))
        match self.chance.randrange(3):
            case 0:
                fields[place] = self._anything()
            case 1:
                del fields[place:]
            case _:
                fields.insert(place, self._anything())
        return _framed(msgspec.msgpack.encode(fields), b"")

    def _damaged(self) -> bytes:
        """Some bytes of a frame are others, or the last ones are missing."""
        data = bytearray(self.message())
        for _ in range(self.chance.randint(1, 4)):
            data[self.chance.randrange(len(data))] = self.chance.randrange(256)
        if self.chance.random() < 0.3:
            del data[self.chance.randrange(len(data)) :]
        return bytes(data)

    def _noise(self) -> bytes:
        noise = self.chance.randbytes(self.chance.randrange(200))
        return noise if self.chance.random() < 0.5 else _framed(noise, b"")

    def _announced(self) -> bytes:
        """A prefix that announces more than comes, or more than may."""
        sizes = (0, 1, 2**20, 2**23, 2**32 - 1)
        header, payload = (
            self.chance.choice(sizes),
            self.chance.choice((0, 1, 2**30, HUGE, 2**64 - 1)),
        )
        flags = self.chance.choice((0, 0, 1, 2, 255))
        return frames.PREFIX.pack(b"SW", 1, flags, header, payload) + bytes(20)

    def _nested(self) -> bytes:
        """Arrays in arrays, or an array that is said to be endless."""
        depth = self.chance.choice((10, 200, DEEP))
        return _framed(b"\x91" * depth + b"\xc0", b"")

    def _reference(self) -> bytes:
        """A message with a reference to memory that is not there."""
        reference = [self.chance.choice(INTEGERS) for _ in range(6)]
        header = self.message()
        size = frames.PREFIX.unpack_from(header)[3]
        header = header[frames.PREFIX.size :][:size]
        return _framed(header, msgspec.msgpack.encode(reference), frames.FLAG_SHARED)

    # --- values of fields ------------------------------------------------------------------------

    def _anything(self) -> Any:
        return self.chance.choice(
            (None, True, "x", b"x", 1.5, -1, [], {}, [[1, 2]], {"x": 1}, 2**64 - 1, [[]] * 3)
        )

    def _value(self, annotation: Any) -> Any:
        return self._of(msgspec.inspect.type_info(annotation))

    def _of(self, kind: msgspec.inspect.Type) -> Any:
        chance, info = self.chance, msgspec.inspect
        plain = self._plain(kind)
        if plain is not None:
            return plain
        if isinstance(kind, info.UnionType):
            return self._of(chance.choice(kind.types))
        if isinstance(kind, info.TupleType):
            return [self._of(item) for item in kind.item_types]
        if isinstance(kind, info.VarTupleType | info.ListType | info.SetType | info.FrozenSetType):
            return [self._of(kind.item_type) for _ in range(chance.choice((0, 1, 1, 2, 30)))]
        if isinstance(kind, info.DictType):
            pairs = range(chance.randrange(3))
            return {self._of(kind.key_type): self._of(kind.value_type) for _ in pairs}
        if isinstance(kind, info.StructType):
            values = [self._of(field.type) for field in kind.fields]
            names = [field.encode_name for field in kind.fields]
            if kind.array_like:
                return values if kind.tag is None else [kind.tag, *values]
            return dict(zip(names, values, strict=True))
        return self._anything()

    def _plain(self, kind: msgspec.inspect.Type) -> Any:
        """Return a number, a text or bytes; None where something else is wanted."""
        chance, info = self.chance, msgspec.inspect
        if isinstance(kind, info.IntType):
            return chance.choice(INTEGERS) if chance.random() < 0.5 else chance.randrange(6)
        choices: tuple[tuple[type[Any], tuple[Any, ...]], ...] = (
            (info.FloatType, FLOATS),
            (info.StrType, TEXTS),
            (info.BytesType, BLOBS),
            (info.BoolType, (False, True)),
        )
        return next((chance.choice(few) for one, few in choices if isinstance(kind, one)), None)


def _framed(header: bytes, payload: bytes, flags: int = 0) -> bytes:
    prefix = frames.PREFIX.pack(
        frames.MAGIC, frames.FRAME_VERSION, flags, len(header), len(payload)
    )
    return prefix + header + payload
