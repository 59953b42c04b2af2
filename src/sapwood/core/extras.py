"""The packages that Sapwood works without, and the command that installs each.

What most users never load comes with an extra. An error about such a package has the command of
:func:`install` as its hint.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any, Final

from sapwood.core.errors import ConfigurationError

PACKAGES: Final = {"cuda-cpu": "sapwood_cuda_cpu", "lizard": "sapwood_lizard"}
"""The extras that are packages of Sapwood's own, and the module of each."""

_USES: Final = {
    "cluster": "a cluster of several nodes",
    "server": "the HTTP server with the dashboard",
    "watch": "a watch on sources",
}
"""The features that need the packages of an extra."""


def install(extra: str) -> str:
    """Return the command that installs an extra.

    Example:
        >>> install("server")
        "pip install 'sapwood[server]'"
    """
    return f"pip install 'sapwood[{extra}]'"


def missing(extra: str, package: str) -> ConfigurationError:
    """Return the error about a package that is not installed.

    Args:
        extra: The extra that brings it.
        package: The package.

    Example:
        >>> str(missing("watch", "watchfiles")).partition(". ")[0]
        'a watch on sources needs the package watchfiles, which is not installed'
    """
    what = f"{_USES[extra]} needs the package {package}, which is not installed"
    return ConfigurationError(what, hint=install(extra))


def check_installed(extra: str, *packages: str) -> None:
    """Check that the packages of an extra are installed, without an import of them.

    Raises:
        ConfigurationError: One is not installed.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise missing(extra, package)


class LazyModule:
    """A module of an extra, which is imported when one of its names is used for the first time.

    Its users can be imported without it, and fast.

    Args:
        name: The module.
        extra: The extra that brings it.
    """

    def __init__(self, name: str, extra: str) -> None:
        self._name = name
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by what looks at all names of a module
            raise AttributeError(name)
        value = getattr(self._imported(), name)
        setattr(self, name, value)
        return value

    def _imported(self) -> ModuleType:
        package = self._name.partition(".")[0]
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise missing(self._extra, package) from error
        return importlib.import_module(self._name)


def is_own(module: str) -> bool:
    """Whether a module is Sapwood's own, or of one of its extra packages.

    Example:
        >>> is_own("sapwood.core.errors"), is_own("sapwood_lizard.program"), is_own("sapwoods")
        (True, True, False)
    """
    package = module.partition(".")[0]
    return package == "sapwood" or package in PACKAGES.values()
