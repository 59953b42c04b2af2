"""Live updates for viewers.

Each source is polled once for all viewers, and only while one looks. A source that is
followed is a :class:`Feed`; it sends the changes since the last poll. A later viewer gets all
of it first. A viewer that does not read its updates is disconnected, and reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from sapwood.activity.progress import RunInfo, RunState
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood.core.hints import DEFAULT_CLUSTER
from sapwood.core.shown import shown
from sapwood.environment.logs import logger
from sapwood.head import calls, session_records
from sapwood.head.ledger import MAX_FOUND, EventQuery, LedgerEvent, kinds_of
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.parts.events import Events
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol.call import HeadCall
from sapwood.views.overview import Overview, RunAndProgress, overview
from sapwood.views.run_page import RunPage, of_detached, output_tail, progress_of, read_error

_log = logger("views")

Message = tuple[str, bytes]
"""An update: the kind of its source, and JSON."""

P = ParamSpec("P")
R = TypeVar("R")


class AskHead(Protocol):
    """Calls the head."""

    async def __call__(self, call: HeadCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the answer."""


QUICK: Final = 0.5
"""Seconds between two looks at nodes and at a run."""

SLOW: Final = 1.0
"""Seconds between two looks at lists."""

LONGEST: Final = 4.0
"""Seconds between two looks at what takes long to look at."""

RUN_SHARE: Final = 0.003
"""Of a core that looks at one run may take: agents may be on the same machine."""

STATUS_EVERY: Final = 4
"""Looks at one node of which one also asks what exactly runs there."""

MAX_WAITING: Final = 64
"""Messages that may wait for one viewer."""

MAX_VIEWERS: Final = 200
"""Viewers at a time."""

FIRST_EVENTS: Final = 100
"""Events that a new viewer gets."""

QUIET: Final = 15.0
"""Seconds after which a viewer gets a keep-alive."""

ALL_EVENTS: Final = EventQuery()

KEEP: Final = ("", b"")
"""The message that nothing is new."""

TOPICS: Final = ("overview", "nodes", "node", "trees", "sessions", "runs", "run", "events")
"""The sources that can be followed."""


class Feed(Protocol):
    """Something that is looked at again and again."""

    seconds: float

    async def look(self) -> list[Message]:
        """Look, and return what has changed."""

    def whole(self) -> list[Message]:
        """Return all of it, for a new viewer; none before the first poll."""


class NodesFeed:
    """The nodes in short: those that changed, and those that are gone."""

    seconds = QUICK

    def __init__(self, ask: AskHead) -> None:
        self._ask = ask
        self._known: dict[int, calls.NodeSnapshot] = {}
        self._time = 0.0

    async def look(self) -> list[Message]:
        """Look at all nodes."""
        snapshot = await snapshot_of(self._ask)
        changed = [one for one in snapshot.nodes if self._known.get(one.host) != one]
        there = {one.host: one for one in snapshot.nodes}
        gone = [host for host in self._known if host not in there]
        first, self._known, self._time = not self._time, there, snapshot.time
        if not (changed or gone or first):
            return []
        return [_message("nodes", {"time": snapshot.time, "nodes": changed, "gone": gone})]

    def whole(self) -> list[Message]:
        """Return all nodes."""
        if not self._time:
            return []
        found = {"time": self._time, "nodes": list(self._known.values()), "gone": []}
        return [_message("nodes", found | {"whole": True})]


class TreesFeed:
    """The places of sessions: the trees that changed, and those that are gone.

    Args:
        ask: Calls the head.
        session: That of one session, by name or id; empty for all.
    """

    seconds = SLOW

    def __init__(self, ask: AskHead, session: str = "") -> None:
        self._ask = ask
        self._session = session
        self._known: dict[str, session_records.SessionTree] = {}
        self._looked = False

    async def look(self) -> list[Message]:
        """Look at all trees."""
        versions = {one.id: one.version for one in self._known.values()}
        found = await trees_of(self._ask, self._session, versions)
        gone = [one for one in self._known if one not in found.ids]
        there = self._known | {one.id: one for one in found.changed}
        self._known = {one: there[one] for one in found.ids}
        first, self._looked = not self._looked, True
        if not (found.changed or gone or first):
            return []
        return [_message("trees", {"trees": found.changed, "gone": gone})]

    def whole(self) -> list[Message]:
        """Return all trees."""
        if not self._looked:
            return []
        found = {"trees": list(self._known.values()), "gone": [], "whole": True}
        return [_message("trees", found)]


class SnapshotFeed:
    """A source that is small enough to be sent as a whole when it has changed.

    Args:
        seconds: Between two looks, at least.
        look: Returns its messages.
        share: Of a core that looks may take; then there are fewer, up to :data:`LONGEST` apart.
    """

    def __init__(
        self, seconds: float, look: Callable[[], Awaitable[list[Message]]], share: float = 1.0
    ) -> None:
        self.seconds = self._least = seconds
        self._share = share
        self._look = look
        self._last: list[Message] = []

    async def look(self) -> list[Message]:
        """Look, and return the parts that are not as they were."""
        began = time.process_time()
        found, before = await self._look(), self._last
        took = time.process_time() - began
        self.seconds = max(self._least, min(LONGEST, took / self._share))
        self._last = found
        return [one for one in found if one not in before]

    def whole(self) -> list[Message]:
        """Return all parts."""
        return self._last


class EventsFeed:
    """New events, and for a new viewer the last ones.

    Args:
        ask: Calls the head.
        wanted: Which events.
    """

    seconds = QUICK

    def __init__(self, ask: AskHead, wanted: EventQuery) -> None:
        self._ask = ask
        self._wanted = wanted
        self._last: list[LedgerEvent] = []

    async def look(self) -> list[Message]:
        """Return what has happened since."""
        query = msgspec.structs.replace(
            self._wanted,
            after=self._last[-1].number if self._last else 0,
            limit=MAX_FOUND if self._last else FIRST_EVENTS,
        )
        page = await self._ask(Events.find, query)
        self._last = [*self._last, *page.events][-FIRST_EVENTS:]
        return [_message("event", one) for one in page.events]

    def whole(self) -> list[Message]:
        """Return the last events."""
        return [_message("event", one) for one in self._last]


class Live:
    """All that viewers follow at a head.

    Args:
        ask: Calls the head.
        version: Of Sapwood.
        cluster: What the user calls the cluster of the head.
    """

    def __init__(self, ask: AskHead, version: str, cluster: str = DEFAULT_CLUSTER) -> None:
        self._ask = ask
        self._version = version
        self._cluster = cluster
        self._followed: dict[tuple[str, str], _Followed] = {}
        self._viewers: set[_Viewer] = set()

    @property
    def viewers(self) -> int:
        """How many viewers there are."""
        return len(self._viewers)

    @property
    def followed(self) -> int:
        """How many things are looked at now."""
        return len(self._followed)

    async def messages(
        self,
        topics: Collection[str],
        about: str = "",
        events: EventQuery = ALL_EVENTS,
        after: int | None = None,
    ) -> AsyncIterator[Message]:
        """Yield the updates for a viewer, as long as it reads them, and :data:`KEEP` periodically.

        Args:
            topics: What it follows, of :data:`TOPICS`.
            about: The name of the node, or the id of the run or session.
            events: Which events, without limits of time and number.
            after: First the events after this number, all of them; 0: only events from now on;
                None: first the last events.

        Raises:
            ConfigurationError: The topic is unknown, or too many viewers are connected.
        """
        wanted = [(topic, about if topic in {"node", "run", "trees"} else "") for topic in topics]
        if about and ("node", about) in wanted:
            events = msgspec.structs.replace(events, nodes=[about])
        kinds_of(events.kinds)
        which = msgspec.json.encode(events).decode()
        wanted = [(topic, which) if topic == "events" else (topic, key) for topic, key in wanted]
        for topic, _ in wanted:
            if topic not in TOPICS:
                raise ConfigurationError(
                    f"unknown topic {shown(topic)}", hint=f"follow {', '.join(TOPICS)}"
                )
        if len(self._viewers) >= MAX_VIEWERS:
            raise ConfigurationError(
                f"{MAX_VIEWERS} viewers are connected, the maximum", hint="close unused pages"
            )
        only_events = set(topics) == {"events"}  # which are small
        most = FIRST_EVENTS + (MAX_FOUND if only_events else MAX_WAITING)
        queue: asyncio.Queue[Message] = asyncio.Queue(most)
        viewer = _Viewer(queue)
        self._viewers.add(viewer)
        try:
            facts = await self._ask(WholeCluster.facts)
            if "events" in topics and after == 0:
                newest = await self._ask(Events.find, EventQuery(limit=1))
                viewer.after = newest.events[-1].number if newest.events else 0
            yield _message("cluster", {"name": facts.name, "version": facts.version})
            if "events" in topics and after:
                async for event in self._missed(events, after, viewer):
                    yield event
            for key in wanted:
                self._follow(key, viewer)
            while not viewer.late:
                try:
                    yield await asyncio.wait_for(queue.get(), QUIET)
                except TimeoutError:
                    yield KEEP
        finally:
            self._viewers.discard(viewer)
            for key in wanted:
                self._leave(key, viewer)

    async def _missed(
        self, wanted: EventQuery, after: int, viewer: _Viewer
    ) -> AsyncIterator[Message]:
        """Yield the events after one, and have the viewer get no event again."""
        viewer.after = after
        while True:
            query = msgspec.structs.replace(wanted, after=viewer.after, limit=MAX_FOUND)
            page = await self._ask(Events.find, query)
            for event in page.events:
                viewer.after = event.number
                yield _message("event", event)
            if len(page.events) < MAX_FOUND:
                return

    def close(self) -> None:
        """Look at nothing any more, and send no viewer anything more."""
        for viewer in self._viewers:
            viewer.end()
        for followed in self._followed.values():
            followed.task.cancel()
        self._followed.clear()

    def _follow(self, key: tuple[str, str], viewer: _Viewer) -> None:
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = _Followed(self._feed(*key))
        followed.add(viewer)

    def _leave(self, key: tuple[str, str], viewer: _Viewer) -> None:
        followed = self._followed.get(key)
        if followed is not None and followed.remove(viewer):
            followed.task.cancel()
            del self._followed[key]

    def _feed(self, topic: str, about: str) -> Feed:
        ask, version = self._ask, self._version

        async def all_runs() -> list[Message]:
            return [_message("runs", await runs_of(ask))]

        async def all_sessions() -> list[Message]:
            return [_message("sessions", await sessions_of(ask))]

        async def whole_cluster() -> list[Message]:
            return [_message("overview", await overview_of(ask))]

        async def one_run() -> list[Message]:
            view, output = await run_of(ask, about, version, self._cluster)
            return [_message("run", view), _message("output", {"text": output})]

        match topic:
            case "nodes":
                return NodesFeed(ask)
            case "trees":
                return TreesFeed(ask, about)
            case "events":
                return EventsFeed(ask, _read_query(about))
            case "node":
                return SnapshotFeed(SLOW, _NodeLook(ask, about).look)
            case "run":
                return SnapshotFeed(QUICK, one_run, RUN_SHARE)
            case "runs":
                return SnapshotFeed(SLOW, all_runs)
            case "sessions":
                return SnapshotFeed(SLOW, all_sessions)
            case _:
                return SnapshotFeed(SLOW, whole_cluster)


class _Number(msgspec.Struct):
    number: int


_read_query: Callable[[str], EventQuery] = typed.json_reader(EventQuery)
_read_number: Callable[[bytes], _Number] = typed.json_reader(_Number)


def number_of(message: Message) -> int | None:
    """Return the number of the event in a message; None for other messages.

    Example:
        >>> number_of(("event", b'{"number": 7}')), number_of(("nodes", b"{}"))
        (7, None)
    """
    kind, value = message
    return _read_number(value).number if kind == "event" else None


class _Viewer:
    """A viewer.

    Attributes:
        late: Whether it gets no more updates: it did not read them, or the server ends.
        after: It has the events up to this number; None if it takes any.
    """

    def __init__(self, queue: asyncio.Queue[Message]) -> None:
        self._queue = queue
        self.late = False
        self.after: int | None = None

    def end(self) -> None:
        self.late = True
        if self._queue.empty():
            self._queue.put_nowait(KEEP)

    def tell(self, told: Iterable[Message]) -> None:
        for one in told:
            number = number_of(one)
            if number is not None and self.after is not None:
                if number <= self.after:
                    continue
                self.after = number
            try:
                self._queue.put_nowait(one)
            except asyncio.QueueFull:
                self.late = True
                return


class _Followed:
    """A feed, who follows it, and the task that looks."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._viewers: set[_Viewer] = set()
        self.task = asyncio.get_running_loop().create_task(self._work())

    def add(self, viewer: _Viewer) -> None:
        viewer.tell(self._feed.whole())
        self._viewers.add(viewer)

    def remove(self, viewer: _Viewer) -> bool:
        """Remove a viewer; return whether it was the last one."""
        self._viewers.discard(viewer)
        return not self._viewers

    async def _work(self) -> None:
        while True:
            began = time.monotonic()
            try:
                found = await self._feed.look()
            except SapwoodError as error:
                problem = {"detail": error.what, "hint": error.hint}
                found = [_message("missing", problem)]
            except Exception:  # noqa: BLE001 - a mistake here must not leave viewers without a word
                _log.exception("nothing to look at")
                found = [_message("missing", {"detail": "the server has failed", "hint": ""})]
            for viewer in list(self._viewers):
                viewer.tell(found)
            await asyncio.sleep(max(0.05, self._feed.seconds - (time.monotonic() - began)))


# --- what is looked at ----------------------------------------------------------------------------


async def snapshot_of(ask: AskHead) -> calls.ClusterSnapshot:
    """Return how the nodes of a head are in short."""
    return await ask(Nodes.snapshot)


async def sessions_of(ask: AskHead) -> list[session_records.SessionRecord]:
    """Return the sessions of a head, the newest first."""
    found = await ask(Sessions.every)
    return sorted(found, key=lambda one: -one.created)


async def trees_of(
    ask: AskHead, session: str = "", versions: Mapping[str, int] | None = None
) -> session_records.SessionTrees:
    """Return the trees of the sessions of a head that are others than known.

    Args:
        ask: Calls the head.
        session: That of one session, by name or id; empty for all.
        versions: Of those that are known, by the id of the session.
    """
    known = session_records.KnownTrees(versions=dict(versions or {}), session=session)
    return await ask(Sessions.changed_trees, known)


async def runs_of(ask: AskHead) -> list[RunAndProgress]:
    """Return the detached runs of a head, and how far they are."""
    records = await ask(Runs.every)
    return await asyncio.to_thread(with_progress, records)


def with_progress(records: Iterable[calls.RunRecord]) -> list[RunAndProgress]:
    """Return runs with what their files say, where these are on this machine."""
    found: list[RunAndProgress] = []
    for one in records:
        going = one.state == RunState.RUNNING
        progress, error = (progress_of(one), "") if going else _of_ended(_Ended(one))
        found.append(RunAndProgress(one, progress, error))
    return found


class _Ended:
    """A run that is over, and so changes no more; equal to itself at another time."""

    def __init__(self, record: calls.RunRecord) -> None:
        self.record = record

    def __hash__(self) -> int:
        return hash((self.record.id, self.record.ended))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ended) and hash(self) == hash(other)


@lru_cache(maxsize=512)
def _of_ended(run: _Ended) -> tuple[RunInfo | None, str]:
    failed = run.record.state == RunState.FAILED
    return progress_of(run.record), read_error(run.record).what if failed else ""


async def overview_of(ask: AskHead) -> Overview:
    """Return how a cluster is."""
    return (await _looked_at(ask))[0]


async def _looked_at(ask: AskHead) -> tuple[Overview, HeadFacts, calls.ClusterSnapshot]:
    facts = await ask(WholeCluster.facts)
    snapshot = await snapshot_of(ask)
    return overview(facts, snapshot, await sessions_of(ask), await runs_of(ask)), facts, snapshot


async def first_of(ask: AskHead) -> dict[str, Any]:
    """Return what pages show first: a message of each kind that a head answers at once."""
    found, facts, snapshot = await _looked_at(ask)
    nodes = {"time": snapshot.time, "nodes": snapshot.nodes, "gone": [], "whole": True}
    cluster = {"name": facts.name, "version": facts.version}
    return {"cluster": cluster, "overview": found, "nodes": nodes}


async def run_of(
    ask: AskHead, run: str, version: str, cluster: str = DEFAULT_CLUSTER
) -> tuple[RunPage, str]:
    """Return a detached run, and the end of what its agents printed.

    Raises:
        ConfigurationError: There is none, or several.
    """
    record = await ask(Runs.find, run)
    view = await asyncio.to_thread(of_detached, record, version, cluster)
    text = await asyncio.to_thread(output_tail, Path(record.folder))
    return msgspec.structs.replace(view, written=0.0), text


class _NodeLook:
    """Polls one node: in short each time, and its processes periodically."""

    def __init__(self, ask: AskHead, name: str) -> None:
        self._ask = ask
        self._name = name
        self._looks = 0
        self._status: calls.NodeStatus | None = None

    async def look(self) -> list[Message]:
        snapshot = await snapshot_of(self._ask)
        found = next((one for one in snapshot.nodes if one.name == self._name), None)
        if found is None:
            raise ConfigurationError(f"node {shown(self._name)} does not exist")
        if self._looks % STATUS_EVERY == 0:
            with contextlib.suppress(SapwoodError):
                nodes = (await self._ask(Nodes.status, [found.host])).nodes
                self._status = next((n for n in nodes if n.record.host == found.host), None)
        self._looks += 1
        about = {"time": snapshot.time, "snapshot": found, "status": self._status}
        return [_message("node", about)]


def _message(kind: str, value: Any) -> Message:
    return kind, msgspec.json.encode(value)
