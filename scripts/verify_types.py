"""Check with pyright that the types of all public names are complete.

``pyright --verifytypes`` treats each module without a leading underscore as public. This prints
only findings about the names of ``sapwood``, ``sapwood.types``, ``sapwood.errors`` and
``sapwood.plugins``, their attributes and their base classes.
"""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from sapwood import plugins

MODULES = (
    "sapwood",
    "sapwood.types",
    "sapwood.errors",
    *(f"sapwood.plugins.{one.name}" for one in pkgutil.iter_modules(plugins.__path__)),
)


def public_names() -> set[str]:
    """Return the full names of public classes and functions, and of the bases of the classes."""
    found = set()
    for module in map(import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                found |= {f"{one.__module__}.{one.__qualname__}" for one in value.__mro__}
            elif inspect.isfunction(value):
                found.add(f"{value.__module__}.{value.__qualname__}")
            elif not isinstance(value, ModuleType):
                found.add(f"{module.__name__}.{name}")
    return {name for name in found if name.startswith("sapwood.")}


def incomplete(report: dict[str, Any], public: set[str]) -> list[str]:
    """Return a line for each public symbol whose type is not known or not clear.

    A finding that a type is "partially unknown" is left out: the missing annotation is in another
    class, and is reported there if that class is public.

    Args:
        report: What pyright printed as JSON.
        public: Full names of what is public.
    """
    lines = []
    for symbol in report["typeCompleteness"]["symbols"]:
        name: str = symbol["name"]
        is_public = name in public or name.rpartition(".")[0] in public
        if is_public:
            messages = [one["message"] for one in symbol["diagnostics"]]
            lines += [f"{name}: {one}" for one in messages if "partially unknown" not in one]
    return sorted(set(lines))


def main() -> int:
    """Run pyright and print what is incomplete; return the exit code."""
    folder = Path(sys.executable).parent
    done = subprocess.run(
        [folder / "pyright", "--verifytypes", "sapwood", "--ignoreexternal", "--outputjson"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )
    report = json.loads(done.stdout)
    public = public_names()
    known = {symbol["name"] for symbol in report["typeCompleteness"]["symbols"]}
    missing = sorted(public - known)
    lines = incomplete(report, public) + [f"{name}: pyright does not know it" for name in missing]
    print("\n".join(lines) or f"types of {len(public)} public names are complete")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
