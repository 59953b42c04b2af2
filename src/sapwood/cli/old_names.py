"""Former names of commands and options, which work for one release and warn."""

from __future__ import annotations

import shlex
from collections.abc import Container, Sequence
from typing import Final

import typer

OLD_COMMANDS: Final = {
    "lizard remove": "lizard delete",
    "node remove": "node delete",
    "runs": "run",
    "runs attach": "run follow",
    "runs cancel": "run stop",
    "runs history": "run list --all",
    "session attach": "session follow",
    "stage remove": "stage delete",
    "toolchain": "node check --compilers",
    "toolchain list": "node check --compilers",
    "tree": "node status --links",
    "tree status": "node status --links",
}
"""Commands that have another name now; ``runs`` stands for the verbs that are not here."""

OLD_OPTIONS: Final = {
    "": {"--name": "--cluster"},
    "events": {"--node": "--nodes"},
    "logs": {"--node": "--nodes"},
    "node drain": {"--within": "--timeout"},
    "node find": {"--for": "--timeout"},
    "node restart": {"--node": "--nodes"},
    "node start": {"--node": "--nodes"},
    "node status": {"--node": "--nodes"},
    "node stop": {"--node": "--nodes"},
    "run": {"--environment": "--packages"},
}
"""Options that have another name now, by the command; the empty text stands for all commands."""


def with_new_names(words: Sequence[str], known: Container[str]) -> list[str]:
    """Return the words of a command line with new names, and warn of old ones.

    Args:
        words: The words after ``sapwood``.
        known: The first words of the commands of this package.

    Example:
        >>> with_new_names(["node", "list", "--cluster", "lab"], {"node"})
        ['node', 'list', '--cluster', 'lab']
    """
    for count in (2, 1):
        old = " ".join(words[:count])
        if len(words) >= count and old in OLD_COMMANDS:
            renamed = [*OLD_COMMANDS[old].split(), *words[count:]]
            warn_of(f"sapwood {old}", shlex.join(["sapwood", *renamed]))
            words = renamed
            break
    if words[:1] == ["exec"] or (words[:1] and words[0] not in known):
        return list(words)  # some of them are for other programs or packages
    renamed_options = dict(OLD_OPTIONS[""])
    for count in (1, 2):
        renamed_options |= OLD_OPTIONS.get(" ".join(words[:count]), {})
    found = []
    for word in words:
        option, equals, value = word.partition("=")
        new = renamed_options.get(option)
        if new is not None:
            warn_of(option, new)
        found.append(word if new is None else f"{new}{equals}{value}")
    return found


def warn_of(old: str, new: str) -> None:
    """Warn on stderr that something has another name now."""
    typer.echo(
        f"sapwood: warning: `{old}` is deprecated and will be removed in the next release: use "
        f"`{new}`",
        err=True,
    )
