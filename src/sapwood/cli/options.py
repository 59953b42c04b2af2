"""Options that several commands have, and the values that their texts stand for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from sapwood.cli.failures import remember_cluster
from sapwood.core.errors import ConfigurationError, InputError
from sapwood.core.hints import DEFAULT_CLUSTER
from sapwood.core.shown import shown
from sapwood.head.folder import running_heads

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, nothing else.")
]

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]

CLUSTER_VARIABLE: Final = "SAPWOOD_CLUSTER"
"""Variable that names the cluster where no option does."""


_named_by_option = ContextVar("_named_by_option", default=False)
"""Whether the command line gives ``--cluster``; not whether the variable does."""


def chosen_cluster(context: typer.Context, option: typer.CallbackParam, name: str) -> str:
    """Return the cluster that a command is about.

    Without the option and the variable it is the only cluster that is up on this machine, or else
    the one called ``default``.
    """
    source = context.get_parameter_source(option.name or "")
    named_cluster(context, option, name)
    if source is not None and source.name == "DEFAULT":
        running = running_heads()
        if len(running) == 1:
            name = running[0]
    return remember_cluster(name)


def named_cluster(
    context: typer.Context, option: typer.CallbackParam, name: str | None
) -> str | None:
    """Return the cluster that the option or the variable names; None without either."""
    source = context.get_parameter_source(option.name or "")
    _named_by_option.set(source is not None and source.name == "COMMANDLINE")
    return name if name is None else remember_cluster(name)


Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        envvar=CLUSTER_VARIABLE,
        callback=chosen_cluster,
        show_default="the only one that is up here, or 'default'",
        help="Cluster: its name on this machine, or sapwood://HOST:PORT with a credential.",
    ),
]
"""Every command about a cluster has it by this name, so that hints can add it."""

NewCluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        envvar=CLUSTER_VARIABLE,
        callback=remember_cluster,
        help="Name of the new cluster.",
    ),
]
"""The same for a cluster that is not up yet."""

Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Environment variable of the agents; NAME alone takes its value from here, so that no "
        "list of processes shows it; may be repeated.",
    ),
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Setting for this command, for example log.console=debug; may be repeated.",
    ),
]


def assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return the texts of options such as ``-p name=value`` by name.

    Raises:
        InputError: A text has no ``=`` or no name, or a name is given twice.

    Example:
        >>> assignments(["colours=16", "title=a=b"], "-p")
        {'colours': '16', 'title': 'a=b'}
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(
                f"{option} cannot be {shown(text)}",
                hint=f"write {option} name=value, without blanks",
            )
        if name in values:
            raise InputError(f"{shown(name)} is given twice", where=option, hint="give it once")
        values[name] = value
    return values


def variables(texts: Iterable[str]) -> dict[str, str]:
    """Return the environment variables of ``--env`` as settings by dotted key.

    Raises:
        InputError: As in :func:`given_variables`.

    Example:
        >>> variables(["MODE=test", "EMPTY="])
        {'environment.variables.MODE': 'test', 'environment.variables.EMPTY': ''}
    """
    given = given_variables(texts)
    return {f"environment.variables.{name}": value for name, value in given.items()}


def given_variables(texts: Iterable[str]) -> dict[str, str]:
    """Return the environment variables of ``--env`` by name.

    Args:
        texts: ``NAME``, for the value that it has in this process, or ``NAME=VALUE``.

    Raises:
        InputError: A variable is not set here, has no name, or is given twice.

    Example:
        >>> given_variables(["MODE=test", "EMPTY="])
        {'MODE': 'test', 'EMPTY': ''}
    """
    whole = []
    for text in texts:
        if text and "=" not in text and text not in os.environ:
            raise InputError(
                f"the environment variable {shown(text)} is not set here",
                where="--env",
                hint=f"export it, or write --env {text}=VALUE",
            )
        whole.append(text if "=" in text or not text else f"{text}={os.environ[text]}")
    return assignments(whole, "--env")


def machines_of(on: str | None, session: str | None, cluster: str) -> str | None:
    """Return the machines that options name together, as ``--on`` alone would name them.

    Args:
        on: ``--on``.
        session: ``--session``.
        cluster: ``--cluster``.

    Example:
        >>> machines_of("head", None, "lab"), machines_of(None, "night", "lab")
        ('head:lab', 'session:lab/night')
        >>> machines_of("local", None, "lab"), machines_of(None, "night", "default")
        ('local', 'session:night')
    """
    kind, _, head = (on or "").partition(":")
    remember_cluster(head if kind == "head" and head else cluster)
    named = cluster != DEFAULT_CLUSTER
    if session is not None:
        return f"session:{cluster}/{session}" if named else f"session:{session}"
    return f"head:{cluster}" if named and on == "head" else on


def cluster_is_named() -> bool:
    """Return whether the command line gives ``--cluster``; the variable does not count."""
    return _named_by_option.get()


def head_if_named() -> str | None:
    """Return ``"head"`` if the command line gives ``--cluster``, which then says where to run."""
    return "head" if cluster_is_named() else None


def run_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Return the texts of ``--set name=value`` as a runner module gets them.

    A value that reads as JSON is what that says (numbers, true, false, null, lists, quoted
    text); anything else is text.

    Raises:
        InputError: A text has no ``=`` or no name, or a name is given twice.

    Example:
        >>> run_settings(["dims=3", "threshold=1e-3", "input_file=a.csv", 'name="7"'])
        {'dims': 3, 'threshold': 0.001, 'input_file': 'a.csv', 'name': '7'}
    """
    return {name: _read(text) for name, text in assignments(texts, "--set").items()}


def _read(text: str) -> Any:
    word = text.strip()
    try:
        return json.loads(word.lower() if word.lower() in {"true", "false"} else word)
    except ValueError:
        return text


def existing_file(path: Path) -> Path:
    """Return the path of a file that exists.

    Raises:
        InputError: It is missing or a folder.
    """
    if path.is_dir():
        raise InputError("this is a folder", where=str(path), hint="name a file in it")
    if not path.exists():
        raise InputError("there is no such file", where=str(path), hint="check the path")
    return path


def output_path(path: Path | None) -> Path | None:
    """Return the path of a file to be written, after a look whether it can be.

    Raises:
        InputError: Its folder is missing or not writable, or it is a folder itself.
    """
    if path is None:
        return None
    folder = path.parent
    if path.is_dir():
        raise InputError("the output is a folder", where=str(path), hint="name a file in it")
    if not folder.is_dir():
        raise InputError("the folder of the output does not exist", where=str(folder))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError("the output cannot be written", where=str(path))
    return path


class Exclusion(NamedTuple):
    """An option of ``sapwood run`` that does not go with others.

    Attributes:
        option: The option.
        others: Options that must not be given with it.
        why: The reason.
        hint: What to do.
        needs: Option that must be given with it; empty for none.
    """

    option: str
    others: tuple[str, ...]
    why: str
    hint: str
    needs: str = ""


EXCLUSIONS: Final = (
    Exclusion(
        "--continue",
        ("--resume",),
        "--continue resumes from the file of --checkpoint",
        "give --checkpoint FILE, and leave out --resume",
        needs="--checkpoint",
    ),
    Exclusion(
        "--watch",
        ("--checkpoint", "--resume", "--allocations"),
        "--watch runs another program after each edit",
        "leave out --checkpoint, --resume and --allocations",
    ),
    Exclusion(
        "--detach",
        ("--checkpoint", "--resume", "--continue"),
        "a detached run keeps its own checkpoints and resumes automatically",
        "leave out --checkpoint, --resume and --continue",
    ),
    Exclusion(
        "--detach",
        ("--report",),
        "a detached run has not ended when the command does",
        "leave out --report; `sapwood report RUN` writes it at any time",
    ),
    Exclusion(
        "--detach",
        ("--profile",),
        "a detached run has not ended when the command does",
        "leave out --profile; `sapwood profile SESSION` samples the session of a run",
    ),
    Exclusion(
        "--detach",
        ("--env",),
        "the head keeps the options of a detached run, and shows them",
        "make a session by `sapwood session create NAME --env VARIABLE`, and give --session NAME",
    ),
    Exclusion(
        "--detach",
        ("--watch", "--dry-run"),
        "--detach returns at once",
        "leave out --watch and --dry-run",
    ),
    Exclusion(
        "--dry-run",
        ("--watch",),
        "--dry-run shows once what would be done, --watch stays",
        "leave one of them out",
    ),
)
"""Options of ``sapwood run`` that do not go together."""


def require_together(given: Mapping[str, object]) -> None:
    """Check that options of ``sapwood run`` go together.

    Args:
        given: The options that matter, with their values; false ones were not given.

    Raises:
        ConfigurationError: Two of them do not.
    """
    for one in EXCLUSIONS:
        if not given.get(one.option):
            continue
        lacking = bool(one.needs) and not given.get(one.needs)
        if lacking or any(given.get(other) for other in one.others):
            raise ConfigurationError(one.why, hint=one.hint)
