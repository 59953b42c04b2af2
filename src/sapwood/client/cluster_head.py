"""The head of a long-lived cluster as programs see it: ``sapwood.connect``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, overload

from sapwood.client.attaching import create_session, request_session
from sapwood.client.cluster import Cluster
from sapwood.client.detached_runs import DetachedRuns, runs
from sapwood.client.hosts import at_head
from sapwood.client.staging import Stage
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.core.hints import DEFAULT_CLUSTER
from sapwood.environment.settings import Settings

File = str | os.PathLike[str]


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
    if agents is not None or options:
        warnings.warn(
            "sapwood.connect() starts no agents any more: use sapwood.connect(NAME).start(AGENTS); "
            "the old form works until version 0.2",
            DeprecationWarning,
            stacklevel=2,
        )
        return at_head(name, agents, credential=credential, key=key, **options)
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
        from sapwood.head_client.access import HeadAccess  # noqa: PLC0415 - imports cryptography
        from sapwood.security.credential_file import (  # noqa: PLC0415 - as above
            find_credential,
            find_holder_key,
        )

        HeadAccess(
            self.name,
            None if self._credential is None else find_credential(self._credential),
            None if self._key is None else find_holder_key(self._key),
        ).close()

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

    def create_session(  # noqa: PLR0913 - each is a separate option, by name
        self,
        agents: int | None = None,
        *,
        name: str = "",
        on: str = "head",
        agents_per_node: int | None = None,
        fanout: int | None = None,
        idle: float | None = None,
        settings: Settings | None = None,
        environment: Mapping[str, str] | None = None,
        on_wait: WaitCallback | None = None,
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
        return create_session(
            agents,
            name=name,
            on=on,
            agents_per_node=agents_per_node,
            fanout=fanout,
            idle=idle,
            settings=settings,
            environment=environment,
            on_wait=on_wait,
            cluster=self.name,
        )

    def request_session(
        self,
        agents: int | None = None,
        *,
        name: str = "",
        on: str = "head",
        agents_per_node: int | None = None,
        fanout: int | None = None,
        idle: float | None = None,
        settings: Settings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Ask for a session as :meth:`create_session` does, and return its handle at once.

        If its machines are not available yet, it starts when they are, with or without a waiting
        client. :func:`sapwood.attach` waits for it.

        Args:
            agents: See :meth:`create_session`, as for all others.
            name: What to call it.
            on: Where its agents are.
            agents_per_node: Agents on each node.
            fanout: Children of each junction, with ``"local"``.
            idle: Seconds without attached clients after which it ends; it is not idle while it
                waits.
            settings: All settings.
            environment: Environment variables for the agents, in addition to their own.

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
        return request_session(
            agents,
            name=name,
            on=on,
            agents_per_node=agents_per_node,
            fanout=fanout,
            idle=idle,
            settings=settings,
            environment=environment,
            cluster=self.name,
        )

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
