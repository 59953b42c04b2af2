"""Programs: what they are, how they are built, and how they reach a runner.

::

    parameter, native → program → load ┐
    bundle, capture, folder ───────────┤
    languages, toolchain, target ──────┴→ build → cache → image (opened in a runner)
    dwarf, annotations → interface → binding → map_binding → repeated_map

Agents import only ``runner``, so the rest is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sapwood.code.load import load_program

__all__ = ["load_program"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sapwood.code.load import load_program  # noqa: PLC0415 - agents start faster without it

    return load_program
