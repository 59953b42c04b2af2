"""The launcher that gets the machines which a text such as ``slurm:4`` names."""

from __future__ import annotations

from sapwood.contexts.launchers.base import Launcher
from sapwood.contexts.launchers.dask import DaskLauncher
from sapwood.contexts.launchers.kubernetes import IMAGE, KubernetesLauncher, PodOptions
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.contexts.launchers.ray import RayLauncher
from sapwood.contexts.launchers.slurm import SlurmLauncher
from sapwood.contexts.launchers.specs import machines
from sapwood.contexts.launchers.ssh import SshLauncher
from sapwood.core.arguments import whole
from sapwood.core.errors import ConfigurationError
from sapwood.core.hostset import split_hosts
from sapwood.core.shown import shown
from sapwood.environment.settings import NodeSettings


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
        spec: As for :func:`sapwood.start`.
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
