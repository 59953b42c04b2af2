"""Programs: what they are, how they are built, and how they reach a runner.

::

    parameter, native_marker → program → load ┐
    bundle, capture, folder ───────────┤
    languages, toolchain, target ──────┴→ build → cache → image (opened in a runner)
    dwarf, comments → interface → binding, map_binding
"""

from __future__ import annotations

from sapwood.code.load import load_program

__all__ = ["load_program"]
