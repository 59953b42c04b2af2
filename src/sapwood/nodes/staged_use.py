"""How processes of a node use what is staged there: programs by name, packages of environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sapwood.code.runner.packages import VARIABLE
from sapwood.content.file_trees import MARK
from sapwood.contexts.local_user import LocalUser
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown

STAGE_VARIABLE: Final = "SAPWOOD_STAGE"
"""Variable of all processes of a node: the folder in which staged files are, by their names."""


def with_staged_programs(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command that finds staged programs where no others have the name.

    Example:
        >>> with_staged_programs({"PATH": "/bin", "SAPWOOD_STAGE": "/stage"})["PATH"]
        '/bin:/stage'
    """
    stage = variables.get(STAGE_VARIABLE, "")
    if not stage:
        return dict(variables)
    return {**variables, "PATH": f"{variables.get('PATH', os.defpath)}:{stage}"}


def with_environment(
    chosen: Mapping[str, str], inherited: Mapping[str, str], owner: LocalUser | None = None
) -> dict[str, str]:
    """Return the chosen variables of processes, with the variables of their environment.

    Its programs come first, then those beside this Python: an environment is for this version.

    Args:
        chosen: The chosen variables; one of them may name an environment.
        inherited: Those that the processes have besides.
        owner: Whose the processes are; None for the user of this process.

    Raises:
        ConfigurationError: No such environment is staged here, or the owner cannot read it.
    """
    name = chosen.get(VARIABLE, "")
    if not name:
        return dict(chosen)
    # The folder itself: a process must not continue with the start of another environment when
    # the name gets one.
    link = Path(os.environ.get(STAGE_VARIABLE, "/nowhere"), name)
    folder = link.resolve()
    if "/" in name or not (folder / MARK).is_file():
        raise ConfigurationError(
            f"no environment {shown(name)} is staged on this node",
            hint="`sapwood stage environment LOCK` stages one on the nodes of a head; "
            "`sapwood stage list` shows what is there",
        )
    if owner is not None and not owner.is_this_process and not owner.may_enter(folder):
        raise ConfigurationError(
            f"the user {owner.name} cannot read what is staged on this node",
            where=str(folder),
            hint="choose another folder by nodes.stage_folder",
        )
    known = {**inherited, **chosen}
    python = known.get("PYTHONPATH", "")
    programs = [str(folder / "bin"), str(Path(sys.executable).parent)]
    return {
        **chosen,
        VARIABLE: str(folder),
        "PYTHONPATH": f"{folder}:{python}" if python else str(folder),
        "PATH": ":".join([*programs, known.get("PATH", os.defpath)]),
    }
