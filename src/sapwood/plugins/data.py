"""Datasets that a plug-in publishes itself, in parts that agents read."""

from sapwood.comm import values
from sapwood.comm.shared_memory import ALIGNMENT, SharedBlock
from sapwood.data.chunks import split_range
from sapwood.data.publish import Published
from sapwood.data.slice import FieldRef, MemoryPlace, Slice, SliceRef

__all__ = [
    "ALIGNMENT",
    "FieldRef",
    "MemoryPlace",
    "Published",
    "SharedBlock",
    "Slice",
    "SliceRef",
    "split_range",
    "values",
]
