"""Environment variables that shell files export, for example those of site modules."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sapwood.core.errors import ConfigurationError
from sapwood.environment.folders import expand_user

SHELL = "/bin/sh"

# The files' own output goes to standard error, so that standard output holds the result only.
# `env -0` is asked for by its path: a file may well have changed PATH.
_SCRIPT = """
for file in "$@"; do
    . "$file" >&2 || { echo "$file ended with status $?" >&2; exit 1; }
done
exec "$SAPWOOD_ENV_COMMAND" -0
"""

_SHELL_ONLY = {"PWD", "OLDPWD", "SHLVL", "_", "SAPWOOD_ENV_COMMAND"}


def source_files(
    files: Sequence[str | Path],
    *,
    time_limit: float = 30.0,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Source files one after the other in one shell and return what they export.

    Args:
        files: The files, in order; later ones see the exports of earlier ones.
        time_limit: How long all of them may take, seconds.
        variables: The environment they start from; None means this process's.

    Returns:
        The variables that are new or changed, by name.

    Raises:
        ConfigurationError: A file is missing, fails, or takes too long; the details hold what
            it wrote.
    """
    if not files:
        return {}
    paths = [expand_user(file).absolute() for file in files]
    for path in paths:
        if not path.is_file():
            raise ConfigurationError(
                "a shell file to source does not exist",
                where=str(path),
                hint="check environment.source",
            )
    before = dict(os.environ if variables is None else variables)
    output = _run([str(path) for path in paths], before, time_limit)
    after = dict(
        item.split("=", 1) for item in output.decode("utf-8", "surrogateescape").split("\0") if item
    )
    return {
        name: value
        for name, value in after.items()
        if before.get(name) != value and name not in _SHELL_ONLY
    }


def _run(paths: list[str], variables: dict[str, str], time_limit: float) -> bytes:
    where = ", ".join(paths)
    process = subprocess.Popen(
        [SHELL, "-c", _SCRIPT, SHELL, *paths],
        env={**variables, "SAPWOOD_ENV_COMMAND": _env_command()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        output, errors = process.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired as error:
        # The whole group: a child of the shell may hold the pipes open.
        os.killpg(process.pid, 9)
        _output, errors = process.communicate()
        raise ConfigurationError(
            f"sourcing shell files took longer than {time_limit:g} s",
            where=where,
            hint="they must not wait for anything; or raise environment.source_timeout",
            details=_details(errors),
        ) from error
    except BaseException:
        os.killpg(process.pid, 9)
        process.communicate()
        raise
    if process.returncode:
        raise ConfigurationError(
            f"sourcing shell files failed with status {process.returncode}",
            where=where,
            hint="they are sourced by /bin/sh, not by bash",
            details=_details(errors),
        )
    return output


def _env_command() -> str:
    for folder in ("/usr/bin", "/bin"):
        path = Path(folder) / "env"
        if path.exists():
            return str(path)
    raise ConfigurationError("the command env is missing", hint="install coreutils")


def _details(errors: bytes) -> dict[str, str]:
    text = errors.decode("utf-8", "replace")
    return {"their output": text} if text.strip() else {}
