"""Calls ``assign`` of a built library through ctypes: what floors and peers use."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Assign:
    """The C function of ``assign.c`` on one slice, with one buffer for all that it returns.

    Args:
        library: Path of the built library.
        points: The slice, float32 of shape (n, 16).
        clusters: Number of centres.
        packed: float64 buffer of :func:`packed_size` numbers for sums, counts and inertia;
            a new one by default.

    Attributes:
        packed: Sums, counts and inertia of the last call, one after the other.
    """

    def __init__(
        self, library: str, points: Array, clusters: int, packed: Array | None = None
    ) -> None:
        self._function = ctypes.CDLL(library).assign
        self._function.restype = None
        self._points = points
        d = points.shape[1]
        self.packed = np.zeros(packed_size(clusters, d)) if packed is None else packed
        self._counts = np.zeros(clusters, np.int64)
        self._counted = self.packed[clusters * d : -1]
        address = self.packed.ctypes.data
        self._before = (
            ctypes.c_void_p(points.ctypes.data),
            ctypes.c_int64(len(points)),
        )
        self._after = (
            ctypes.c_int64(clusters),
            ctypes.c_void_p(address),
            ctypes.c_void_p(self._counts.ctypes.data),
            ctypes.c_void_p(address + self.packed.nbytes - 8),
        )

    def __call__(self, centres: Array) -> None:
        """Assign the points to float64 centres of shape (clusters, 16)."""
        self._function(*self._before, ctypes.c_void_p(centres.ctypes.data), *self._after)
        self._counted[:] = self._counts


def packed_size(clusters: int, dimensions: int) -> int:
    """Return how many numbers sums, counts and inertia are together."""
    return clusters * dimensions + clusters + 1


def next_centres(packed: Array, clusters: int, dimensions: int) -> tuple[Array, float]:
    """Return the new centres, and the inertia of the old ones."""
    sums = packed[: clusters * dimensions].reshape(clusters, dimensions)
    counts = packed[clusters * dimensions : -1]
    return sums / np.maximum(counts, 1)[:, np.newaxis], float(packed[-1])
