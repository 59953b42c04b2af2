"""From an error to what the user sees of it: a text on stderr and an exit code."""

from __future__ import annotations

import contextlib
import errno
import functools
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import ParamSpec

import typer

from sapwood.cli import starting
from sapwood.cli.present import answers_alone, print_json
from sapwood.core.errors import (
    EXCEPTION_TYPE,
    DrainedError,
    InputError,
    ResourceError,
    SapwoodError,
)
from sapwood.core.hints import DEFAULT_CLUSTER, naming
from sapwood.core.terminal_text import printable

P = ParamSpec("P")

EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_CODES: dict[int, str] = {
    0: "success",
    1: "another error",
    2: "wrong input: option, configuration, program, parameter or data",
    3: "a source does not compile, or a compiler is missing",
    4: "user code failed: exception, crash, time or memory limit",
    5: "this machine has not enough memory, disk, processes or files, or a store cannot be used",
    6: "an agent, a node or a connection was lost",
    7: "a certificate, token or credential is not valid",
    EXIT_INTERNAL: "a fault in Sapwood itself",
    DrainedError.exit_code: "a run stopped before its machines left; resume it (--continue); "
    "or a session waits for its machines still",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
}
"""What each exit code of the command line means."""

WHOLE_DETAILS = frozenset({"compiler output"})
"""Details that are shown whole; others are cut to their last lines unless debugging."""

DETAIL_LINES = 20

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL = _DISK | frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE})


_cluster: ContextVar[str] = ContextVar("_cluster", default=DEFAULT_CLUSTER)


def remember_cluster(name: str) -> str:
    """Have the commands in the hints of errors name this cluster; returns the name."""
    _cluster.set(name)
    return name


def explain(error: SapwoodError, *, debug: bool = False) -> str:
    """Return what a user reads about an error: what, where, what to do, and details.

    Example:
        >>> print(explain(SapwoodError("no such file", where="a.npy", hint="check the path")))
        sapwood: error SW000: no such file
          where: a.npy
          hint:  check the path
    """
    lines = [f"sapwood: error {error.code}: {error.what}"]
    if error.where:
        lines.append(f"  where: {error.where}")
    if error.hint:
        lines.append(f"  hint:  {error.hint}")
    shown = {title: body for title, body in error.details.items() if title != EXCEPTION_TYPE}
    for title, body in shown.items():
        lines += ["", f"{title}:", *_detail(title, body, debug=debug)]
    return printable("\n".join(lines))


def as_sapwood_error(error: Exception) -> SapwoodError | None:
    """Return an error of the operating system as one of ours; None for anything else."""
    if isinstance(error, SapwoodError):
        return error
    if isinstance(error, FileNotFoundError) and error.filename is None and not _folder_exists():
        return InputError("the current folder has been removed", hint="go to one that exists: cd")
    if isinstance(error, OSError) and error.strerror:
        kind = ResourceError if error.errno in _FULL else InputError
        return kind(
            error.strerror,
            where=str(error.filename or ""),
            hint="free space there, or choose another place" if error.errno in _DISK else "",
        )
    return None


@contextlib.contextmanager
def reported(*, debug: bool = False, as_json: bool = False) -> Iterator[None]:
    """Turn errors of the block into text on stderr and the exit code of their class.

    Args:
        debug: Show the traceback and whole details.
        as_json: Print the error as ``{"error": …}`` on stdout too; what programs print goes
            to stderr.

    Raises:
        typer.Exit: With the exit code, after any error.
    """
    try:
        with answers_alone() if as_json else contextlib.nullcontext():
            yield
    except (KeyboardInterrupt, typer.Abort):
        starting.clear()
        _tell("sapwood: interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (typer.Exit, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - the last place before the user
        raise typer.Exit(show_error(error, debug=debug, as_json=as_json)) from None


def of_cluster(text: str) -> str:
    """Return a text whose commands name the cluster that the user has named."""
    return naming(text, _cluster.get())


def reporting(command: Callable[P, None]) -> Callable[P, None]:
    """Report the errors of a command to its user, as its options ``--debug`` and ``--json`` say."""

    @functools.wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        debug, as_json = kwargs.get("debug") is True, kwargs.get("as_json") is True
        with reported(debug=debug, as_json=as_json):
            command(*args, **kwargs)

    return call


def show_error(error: Exception, *, debug: bool = False, as_json: bool = False) -> int:
    """Print an error as a user reads it and return its exit code."""
    starting.clear()
    if debug:
        traceback.print_exception(error)
    known = as_sapwood_error(error)
    if known is None:
        what = f"{type(error).__name__}: {error}"
        hint = "this is a fault in Sapwood, not in your input; --debug shows where"
        _tell(f"sapwood: internal error: {what}\n  hint:  {hint}")
        known, code = SapwoodError(f"internal error: {what}", hint=hint), EXIT_INTERNAL
    else:
        known.hint = of_cluster(known.hint)
        _tell(explain(known, debug=debug))
        code = known.exit_code
    if as_json:
        with contextlib.suppress(OSError):  # writing may be what fails
            print_json({"error": known.to_record()}, one_line=True)
    return code


def _tell(text: str) -> None:
    """Print on stderr; where that is full or closed, the exit code still tells."""
    with contextlib.suppress(OSError):
        typer.echo(text, err=True)


def _folder_exists() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _detail(title: str, body: str, *, debug: bool) -> list[str]:
    lines = body.rstrip().splitlines()
    left_out = len(lines) - DETAIL_LINES
    if debug or title in WHOLE_DETAILS or left_out <= 0:
        return lines
    return [f"… {left_out} lines before, shown by --debug", *lines[-DETAIL_LINES:]]
