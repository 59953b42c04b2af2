"""Packages of a staged environment: what processes on a node import besides Sapwood's own.

The client names an environment by a variable. A node replaces the name by the folder in which
that is staged there; runners import from it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "SAPWOOD_ENVIRONMENT"
"""Variable of processes: from the client the name of an environment, on a node its folder."""


def packages_variables(name: str) -> dict[str, str]:
    """Return the variables that let processes on nodes use an environment; none without a name."""
    return {VARIABLE: name} if name else {}


def import_staged_packages() -> None:
    """Let this process import from the environment that its node has named, before all others."""
    folder = os.environ.get(VARIABLE, "")
    if Path(folder).is_absolute() and folder not in sys.path:
        sys.path.insert(0, folder)
