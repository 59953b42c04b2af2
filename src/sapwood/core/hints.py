"""Commands in hints: whole, quoted, and with the option that names the cluster.

A command in a text stands in backquotes. Code that does not know how the user names the cluster
writes the command without that option, and :func:`naming` adds it where the cluster is known: in
the connection to a head and in the command line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

DEFAULT_CLUSTER: Final = "default"
"""Name of a cluster whose user gave it none."""

WITHOUT_CLUSTER: Final = frozenset(
    {
        *("build", "cache", "config", "lizard", "new", "patch", "program", "topology"),
        *("agent join", "credential attenuate", "credential key", "credential show"),
        *("node check", "node find", "node join"),
    }
)
"""Commands in hints that have no option ``--cluster``; tests compare them with the command line."""

_COMMAND = re.compile(r"`sapwood ([^`]+)`")
_NAMED = re.compile(r" (--cluster|--on)[ =]")


def command_line(*words: str, cluster: str = DEFAULT_CLUSTER) -> str:
    """Return a command of Sapwood as a user types it.

    Args:
        *words: Its words, without ``sapwood``.
        cluster: What the user calls the cluster: its name or ``sapwood://host:port``.

    Example:
        >>> command_line("session", "follow", "my work", cluster="nw")
        "sapwood session follow 'my work' --cluster nw"
        >>> command_line("config", "show", cluster="nw")
        'sapwood config show'
    """
    text = shlex.join(words)
    known = cluster in {"", DEFAULT_CLUSTER} or _NAMED.search(f" {text} ") is not None
    elsewhere = words[:1] == ("up",) and "://" in cluster  # heads start on their own machines
    if known or elsewhere or not _takes(words):
        return f"sapwood {text}"
    own, dashes, rest = text.partition(" -- ")  # what follows is another program's
    return f"sapwood {own} --cluster {shlex.quote(cluster)}{dashes}{rest}"


def command(*words: str, cluster: str = DEFAULT_CLUSTER) -> str:
    """Return a command in backquotes, for a sentence.

    See :func:`command_line`.

    Example:
        >>> f"{command('down', cluster='nw')} ends it"
        '`sapwood down --cluster nw` ends it'
    """
    return f"`{command_line(*words, cluster=cluster)}`"


def naming(text: str, cluster: str) -> str:
    """Return a text whose commands name the cluster.

    Args:
        text: A hint; commands in it stand in backquotes.
        cluster: What the user calls the cluster.

    Example:
        >>> naming("`sapwood node list` shows them", "nw")
        '`sapwood node list --cluster nw` shows them'
        >>> naming("`sapwood node list --cluster lab` shows them", "nw")
        '`sapwood node list --cluster lab` shows them'
    """
    if cluster in {"", DEFAULT_CLUSTER}:
        return text
    return _COMMAND.sub(lambda found: command(*shlex.split(found[1]), cluster=cluster), text)


def _takes(words: Sequence[str]) -> bool:
    return WITHOUT_CLUSTER.isdisjoint({" ".join(words[:1]), " ".join(words[:2])})
