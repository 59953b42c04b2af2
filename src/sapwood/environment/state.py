"""Where Sapwood keeps what outlives processes: ``$XDG_STATE_HOME/sapwood``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder; it need not be there yet.

    Example:
        >>> str(state_folder({"XDG_STATE_HOME": "/var/state"}))
        '/var/state/sapwood'
    """
    variables = os.environ if environment is None else environment
    base = variables.get("XDG_STATE_HOME", "")
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "sapwood"
