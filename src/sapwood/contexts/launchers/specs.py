"""Which machines a text such as ``slurm:4`` names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sapwood.core.errors import ConfigurationError
from sapwood.core.hostset import split_hosts
from sapwood.core.shown import shown

LAUNCHED: Final = frozenset({"ssh", "slurm", "ray", "dask", "kubernetes", "nodes"})
"""Kinds of machines that a launcher gets."""

_MANAGED: Final = frozenset({"slurm", "ray", "kubernetes"})
"""The launchers whose machines a cluster manager chooses."""


def machines(spec: str) -> tuple[str, str]:
    """Return what kind of machines a text names, and which.

    Raises:
        ConfigurationError: The text names no machines.

    Example:
        >>> machines("slurm:4"), machines("head")
        (('slurm', '4'), ('head', ''))
    """
    kind, _, rest = spec.partition(":")
    valid = {
        "local": not rest,
        "ssh": bool(rest),
        "head": rest == "" or not spec.endswith(":"),
        "session": bool(rest),
        "nodes": rest.isdecimal() and int(rest) > 0,
        "ray": rest.isdecimal() and int(rest) > 0,
        "kubernetes": rest.isdecimal() and int(rest) > 0,
        "dask": "://" in rest,
        "slurm": not rest or (rest.isdecimal() and int(rest) > 0),
    }
    if not valid.get(kind):
        raise ConfigurationError(
            f"{shown(spec)} names no machines",
            where="--on",
            hint="write local, ssh:n1,n2, ssh:gpu[1-4], ssh:@FILE, slurm:4, ray:2, "
            "dask:tcp://HOST:8786, kubernetes:4, head, session:S or nodes:2",
        )
    return kind, rest


def is_launched(spec: str) -> bool:
    """Whether a launcher gets the machines that a text names, if it names any.

    Example:
        >>> is_launched("ssh:n1,n2"), is_launched("head"), is_launched("moon")
        (True, False, False)
    """
    return spec.partition(":")[0] in LAUNCHED


def names_machines(spec: str) -> bool:
    """Whether a text names the machines themselves, and not how many of a cluster manager's.

    Example:
        >>> names_machines("ssh:n1,n2"), names_machines("slurm:4")
        (True, False)
    """
    return spec.partition(":")[0] not in _MANAGED


def absolute(spec: str) -> str:
    """Return a text that names the same machines in another folder: files have whole paths.

    Example:
        >>> absolute("ssh:@/etc/hosts"), absolute("ssh:n1,n2")
        ('ssh:@/etc/hosts', 'ssh:n1,n2')
    """
    kind, colon, rest = spec.partition(":")
    if kind != "ssh":
        return spec
    names = [f"@{Path(one[1:]).absolute()}" if one[:1] == "@" else one for one in split_hosts(rest)]
    return f"{kind}{colon}{','.join(names)}"


def runs_as_head_user(on: str) -> bool:
    """Whether all agents of a session run as the head's user, whoever made the session.

    Kubernetes starts pods from an image, without the files of that user.

    Example:
        >>> [runs_as_head_user(on) for on in ("local", "slurm:4", "head", "kubernetes:4")]
        [True, True, False, False]
    """
    return on == "local" or (is_launched(on) and not on.startswith("kubernetes"))
