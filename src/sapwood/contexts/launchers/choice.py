"""Which machines a text such as ``slurm:4`` names, and the launcher that gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sapwood.contexts.launchers.base import Launcher
from sapwood.contexts.launchers.dask import DaskLauncher
from sapwood.contexts.launchers.kubernetes import IMAGE, KubernetesLauncher, PodOptions
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.contexts.launchers.ray import RayLauncher
from sapwood.contexts.launchers.slurm import SlurmLauncher
from sapwood.contexts.launchers.ssh import SshLauncher
from sapwood.core.arguments import whole
from sapwood.core.errors import ConfigurationError
from sapwood.core.hostset import split_hosts
from sapwood.core.shown import shown
from sapwood.environment.settings import NodeSettings

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


def cores_per_node(nodes: int | None, agents: int, agents_per_node: int | None) -> int:
    """Return how many cores a job needs on each machine; 0 means all.

    Raises:
        ConfigurationError: The number of agents of a node is not a whole number.

    Example:
        >>> cores_per_node(2, 5, None), cores_per_node(2, 0, None), cores_per_node(2, 0, 4)
        (3, 0, 4)
    """
    if agents_per_node is not None:
        return whole(agents_per_node, "agents_per_node", ConfigurationError)
    return -(-agents // nodes) if nodes else 0


def new_launcher(
    spec: str, settings: NodeSettings, *, agents: int = 0, agents_per_node: int | None = None
) -> Launcher:
    """Return what gets the machines that a text names; it has asked for none yet.

    Args:
        spec: As for :func:`sapwood.on`.
        settings: How machines become nodes.
        agents: Agents altogether, for which cores are asked for; 0 for whole machines.
        agents_per_node: The same for each machine.

    Raises:
        ConfigurationError: The text names no machines, or what leads to them is not here.
    """
    kind, rest = machines(spec)
    count = int(rest) if rest.isdecimal() else None
    cores = cores_per_node(count, agents, agents_per_node)
    if kind == "ssh":
        return SshLauncher(split_hosts(rest), settings.ssh)
    if kind == "slurm":
        return SlurmLauncher(count, settings.slurm, cores=cores, step_options=settings.srun)
    if kind == "dask":
        return DaskLauncher(rest, timeout=settings.dask_timeout)
    if count is None:
        raise ConfigurationError(f"no launcher gets the machines {shown(spec)}", where="--on")
    if kind == "ray":
        return RayLauncher(count, cpus=cores, timeout=settings.ray_timeout)
    if kind == "kubernetes":
        options = PodOptions(
            image=settings.pod_image or IMAGE, namespace=settings.pod_namespace, cpus=cores
        )
        return KubernetesLauncher(count, options, timeout=settings.kubernetes_timeout)
    return LocalLauncher(count)
