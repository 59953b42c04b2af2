"""What gathers the contributions to a wave: each field by its reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sapwood.comm import values
from sapwood.comm.cached_codec import CachedDecoder
from sapwood.comm.payload import Payload
from sapwood.comm.reductions import make_reduction
from sapwood.comm.reductions.chunked import ElementwiseReduction, chunked
from sapwood.comm.streams.wave import Advertised
from sapwood.core.errors import ExecutionError, ProgramError, ProtocolError

WHOLE = ""
"""Name of the only field of a contribution that is reduced as it is."""


class Accumulator:
    """Puts the contributions to one wave together, field by field.

    Args:
        reduce: Reduction of each field; of :data:`WHOLE` for contributions of any type.

    Raises:
        ProtocolError: A reduction is unknown.

    Example:
        >>> both = Accumulator({"total": "sum", "parts": "concat"})
        >>> both.add({"total": 3, "parts": [1.0, 2.0]}, rank=2, weight=2)
        >>> both.add({"total": 4, "parts": [9.0]}, rank=1, weight=1)
        >>> both.total()
        {'total': 7, 'parts': array([9., 1., 2.])}
    """

    __slots__ = ("_fields", "_whole")

    def __init__(self, reduce: Mapping[str, str]) -> None:
        self._whole = reduce.keys() == {WHOLE}
        try:
            self._fields = {field: make_reduction(kind) for field, kind in reduce.items()}
        except ProgramError as error:
            raise ProtocolError(error.what, hint=error.hint) from error

    def add(self, value: Any, rank: int, weight: float) -> None:
        """Take one more contribution: a dictionary with exactly the expected fields.

        Raises:
            ExecutionError: A field is missing, unknown, or does not fit the others.
        """
        if self._whole:
            value = {WHOLE: value}
        if not isinstance(value, dict) or value.keys() != self._fields.keys():
            found = sorted(value) if isinstance(value, dict) else type(value).__name__
            raise ExecutionError(
                f"a map returned {found} where the reduction expects {sorted(self._fields)}",
                where=f"agent {rank}",
                hint="return a dictionary with exactly the fields that 'reduce' names",
            )
        for field, reduction in self._fields.items():
            try:
                reduction.add(value[field], rank, weight)
            except KeyError as error:  # taken for the partial result of a subtree
                raise ExecutionError(
                    f"cannot reduce {_named(field)}: a dictionary is neither a number nor an array",
                    where=f"agent {rank}",
                ) from error
            except (ExecutionError, TypeError, ValueError) as error:
                raise ExecutionError(
                    f"cannot reduce {_named(field)}: {getattr(error, 'what', error)}",
                    where=f"agent {rank}",
                ) from error

    def partial(self) -> Any:
        """Return what a junction sends on."""
        if self._whole:
            return self._fields[WHOLE].partial()
        return {field: reduction.partial() for field, reduction in self._fields.items()}

    def total(self) -> Any:
        """Return the result at the root.

        Raises:
            ExecutionError: The contributions to a field do not fit together.
        """
        totals: dict[str, Any] = {}
        for field, reduction in self._fields.items():
            try:
                totals[field] = reduction.total()
            except (ExecutionError, TypeError, ValueError) as error:
                raise ExecutionError(
                    f"cannot reduce {_named(field)}: {getattr(error, 'what', error)}",
                    where=getattr(error, "where", ""),
                ) from error
        return totals[WHOLE] if self._whole else totals


class ValueGathering:
    """Gathers encoded contributions: decodes each, and encodes what travels on.

    Args:
        reduce: Reduction of each field.
        place: Puts the arrays of a value into a payload, for example into shared memory.
        decoder: Decodes contributions; it has seen those before.
    """

    __slots__ = ("_accumulator", "_decode", "_place", "_reduce")

    def __init__(
        self,
        reduce: Mapping[str, str],
        place: Callable[[values.Encoded], Payload | None],
        decoder: CachedDecoder,
    ) -> None:
        self._accumulator = Accumulator(reduce)
        self._decode = decoder.decode
        self._reduce = reduce
        self._place = place

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution."""
        value = self._decode(body, payload.view if payload is not None else b"")
        self._accumulator.add(value, rank, weight)

    def partial(self) -> tuple[bytes, Payload | None]:
        """Return what a junction sends on."""
        return self.placed(self._accumulator.partial())

    def placed(self, value: Any) -> tuple[bytes, Payload | None]:
        """Return a value encoded, to be sent on."""
        encoded = values.encode(value)
        return encoded.body, self._place(encoded)

    def chunked(self, offers: Sequence[Advertised]) -> ElementwiseReduction | None:
        """Return how large contributions are put together piece by piece; None if they cannot."""
        return chunked(self._reduce, WHOLE, offers)

    def outcome(self) -> tuple[bytes, Payload | None]:
        """Return the result, encoded, to be sent down."""
        encoded = values.encode(self._accumulator.total())
        return encoded.body, self._place(encoded)

    def total(self) -> Any:
        """Return the result at the root."""
        return self._accumulator.total()


def _named(field: str) -> str:
    return f"field '{field}'" if field else "what the agents contributed"


def inline(encoded: values.Encoded) -> Payload | None:
    """Put the arrays of a value into the message itself."""
    return Payload(encoded.payload()) if encoded.nbytes else None


def gathering(
    place: Callable[[values.Encoded], Payload | None] = inline,
) -> Callable[[Mapping[str, str]], ValueGathering]:
    """Return what a node needs to gather values."""
    decoder = CachedDecoder()
    return lambda reduce: ValueGathering(reduce, place, decoder)
