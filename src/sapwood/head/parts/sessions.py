"""The sessions of a cluster with session servers, as clients and these servers see them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from sapwood.contexts.launchers.specs import is_launched, names_machines, runs_as_head_user
from sapwood.core.errors import SecurityError
from sapwood.head.protocol.call import HeadPart, Http, Reach, call
from sapwood.head.protocol.greeting import RightsFacts
from sapwood.head.session_records import (
    ClientCertificate,
    ClientRefused,
    CreateSession,
    KnownTrees,
    SessionCreator,
    SessionCredential,
    SessionMetrics,
    SessionProcess,
    SessionRecord,
    SessionReport,
    SessionTree,
    SessionTrees,
    WorkMetrics,
)
from sapwood.security.rights import (
    ADMIN,
    ALL_RIGHTS,
    ALLOCATE,
    ATTACH,
    CONNECT,
    CREATE,
    DELETE,
    MERGE,
    OBSERVE,
    RUN,
    SPAWN,
)
from sapwood.session.session_life import SessionState

if TYPE_CHECKING:  # the head's half, which clients do not load
    from sapwood.head.authorizer import Authorizer
    from sapwood.head.calls import NodeRecord
    from sapwood.head.parts.policy import Policy
    from sapwood.head.protocol.caller import ServiceCaller
    from sapwood.head.session_reports import SessionReports
    from sapwood.head.sessions import HeadSessions
    from sapwood.nodes.control import ControlTree
    from sapwood.security.denials import Denials


class Sessions(HeadPart):
    """The sessions of a cluster.

    Args:
        registry: It starts, finds and ends them.
        authorizer: The authorizer.
        control: The tree of nodes, with the authority of the cluster.
        policy: The settings that sessions of other users may have.
        denials: The credentials that were revoked.
        nodes: Returns the nodes.
        hosts_of: Returns the numbers of the nodes that a session has processes on.
        reports: It records what the servers of sessions report.

    Attributes:
        trees: The trees of the sessions.
    """

    def __init__(
        self,
        registry: HeadSessions,
        authorizer: Authorizer,
        control: ControlTree,
        policy: Policy,
        denials: Denials,
        nodes: Callable[[], list[NodeRecord]],
        hosts_of: Callable[[str], set[int]],
        reports: SessionReports,
    ) -> None:
        self._registry = registry
        self._note_process = reports.note_process
        self._authorizer = authorizer
        self._control = control
        self._policy = policy
        self._denials = denials
        self._nodes = nodes
        self._hosts_of = hosts_of
        self._lock = threading.Lock()  # of the metrics
        self._metrics = reports.metrics
        self.trees = reports.trees

    # --- for clients -----------------------------------------------------------------------------

    @call("session.create", right=CREATE, slow=True)
    def create(self, caller: ServiceCaller, wanted: CreateSession) -> Future[SessionRecord]:
        """Start a session with a session server.

        Args:
            caller: Its server acts with the rights of the caller.
            wanted: The session.

        Raises:
            SecurityError: The caller lacks a right that the session needs.
        """
        rights = caller.granted
        needed = [ALLOCATE, SPAWN]  # its root acts with these rights
        if wanted.on == "local":  # its agents are processes of the head's user, beside the head
            needed = [ADMIN]
            self._authorizer.refuse_others(rights, "a session on the head's machine")
        elif is_launched(wanted.on):  # and these, on machines that its user pays for or logs in to
            needed = [ADMIN] if names_machines(wanted.on) else needed
            self._authorizer.refuse_others(rights, "a session that brings machines along")
        what = Sessions.create.name
        for right in needed:
            self._authorizer.require_right(caller, right, session=wanted.name, what=what)
        there = [one for one in self._nodes() if one.is_ready]
        only_reserved = wanted.on == "head" and there and all(one.reserved for one in there)
        if only_reserved or runs_as_head_user(wanted.on):
            self._authorizer.require_reserved(
                caller, "this session", where=f"--on {wanted.on}", wanted=what
            )
        if rights.nodes is not None:
            raise SecurityError(
                "a separate session may use all nodes, and the credential is for some",
                hint="use the nodes by sapwood.connect()",
            )
        if rights is not ALL_RIGHTS:
            settings = self._policy.allowed(wanted.settings)
            wanted = msgspec.structs.replace(wanted, settings=settings)
        return self._registry.create(wanted, SessionCreator.of(rights))

    @call("session.list", right=CONNECT, http=Http("GET", "/sessions", key="sessions"))
    def every(self) -> list[SessionRecord]:
        """Return the sessions, including those that ended lately."""
        return self._registry.records()

    @call("session.find", right=CONNECT, http=Http("GET", "/sessions/{session}"))
    def find(self, session: str) -> SessionRecord:
        """Return one session.

        Args:
            session: The name of a session, its id, or NAME#ID, written NAME%23ID in a URL.
        """
        return self._registry.find(session)

    @call(
        "session.end",
        right=DELETE,
        reach=Reach.OWNED,
        slow=True,
        http=Http("DELETE", "/sessions/{session}"),
    )
    def end(self, caller: ServiceCaller, session: str) -> Future[SessionRecord]:
        """End a session.

        Args:
            caller: The caller.
            session: The name of a session, its id, or NAME#ID, written NAME%23ID in a URL.
        """
        record = self._registry.find(session)
        self._authorizer.require_session(caller, DELETE, record, what=Sessions.end.name)
        return self._registry.end(record.handle)

    @call("session.credential", right=ATTACH, reach=Reach.OWNED, slow=True)
    def credential(self, caller: ServiceCaller, session: str) -> SessionCredential:
        """Return what lets a client on another machine attach.

        Args:
            caller: It gets no more than its own rights.
            session: The session, as for :meth:`find`.
        """
        record = self._registry.find(session)
        what = Sessions.credential.name
        rights = self._authorizer.require_session(caller, ATTACH, record, what=what)
        if RUN in rights.names:
            self._check_work(caller, record, what)
        secret = self._authorizer.secret_for(rights, self._registry.secret_of(record), record.id)
        return self._shown_at_root(record, secret)

    @call("session.merge-credential", right=MERGE, reach=Reach.OWNED, slow=True)
    def merge_credential(self, caller: ServiceCaller, session: str) -> SessionCredential:
        """Return what lets another session take this one into its streams.

        Args:
            caller: It gets no more than its own rights.
            session: The session, as for :meth:`find`.
        """
        record = self._registry.find(session)
        what = Sessions.merge_credential.name
        rights = self._authorizer.require_session(caller, MERGE, record, what=what)
        self._check_work(caller, record, what)
        secret = self._authorizer.merge_secret_for(
            rights, self._registry.secret_of(record), record.id
        )
        return self._shown_at_root(record, secret)

    @call("session.trees", right=OBSERVE)
    def changed_trees(self, known: KnownTrees) -> SessionTrees:
        """Return the trees of active sessions.

        Args:
            known: Those that the client has.
        """
        return self.trees.changed(known, self._registry.records())

    def work(self) -> WorkMetrics:
        """Return what the agents of all sessions have done."""
        records = self._registry.records()
        live = [one.id for one in records if not SessionState(one.state).is_over]
        with self._lock:
            return self._metrics.total(live)

    def _shown_at_root(self, record: SessionRecord, secret: str) -> SessionCredential:
        """Return what the holder of a session's secret needs to reach its server."""
        return SessionCredential(
            record.id,
            record.name,
            secret,
            f"s-{record.id}.{self._control.authority.cluster}",
            self._control.authority.certificate,
            list(self._control.addresses),
            self._registry.cluster,
        )

    def _check_work(self, caller: ServiceCaller, record: SessionRecord, what: str) -> None:
        """Refuse work with agents of a session that run as the head's user on reserved nodes.

        The agents of a session whose creator may not use such nodes are nowhere else. Any other
        session leaves such nodes out from now on.

        Raises:
            SecurityError: The session has such agents, and the credential may not use such nodes.
        """
        made_by = ALL_RIGHTS if record.creator is None else record.creator.rights
        if self._authorizer.may_use_reserved(caller.granted) or (
            not self._authorizer.may_use_reserved(made_by) and not runs_as_head_user(record.on)
        ):
            return
        if self._is_on_reserved(record):
            where = f"session {record.handle}"
            self._authorizer.require_reserved(
                caller, "code in this session", where=where, wanted=what
            )
        self._registry.share(record)

    def _is_on_reserved(self, record: SessionRecord) -> bool:
        """Whether agents of a session are on reserved nodes."""
        if runs_as_head_user(record.on):
            return True
        hosts = self._hosts_of(record.id)
        reported = set() if record.report is None else set(record.report.nodes)
        return any(
            one.reserved and (one.host in hosts or one.name in reported) for one in self._nodes()
        )

    # --- for session servers ---------------------------------------------------------------------

    @call("session.act", right=ADMIN, reach=Reach.HEAD)
    def act_for(self, caller: ServiceCaller, session: str) -> RightsFacts | None:
        """Leave a session's server no more rights than the creator of the session has.

        Args:
            caller: The server.
            session: The id of its session.

        Returns:
            The rights; None if the head's user created the session.
        """
        record = self._registry.find(session)
        caller.session, caller.session_name = record.id, record.name
        creator = record.creator
        if creator is None:
            return None
        denied = self._denials.any_of(creator.ids)
        if denied:
            raise SecurityError("the credential that made the session was revoked", where=denied)
        caller.rights = creator.rights
        return self._authorizer.facts_of(creator.rights)

    @call("session.certify", right=ADMIN)
    def certify(self, session: str, request: bytes) -> ClientCertificate:
        """Certify a session's server.

        Args:
            session: The id of the session.
            request: Its request, PEM.
        """
        made = self._control.issuer.certify(request, f"s-{self._registry.find(session).id}")
        return ClientCertificate(made.node, made.certificate, made.authority)

    @call("session.report", right=ADMIN, slow=True, in_order=True)
    def report(self, report: SessionReport) -> bool:
        """Record how a session is; return whether its server may continue.

        Args:
            report: What the server says.
        """
        return self._registry.report(report)

    @call("session.tree", right=ADMIN)
    def report_tree(self, tree: SessionTree) -> None:
        """Record the places of a session's tree.

        Args:
            tree: What the server says.
        """
        self.trees.note(tree)

    @call("session.metrics", right=ADMIN)
    def report_metrics(self, metrics: SessionMetrics) -> None:
        """Record what the agents of a session have done.

        Args:
            metrics: What the server says.
        """
        with self._lock:
            self._metrics.note(metrics)

    @call("session.refused", right=ADMIN)
    def report_refused(self, refused: ClientRefused) -> None:
        """Note whom a session's server has not let in, or has cut off.

        Args:
            refused: What the server says.
        """
        self._authorizer.note_refused(self._registry.find(refused.session).name, refused)

    @call("session.process", right=ADMIN)
    def report_process(self, process: SessionProcess) -> None:
        """Record that a process of a session ended unasked, or was replaced.

        Args:
            process: What the server says; of its nodes in the cluster, the head knows already.
        """
        self._note_process(self._registry.find(process.session), process)
