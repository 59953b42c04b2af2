"""The commands by which Sapwood starts Python.

Python puts the current folder first on its search path for ``-c`` and ``-m``: a file ``json.py`` of
another user there, or of the user's own, would run in place of the standard library's. So every
interpreter that Sapwood starts is started by :func:`python_command`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def python_command(
    *words: str,
    interpreter: Sequence[str] = (),
    site: bool = True,
    variables: bool = True,
) -> list[str]:
    """Return the command of a Python that imports nothing from the current folder.

    Args:
        words: Its further options and arguments, for example ``-m`` and a module.
        interpreter: The command of the interpreter; by default the one that runs.
        site: Whether it gets the installed packages, and runs their ``.pth`` files.
        variables: Whether ``PYTHONPATH`` and the other variables of Python count.

    Example:
        >>> python_command("-m", "sapwood", interpreter=["python3"])
        ['python3', '-P', '-m', 'sapwood']
    """
    options = ["-P"] if variables else ["-I"]
    if not site:
        options.append("-S")
    return [*(interpreter or [sys.executable]), *options, *words]
