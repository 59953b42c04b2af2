"""Clusters on machines that a text names: ``sapwood.start``, and ``ssh``, ``slurm``, ``ray``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.activity.dashboard_page import DashboardPage
from sapwood.client.allocation_end import AllocationEnd
from sapwood.client.attaching import attach, create_session
from sapwood.client.cluster import Cluster
from sapwood.client.local import local, new_cluster
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.contexts.launchers.base import AllocatingLauncher, Launcher, LimitedLauncher
from sapwood.contexts.launchers.choice import cores_per_node, new_launcher
from sapwood.contexts.launchers.dask import DaskLauncher
from sapwood.contexts.launchers.kubernetes import IMAGE, KubernetesLauncher, PodOptions
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.contexts.launchers.ray import RayLauncher
from sapwood.contexts.launchers.slurm import SlurmLauncher
from sapwood.contexts.launchers.specs import machines
from sapwood.contexts.launchers.ssh import SshLauncher
from sapwood.core.arguments import text, whole
from sapwood.core.errors import ConfigurationError
from sapwood.core.hints import DEFAULT_CLUSTER
from sapwood.core.hostset import split_hosts
from sapwood.core.shown import shown
from sapwood.core.topology import Tree, flat
from sapwood.environment.logs import configure_logging
from sapwood.environment.settings import Settings
from sapwood.session.embedded import EmbeddedSession, embedded
from sapwood.session.interface import SessionInterface
from sapwood.session_server.making import (
    chosen_settings,
    on_loopback,
    plan_over,
    session_options,
    site_variables,
)

if TYPE_CHECKING:
    from sapwood.nodes.control import ControlTree
    from sapwood.nodes.processes import NodePool


def ssh(
    hosts: Sequence[str] | str,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    topology: str = "",
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Cluster:
    """Start a cluster on machines that ``ssh`` reaches.

    The machines need a Python of the same version as this one and an ssh server, nothing else: what
    they lack is sent to them, and kept there for the next time. They connect to this machine by
    TLS 1.3. The cluster's processes end with it, or with this process.

    Args:
        hosts: The machines as ``ssh`` takes them, for example ``["n1", "user@gpu[1-4]"]``;
            ``@FILE`` names a file with one a line.
        agents: Agents altogether; they are spread evenly.
        agents_per_node: Agents on each machine; by default as many as it has cores.
        topology: How the machines are below each other: ``flat``, ``kary:4``, ``knomial:2`` or
            ``file:PATH``; by default ``nodes.topology``.
        settings: All settings; by default those of configuration files and variables. The table
            ``nodes`` says where this machine listens and which Python the others have.
        environment: Environment variables for the agents, in addition to their own.
        options: More arguments for ``ssh``, such as ``["-p", "2222"]``.

    Raises:
        ConfigurationError: A number or a setting is out of range, or a host is named twice.
        NodeLostError: Machines did not come; the error names each with its cause.

    Example:
        ::

            with sapwood.ssh(["n1", "n2"], agents_per_node=4) as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    chosen = chosen_settings(settings, environment)
    if topology:
        nodes = msgspec.structs.replace(chosen.nodes, topology=topology)
        chosen = msgspec.structs.replace(chosen, nodes=nodes)
    names = [hosts] if isinstance(hosts, str) else list(hosts)
    launcher = SshLauncher(names, [*chosen.nodes.ssh, *options])
    return start_on(launcher, agents, agents_per_node=agents_per_node, settings=chosen)


def slurm(
    nodes: int | None = None,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    time: str = "",
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    on_wait: WaitCallback | None = None,
) -> Cluster:
    """Start a cluster on machines of a Slurm cluster.

    Outside of an allocation this submits a job, waits until it runs, and ends it with the cluster
    or with this process. Inside one (``salloc``, ``sbatch``) it uses that job's machines and leaves
    the job as it is.

    Args:
        nodes: Machines; None means all of the allocation that this process is in.
        agents: Agents altogether; they are spread evenly.
        agents_per_node: Agents on each machine; by default as many as it has cores. Where one of
            both is given, the job asks for a core for each agent, else for whole machines.
        time: The job's time limit, as Slurm takes it, for example ``"1:00:00"``.
        settings: All settings; ``nodes.slurm`` has arguments for each allocation.
        environment: Environment variables for the agents, in addition to their own.
        options: More arguments for ``salloc``, such as ``["--partition=gpu"]``.
        on_wait: Told what the job waits for, and since how many seconds.

    Raises:
        ConfigurationError: There is no Slurm here, or the cluster cannot have such a job.
        ResourceError: Slurm refuses the job, or it is cancelled while it waits.
        NodeLostError: Machines did not come; the error names each with its cause.

    Example:
        ::

            with sapwood.slurm(nodes=4, agents_per_node=8, time="1:00:00") as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    chosen = chosen_settings(settings, environment)
    launcher = SlurmLauncher(
        nodes,
        [*chosen.nodes.slurm, *options],
        cores=cores_per_node(nodes, agents or chosen.cluster.agents, agents_per_node),
        limit=time,
        step_options=chosen.nodes.srun,
    )
    launcher.request(on_wait)
    try:
        return start_on(launcher, agents, agents_per_node=agents_per_node, settings=chosen)
    except BaseException:
        launcher.close()
        raise


def at_head(
    name: str = DEFAULT_CLUSTER,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    credential: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
) -> Cluster:
    """Start a cluster on the nodes of a running head; see :meth:`ClusterHead.start`.

    Args:
        name: What ``sapwood up --cluster`` was given, for a head on this machine; or
            ``sapwood://host:port``.
        agents: Agents altogether.
        agents_per_node: Agents on each node.
        settings: All settings.
        environment: Environment variables for the agents, in addition to their own.
        credential: A credential, or the file with one.
        key: The key of the credential's holder, or the file with it.

    Raises:
        ConfigurationError: A number or a setting is out of range, or the head has no nodes.
        NodeLostError: There is no such head.
        CommunicationError: The head is not reached.
        SecurityError: The head is another one, or refuses the credential, or the credential does
            not allow this.
    """
    from sapwood.client.head_runs import (  # noqa: PLC0415 - cryptography is not needed on one machine
        HeadHistory,
        record_end,
        record_start,
    )
    from sapwood.head_client.access import HeadAccess  # noqa: PLC0415 - as above
    from sapwood.security.credential_file import (  # noqa: PLC0415 - as above
        find_credential,
        find_holder_key,
    )

    chosen = chosen_settings(settings, environment)
    head = HeadAccess(
        name,
        None if credential is None else find_credential(credential),
        None if key is None else find_holder_key(key),
        chosen.nodes.listen,
    )
    try:
        head.known.refuse_reserved()
        with configure_logging(chosen.log):
            head.known.warn_of_missing()
        made = cluster_over(
            head, agents, agents_per_node=agents_per_node, settings=chosen, owned=True
        )
    except BaseException:
        head.close()
        raise
    made.page = DashboardPage.at(head.connection.facts.urls, "tree", head.connection.facts.name)
    made.run_started = partial(record_start, head)
    made.tell_runs(partial(record_end, head))
    made.history = HeadHistory(head, made.history)
    made.new_session = partial(create_session, cluster=name, settings=chosen)
    return made


def ray(
    nodes: int,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    gpus_per_node: int = 0,
    address: str = "",
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    on_wait: WaitCallback | None = None,
) -> Cluster:
    """Start a cluster on machines of a running Ray cluster.

    This process is on a machine of that cluster. Ray reserves the machines until the cluster ends,
    or this process. The machines need no Sapwood.

    Args:
        nodes: Machines.
        agents: Agents altogether; they are spread evenly.
        agents_per_node: Agents on each machine; by default as many as it has CPUs for Ray. Ray
            reserves a CPU for each agent.
        gpus_per_node: GPUs that Ray reserves on each machine.
        address: The Ray cluster; empty means ``RAY_ADDRESS``, or that which runs on this machine.
        settings: All settings; ``nodes.ray_timeout`` says how long to wait for machines.
        environment: Environment variables for the agents, in addition to their own.
        on_wait: Told what Ray says of machines that it does not have yet, and since how many
            seconds.

    Raises:
        ConfigurationError: There is no Ray here, or no cluster of the same versions.
        ResourceError: The Ray cluster does not have such machines free in time.
        NodeLostError: Machines did not come; the error names each with its cause.

    Example:
        ::

            with sapwood.ray(nodes=2, agents_per_node=8) as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    chosen = chosen_settings(settings, environment)
    launcher = RayLauncher(
        nodes,
        cpus=cores_per_node(nodes, agents or chosen.cluster.agents, agents_per_node),
        gpus=whole(gpus_per_node, "gpus_per_node", ConfigurationError),
        address=address,
        timeout=chosen.nodes.ray_timeout,
    )
    launcher.request(on_wait)
    if agents is None and agents_per_node is None and not chosen.cluster.agents:
        agents_per_node = launcher.cpus
    try:
        return start_on(launcher, agents, agents_per_node=agents_per_node, settings=chosen)
    except BaseException:
        launcher.close()
        raise


def dask(
    cluster: Any,
    nodes: int | None = None,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    on_wait: WaitCallback | None = None,
) -> Cluster:
    """Start a cluster on machines of a running Dask cluster.

    On each machine one of Dask's workers begins a node, which ends with the cluster, or with this
    process. Dask reserves nothing for it: its other tasks may run beside it. The machines need no
    Sapwood, and must reach this one by TCP.

    Args:
        cluster: The address of Dask's scheduler, for example ``"tcp://10.0.0.5:8786"``, or a
            ``distributed.Client``.
        nodes: Machines; None means all that have a worker now.
        agents: Agents altogether; they are spread evenly.
        agents_per_node: Agents on each machine; by default as many as the workers of the smallest
            have threads.
        settings: All settings; ``nodes.dask_timeout`` says how long to wait for machines.
        environment: Environment variables for the agents, in addition to their own.
        on_wait: Told what is waited for, and since how many seconds.

    Raises:
        ConfigurationError: There is no Dask here, or this names no cluster.
        ResourceError: The scheduler does not answer, or has not as many machines in time.
        NodeLostError: Machines did not come; the error names each with its cause.

    Example:
        ::

            with sapwood.dask("tcp://10.0.0.5:8786", nodes=4) as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    chosen = chosen_settings(settings, environment)
    launcher = DaskLauncher(cluster, nodes, timeout=chosen.nodes.dask_timeout)
    launcher.request(on_wait)
    if agents is None and agents_per_node is None and not chosen.cluster.agents:
        agents_per_node = launcher.cpus
    try:
        return start_on(launcher, agents, agents_per_node=agents_per_node, settings=chosen)
    except BaseException:
        launcher.close()
        raise


def kubernetes(  # noqa: PLR0913 - each is a separate option, by name
    nodes: int,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    image: str = "",
    namespace: str = "",
    context: str = "",
    memory: str = "",
    gpus_per_node: int = 0,
    deadline: int = 0,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    on_wait: WaitCallback | None = None,
) -> Cluster:
    """Start a cluster on pods of a Kubernetes cluster.

    The pods belong to an Indexed Job, which is deleted when the cluster or this process ends.
    ``kubectl`` does this with the user's own rights. The pods must reach this process by TCP: start
    it in a pod, or where the network of the pods leads to. Their image needs no Sapwood.

    Args:
        nodes: Pods.
        agents: Agents altogether; they are spread evenly.
        agents_per_node: Agents in each pod. Where this or ``agents`` is given, each pod asks for a
            CPU for each of its agents; else for none, and has an agent for each core that it sees.
        image: Of the pods; by default ``nodes.pod_image``, or ``python`` of Docker Hub in the
            version of this process.
        namespace: Of the pods; by default ``nodes.pod_namespace``, or that of ``kubectl``.
        context: Of the configuration of ``kubectl``; by default the current one.
        memory: Of each pod, for example ``"4Gi"``.
        gpus_per_node: NVIDIA GPUs of each pod.
        deadline: Seconds after which Kubernetes ends the pods in any case; 0 for never.
        settings: All settings; ``nodes.kubernetes_timeout`` says how long to wait for pods.
        environment: Environment variables for the agents, in addition to their own.
        on_wait: Told why pods do not run yet, and since how many seconds.

    Raises:
        ConfigurationError: There is no ``kubectl``, or the cluster refuses such a Job.
        ResourceError: The cluster is not reached, or the pods do not run in time.
        NodeLostError: Pods did not become nodes; the error names each with its cause.

    Example:
        ::

            with sapwood.kubernetes(nodes=4, agents_per_node=2) as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    chosen = chosen_settings(settings, environment)
    options = PodOptions(
        image=image or chosen.nodes.pod_image or IMAGE,
        namespace=namespace or chosen.nodes.pod_namespace,
        context=context,
        cpus=cores_per_node(nodes, agents or chosen.cluster.agents, agents_per_node),
        memory=memory,
        gpus=gpus_per_node,
        deadline=deadline,
    )
    launcher = KubernetesLauncher(nodes, options, timeout=chosen.nodes.kubernetes_timeout)
    launcher.request(on_wait)
    try:
        return start_on(launcher, agents, agents_per_node=agents_per_node, settings=chosen)
    except BaseException:
        launcher.close()
        raise


def start(
    spec: str = "local",
    agents: int | None = None,
    *,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    on_wait: WaitCallback | None = None,
    credential: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Cluster:
    """Start a cluster on the machines that a text names.

    Args:
        spec: ``local``, ``ssh:n1,n2``, ``ssh:@FILE``, ``slurm:N`` for N machines of Slurm,
            ``slurm`` for the allocation that this process is in, ``ray:N`` for N machines
            of Ray, ``dask:ADDRESS`` for all of a Dask cluster, ``kubernetes:N`` for N pods,
            ``head`` or ``head:NAME`` for the nodes of a running head (``sapwood up``),
            ``session:NAME`` for the agents of a session beside its owner
            (``session:CLUSTER/NAME`` in a cluster with a name), or ``nodes:N`` for several nodes on
            this machine.
        agents: Agents altogether; by default ``cluster.agents``, or one for each core. A session
            has its agents already.
        settings: All settings; by default those of configuration files and variables.
        environment: Environment variables for the agents, in addition to their own.
        on_wait: Receives what Slurm, Ray, Dask, Kubernetes or a session waits for, and since how
            many seconds.
        credential: For ``head``, as for :func:`sapwood.connect`.
        key: For ``head``, as for :func:`sapwood.connect`.
        **options: More, as the function for these machines has them: :func:`sapwood.local`,
            :func:`sapwood.ssh`, :func:`sapwood.slurm`, :func:`sapwood.ray`, :func:`sapwood.dask`,
            :func:`sapwood.kubernetes`; for ``head`` those of
            :meth:`ClusterHead.start <sapwood.types.ClusterHead.start>`.

    Raises:
        ConfigurationError: The text names no machines, or there is no such option for them.
        NodeLostError: Machines did not come; the error names each with its cause.

    Example:
        ::

            with sapwood.start("ssh:gpu[1-4]", agents=16) as cluster:
                print(cluster.submit(pow, 2, 10).result())

            with sapwood.start("slurm:4", agents_per_node=8, time="1:00:00") as cluster:
                print(len(cluster.agents))
    """
    kind, rest = machines(text(spec, "spec"))
    function, place = _STARTERS[kind]
    known = list(signature(function).parameters)[place is not None :]
    if "on_wait" in known:
        options["on_wait"] = on_wait
    files = {"credential": credential, "key": key}
    options |= {name: file for name, file in files.items() if file is not None}
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise ConfigurationError(
            f"{shown(spec)} has no option {' or '.join(map(shown, unknown))}",
            where="sapwood.start",
            hint=f"its options are {', '.join(sorted(known))}",
        )
    common = {"agents": agents, "settings": settings, "environment": environment}
    return function(*([] if place is None else [place(rest)]), **common, **options)


def on_session(
    session: str,
    agents: int | None = None,
    *,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    on_wait: WaitCallback | None = None,
) -> Cluster:
    """Attach to a session beside its owner: ``session:NAME``.

    Args:
        session: Its name, or ``CLUSTER/NAME``.
        agents: Not to be given: a session has its agents.
        settings: Settings of this client.
        environment: Not to be given, either.
        on_wait: Receives what a session waits for that has not begun yet.

    Raises:
        ConfigurationError: There is no such session, or agents or variables are given for it.
    """
    for given, name in ((agents, "agents"), (environment, "environment")):
        if given:
            raise ConfigurationError(
                "a session has its agents, with their environment variables",
                where=name,
                hint="give this where the session is created: sapwood.connect().create_session()",
            )
    cluster, _, name = session.rpartition("/")
    return attach(
        name, role="user", cluster=cluster or DEFAULT_CLUSTER, settings=settings, on_wait=on_wait
    )


def new_control_tree(
    spec: str, settings: Settings, on_wait: WaitCallback | None = None
) -> ControlTree | None:
    """Return a control tree that is not started yet over the machines that a text names.

    Args:
        spec: As for :func:`start`.
        settings: All settings.
        on_wait: As for :func:`start`.

    Returns:
        The control tree; None for ``local``, which needs none.

    Raises:
        ConfigurationError: The text names no machines.
    """
    kind, _ = machines(spec)
    if kind == "local":
        return None
    from sapwood.nodes.control import (  # noqa: PLC0415 - cryptography is not needed on one machine
        ControlTree,
    )

    if kind == "session":
        raise ConfigurationError(
            "a session is not a set of machines", where="--on", hint="name its nodes: --on head"
        )
    each = 0 if kind == "kubernetes" else 1  # pods with commands reserve nothing
    launcher = new_launcher(spec, settings.nodes, agents_per_node=each)
    if isinstance(launcher, AllocatingLauncher):
        launcher.request(on_wait)
    if kind == "nodes":
        settings = on_loopback(settings)
    return ControlTree(
        launcher,
        session_options(settings, site_variables(settings)),
        settings.nodes,
        cache=settings.cache,
    )


def several(
    nodes: int,
    agents: int | None = None,
    *,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
) -> Cluster:
    """Start a cluster of several nodes on this machine, as if they were separate machines.

    This is for trying what happens between machines: their only connection is TLS on loopback.

    Args:
        nodes: How many.
        agents: Agents altogether; by default one on each.
        settings: All settings.
        environment: Environment variables for the agents, in addition to their own.

    Raises:
        ConfigurationError: A number is out of range.
    """
    chosen = chosen_settings(settings, environment)
    return start_on(
        LocalLauncher(whole(nodes, "nodes", ConfigurationError)),
        agents,
        agents_per_node=1 if agents is None and not chosen.cluster.agents else None,
        settings=on_loopback(chosen),
    )


_STARTERS: dict[str, tuple[Callable[..., Cluster], Callable[[str], Any] | None]] = {
    "local": (local, None),
    "ssh": (ssh, split_hosts),
    "slurm": (slurm, lambda nodes: int(nodes) if nodes else None),
    "ray": (ray, int),
    "dask": (dask, str),
    "kubernetes": (kubernetes, int),
    "head": (at_head, lambda name: name or DEFAULT_CLUSTER),
    "session": (on_session, str),
    "nodes": (several, int),
}
"""What starts a cluster on machines of each kind, and reads what follows the kind in the text."""


def start_on(
    launcher: Launcher,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    settings: Settings,
) -> Cluster:
    """Start a cluster on the machines of a launcher; see :func:`ssh`.

    Raises:
        ConfigurationError: A number or a setting is out of range.
        NodeLostError: Machines did not come; the error names each with its cause.
    """
    from sapwood.nodes.control import (  # noqa: PLC0415 - cryptography is not needed on one machine
        ControlTree,
    )

    _check_transport(settings)
    base = session_options(settings, site_variables(settings))
    control = ControlTree(launcher, base, settings.nodes, cache=settings.cache)
    with configure_logging(settings.log):
        control.start()
    try:
        made = cluster_over(
            control.access, agents, agents_per_node=agents_per_node, settings=settings, owned=True
        )
    except BaseException:
        control.close()
        raise
    limited = launcher if isinstance(launcher, LimitedLauncher) else None
    if limited is not None or settings.nodes.allocation_time:
        made.allocation = AllocationEnd(limited, settings.nodes)
    return made


def _check_transport(settings: Settings) -> None:
    if settings.comm.transport not in {"", "unix"}:
        raise ConfigurationError(
            f"the transport {shown(settings.comm.transport)} links no machines: TLS does",
            where="comm.transport",
            hint="it is for clusters on one machine; leave it empty",
        )


def cluster_over(
    control: NodePool,
    agents: int | None = None,
    *,
    agents_per_node: int | None = None,
    settings: Settings,
    owned: bool = False,
) -> Cluster:
    """Start a cluster over the nodes that a control tree has now.

    Args:
        control: The nodes.
        agents: Agents altogether, as evenly on the nodes as may be.
        agents_per_node: The same for each node.
        settings: All settings.
        owned: Whether the nodes end with the cluster.

    Raises:
        ConfigurationError: A number or a setting is out of range, or no node is available.
        ResourceError: Its processes cannot be started.
    """
    _check_transport(settings)
    planned = plan_over(control, settings, agents, agents_per_node)
    options = planned.options

    def new_session(shape: Tree, lender: SessionInterface | None) -> EmbeddedSession:
        if lender is None:
            return EmbeddedSession(options, None, control.source(owned=owned))
        # Its junctions would be on this machine, where other machines do not reach them.
        further = flat(shape.agents)
        return EmbeddedSession(
            msgspec.structs.replace(options, tree=further, hosts=options.hosts[: further.size]),
            embedded(lender),
            control.source(),
        )

    return new_cluster(settings, planned, new_session)
