"""Gathering the answers to a wave: arrays that fit each other are summed, all else is reduced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from sapwood.comm.messages import StreamSpec
from sapwood.comm.reduction import Accumulator
from sapwood.comm.values import Encoded
from sapwood.session.express.answers import Answer, Answers, Arrays, Layout
from sapwood.session.express.library import ExpressLibrary, milliseconds
from sapwood.session.wave_result import WaveResult

Gathered = tuple[WaveResult, int]
"""The result, and the bytes of the answers."""

LONG = 0.001
"""Seconds after which a wave finds the caches full of other things."""

NOBODY = 0
"""Whom the library lets do nothing, as it is never armed with a ticket 0."""

_add = np.add


class Total:
    """What the answers to a wave come to.

    Arrays that fit each other are added here. From the first answer on that does not fit, all
    goes to the reductions; first what they came to so far.

    Args:
        reduce: Reduction of each field.
    """

    __slots__ = ("_gathered", "_is_own", "_layout", "_reduce", "_sums")

    def __init__(self, reduce: Mapping[str, str]) -> None:
        self._reduce = reduce
        self._sums: Arrays | None = None
        self._layout: Layout | None = None
        self._is_own = False
        self._gathered: Accumulator | None = None

    def add(self, answer: Answer) -> None:
        """Take one more answer that has something to reduce.

        Raises:
            ExecutionError: It does not fit the others.
        """
        _, value, weight, _, rank, arrays, layout = answer
        gathered, sums = self._gathered, self._sums
        if arrays is not None and gathered is None and (sums is None or layout is self._layout):
            if sums is None:
                self._sums, self._layout = arrays, layout  # the contributor's: not written to
            elif self._is_own:
                for total, array in zip(sums, arrays, strict=True):
                    _add(total, array, total)
            else:
                self._sums, self._is_own = list(map(_add, sums, arrays)), True
            return
        if gathered is None:
            gathered = self._gathered = Accumulator(self._reduce)
            if sums is not None:
                gathered.add(dict(zip(self._reduce, sums, strict=True)), rank, 0.0)
        gathered.add(value, rank, weight)

    def rehearse(self) -> None:
        """Add what is like the arrays so far, and nothing, without any effect."""
        if self._layout is not None and self._layout.zeros and self._gathered is None:
            zeros = self._layout.zeros
            list(map(_add, zeros, zeros))
            self.total()

    def total(self) -> Any:
        """Return the result; None if there was nothing to reduce.

        Raises:
            ExecutionError: The contributions to a field do not fit together.
        """
        if self._gathered is not None:
            return self._gathered.total()
        if self._sums is None:
            return None
        own = self._sums if self._is_own else map(np.array, self._sums)
        return dict(zip(self._reduce, own, strict=True))


def _rehearse(library: ExpressLibrary, result: Total, encode: Callable[[], Encoded]) -> None:
    """Go through the motions of what follows the last answer: its code comes into the cache."""
    with suppress(Exception):  # who sent it may change it by now, also at this moment
        result.rehearse()
        encoded = encode()
        body, payload = encoded.body, encoded.message_payload()
        library.begin_wave(NOBODY, 0, body, len(body), payload, len(payload))
        library.commit(NOBODY)
        WaveResult(None, (), 0.0)


def gather(
    library: ExpressLibrary,
    spec: StreamSpec,
    answers: Answers,
    first: int,
    owner: int,
    end: float | None,
    encode: Callable[[], Encoded],
) -> Gathered | None:
    """Return what the answers to a wave come to; None if the event loop goes on with it.

    Args:
        library: Where the wave was begun.
        spec: What the stream is.
        answers: Reads the answers.
        first: Number of the first wave since the library was armed.
        owner: Who has begun it.
        end: When to wait no longer, as ``time.monotonic()`` has it.
        encode: Encodes what was sent once more.

    Raises:
        SapwoodError: The answers do not fit together, or one is malformed.
    """
    result, known = Total(spec.reduce), answers.known
    left, weight, nbytes, brought = len(answers.ranges), 0.0, 0, False
    began = monotonic()
    while left:
        if left == 1 and monotonic() - began > LONG:
            _rehearse(library, result, encode)
        count = 0
        while not count:
            count = library.wait(owner, -1 if end is None else milliseconds(end - monotonic()))
        if count < 0:
            return None
        left -= count
        for each in library.arrived[:count].tolist():
            answer = known.get(each) or answers.read(owner, each & 0xFF)
            if answer is None:
                library.abandon(owner)
                return None
            weight += answer[2]
            nbytes += answer[3]
            if answer[0]:
                result.add(answer)
                brought = True
    total = result.total()
    if not brought and not spec.counted:
        total = Accumulator(spec.reduce).total()
    waves = library.commit(owner)
    if not waves:
        return None
    return WaveResult(total, spec.members, weight, first + waves - 1), nbytes
