"""The head of a long-lived cluster: nodes join it, and front ends use them.

It has the root of the control tree, the authority and what both must not forget, in a store. It
ends when it is told so, and all nodes end with it. When it is killed, it can be started again: it
has the same authority then, and machines join it again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm.transport.base import Listener
from sapwood.comm.transport.unix import UnixTransport
from sapwood.contexts.launchers.base import Launcher
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    ProtocolError,
    SapwoodError,
    SecurityError,
    StoreError,
)
from sapwood.environment.log_ring import LogRing, kept_lines
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings
from sapwood.head import calls
from sapwood.head.folder import HeadInfo, remove_info, remove_left_sockets, write_info
from sapwood.head.runs import HeadRuns
from sapwood.head.service import ServiceCaller, ServiceServer
from sapwood.head.sessions import HeadSessions
from sapwood.head.status import NodeCauses, tree_status
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree, NodeView
from sapwood.security.authority import Authority, new_cluster_id
from sapwood.security.tokens import TokenRecord, Tokens
from sapwood.session.folder import make_folder
from sapwood.session.loop_thread import LoopThread
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.requests import ServedRequest
from sapwood.store.base import Store
from sapwood.store.sqlite import SqliteStore

ORDERS = frozenset(
    {
        messages.OPEN,
        messages.CONFIGURE,
        messages.SPAWN,
        messages.KILL,
        messages.CLOSE,
        messages.COMMAND_START,
        messages.COMMAND_INPUT,
        messages.COMMAND_SIGNAL,
        messages.COMMAND_CANCEL,
    }
)
"""What front ends may ask of nodes."""

SLOW_CALLS = 16
"""Calls that wait for something at a time; more wait for them."""

SHORTEST_LIFE, LONGEST_LIFE = 1.0, 30 * 24 * 3600.0
"""Seconds that a join token may live."""

MOST_USES = 100_000
"""How often a join token may be used at most."""

MAX_REMOVED = 100
"""Nodes that were removed and are listed still; of more, the last ones are."""

LOOK = 0.1
"""Seconds between two looks at what runs on a node that is drained."""

LAST_WORD = 1.0
"""Seconds that what runs on a node gets to end when the node is removed."""

DENIED_FOR = 30 * 24 * 3600.0
"""Seconds for which a node that was removed may not come again, or longer, as its certificate."""

AWAY = "it is away; it is taken back if it comes again"

_AUTHORITY = "authority"
_TOKENS = "tokens/"
_GENERATION = "generation"
_DENIED = "denied/"

_log = logger("head")


class _KeptAuthority(msgspec.Struct, frozen=True):
    """How an authority lies in the store."""

    key: bytes
    certificate: bytes


class Head:
    """A head.

    Args:
        name: What the user calls the cluster.
        folder: What it keeps lies there; see :func:`~sapwood.head.folder.head_folder`.
        options: How its control tree is made.
        settings: How machines become nodes.
        launcher: What starts nodes that belong to the head itself; None for none.

    Raises:
        StoreInUseError: The cluster is up already.
        StoreError: Its store cannot be used.

    Raises (from :meth:`start`):
        CommunicationError: It cannot listen.
        NodeLostError: The nodes of its own did not come.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        options: SessionOptions,
        settings: NodeSettings,
        launcher: Launcher | None = None,
    ) -> None:
        self.name = name
        self._life = settings.certificate_life
        self._folder = folder
        self._store: Store = SqliteStore(folder)
        self.ended = threading.Event()
        self._started = time.time()
        self._lock = threading.Lock()  # for what follows, which several threads use
        self._joined: dict[int, float] = {}
        self._removed: dict[int, calls.NodeRecord] = {}
        self._removals: dict[int, Future[Any]] = {}
        self._draining: dict[int, float] = {}  # until when, monotonic
        self._sessions: dict[tuple[str, int], _RemoteSession] = {}
        self._causes = NodeCauses()
        self._lines = LogRing()
        self._keeping = contextlib.ExitStack()
        self._front_ends = itertools.count(1)
        self._thread = LoopThread("sapwood-service")
        self._pool = ThreadPoolExecutor(SLOW_CALLS, "sapwood-slow")
        self._sockets: Path | None = None
        self._listener: Listener | None = None
        try:
            kept = (*self._kept(), self._next_generation())
        except BaseException:
            self._store.close()
            raise
        self.control = ControlTree(launcher, options, settings, *kept, self._is_denied)
        self._service = ServiceServer(
            {
                calls.HELLO: self._hello,
                calls.NODES: self._nodes,
                calls.STATUS: self._status,
                calls.LOGS: self._logs,
                calls.REMOVE_NODE: self._remove_node,
                calls.CREATE_TOKEN: self._create_token,
                calls.LIST_TOKENS: self._list_tokens,
                calls.REVOKE_TOKEN: self._revoke_token,
                calls.CERTIFY: self._certify,
                calls.DELEGATE: self._delegate,
                calls.UNDELEGATE: self._undelegate,
                calls.ORDER: self._order,
                calls.TAKEN: self._taken,
                calls.CREATE_SESSION: self._create_session,
                calls.CERTIFY_SESSION: self._certify_session,
                calls.SESSION_CREDENTIAL: self._session_credential,
                calls.LIST_SESSIONS: self._list_sessions,
                calls.FIND_SESSION: self._find_session,
                calls.END_SESSION: self._end_session,
                calls.REPORT_SESSION: self._report_session,
                calls.CREATE_RUN: self._create_run,
                calls.LIST_RUNS: self._list_runs,
                calls.FIND_RUN: self._find_run,
                calls.CANCEL_RUN: self._cancel_run,
                calls.DOWN: self._down,
            },
            self._thread,
        )
        self.sessions = HeadSessions(self._store, name, folder, self._thread, self._pool)
        self.runs = HeadRuns(self._store, folder, self._thread, self._pool)
        self._commands = _RemoteCommands(self.control, self._service)
        self._delegated: dict[str, tuple[int, Callable[[], None]]] = {}

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and start the nodes of its own."""
        self._keeping.enter_context(kept_lines(self._lines))
        self._commands.serve()
        self.control.session.subscribe(self._places_changed)
        try:
            self.control.start()
            self._thread.start()
            self.sessions.start()
            self.runs.start()
            remove_left_sockets(self._folder)
            self._sockets = make_folder()
            path = self._sockets / "head.sock"
            self._thread.call(self._listen, str(path))
            write_info(self._folder, HeadInfo(socket.gethostname(), os.getpid(), str(path)))
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """Wait until somebody ends it."""
        self.ended.wait()

    def close(self) -> None:
        """End all nodes, and leave nothing but what is kept."""
        self.ended.set()
        remove_info(self._folder)
        if self._thread.started:
            self.runs.close()
            self.sessions.close()
            self._thread.call(self._stop_listening)
        with contextlib.suppress(SapwoodError):
            self.control.dismiss("the cluster is down")
        self.control.close()
        self._pool.shutdown(cancel_futures=True)
        self._thread.stop()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        self._store.close()
        self._keeping.close()

    def _listen(self, path: str) -> None:
        self._listener = UnixTransport().listen(path, self._service, self._thread.loop)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._service.close()

    def _kept(self) -> tuple[Authority, Tokens]:
        """Return authority and tokens of the cluster, which the first head makes."""
        entry = self._store.get(_AUTHORITY)
        if entry is None:
            authority = Authority.create(new_cluster_id())
            kept = _KeptAuthority(authority.key, authority.certificate)
            self._store.compare_and_set(_AUTHORITY, msgspec.msgpack.encode(kept), 0)
        else:
            with self._reading(_AUTHORITY):
                found = typed.unpacker(_KeptAuthority)(entry.value)
                authority = Authority.load(found.key, found.certificate)
        read = typed.unpacker(TokenRecord)
        with self._reading(_TOKENS):
            records = [read(one.value) for one in self._store.entries(_TOKENS)]
        # Those with a slot were for daemons that the former head had started.
        usable = [one for one in records if not one.slot]
        return authority, Tokens(authority.pin, time.time, self._keep_token, usable)

    def _next_generation(self) -> int:
        """Count the heads that this cluster had."""
        entry = self._store.get(_GENERATION)
        with self._reading(_GENERATION):
            number = 1 if entry is None else int(entry.value) + 1
        self._store.put(_GENERATION, str(number).encode())
        return number

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Say what to do about an entry that no head has written."""
        try:
            yield
        except (msgspec.MsgspecError, ValueError, SecurityError) as error:
            raise StoreError(
                f"the cluster's entry '{key}' cannot be read: {error}",
                where=self._store.url,
                hint=f"move {self._folder} away: the cluster is a new one then, and machines join "
                "it anew",
            ) from error

    def _is_denied(self, node: str) -> bool:
        """Whether a node was removed, and its certificate may be valid still."""
        return self._store.get(_DENIED + node) is not None

    def _deny(self, node: str) -> None:
        """Let a node not come again; forget those whose certificates have ended by now."""
        now = time.time()
        self._store.put(_DENIED + node, str(now + max(self._life, DENIED_FOR)).encode())
        for entry in list(self._store.entries(_DENIED)):
            with contextlib.suppress(ValueError):
                if float(entry.value) < now:
                    self._store.delete(entry.key)

    def _keep_token(self, token: str, record: TokenRecord | None) -> None:
        if record is None:
            self._store.delete(_TOKENS + token)
        else:
            self._store.put(_TOKENS + token, msgspec.msgpack.encode(record))

    # --- what front ends want -------------------------------------------------------------------

    def _hello(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return _plain(
            calls.HeadFacts(
                name=self.name,
                cluster=self.control.cluster,
                version=importlib.metadata.version("sapwood"),
                pid=os.getpid(),
                started=self._started,
                places=list(self.control.places),
                front_ends=len(self._service.callers),
            )
        )

    def _nodes(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return [_plain(one) for one in self.records()]

    def records(self) -> list[calls.NodeRecord]:
        """Return the nodes that are there, and those that were removed."""
        found = [self._record(view) for view in self.control.nodes]
        known = {one.host for one in found}
        with self._lock:
            found += [one for host, one in self._removed.items() if host not in known]
        return sorted(found, key=lambda one: one.host)

    def _status(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller, value
        return self._pool.submit(lambda: _plain(tree_status(self.control, self.records())))

    def _logs(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        wanted = _read(value, calls.LogsOf)
        if not wanted.host:
            return messages.to_value(self._lines.read(wanted.read.after, wanted.read.level))
        return self.control.ask(wanted.host, messages.LOGS, messages.to_value(wanted.read))

    def _record(self, view: NodeView) -> calls.NodeRecord:
        cause, state = self._causes.of(view.host), view.state
        with self._lock:
            if view.facts is not None:
                self._joined.setdefault(view.host, time.time())
                if state == "starting" and view.host > len(self.control.hosts):
                    state = "lost"  # nobody here starts it again: it may come back by itself
            if state == "ready" and view.host in self._draining:
                state = "draining"
            joined = self._joined.get(view.host, 0.0)
        reason = "" if view.state == "ready" else cause.reason
        return calls.NodeRecord(
            host=view.host,
            name=view.name,
            node=view.node,
            state=state,
            facts=view.facts,
            skew=view.skew,
            reason=view.trouble or reason or (AWAY if state == "lost" else ""),
            joined=joined,
            since=cause.since,
            former=cause.former,
            former_time=cause.former_time,
        )

    def _remove_node(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller
        wanted = _read(value, calls.RemoveNode)
        found = [one for one in self.records() if one.name == wanted.name and one.state != GONE]
        if not found:
            known = ", ".join(one.name for one in self.records() if one.state != GONE)
            raise ConfigurationError(
                f"there is no node '{wanted.name}'", hint=f"nodes are {known}" if known else ""
            )
        record = found[-1]  # one that is leaving may have the same name
        if record.host <= len(self.control.hosts):
            raise ConfigurationError(
                f"'{wanted.name}' is the head's own node",
                hint="`sapwood down` ends it; `sapwood up --no-node` makes a head without one",
            )
        until = time.monotonic() + wanted.drain
        with self._lock:
            under_way = self._removals.get(record.host)
            if under_way is not None:  # who comes second may be in more of a hurry
                self._draining[record.host] = min(self._draining[record.host], until)
                return under_way
            self._draining[record.host] = until
            made = self._removals[record.host] = self._pool.submit(self._remove, record)
        return made

    def _remove(self, record: calls.NodeRecord) -> Any:
        host = record.host
        self._tell_nodes([host])
        with self._lock:
            drained = self._draining[host] > time.monotonic()
        how = "it was drained and removed" if drained else "it was removed"
        gone = msgspec.structs.replace(record, state=GONE, reason=how, since=time.time())
        try:
            self._wait_until_idle(host)
            if self.ended.is_set():
                raise ClosedError("the head ends")
            if record.node:
                self._deny(record.node)
            with self._lock:
                self._removed[host] = gone
                for old in list(self._removed)[:-MAX_REMOVED]:
                    del self._removed[old]
            self.control.remove_node(host, LAST_WORD)
        except BaseException:
            with self._lock:
                self._removed.pop(host, None)
            raise
        finally:
            with self._lock:
                del self._draining[host], self._removals[host]
                self._joined.pop(host, None)
        return _plain(gone)

    def _wait_until_idle(self, host: int) -> None:
        """Wait until no session and no command is on a node, or its time is over."""
        while not self.ended.wait(LOOK):
            with self._lock:
                late = time.monotonic() >= self._draining[host]
                busy = any(one == host for _, one in self._sessions)
            if late or not (busy or self._commands.are_on(host)):
                return

    def _create_token(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        wanted = _read(value, calls.CreateToken)
        if not SHORTEST_LIFE <= wanted.lifetime <= LONGEST_LIFE:
            raise ConfigurationError(
                "a join token lives between a second and 30 days", where=f"{wanted.lifetime:g} s"
            )
        if not 1 <= wanted.uses <= MOST_USES:
            raise ConfigurationError(f"a join token has 1 to {MOST_USES} uses")
        token = self.control.create_token(
            uses=wanted.uses, lifetime=wanted.lifetime, names=wanted.names
        )
        text = f"{token.text}@{','.join(self.control.places)}"
        return _plain(calls.JoinLine(token.id, text, time.time() + wanted.lifetime))

    def _list_tokens(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return [
            _plain(calls.TokenFacts(one.id, one.uses, one.expires, one.names))
            for one in self.control.tokens
        ]

    def _revoke_token(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        return self.control.revoke_token(_read(value, str))

    def _certify(self, caller: ServiceCaller, value: Any) -> Any:
        name = f"f{caller.number}-{next(self._front_ends)}"
        made = self.control.certify(_read(value, bytes), name)
        return _plain(calls.FrontEndCertificate(made.node, made.certificate, made.authority))

    def _delegate(self, caller: ServiceCaller, value: Any) -> Any:
        wanted = _read(value, calls.DelegateLinks)
        self._end_delegation(wanted.tree, caller.number)  # it may come again, with a new path
        end = self.control.delegate(
            wanted.tree, partial(_send_socket, wanted.path), session=wanted.session
        )
        forget = caller.when_gone(partial(self._end_delegation, wanted.tree, caller.number))

        def stop() -> None:
            forget()
            end()

        self._delegated[wanted.tree] = (caller.number, stop)
        return None

    def _undelegate(self, caller: ServiceCaller, value: Any) -> Any:
        self._end_delegation(_read(value, str), caller.number)
        return None

    def _end_delegation(self, tree: str, caller: int) -> None:
        owner, end = self._delegated.get(tree, (0, _nothing))
        if owner == caller:
            del self._delegated[tree]
            end()

    def _order(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        order = _read(value, calls.NodeOrder)
        if order.handler not in ORDERS:
            raise ProtocolError(f"a front end may not ask a node for '{order.handler}'")
        begins = order.handler in {messages.OPEN, messages.COMMAND_START}
        with self._lock:
            draining = order.host in self._draining
        if draining and begins:
            raise ConfigurationError(
                f"the node {self.control.name_of(order.host)} is being drained",
                hint="take another one",
            )
        if order.handler == messages.OPEN:
            self._own_session(caller, order)
        elif order.handler == messages.CLOSE:
            self._disown_session(caller, str(order.value), order.host)
        elif order.handler == messages.COMMAND_START:
            return self._commands.start(caller, order)
        return self.control.ask(order.host, order.handler, order.value)

    def _own_session(self, caller: ServiceCaller, order: calls.NodeOrder) -> None:
        opening = messages.from_value(order.value, messages.OpenProcesses)
        key = (opening.session, order.host)
        with self._lock:
            known = self._sessions.get(key)
        if known is not None and known.caller is not caller:
            raise ProtocolError(f"the session {opening.session} is another front end's")
        if known is None:
            made = _RemoteSession(opening.session, order.host, caller, self._service)
            made.forget = caller.when_gone(partial(self._abandoned, key))
            with self._lock:
                self._sessions[key] = made
            self.control.join(made)

    def _disown_session(self, caller: ServiceCaller, name: str, host: int) -> None:
        with self._lock:
            known = self._sessions.get((name, host))
            if known is None or known.caller is not caller:
                return
            del self._sessions[name, host]
        known.forget()
        self.control.part(known)

    def _abandoned(self, key: tuple[str, int]) -> None:
        """A front end is gone without a word: nothing of its session stays on a node."""
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            self.control.part(session)
            _log.info("session ended with its front end", session=key[0], host=key[1])
            with contextlib.suppress(SapwoodError):
                self.control.ask(key[1], messages.CLOSE, key[0])

    def _create_session(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller
        return self.sessions.create(_read(value, calls.CreateSession))

    def _certify_session(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        wanted = _read(value, calls.CertifySession)
        record = self.sessions.find(wanted.session)
        made = self.control.certify(wanted.request, f"s-{record.id}")
        return _plain(calls.FrontEndCertificate(made.node, made.certificate, made.authority))

    def _session_credential(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        record = self.sessions.find(_read(value, str))
        made = calls.SessionCredential(
            record.id,
            record.name,
            self.sessions.secret_of(record),
            f"s-{record.id}.{self.control.cluster}",
            self.control.authority,
            list(self.control.places),
        )
        return _plain(made)

    def _list_sessions(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return [_plain(one) for one in self.sessions.records()]

    def _find_session(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        return _plain(self.sessions.find(_read(value, str)))

    def _end_session(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller
        return self.sessions.end(_read(value, str))

    def _report_session(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        self.sessions.report(_read(value, calls.SessionReport))
        return None

    def _create_run(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        return _plain(self.runs.create(_read(value, calls.CreateRun)))

    def _list_runs(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return [_plain(one) for one in self.runs.records()]

    def _find_run(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        return _plain(self.runs.find(_read(value, str)))

    def _cancel_run(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller
        return self.runs.cancel(_read(value, str))

    def _taken(self, caller: ServiceCaller, value: Any) -> Any:
        self._commands.taken(caller, _read(value, int))
        return None

    def _down(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        self._thread.loop.call_soon(self.ended.set)
        return {"nodes": len(self.control.nodes)}

    # --- what front ends are told ----------------------------------------------------------------

    def _places_changed(self, change: PlacesChanged) -> None:
        """Nodes have changed; on the loop of the control tree."""
        self._causes.changed(change, time.time())
        known = {view.host: self._record(view) for view in self.control.nodes}
        with self._lock:
            nodes = [known.get(rank) or self._removed.get(rank) for rank in change.ranks]
        told = calls.NodesChanged(
            [one for one in nodes if one is not None],
            back=change.back,
            gone=not change.back and not change.disconnected,
            for_good=change.for_good or change.removed,
            reason=change.reason,
        )
        if told.gone:
            self._commands.nodes_gone(change.ranks)
        self._tell_all(calls.NODES_CHANGED, _plain(told))

    def _tell_nodes(self, hosts: list[int]) -> None:
        nodes = [one for one in self.records() if one.host in hosts]
        self._tell_all(calls.NODES_CHANGED, _plain(calls.NodesChanged(nodes)))

    def _tell_all(self, name: str, value: Any) -> None:
        with contextlib.suppress(ClosedError):
            self._thread.post(self._tell_each, name, value)

    def _tell_each(self, name: str, value: Any) -> None:
        for caller in self._service.callers:
            self._service.tell(caller, name, value)


GONE = "removed"
"""State of a node that has left for good."""


class _RemoteSession:
    """A session of a front end on a node: what it should hear goes there."""

    def __init__(self, name: str, host: int, caller: ServiceCaller, service: ServiceServer) -> None:
        self.name = name
        self.host = host
        self.caller = caller
        self.forget: Callable[[], None] = _nothing
        self._service = service

    def heard(self, report: messages.ProcessesReported) -> None:
        """Pass on what the node reports."""
        value = _plain(calls.OfNode(self.host, messages.to_value(report)))
        self._service.tell(self.caller, calls.PROCESSES_REPORTED, value)

    def node_changed(self, *, there: bool, reason: str) -> None:
        """Do nothing: all front ends hear of nodes."""

    def node_removed(self, reason: str) -> None:
        """Do nothing: all front ends hear of nodes."""

    def node_given_up(self, reason: str) -> None:
        """Do nothing: all front ends hear of nodes."""


class _RemoteCommands:
    """Commands of front ends on nodes."""

    def __init__(self, control: ControlTree, service: ServiceServer) -> None:
        self._control = control
        self._service = service
        self._lock = threading.Lock()
        self._owners: dict[tuple[int, int], tuple[ServiceCaller, Callable[[], None]]] = {}
        self._untaken: dict[int, tuple[ServiceCaller, ServedRequest]] = {}
        self._numbers = itertools.count(1)

    def serve(self) -> None:
        """Hear what commands write, and of their ends."""
        serve = self._control.session.requests.serve
        serve(messages.COMMAND_OUTPUT, self._wrote)
        serve(messages.COMMAND_ENDED, self._ended)

    def start(self, caller: ServiceCaller, order: calls.NodeOrder) -> Future[Any]:
        """Have a node start a command, and note whose it is."""
        command = messages.from_value(order.value, messages.StartCommand).command
        key = (command, order.host)
        with self._lock:
            if key in self._owners:
                raise ProtocolError(f"there is a command {command} already")
            forget = caller.when_gone(partial(self._abandoned, key))
            self._owners[key] = (caller, forget)
        try:
            answer = self._control.ask(order.host, order.handler, order.value)
        except BaseException:
            self._disown(key)
            raise

        def answered(done: Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._disown(key)  # it was not started

        answer.add_done_callback(answered)
        return answer

    def _disown(self, key: tuple[int, int]) -> None:
        with self._lock:
            owner = self._owners.pop(key, None)
        if owner is not None:
            owner[1]()

    def are_on(self, host: int) -> bool:
        """Whether a command runs on a node."""
        with self._lock:
            return any(one == host for _, one in self._owners)

    def taken(self, caller: ServiceCaller, number: int) -> None:
        """A front end has room for more output."""
        with self._lock:
            owner, question = self._untaken.pop(number, (None, None))
        if question is not None and owner is caller:
            question.give(None, None)

    def nodes_gone(self, hosts: tuple[int, ...]) -> None:
        """Forget commands on nodes that are gone."""
        with self._lock:
            keys = [key for key in self._owners if key[1] in hosts]
            forget = [self._owners.pop(key)[1] for key in keys]
        for function in forget:
            function()

    def _abandoned(self, key: tuple[int, int]) -> None:
        with self._lock:
            owner = self._owners.pop(key, None)
            mine = [n for n, (caller, _) in self._untaken.items() if owner and caller is owner[0]]
            questions = [self._untaken.pop(number)[1] for number in mine]
        for question in questions:
            question.give(None, None)
        order = messages.to_value(messages.CancelCommand(key[0]))
        with contextlib.suppress(SapwoodError):
            self._control.ask(key[1], messages.COMMAND_CANCEL, order)

    def _wrote(self, question: ServedRequest) -> None:
        output = messages.from_value(question.value(), messages.CommandOutput)
        host = question.asked.source
        with self._lock:
            owner = self._owners.get((output.command, host))
            number = next(self._numbers)
            if owner is not None:
                self._untaken[number] = (owner[0], question)
        if owner is None:
            question.give(None, None)
            return
        told = calls.OfNode(host, messages.to_value(output), number)
        self._service.tell(owner[0], calls.COMMAND_OUTPUT, _plain(told))

    def _ended(self, question: ServedRequest) -> None:
        report = messages.from_value(question.value(), messages.CommandEnded)
        host = question.asked.source
        with self._lock:
            owner = self._owners.pop((report.command, host), None)
        if owner is not None:
            owner[1]()  # it need not be cancelled any more
            told = calls.OfNode(host, messages.to_value(report))
            self._service.tell(owner[0], calls.COMMAND_ENDED, _plain(told))
        question.give(None, None)


def _send_socket(path: str, sock: socket.socket, peer: str) -> None:
    """Give a connection to the process that listens at a path; this process lets go of it."""
    with sock, socket.socket(socket.AF_UNIX) as way:
        way.settimeout(0)
        try:
            way.connect(path)
            socket.send_fds(way, [peer.encode() or b"?"], [sock.fileno()])
        except OSError as error:
            _log.warning("connection not handed over", peer=peer, reason=str(error))


def _plain(value: msgspec.Struct) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _read(value: Any, kind: Any) -> Any:
    try:
        return typed.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"malformed call: {error}") from error


def _nothing() -> None:
    pass
