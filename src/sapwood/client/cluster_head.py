"""The head of a long-lived cluster as programs see it: ``sapwood.connect``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Unpack, overload

import msgspec

from sapwood.client.attaching import NewSessionOptions, create_session, request_session
from sapwood.client.cluster import Cluster
from sapwood.client.credentials import HeadCredentials
from sapwood.client.detached_runs import DetachedRuns, runs
from sapwood.client.head_asking import CALL_TIMEOUT, File, asker, open_head
from sapwood.client.hosts import at_head
from sapwood.client.staging import Stage
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.core.hints import DEFAULT_CLUSTER
from sapwood.environment.settings import Settings
from sapwood.head.calls import NodeRecord


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a cluster, as its head knew it when it was asked.

    Attributes:
        name: What users call it.
        state: ``starting``, ``ready``, ``draining``, ``disconnected``, ``lost``, ``removed``, or
            ``closed``: sessions cannot start processes there.
        reason: Why it is not ready; empty if it is.
        since: Since when it is in this state, seconds since 1970; 0 if that is not known.
        joined: When it joined, seconds since 1970.
        cores: How many processes may run at once; 0 if that is not known yet.
        architecture: Of its processor; empty if that is not known yet.
        python: Version of its Python; empty if that is not known yet.
    """

    name: str
    state: str
    reason: str = ""
    since: float = 0.0
    joined: float = 0.0
    cores: int = 0
    architecture: str = ""
    python: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether processes can be started there."""
        return self.state == "ready"


@overload
def connect(
    name: str = DEFAULT_CLUSTER, *, credential: File | None = None, key: File | None = None
) -> ClusterHead: ...


@overload
def connect(
    name: str = DEFAULT_CLUSTER,
    agents: int | None = None,
    *,
    credential: File | None = None,
    key: File | None = None,
    **options: Any,
) -> ClusterHead | Cluster: ...


def connect(
    name: str = DEFAULT_CLUSTER,
    agents: int | None = None,
    *,
    credential: File | None = None,
    key: File | None = None,
    **options: Any,
) -> ClusterHead | Cluster:
    """Return the head of a long-lived cluster (``sapwood up``).

    Args:
        name: What ``sapwood up --cluster`` was given, for a head on this machine; or
            ``sapwood://host:port`` for one on another machine.
        agents: Deprecated: use :meth:`ClusterHead.start <sapwood.types.ClusterHead.start>`.
        credential: A credential, or the file with one: what the calls may do, and no more. On the
            head's machine its user needs none.
        key: The key of the credential's holder, or the file with it, if it is bound to one.
        **options: Deprecated, as ``agents``.

    Raises:
        NodeLostError: There is no such head.
        CommunicationError: The head is not reached.
        SecurityError: The head is another one, or refuses the credential.

    Example:
        ::

            head = sapwood.connect()
            with head.start(agents=16) as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    renamed = "cluster" in options
    name = options.pop("cluster", name)
    if agents is not None or options:
        warnings.warn(
            "sapwood.connect() starts no agents any more: use sapwood.connect(NAME).start(AGENTS); "
            "the old form works until version 0.2",
            DeprecationWarning,
            stacklevel=2,
        )
        return at_head(name, agents, credential=credential, key=key, **options)
    if renamed:
        warnings.warn(
            "sapwood.connect() takes the cluster as its first argument: use sapwood.connect(NAME); "
            "cluster= works until version 0.2",
            DeprecationWarning,
            stacklevel=2,
        )
    head = ClusterHead(name, credential=credential, key=key)
    head.check()
    return head


class ClusterHead:
    """The head of a long-lived cluster; made by :func:`sapwood.connect`.

    It holds no connection: each call connects to the head, so it also survives a restart of the
    head, and needs no ``close``.

    Args:
        name: Name or address of the cluster.
        credential: A credential, or the file with one.
        key: The key of the credential's holder, or the file with it.

    Attributes:
        name: Name or address of the cluster.
    """

    def __init__(
        self, name: str, *, credential: File | None = None, key: File | None = None
    ) -> None:
        self.name: str = name
        self._credential, self._key = credential, key

    def check(self) -> None:
        """Check that the head can be reached.

        Raises:
            NodeLostError: There is no such head.
            CommunicationError: The head is not reached.
            SecurityError: The head is another one, or refuses the credential.
        """
        open_head(self.name, self._credential, self._key).close()

    def start(
        self,
        agents: int | None = None,
        *,
        agents_per_node: int | None = None,
        settings: Settings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Cluster:
        """Start a cluster on the nodes of this head, as ``sapwood.start("head:NAME")`` does.

        The nodes stay when the cluster is closed, or when this process ends. Several clusters may
        be on them at a time. The nodes of a head on another machine must reach this machine at
        ``nodes.listen``.

        Args:
            agents: Agents altogether; they are spread evenly.
            agents_per_node: Agents on each node; by default as many as it has cores.
            settings: All settings; by default those of configuration files and variables.
            environment: Environment variables for the agents, in addition to their own.

        Raises:
            ConfigurationError: A number or a setting is out of range, or the head has no nodes.
            NodeLostError: The head has ended.
            CommunicationError: The head is not reached.
            SecurityError: The credential does not allow this.

        Example:
            ::

                with sapwood.connect("nw").start(agents=16) as cluster:
                    print(cluster.submit(pow, 2, 10).result())
        """
        return at_head(
            self.name,
            agents,
            agents_per_node=agents_per_node,
            settings=settings,
            environment=environment,
            credential=self._credential,
            key=self._key,
        )

    def create_session(
        self,
        agents: int | None = None,
        *,
        on_wait: WaitCallback | None = None,
        **options: Unpack[NewSessionOptions],
    ) -> Cluster:
        """Start a session at this head, which runs on this machine; it can outlive this process.

        A separate process, the session server, is the root of its tree. This process leaves it with
        :meth:`.Cluster.detach <sapwood.Cluster.detach>` and returns with :func:`sapwood.attach`. It
        ends when it is closed here, by ``sapwood session delete``, with the cluster, or when no
        program was attached for some time; a session that brings machines along also with these.
        Without ``idle``, it ends a minute after this process has ended without detaching.

        Args:
            agents: Agents altogether; by default one for each core.
            name: What to call it; by default a name is made up.
            on: ``"head"`` for the nodes of the cluster, ``"local"`` for the head's machine alone,
                or machines that the session brings along: ``"slurm:4"``, ``"ssh:n1,n2"``,
                ``"ray:2"``, ``"dask:tcp://HOST:8786"``, ``"kubernetes:4"``. The head's machine asks
                for these, as its user; they are given back when the session ends.
            agents_per_node: Agents on each node.
            fanout: Children of each junction, with ``"local"``; other shapes are settings:
                ``cluster.shape``, and ``nodes.topology`` for those between nodes.
            idle: Seconds after which it ends when no program is attached, 0 for never, however this
                process ends; by default, once it is detached, as the policy of the head says
                (``idle.session``).
            settings: All settings; by default those of configuration files and variables.
            environment: Environment variables for the agents, in addition to their own;
                the head keeps them with the session.
            on_wait: Receives what a session waits for whose machines are not available yet, and
                since how many seconds; :meth:`request_session` does not wait for them.

        Raises:
            ConfigurationError: The name is not valid or in use, the machines cannot exist, or the
                head is on another machine.
            NodeLostError: The head has ended, or machines did not come.
            ResourceError: Its processes cannot be started, or machines are refused.
            ClosedError: It was ended while it waited.

        Example:
            ::

                with sapwood.connect().create_session(agents=16, name="night") as cluster:
                    cluster.submit(prepare).result()
                    handle = cluster.detach()  # it continues

                cluster = sapwood.attach(handle)  # later, from another process
        """
        return create_session(agents, cluster=self.name, on_wait=on_wait, **options)

    def request_session(
        self,
        agents: int | None = None,
        **options: Unpack[NewSessionOptions],
    ) -> str:
        """Ask for a session as :meth:`create_session` does, and return its handle at once.

        If its machines are not available yet, it starts when they are, with or without a waiting
        client. :func:`sapwood.attach` waits for it.

        Args:
            agents: Agents altogether; by default one for each core.
            **options: As for :meth:`create_session`. A session is not idle while it waits.

        Raises:
            ConfigurationError: The name is not valid or in use, the machines cannot exist, or the
                head is on another machine.
            NodeLostError: The head has ended, or machines did not come.
            ResourceError: Its processes cannot be started, or machines are refused.

        Example:
            ::

                head = sapwood.connect()
                handle = head.request_session(16, name="night", on="slurm:4")  # the job may wait

                with sapwood.attach(handle, on_wait=print) as cluster:  # from any process
                    print(cluster.submit(pow, 2, 10).result())
        """
        return request_session(agents, cluster=self.name, **options)

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes of this head, also those that were removed lately.

        Raises:
            NodeLostError: The head has ended.
            CommunicationError: The head is not reached.
            SecurityError: The credential does not allow this.

        Example:
            ::

                for node in sapwood.connect().nodes():
                    print(node.name, node.state, node.cores)
        """
        from sapwood.head.parts.nodes import Nodes  # noqa: PLC0415 - imports cryptography

        records = asker(self.name, self._credential, self._key)(CALL_TIMEOUT, Nodes.every)
        return [_node_info(one) for one in records]

    @property
    def credentials(self) -> HeadCredentials:
        """The credentials of this head: issued, listed and revoked.

        Example:
            ::

                for one in sapwood.connect().credentials.list():
                    print(one.id, one.subject, one.rights)
        """
        return HeadCredentials(asker(self.name, self._credential, self._key))

    @property
    def runs(self) -> DetachedRuns:
        """The detached runs of this head, as ``sapwood run list`` shows them.

        Example:
            ::

                for run in sapwood.connect().runs.list():
                    print(run.id, run.program, run.progress)
        """
        return runs(self.name, credential=self._credential, key=self._key)

    def stage(self, *, settings: Settings | None = None) -> Stage:
        """Return the files that the nodes of this head keep; a context manager.

        Args:
            settings: All settings; by default those of configuration files and variables.

        Raises:
            NodeLostError: The head has ended.
            CommunicationError: The head is not reached.
            SecurityError: The credential does not allow this.

        Example:
            ::

                with sapwood.connect().stage() as stage:
                    stage.put("build/solver", "meshes")
                    sapwood.execute(["sh", "-c", "$SAPWOOD_STAGE/solver"], on="head")
                    stage.get("~/result.csv", "results")
        """
        return Stage(self.name, settings=settings, credential=self._credential, key=self._key)

    def __repr__(self) -> str:
        return f"<ClusterHead of {self.name}>"


def _node_info(record: NodeRecord) -> NodeInfo:
    facts = record.facts
    return NodeInfo(
        name=record.name,
        state=record.state,
        reason=record.reason,
        since=record.since,
        joined=record.joined,
        cores=0 if facts is None else facts.cores,
        architecture="" if facts is None else facts.architecture,
        python="" if facts is None else facts.python,
    )
