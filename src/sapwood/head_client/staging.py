"""Files for the nodes of a head, and files from them, as a client sees them.

Content goes to few nodes from here, through the head; each node passes it on to others while it
arrives (:func:`sources_of`). What a node has already is not sent, and where it has a part of it,
the rest is. When a node ends, nodes that fetch from it continue elsewhere, from the same byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from sapwood.code.cache import BuildCache
from sapwood.code.locked_packages import PACKAGES, MachineKind, PackageLock
from sapwood.content import messages as sm
from sapwood.content.file_trees import FileEntry, FileTree, checked_name, read_tree
from sapwood.content.pull import WINDOW, ChunkRequest, Pull
from sapwood.content.refs import CHUNK
from sapwood.core import typed
from sapwood.core.errors import (
    AgentLostError,
    CommunicationError,
    DataMissingError,
    DataValueError,
    InputError,
    NodeLostError,
    ProtocolError,
    SapwoodError,
)
from sapwood.core.futures import when_done
from sapwood.core.hints import command
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.core.shown import shown
from sapwood.head import calls
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.stage_reports import (
    CollectInfo,
    EnvironmentInfo,
    StagedFilesInfo,
    StageInfo,
)
from sapwood.nodes import messages

UNDER_WAY: Final = 32
"""Pieces that were sent and not confirmed, to all nodes together."""

SMALL: Final = 64 * 1024
"""Bytes up to which all nodes get their content from here: it arrives before others are asked."""

MAX_ATTEMPTS: Final = 8
"""How often a node is supplied anew, because a source has ended."""

HOP: Final = 0.01
"""Seconds after which the first piece is at the next node; used to choose a shape."""

RATE: Final = 500e6
"""Bytes in a second over one link; used to choose a shape."""


def best_fan_out(nodes: int, nbytes: int) -> int:
    """Return how many nodes each one is to pass content on to, so that all have it soonest.

    A node with many below it sends the same bytes many times; with few, the way to the last is
    long.

    Example:
        >>> best_fan_out(16, 2**30), best_fan_out(1000, 2**20)
        (1, 8)
    """

    def seconds(fan_out: int) -> float:
        depth = nodes if fan_out == 1 else math.log(max(nodes, 2), fan_out)
        return fan_out * nbytes / RATE + depth * HOP

    return min(range(1, 9), key=seconds)


def sources_of(
    wanting: Sequence[int], having: Sequence[int], leaves: set[int], fan_out: int
) -> dict[int, int]:
    """Return from which node each one gets its content; 0 is the client.

    Args:
        wanting: The nodes that need it.
        having: Those that have all of it.
        leaves: Those that can pass nothing on.
        fan_out: How many nodes one of them passes it on to.

    Example:
        >>> sources_of([1, 2, 3, 4], [], set(), 2)
        {1: 0, 2: 1, 3: 1, 4: 2}
        >>> sources_of([1, 2], [5], set(), 1)
        {1: 5, 2: 1}
    """
    found: dict[int, int] = {}
    parents = deque(one for one in having if one not in leaves for _ in range(fan_out))
    for node in wanting:
        found[node] = parents.popleft() if parents else 0
        if node not in leaves:
            parents.extend([node] * fan_out)
    return found


class Staging:
    """Files on the nodes of a head.

    Args:
        head: The connection with it.
        listen: Where a node is to listen that passes content on, ``host:port``.
    """

    def __init__(self, head: HeadAccess, listen: str = "0.0.0.0:0") -> None:
        self._head = head
        self._listen = listen

    def put(
        self, paths: Sequence[Path], nodes: str = "", name: str = ""
    ) -> tuple[list[StageInfo], dict[str, SapwoodError]]:
        """Have files and folders on nodes.

        Args:
            paths: What; all of them are read before anything is sent.
            nodes: Where, a set of names; empty: on all.
            name: What it is called there, if it is one only; empty: as here.

        Returns:
            The outcome of each, and the errors by node.

        Raises:
            DataMissingError: One is not here, or cannot be read.
            InputError: One cannot be staged, or there is no such node.
            NodeLostError: A node that was named is not there.
        """
        wanted = self._chosen(nodes)
        if name and len(paths) != 1:
            raise InputError("one name is given for several files", hint="stage them one by one")
        trees = [read_tree(path) for path in paths]
        trees = [tree.named(name or tree.name) for tree in trees]
        twice = [one for one, count in Counter(tree.name for tree in trees).items() if count > 1]
        if twice:
            raise InputError(
                f"two of these files are called {shown(twice[0])}",
                hint="give other names by --as NAME",
            )
        reports: list[StageInfo] = []
        failed: dict[str, SapwoodError] = {}
        for path, tree in zip(paths, trees, strict=True):
            left = {host: one for host, one in wanted.items() if one not in failed}
            report, refused = self._delivered(tree, path, left)
            reports.append(report)
            failed |= refused
        return reports, failed

    def environment(
        self, path: Path, cache: BuildCache, nodes: str = "", name: str = ""
    ) -> tuple[list[EnvironmentInfo], dict[str, SapwoodError]]:
        """Have the packages of a lock file on nodes, each where it fits.

        All of them are installed here before anything is sent, once for all nodes of a kind.

        Args:
            path: The lock file.
            cache: Where installed packages are kept.
            nodes: Where, a set of names; empty: on all.
            name: What the environment is called there; empty: as the lock's project or file.

        Returns:
            The outcome for each kind of nodes, and the errors by node.

        Raises:
            DataMissingError: The lock cannot be read.
            InputError: It cannot be installed, the name is taken, or there is no such node.
            CommunicationError: No index is reached.
            ResourceError: The program uv is missing, or the disk is full.
            NodeLostError: A node that was named is not there.
        """
        lock = PackageLock(path)
        name = checked_name(name or lock.name)
        wanted = self._chosen(nodes)
        kinds = self._kinds(wanted)
        failed = self._check_free(name, wanted)
        with contextlib.ExitStack() as stack:
            entries = {}
            for kind in sorted(kinds):
                entries[kind] = stack.enter_context(contextlib.closing(lock.install(kind, cache)))
            reports = []
            for kind, entry in entries.items():
                folder = entry.path(PACKAGES)
                left = {host: wanted[host] for host in kinds[kind] if wanted[host] not in failed}
                made, refused = self._delivered(read_tree(folder).named(name), folder, left)
                failed |= refused
                plain = msgspec.structs.asdict(made)
                reports.append(
                    EnvironmentInfo(
                        **plain, platform=kind.platform, python=kind.python, installed=entry.built
                    )
                )
        return reports, failed

    def _kinds(self, wanted: Mapping[int, str]) -> dict[MachineKind, list[int]]:
        """Return which nodes get the same packages.

        Raises:
            InputError: There are none for such a machine.
        """
        found: dict[MachineKind, list[int]] = {}
        facts = {one.host: one.facts for one in self._head.known.records}
        for host, name in wanted.items():
            here = facts.get(host)
            try:
                if here is None:
                    raise InputError("the node has not said what machine it is")
                kind = MachineKind.of(here.architecture, here.c_library, here.python)
            except InputError as error:
                raise InputError(error.what, where=name, hint=error.hint) from error
            found.setdefault(kind, []).append(host)
        return found

    def _check_free(self, name: str, wanted: Mapping[int, str]) -> dict[str, SapwoodError]:
        """Refuse a name that is not of an environment; return the nodes that do not answer."""
        answers = {host: self._head.ask(host, sm.LIST, None) for host in wanted}
        facts, failed = _answers(answers, wanted, sm.StageFacts)
        taken = [
            wanted[host]
            for host, one in facts.items()
            if any(seen.name == name and seen.kind != "environment" for seen in one.names)
        ]
        if taken:
            raise InputError(
                f"{shown(name)} is the name of something that is not an environment",
                where=fold_hosts(taken),
                hint=f"give another name by --as NAME, or {command('stage', 'delete', name)}",
            )
        return failed

    def _delivered(
        self, tree: FileTree, path: Path, wanted: Mapping[int, str]
    ) -> tuple[StageInfo, dict[str, SapwoodError]]:
        """Copy a tree to nodes; return the outcome and the errors."""
        tree.check()
        with contextlib.closing(
            _Delivery(self._head, tree, path, wanted, self._listen)
        ) as delivery:
            delivery.run()
        return delivery.report(), delivery.failed

    def get(
        self, remote: str, folder: Path, nodes: str = ""
    ) -> tuple[list[CollectInfo], dict[str, SapwoodError]]:
        """Collect a file or a folder from nodes.

        A file that is equal on all of them is in the folder by its name, else each node's is in a
        folder with the node's name. Equal files come once, and share their place on the disk.

        Args:
            remote: A path on the nodes; it may begin with ``~`` or a variable.
            folder: Where it comes to; it is made if it is not there.
            nodes: From where, a set of names; empty: from all.

        Raises:
            InputError: There is no such node, or the folder cannot be used.
        """
        wanted = self._chosen(nodes)
        find = messages.to_value(sm.FindFiles(remote))
        answers = {host: self._head.ask(host, sm.FIND, find) for host in wanted}
        trees, failed = _answers(answers, wanted, FileTree)
        for tree in trees.values():
            tree.check()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".sapwood-", dir=folder) as apart:
                collected = _Collection(self._head, remote, trees, wanted, Path(apart))
                failed |= collected.run()
                kept = {one: tree for one, tree in trees.items() if wanted[one] not in failed}
                return _placed(kept, wanted, folder, collected.files, alike=not failed), failed
        except OSError as error:
            raise InputError(
                f"collected files cannot be written: {error.strerror or error}",
                where=str(error.filename or folder),
            ) from error

    def facts(self, nodes: str = "") -> tuple[dict[str, sm.StageFacts], dict[str, SapwoodError]]:
        """Return what is staged on each node, by the node's name."""
        wanted = self._chosen(nodes)
        answers = {host: self._head.ask(host, sm.LIST, None) for host in wanted}
        facts, failed = _answers(answers, wanted, sm.StageFacts)
        return {wanted[host]: one for host, one in facts.items()}, failed

    def remove(self, name: str, nodes: str = "") -> tuple[list[str], dict[str, SapwoodError]]:
        """Have nothing at a name any more; return the nodes where there was something."""
        wanted = self._chosen(nodes)
        answers = {host: self._head.ask(host, sm.REMOVE, name) for host in wanted}
        removed, failed = _answers(answers, wanted, None)
        return [wanted[host] for host, was in removed.items() if was], failed

    def _chosen(self, nodes: str) -> dict[int, str]:
        """Return the nodes of a set of names, by their numbers.

        Raises:
            InputError: There is no such node, or none at all.
            NodeLostError: One cannot be asked.
        """
        known = [one for one in self._head.known.records if one.state != "removed"]
        # Of several with the same name, one that is there.
        there = {one.name: one for one in sorted(known, key=lambda one: one.can_be_asked)}
        if not nodes:
            found = {one.host: one.name for one in self._head.known.for_commands}
            if not found:
                self._head.known.refuse_reserved()
                raise InputError(
                    "the cluster has no node that is there", hint="`sapwood node list` shows them"
                )
            return found
        names = expand_hosts(nodes)
        if unknown := [name for name in names if name not in there]:
            raise InputError(
                f"node {fold_hosts(unknown)} does not exist", hint="`sapwood node list` shows them"
            )
        if away := [name for name in names if not there[name].can_be_asked]:
            one = there[away[0]]
            raise NodeLostError(
                f"not connected to the head: {fold_hosts(away)}",
                where=f"{one.name} is {one.state}" + (f": {one.reason}" if one.reason else ""),
            )
        return {there[name].host: name for name in names}


def staged_files(facts: Mapping[str, sm.StageFacts]) -> list[StagedFilesInfo]:
    """Return what is staged, each thing once for all nodes where it is the same."""
    found: dict[tuple[str, str], StagedFilesInfo] = {}
    for node, one in facts.items():
        for seen in one.names:
            key = (seen.name, seen.digest)
            if key in found:
                found[key].nodes.append(node)
            else:
                plain = msgspec.structs.asdict(seen)
                found[key] = StagedFilesInfo(**plain, nodes=[node])
    return sorted(found.values(), key=lambda one: (one.name, one.nodes))


def folded(failed: Mapping[str, SapwoodError]) -> SapwoodError:
    """Return one error for the errors of nodes: equal ones are listed once.

    Example:
        >>> failed = {"n1": InputError("no file"), "n2": InputError("no file")}
        >>> print(folded(failed))
        no file (n[1-2])
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for node, error in failed.items():
        groups.setdefault((error.code, error.what), []).append(node)
    (_, alike), *others = groups.items()
    error = failed[alike[0]]
    where = fold_hosts(alike) + (f": {error.where}" if error.where else "")
    details = dict(error.details)
    if others:
        details["elsewhere"] = "\n".join(
            f"{fold_hosts(names)}: {what}" for (_, what), names in others
        )
    return type(error)(error.what, where=where, hint=error.hint, details=details)


class _NodeState:
    """A node that is to have something.

    Attributes:
        host: Its number.
        missing: What it has not.
        source: From where it gets that: a number, 0 for the client, None for nowhere yet.
        attempt: Counts its sources; answers to former ones mean nothing.
        pieces: The next pieces, where its source is the client.
        under_way: Pieces that it has not confirmed.
        unanswered: Questions that it has not answered.
        trouble: What went wrong with its last source.
        addresses: Where others reach it.
        done: Whether it has all, at its name.
    """

    def __init__(self, host: int) -> None:
        self.host = host
        self.missing: list[sm.MissingPart] = []
        self.source: int | None = None
        self.attempt = 0
        self.addresses: list[str] = []
        self.pieces: Iterator[sm.StagePieces] = iter(())
        self.under_way = 0
        self.unanswered = 0
        self.trouble: SapwoodError | None = None
        self.done = False

    def begin_anew(self) -> None:
        """Take in no answers any more to what it was asked before."""
        self.attempt += 1
        self.under_way = self.unanswered = 0


class _Delivery:
    """A tree of files on its way to some nodes; it works on the thread that calls :meth:`run`."""

    def __init__(
        self, head: HeadAccess, tree: FileTree, path: Path, nodes: Mapping[int, str], listen: str
    ) -> None:
        self._head = head
        self._tree = tree
        self._nodes = nodes
        self._listen = listen
        self._files = {one.sha256: _beside(path, one.path) for one in tree.files}
        self._states = {host: _NodeState(host) for host in nodes}
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._sent = self._passed_on = 0
        self.failed: dict[str, SapwoodError] = {}
        self._unsubscribe = head.subscribe(self._noticed)

    def close(self) -> None:
        """Hear no more of the nodes."""
        self._unsubscribe()

    def report(self) -> StageInfo:
        """Return the outcome."""
        return StageInfo(
            name=self._tree.name,
            digest=self._tree.digest,
            nbytes=self._tree.nbytes,
            files=len(self._tree.files),
            nodes=[self._nodes[host] for host, one in self._states.items() if one.done],
            sent=self._sent,
            passed_on=self._passed_on,
        )

    def run(self) -> None:
        """Deliver it; return when each node has it, or failed."""
        value = messages.to_value(self._tree)
        for state in self._states.values():
            self._ask(state, sm.LOOK, value, self._looked_first)
        self._work()
        wanting = [one.host for one in self._living() if one.missing]
        having = [one.host for one in self._living() if not one.missing]
        for host, source in self._plan(wanting, having).items():
            self._states[host].source = source
        for state in self._living():
            self._supply(state)
        self._work()

    def _work(self) -> None:
        """Take in answers until there are none to come."""
        while any(one.unanswered for one in self._states.values()):
            self._events.get()()

    def _living(self) -> list[_NodeState]:
        return [one for one in self._states.values() if self._nodes[one.host] not in self.failed]

    # --- who gets it from where ------------------------------------------------------------------

    def _plan(self, wanting: list[int], having: list[int]) -> dict[int, int]:
        """Return the source of each node, and have those listen that pass content on."""
        most = max((self._needed(host) for host in wanting), default=0)
        if most <= SMALL or len(wanting) + len(having) < 2:
            return dict.fromkeys(wanting, 0)
        fan_out = best_fan_out(len(wanting), most)
        leaves: set[int] = set()
        while True:
            found = sources_of(wanting, having, leaves, fan_out)
            asked = [
                state
                for state in self._living()
                if state.host in found.values() and not state.addresses
            ]
            for state in asked:
                self._ask(state, sm.SERVE, self._listen, self._serves, lambda *_: None)
            self._work()
            silent = {state.host for state in asked if not state.addresses}
            if not silent:
                return found
            leaves |= silent

    def _needed(self, host: int) -> int:
        return sum(one.nbytes - one.offset for one in self._states[host].missing)

    def _supply(self, state: _NodeState) -> None:
        """Begin to give a node what it has not."""
        if not state.missing:
            self._ask(state, sm.KEEP, messages.to_value(self._tree), self._kept)
            return
        chain = self._chain(state)
        if not chain:
            state.source = 0
            state.pieces = self._pieces(state.missing)
            self._feed(state)
            return
        nearest, *others = [
            f"tls://{self._node_id(one.host)}@{','.join(one.addresses)}" for one in chain
        ]
        wanted = sm.FetchContent(self._tree.digest, nearest, state.missing, others)
        self._ask(state, sm.FETCH, messages.to_value(wanted), self._fetched, self._source_lost)

    def _chain(self, state: _NodeState) -> list[_NodeState]:
        """Return the nodes from which one can fetch, the nearest first."""
        found: list[_NodeState] = []
        above = self._states.get(state.source or 0)
        while above is not None and len(found) < sm.MAX_SOURCES:
            if self._nodes[above.host] not in self.failed and above.addresses:
                found.append(above)
            above = self._states.get(above.source or 0)
        return found

    def _node_id(self, host: int) -> str:
        return next(one.node for one in self._head.known.records if one.host == host)

    def _source_lost(self, state: _NodeState, error: SapwoodError) -> None:
        """A node could not fetch: the client is its source now, unless it is its own fault."""
        if type(error) not in {CommunicationError, ProtocolError}:
            self._fail(state, error)
        else:
            state.trouble = error
            state.source = 0
            self._begin_anew(state)

    def _begin_anew(self, state: _NodeState) -> None:
        """Ask a node again what it has not, and supply that from its source of now."""
        state.begin_anew()
        if state.attempt > MAX_ATTEMPTS:
            self._fail(state, state.trouble or CommunicationError("its sources have ended"))
        else:
            self._ask(state, sm.LOOK, messages.to_value(self._tree), self._looked)

    def _fail(self, state: _NodeState, error: SapwoodError) -> None:
        """Give a node up; nodes that get content from it continue elsewhere."""
        name = self._nodes[state.host]
        if name in self.failed or state.done:
            return
        self.failed[name] = error
        state.begin_anew()
        for one in self._living():
            if one.source == state.host and not one.done:
                self._begin_anew(one)

    # --- pieces from here ------------------------------------------------------------------------

    def _pieces(self, parts: Sequence[sm.MissingPart]) -> Iterator[sm.StagePieces]:
        """Read what is missing; several small files come in one message."""
        ready: list[sm.StagePiece] = []
        size = 0
        for part in parts:
            offset = part.offset
            with _opened(self._files[part.sha256]) as fd:
                while offset < part.nbytes:
                    data = os.pread(fd, min(CHUNK - size, part.nbytes - offset), offset)
                    if not data:
                        raise _changed(self._files[part.sha256])
                    ready.append(sm.StagePiece(part.sha256, part.nbytes, offset, data))
                    offset += len(data)
                    size += len(data)
                    if size == CHUNK:
                        yield sm.StagePieces(ready)
                        ready, size = [], 0
        if ready:
            yield sm.StagePieces(ready)

    def _feed(self, state: _NodeState) -> None:
        """Send pieces to a node while it confirms them."""
        fed = sum(one.source == 0 and not one.done for one in self._living())
        window = max(1, min(WINDOW, UNDER_WAY // max(fed, 1)))
        try:
            while state.under_way < window and (piece := next(state.pieces, None)) is not None:
                state.under_way += 1
                self._sent += sum(len(one.data) for one in piece.pieces)
                self._ask(
                    state, sm.WRITE, messages.to_value(piece), self._written, self._not_written
                )
        except SapwoodError as error:
            self._fail(state, error)
            return
        except OSError as error:
            self._fail(state, DataMissingError(f"a file cannot be read: {error.strerror}"))
            return
        if not state.under_way:
            state.missing = []
            self._supply(state)

    # --- answers -------------------------------------------------------------------------------

    def _ask(
        self,
        state: _NodeState,
        handler: str,
        value: Any,
        answered: Callable[[_NodeState, Any], None],
        refused: Callable[[_NodeState, SapwoodError], None] | None = None,
    ) -> None:
        """Ask a node; :meth:`_work` handles the answer, unless it is too late."""
        attempt = state.attempt
        state.unanswered += 1

        def take(answer: Future[Any]) -> None:
            if state.attempt != attempt:
                return
            state.unanswered -= 1
            try:
                found = answer.result()
            except SapwoodError as error:
                (refused or self._fail)(state, _of_node(error))
            else:
                answered(state, found)

        asked = self._head.ask(state.host, handler, value)
        when_done(asked, lambda answer: self._events.put(lambda: take(answer)))

    def _looked_first(self, state: _NodeState, value: Any) -> None:
        state.missing = messages.from_value(value, sm.MissingContent).parts

    def _looked(self, state: _NodeState, value: Any) -> None:
        self._looked_first(state, value)
        self._supply(state)

    def _serves(self, state: _NodeState, value: Any) -> None:
        state.addresses = typed.convert(value, list[str])

    def _written(self, state: _NodeState, _value: Any) -> None:
        state.under_way -= 1
        self._feed(state)

    def _not_written(self, state: _NodeState, error: SapwoodError) -> None:
        if type(error) is ProtocolError:  # another one has continued it meanwhile
            state.trouble = error
            self._begin_anew(state)
        else:
            self._fail(state, error)

    def _fetched(self, state: _NodeState, value: Any) -> None:
        self._passed_on += messages.from_value(value, sm.ContentFetched).nbytes
        state.missing = []
        self._supply(state)

    def _kept(self, state: _NodeState, _value: Any) -> None:
        state.done = True

    # --- what the head tells, on the connection's thread -----------------------------------------

    def _noticed(self, name: str, value: Any) -> None:
        if name == calls.NODES_CHANGED:
            change = typed.convert(value, calls.NodesChanged)
            gone = {
                one.host: change.reason or one.reason or "its daemon ended"
                for one in (change.nodes if change.gone or change.for_good else ())
                if not one.can_be_asked
            }
        elif name == calls.HEAD_GONE:
            gone = dict.fromkeys(self._states, str(value))
        else:
            return
        self._events.put(lambda: self._lost(gone))

    def _lost(self, gone: Mapping[int, str]) -> None:
        for host, reason in gone.items():
            if host in self._states:
                self._fail(self._states[host], _gone(reason))


class _Collection:
    """Files of some nodes on their way to a folder; each content comes once.

    Attributes:
        files: Where they are now, by hash.
    """

    def __init__(
        self,
        head: HeadAccess,
        remote: str,
        trees: Mapping[int, FileTree],
        nodes: Mapping[int, str],
        folder: Path,
    ) -> None:
        self._head = head
        self._remote = remote
        self._nodes = nodes
        self._folder = folder
        self._sources: dict[str, list[tuple[int, FileEntry]]] = {}
        for host, tree in trees.items():
            for one in tree.files:
                self._sources.setdefault(one.sha256, []).append((host, one))
        self.files: dict[str, Path] = {}

    def run(self) -> dict[str, SapwoodError]:
        """Have all of it here; return what went wrong, by node."""
        failed: dict[str, SapwoodError] = {}
        for sha256, sources in self._sources.items():
            refused: dict[str, SapwoodError] = {}
            for host, entry in sources:
                try:
                    self.files[sha256] = self._collect(host, entry)
                except SapwoodError as error:
                    refused[self._nodes[host]] = _of_node(error)
                else:
                    break
            if sha256 not in self.files:
                failed |= refused
        return failed

    def _collect(self, host: int, entry: FileEntry) -> Path:
        """Read a file of a node, and look whether it is what the node said."""
        path, hasher = self._folder / entry.sha256, hashlib.sha256()
        pull = Pull(entry.nbytes, 0, [host])
        asked: deque[tuple[ChunkRequest[int], Future[Any]]] = deque()
        with path.open("wb") as file:
            while not pull.done:
                for one in pull.requests():
                    wanted = sm.ReadPiece(self._remote, entry.path, one.offset, one.nbytes)
                    answer = self._head.ask(host, sm.READ, messages.to_value(wanted))
                    asked.append((one, answer))
                request, answer = asked.popleft()
                data = answer.result()
                if len(data) != request.nbytes:
                    break
                for chunk in pull.received(request, data):
                    hasher.update(chunk)
                    file.write(chunk)
        if hasher.hexdigest() != entry.sha256:
            raise _changed(Path(os.fsdecode(entry.path)))
        return path


def _placed(
    trees: Mapping[int, FileTree],
    nodes: Mapping[int, str],
    folder: Path,
    files: Mapping[str, Path],
    *,
    alike: bool,
) -> list[CollectInfo]:
    """Put what was collected where it belongs."""
    alike = alike and len({tree.digest for tree in trees.values()}) == 1
    found = []
    if alike:
        tree = next(iter(trees.values()))
        targets = [(folder, tree, [nodes[host] for host in trees])]
    else:
        targets = [(folder / nodes[host], tree, [nodes[host]]) for host, tree in trees.items()]
    ready: dict[tuple[str, bool], Path] = {}
    for target, tree, names in targets:
        target.mkdir(exist_ok=True)
        for entry in tree.entries:
            _put(entry, target / os.fsdecode(entry.path), files, ready)
        found.append(CollectInfo(path=str(target / tree.name), nodes=names, nbytes=tree.nbytes))
    return found


def _put(
    entry: FileEntry, path: Path, files: Mapping[str, Path], ready: dict[tuple[str, bool], Path]
) -> None:
    if entry.kind == "folder":
        path.mkdir(exist_ok=True)
        return
    if path.is_symlink() or path.is_file():
        path.unlink()
    if entry.kind == "link":
        path.symlink_to(os.fsdecode(entry.target))
        return
    key = (entry.sha256, entry.executable)
    known = ready.get(key)
    if known is not None:
        with contextlib.suppress(OSError):  # without hard links
            path.hardlink_to(known)
            return
    shutil.copyfile(files[entry.sha256], path)
    if entry.executable:
        path.chmod(path.stat().st_mode | 0o111)
    ready[key] = path


def _answers(
    asked: Mapping[int, Future[Any]], nodes: Mapping[int, str], kind: Any
) -> tuple[dict[int, Any], dict[str, SapwoodError]]:
    """Return what nodes have answered, and what went wrong."""
    found: dict[int, Any] = {}
    failed: dict[str, SapwoodError] = {}
    for host, answer in asked.items():
        try:
            value = answer.result()
            found[host] = value if kind is None else messages.from_value(value, kind)
        except SapwoodError as error:
            failed[nodes[host]] = _of_node(error)
    return found, failed


def _of_node(error: SapwoodError) -> SapwoodError:
    """Return an error of a node as such: in the control tree, nodes are agents."""
    if not isinstance(error, AgentLostError):
        return error
    _, _, reason = error.what.partition(": ")
    return _gone(reason or error.what)


def _gone(reason: str) -> NodeLostError:
    return NodeLostError(
        f"the node is gone: {reason}",
        hint="stage it again when the node is back: it continues where it was",
    )


def _beside(path: Path, inner: bytes) -> Path:
    """Return where a file of a tree is that was read at a path."""
    return path.joinpath(*[os.fsdecode(one) for one in inner.split(b"/")[1:]])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _changed(path: Path) -> DataValueError:
    return DataValueError(
        "a file has changed while it was read",
        where=str(path),
        hint="do not write to a file while it is being staged or collected",
    )
