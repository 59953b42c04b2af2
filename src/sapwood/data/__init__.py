"""Datasets: arrays, files and ranges, split over agents and opened there without copying.

The names below are imported when they are first used: agents need only
:mod:`sapwood.data.slice`, and start 20 ms faster without the rest.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sapwood.data.dataset import Dataset
    from sapwood.data.publish import Published
    from sapwood.data.slice import Slice, SliceRef, open_slice
    from sapwood.data.sources import load

__all__ = ["Dataset", "Published", "Slice", "SliceRef", "load", "open_slice"]

_HOMES = {
    "Dataset": "dataset",
    "Published": "publish",
    "Slice": "slice",
    "SliceRef": "slice",
    "load": "sources",
    "open_slice": "slice",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415 - needed only on the first use of a name

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
