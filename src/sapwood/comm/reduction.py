"""What gathers the contributions to a wave: each field by its reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sapwood.comm import values
from sapwood.comm.cached_codec import CachedDecoder
from sapwood.comm.payload import Payload
from sapwood.comm.reductions import make_reduction
from sapwood.comm.reductions.chunked import ElementwiseReduction, chunked
from sapwood.comm.streams.wave import Advertised
from sapwood.core.errors import ExecutionError, ProgramError, ProtocolError, SapwoodError
from sapwood.core.failures import text_of
from sapwood.core.shown import shown

WHOLE = ""
"""Name of the only field of a contribution that is reduced as it is."""


def quiet() -> np.errstate:
    """Let numpy neither warn nor raise: the error settings of the caller change no result."""
    return np.errstate(all="ignore")


class Accumulator:
    """Puts the contributions to one wave together, field by field; to be used in :func:`quiet`.

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
            except Exception as error:
                raise _failed(field, error, f"agent {rank}") from error

    def partial(self) -> Any:
        """Return what a junction sends on.

        Raises:
            ExecutionError: The contributions to a field do not fit together.
        """
        partials = self._each("partial")
        return partials[WHOLE] if self._whole else partials

    def total(self) -> Any:
        """Return the result at the root.

        Raises:
            ExecutionError: The contributions to a field do not fit together.
        """
        totals = self._each("total")
        return totals[WHOLE] if self._whole else totals

    def _each(self, method: str) -> dict[str, Any]:
        """Return what a method of each reduction returns, by field."""
        results: dict[str, Any] = {}
        for field, reduction in self._fields.items():
            try:
                results[field] = getattr(reduction, method)()
            except Exception as error:
                raise _failed(field, error) from error
        return results


class ValueGathering:
    """Gathers encoded contributions: decodes each, and encodes what travels on.

    Args:
        reduce: Reduction of each field.
        store: Puts the arrays of a value into a payload, for example into shared memory.
        decoder: Decodes contributions; it has seen those before.
    """

    __slots__ = ("_accumulator", "_decode", "_reduce", "_store")

    def __init__(
        self,
        reduce: Mapping[str, str],
        store: Callable[[values.Encoded], Payload | None],
        decoder: CachedDecoder,
    ) -> None:
        self._accumulator = Accumulator(reduce)
        self._decode = decoder.decode
        self._reduce = reduce
        self._store = store

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution.

        Raises:
            ProtocolError: It is malformed.
            SapwoodError: It does not fit the others, or memory is short.
        """
        try:
            value = self._decode(body, payload.view if payload is not None else b"")
            with quiet():
                self._accumulator.add(value, rank, weight)
        except SapwoodError:
            raise
        except Exception as error:
            raise _failed(WHOLE, error, f"agent {rank}") from error

    def partial(self) -> tuple[bytes, Payload | None]:
        """Return what a junction sends on."""
        with quiet():
            return self.placed(self._accumulator.partial())

    def placed(self, value: Any) -> tuple[bytes, Payload | None]:
        """Return a value encoded, to be sent on.

        Raises:
            SapwoodError: It cannot travel, or memory is short.
        """
        try:
            encoded = values.encode(value)
            return encoded.body, self._store(encoded)
        except SapwoodError:
            raise
        except Exception as error:
            raise _failed(WHOLE, error) from error

    def chunked(self, offers: Sequence[Advertised]) -> ElementwiseReduction | None:
        """Return how large contributions are put together piece by piece; None if they cannot."""
        return chunked(self._reduce, WHOLE, offers)

    def outcome(self) -> tuple[bytes, Payload | None]:
        """Return the result, encoded, to be sent down."""
        with quiet():
            return self.placed(self._accumulator.total())

    def total(self) -> Any:
        """Return the result at the root."""
        with quiet():
            return self._accumulator.total()


def _failed(field: str, error: Exception, where: str = "") -> ExecutionError:
    """Return the error of a wave whose contributions cannot be reduced."""
    if isinstance(error, ExecutionError):
        what, where = error.what, where or error.where
    elif isinstance(error, (TypeError, ValueError)):
        what = text_of(error)
    else:
        what = f"{type(error).__name__}: {text_of(error)}"
    hint = error.hint if isinstance(error, ExecutionError) else ""
    return ExecutionError(f"cannot reduce {_named(field)}: {what}", where=where, hint=hint)


def _named(field: str) -> str:
    return f"field {shown(field)}" if field else "what the agents contributed"


def inline(encoded: values.Encoded) -> Payload | None:
    """Put the arrays of a value into the message itself."""
    return Payload(encoded.payload()) if encoded.nbytes else None


def gathering(
    store: Callable[[values.Encoded], Payload | None] = inline,
) -> Callable[[Mapping[str, str]], ValueGathering]:
    """Return what a node needs to gather values."""
    decoder = CachedDecoder()
    return lambda reduce: ValueGathering(reduce, store, decoder)
