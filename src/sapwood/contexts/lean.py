"""The import of msgspec in a zygote: agents wait for it, so what they do not use comes later.

Half of that import is spent on modules that describe types, write schemas or read other formats.
They are left out until somebody uses one of them, and put in before user code is forked.
"""

import importlib
import os
import sys
import types
from typing import Any

LATER = ("msgspec.inspect", "msgspec.json", "msgspec.toml", "msgspec.yaml")
"""Modules that the first import of msgspec leaves out."""


class _Later(types.ModuleType):
    """Stands for a module of :data:`LATER` until something in it is wanted."""

    def __getattr__(self, name: str) -> Any:
        complete()
        return getattr(sys.modules[self.__name__], name)


class _Platform(types.ModuleType):
    """What ``uuid``, which msgspec imports, wants of ``platform`` in Python 3.11."""

    @staticmethod
    def system() -> str:
        """Return the name of the operating system."""
        return os.uname().sysname


def import_msgspec() -> None:
    """Import what agents need of msgspec; it must not have been imported before."""
    # msgspec takes ``typing`` in place of ``typing_extensions``, which imports a dozen modules.
    absent: dict[str, Any] = {"typing_extensions": None, "platform": _Platform("platform")}
    absent = {name: module for name, module in absent.items() if name not in sys.modules}
    sys.modules.update(absent)
    sys.modules.update((name, _Later(name)) for name in LATER)
    importlib.import_module("msgspec")
    for name in absent:
        del sys.modules[name]


def complete() -> None:
    """Import what was left out."""
    wanted = [name for name in LATER if isinstance(sys.modules.get(name), _Later)]
    for name in wanted:
        del sys.modules[name]
    for name in wanted:
        importlib.import_module(name)
    uuid: Any = sys.modules.get("uuid")
    if isinstance(getattr(uuid, "platform", None), _Platform):
        uuid.platform = importlib.import_module("platform")
