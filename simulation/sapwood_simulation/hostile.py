"""Bytes that a broken or hostile peer might send: made from every message of the protocol."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from sapwood.comm import frames, framing, messages
from sapwood.comm.messages import AnyMessage, groups, messaging, pieces, push, tree
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
PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "stream": (1, 2, 3, 4, 5, 6),
    "wave": (0, 1, 1, 2, 3),
    "attempt": (0, 0, 1, 2, -1, 2**32 + 1, 2**32 + 2),
    "ranks": ([], [[1, 2]], [[2, 3]], [[1, 3]], [[1, 5]], [[5, 6]], [[1, 2], [2, 3]], [[2, 1]]),
    "reached": ([], [[1, 2]], [[1, 3]]),
    "members": ([[0, 5]], [[1, 5]]),
    "spares": ([],),
    "upto": ([], [[1, 1]], [[1, 2**32 + 1], [2, 2**40]]),
    "name": ("fuzz",),
    "group": ([0, 1, 1], [0, 1, 2], [1, 1, 1]),
    "round": (1, 1, 2),
    "number": (1, 2, 3),
    "body": (b"", b"\x81\xa1x\x01", b"\x81\xa1x\xcb\x7f\xf8" + bytes(6), b"\x81\xa1x\xa1a"),
    "kind": ("all", "time-out", "none", 0, 1, 2, 3),
    "seconds": (0.0, 0.5, 1.0),
    "late": ("drop", "next"),
    "on_loss": ("replace", "partial", "fail"),
    "action": ("flush", "quiesce", "resume", "query", "stage"),
    "where": ("*", "depth 0", "depth 1", "rank 1"),
    "reduce": ({"x": "sum"}, {"x": "concat"}, {}, "sum"),
    "operation": ("barrier", "allreduce", "gather", "scatter", "broadcast", "leave"),
    "rank": (0, 1, 2, 5),
    "source": (1, 2, 5),
    "destination": (0, 1, 2),
    "size": (1, 100, 2**20),
    "channel": (0, 1, 2),
    "epoch": (2**32 + 1, 2**32 + 1, 2**33),
    "incarnation": (1, 2, 3),
    "attachment": (1, 2),
    "peer": (0, 1),
    "hops": (0, 1),
    "parent": (0, 5),
    "weight": (1.0, 2.0, 0.0, float("nan")),
    "version": (0, 0, 1, 2),
    "confirmed": (0, 0, 1),
    "call": (["allreduce", "sum", -1, ""], ["barrier", "", -1, ""], ["gather", "", 1, ""]),
    "taken": (0, 0, 1),
    "start": (0, 0, 1, 100),
    "stop": (0, 100, 2**20),
    "piece": (1, 100, 2**18),
    "upward": (True,),
    "first": (0, 3),
}
"""By field: values with which a message is taken for one of a stream or group that is open."""

WANTED: dict[type, type] = {
    msgspec.inspect.IntType: int,
    msgspec.inspect.FloatType: float,
    msgspec.inspect.StrType: str,
    msgspec.inspect.BytesType: bytes,
    msgspec.inspect.BoolType: bool,
    msgspec.inspect.DictType: dict,
}
"""What a value is encoded from, by the type of its field; of all others a list."""

PLAUSIBILITY = 0.6
"""Chance that a field has such a value."""

CAREFUL = 0.97
"""As :data:`PLAUSIBILITY`, of a peer that keeps to the protocol as far as it can."""

WITH_BYTES = frozenset({pieces.Piece})
"""Messages that mean something with a payload only."""

UPWARDS: tuple[type[WireMessage], ...] = (
    messages.Up,
    messages.Up,
    messages.Up,
    messages.Failed,
    messages.Swept,
    pieces.Offer,
    pieces.Offer,
    pieces.Piece,
    pieces.Piece,
    pieces.Draw,
    pieces.Retracted,
    tree.Attached,
    tree.Detached,
    groups.GroupJoin,
    groups.GroupPart,
    groups.GroupPart,
    groups.GroupEnded,
    groups.GroupJoinCancelled,
    groups.GroupDisturbed,
    messaging.RoutedMessage,
    messaging.Acknowledgement,
)
"""What a child may say."""

DOWNWARDS: tuple[type[WireMessage], ...] = (
    messages.Open,
    messages.Down,
    messages.Down,
    messages.Close,
    messages.Sweep,
    messages.Sweep,
    messages.Abandon,
    messages.Without,
    messages.Configure,
    pieces.Announced,
    pieces.Announced,
    pieces.Piece,
    pieces.Draw,
    push.Taken,
    tree.OpenStreams,
    tree.TreeChanged,
    groups.GroupJoined,
    groups.GroupResult,
    groups.GroupEnded,
    groups.GroupRestart,
    messaging.RoutedMessage,
    messaging.MembershipNotice,
)
"""What a parent may say."""

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
        self._plausibility = PLAUSIBILITY
        self._own: dict[str, tuple[Any, ...]] = {}
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

    def careful(self, kinds: Sequence[type[WireMessage]], ranks: Sequence[int]) -> bytes:
        """Return a frame of one of some messages that may be meant for what is open.

        Args:
            kinds: The messages.
            ranks: For which the peer may speak.
        """
        self._plausibility = CAREFUL
        one, several = [[[rank, rank + 1]] for rank in ranks], [[rank, rank + 1] for rank in ranks]
        self._own = {
            "ranks": (*one, *one, several, []),
            "reached": (*one, several, []),
            "rank": (*ranks,),
            "source": (*ranks,),
            "parent": (0, ranks[-1]),
        }
        try:
            return self.message(kinds)
        finally:
            self._plausibility = PLAUSIBILITY
            self._own = {}

    def message(self, kinds: Sequence[type[WireMessage]] = ()) -> bytes:
        """Return a well-formed message with hostile values in its fields."""
        kind = self.chance.choice(kinds or self._kinds)
        tag = kind.__struct_config__.tag
        fields = self._fields(kind)
        payload = b""
        if self.chance.random() > self._plausibility or kind in WITH_BYTES:
            payload = self.chance.choice((b"abc", bytes(100)))
        return _framed(msgspec.msgpack.encode([tag, *fields]), payload)

    # --- bodies of requests ----

    def value(self, depth: int = 0) -> Any:
        """Return what a request may carry, and no handler expects."""
        chance = self.chance
        match chance.randrange(7 if depth < 3 else 5):
            case 0:
                return chance.choice(INTEGERS)
            case 1:
                return chance.choice(FLOATS)
            case 2:
                return chance.choice(TEXTS)
            case 3:
                return chance.choice(BLOBS)
            case 4:
                return chance.choice((None, True, False, [], {}))
            case 5:
                return [self.value(depth + 1) for _ in range(chance.choice((1, 2, 3, 8)))]
            case _:
                names = chance.choices((*PLAUSIBLE, "x", ""), k=chance.choice((1, 3)))
                return {name: self.value(depth + 1) for name in names}

    def body(self, valid: Any = None) -> bytes:
        """Return an encoded body: hostile, damaged, or a valid one with one part replaced.

        Args:
            valid: The value of a valid body, if one is known.
        """
        chance = self.chance
        if chance.random() < 0.1:
            return chance.choice(BLOBS) + chance.randbytes(chance.randrange(8))
        whole = self.value() if valid is None else self._changed(valid)
        return msgspec.msgpack.encode(whole)

    def _changed(self, value: Any) -> Any:
        """Return a value with one part of it replaced, missing, or one too many."""
        chance = self.chance
        if isinstance(value, list) and value and chance.random() < 0.8:
            place = chance.randrange(len(value))
            rest = [self._changed(value[place])] if chance.random() < 0.8 else []
            return [*value[:place], *rest, *value[place + 1 :]]
        if isinstance(value, dict) and value and chance.random() < 0.8:
            name = chance.choice(list(value))
            if chance.random() < 0.2:
                return {key: one for key, one in value.items() if key != name}
            return {**value, name: self._changed(value[name])}
        return self.value()

    # --- wrong in one way each -------------------------------------------------------------------

    def _changed_message(self) -> bytes:
        """One field of a message is of another type, missing, or one too many."""
        kind = self.chance.choice(self._kinds)
        fields: list[Any] = [kind.__struct_config__.tag]
        fields += self._fields(kind)
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
        return framing.PREFIX.pack(b"SW", 1, flags, header, payload) + bytes(20)

    def _nested(self) -> bytes:
        """Arrays in arrays, or an array that is said to be endless."""
        depth = self.chance.choice((10, 200, DEEP))
        return _framed(b"\x91" * depth + b"\xc0", b"")

    def _reference(self) -> bytes:
        """A message with a reference to memory that is not there."""
        reference = [self.chance.choice(INTEGERS) for _ in range(6)]
        header = self.message()
        size = framing.PREFIX.unpack_from(header)[3]
        header = header[framing.PREFIX.size :][:size]
        return _framed(header, msgspec.msgpack.encode(reference), frames.FLAG_SHARED)

    # --- values of fields ------------------------------------------------------------------------

    def _anything(self) -> Any:
        return self.chance.choice(
            (None, True, "x", b"x", 1.5, -1, [], {}, [[1, 2]], {"x": 1}, 2**64 - 1, [[]] * 3)
        )

    def _fields(self, kind: type[WireMessage]) -> list[Any]:
        info = msgspec.inspect.type_info
        return [self._named(field.name, info(field.type)) for field in msgspec.structs.fields(kind)]

    def _named(self, name: str, kind: msgspec.inspect.Type) -> Any:
        if name in PLAUSIBLE and self.chance.random() < self._plausibility:
            wanted = WANTED.get(type(kind), list)
            values = self._own.get(name, PLAUSIBLE[name])
            fitting = [value for value in values if isinstance(value, wanted)]
            if fitting:
                return self.chance.choice(fitting)
        return self._of(kind)

    def _of(self, kind: msgspec.inspect.Type) -> Any:
        return None if isinstance(kind, msgspec.inspect.NoneType) else self._made(kind)

    def _made(self, kind: msgspec.inspect.Type) -> Any:
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
            values = [self._named(field.name, field.type) for field in kind.fields]
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
    prefix = framing.PREFIX.pack(
        framing.MAGIC, framing.FRAME_VERSION, flags, len(header), len(payload)
    )
    return prefix + header + payload
