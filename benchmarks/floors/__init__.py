"""Floors: the least that a piece of work costs on this machine without Sapwood.

Each floor runs in a fresh Python process (``python -m floors NAME …`` in this folder's
parent), because it forks, and forking a process that runs threads is not safe.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from floors.rest import wait_for_rest

TIME_LIMIT = 600.0
"""Seconds after which a floor is taken to hang."""


def measure_floor(name: str, **arguments: Any) -> Any:
    """Measure a floor in a fresh process, once the machine is at rest.

    Args:
        name: A module of this package.
        **arguments: Arguments of its ``measure`` function: numbers and strings.

    Returns:
        What ``measure`` returned: a list of seconds, or a dictionary of such lists.
    """
    wait_for_rest()
    done = subprocess.run(
        [sys.executable, "-m", "floors", name, json.dumps(arguments)],
        cwd=Path(__file__).resolve().parent.parent,
        stdout=subprocess.PIPE,
        check=True,
        timeout=TIME_LIMIT,
    )
    return json.loads(done.stdout)
