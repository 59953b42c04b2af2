"""Import what renders help texts without the parts of it that no help text of Sapwood needs."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final

UNUSED: Final = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Modules that ``typer.rich_utils`` imports, a quarter of the time of ``sapwood --help``."""


def import_help() -> None:
    """Import ``typer.rich_utils`` with stand-ins for what is slow; they import it when called."""
    if "typer.rich_utils" in sys.modules:
        return
    missing = {name: class_name for name, class_name in UNUSED.items() if name not in sys.modules}
    for name, class_name in missing.items():
        sys.modules[name] = ModuleType(name)
        setattr(sys.modules[name], class_name, _stand_in(name, class_name))
    try:
        import_module("typer.rich_utils")
    finally:
        for name in missing:
            del sys.modules[name]


def _stand_in(module: str, name: str) -> type[Any]:
    class StandIn(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            return getattr(import_module(module), name)(*args, **options)

        def __getattr__(cls, attribute: str) -> Any:
            return getattr(getattr(import_module(module), name), attribute)

    return StandIn(name, (), {})
