"""Messages to viewers: first everything, then changes; each thing is polled once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sapwood.core.errors import ConfigurationError
from sapwood.head import calls, session_records
from sapwood.head.ledger import EventQuery, LedgerEvent, LedgerState
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.parts.events import EventPage, Events
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol.call import HeadCall
from sapwood.head.tree_registry import TreeRegistry
from sapwood.views import live
from sapwood.views.live import EventsFeed, Live, NodesFeed, SnapshotFeed, TreesFeed


class Head:
    """Nodes whose load a test sets."""

    def __init__(self) -> None:
        self.loads = {1: 0.5, 2: 1.0}
        self.registry = TreeRegistry()
        self.sessions: list[session_records.SessionRecord] = []
        self.asked: list[str] = []
        self.events: list[LedgerEvent] = []

    def happens(self, *kinds: str) -> None:
        """Have events happen."""
        for kind in kinds:
            number = len(self.events) + 1
            self.events.append(LedgerEvent(number=number, time=1.0, kind=kind, text=""))

    async def ask(self, call: HeadCall[..., Any], /, *args: Any, **_kwargs: Any) -> Any:
        self.asked.append(call.name)
        if call is WholeCluster.facts:
            return HeadFacts(
                name="lab", cluster="c", version="1", pid=1, started=0, addresses=[], clients=0
            )
        if call is Nodes.snapshot:
            nodes = [
                calls.NodeSnapshot(host=host, name=f"n{host}", state="ready", load=load)
                for host, load in self.loads.items()
            ]
            return calls.ClusterSnapshot(time=1.0, nodes=nodes)
        if call is Events.find:
            found = [one for one in self.events if args[0].fits(one)][-args[0].limit :]
            return EventPage(events=found, state=LedgerState())
        if call is Sessions.changed_trees:
            return self.registry.changed(args[0], self.sessions)
        raise ConfigurationError(f"unknown: {args[0]}")

    def session(self, name: str, state: str = "ready") -> None:
        """A session and its root's word, or another one."""
        record = session_records.SessionRecord(
            id=f"{name}1", name=name, state="ready", on="head", created=1
        )
        if record not in self.sessions:
            self.sessions.append(record)
        root = session_records.SessionPlace(rank=0, parent=-1, kind="root", state="ready")
        agent = session_records.SessionPlace(rank=1, parent=0, kind="agent", state=state)
        self.registry.note(session_records.SessionTree(id=record.id, places=[root, agent]))


async def following(told: AsyncIterator[tuple[str, bytes]]) -> tuple[str, Any]:
    kind, value = await asyncio.wait_for(anext(told), 30)
    return kind, json.loads(value)


def test_a_feed_tells_only_of_nodes_that_changed() -> None:
    async def work() -> None:
        head = Head()
        feed = NodesFeed(head.ask)
        assert feed.whole() == []
        ((kind, first),) = await feed.look()
        assert (kind, len(json.loads(first)["nodes"])) == ("nodes", 2)
        assert await feed.look() == []
        head.loads = {2: 3.0, 3: 0.1}
        ((_, changed),) = await feed.look()
        found = json.loads(changed)
        assert [one["host"] for one in found["nodes"]] == [2, 3]
        assert found["gone"] == [1]
        ((_, whole),) = feed.whole()
        assert json.loads(whole)["whole"] is True

    asyncio.run(work())


def test_a_feed_tells_only_of_trees_that_changed() -> None:
    async def work() -> None:
        head = Head()
        feed = TreesFeed(head.ask)
        assert feed.whole() == []
        assert [json.loads(one) for _, one in await feed.look()] == [{"trees": [], "gone": []}]
        head.session("day")
        head.session("night")
        ((kind, first),) = await feed.look()
        assert kind == "trees"
        assert [one["name"] for one in json.loads(first)["trees"]] == ["day", "night"]
        assert await feed.look() == []
        head.session("day", "lost")
        ((_, changed),) = await feed.look()
        (tree,) = json.loads(changed)["trees"]
        assert (tree["name"], tree["places"][1]["state"]) == ("day", "lost")
        del head.sessions[0]
        ((_, gone),) = await feed.look()
        assert json.loads(gone) == {"trees": [], "gone": ["day1"]}
        ((_, whole),) = feed.whole()
        assert [one["name"] for one in json.loads(whole)["trees"]] == ["night"]
        one = TreesFeed(head.ask, "night#night1")
        assert len(json.loads((await one.look())[0][1])["trees"]) == 1

    asyncio.run(work())


def test_what_takes_long_to_look_at_is_looked_at_less_often() -> None:
    async def look() -> list[live.Message]:
        begin = time.process_time()
        while time.process_time() < begin + 0.01:
            pass
        return [("run", b"{}")]

    async def work() -> None:
        feed = SnapshotFeed(0.5, look, share=0.01)
        assert await feed.look() == [("run", b"{}")]
        assert 1.0 <= feed.seconds <= live.LONGEST
        assert await feed.look() == []
        quick = SnapshotFeed(0.5, look)
        await quick.look()
        assert quick.seconds == 0.5

    asyncio.run(work())


def test_viewers_share_a_look_and_who_comes_later_gets_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NodesFeed, "seconds", 0.05)

    async def work() -> None:
        head = Head()
        shown = Live(head.ask, "1")
        first, second = shown.messages(["nodes"]), shown.messages(["nodes"])
        assert await following(first) == ("cluster", {"name": "lab", "version": "1"})
        assert (await following(first))[0] == "nodes"
        await following(second)
        _, whole = await following(second)
        assert whole["whole"] is True
        assert shown.followed == 1
        head.loads[1] = 9.0
        for told in (first, second):
            _, change = await following(told)
            assert [one["load"] for one in change["nodes"]] == [9.0]
            await told.aclose()  # type: ignore[attr-defined]  # it is a generator
        assert shown.followed == 0
        looks = len(head.asked)
        await asyncio.sleep(0.1)  # two looks, if a viewer looked
        assert len(head.asked) == looks

    asyncio.run(work())


def test_what_is_not_there_is_said_and_looked_for_again() -> None:
    async def work() -> None:
        told = Live(Head().ask, "1").messages(["run"], "ffff")
        await following(told)
        kind, problem = await following(told)
        assert (kind, problem["detail"]) == ("missing", "unknown: ffff")
        await told.aclose()  # type: ignore[attr-defined]  # it is a generator

    asyncio.run(work())


async def numbers(told: AsyncIterator[live.Message], count: int) -> list[int]:
    """Return the numbers of the next events."""
    found: list[int] = []
    while len(found) < count:
        message = await asyncio.wait_for(anext(told), 30)
        number = live.number_of(message)
        if number is not None:
            found.append(number)
    return found


@pytest.mark.parametrize(
    ("after", "first"), [(None, [1, 3, 4, 5]), (0, [5]), (1, [3, 4, 5]), (4, [5])]
)
@pytest.mark.slow
def test_events_begin_where_a_viewer_was(
    monkeypatch: pytest.MonkeyPatch, after: int | None, first: list[int]
) -> None:
    """Each event comes once, whether the viewer missed it or it happens meanwhile."""
    monkeypatch.setattr(EventsFeed, "seconds", 0.05)
    monkeypatch.setattr(live, "MAX_FOUND", 2)  # a page

    async def work() -> None:
        head = Head()
        head.happens("policy.changed", "node.lost", "policy.changed", "policy.changed")
        shown = Live(head.ask, "1")
        told = shown.messages(["events"], events=EventQuery(kinds=["policy"]), after=after)
        assert (await following(told))[0] == "cluster"
        found = await numbers(told, len(first) - 1)
        ahead = asyncio.ensure_future(numbers(told, 1))
        for _ in range(20):  # what it has missed is found, and then the feed begins
            await asyncio.sleep(0)
        assert shown.followed == 1
        head.happens("policy.changed")
        assert found + await ahead == first
        head.happens("node.lost", "policy.changed", "policy.changed")
        assert await numbers(told, 2) == [7, 8]
        await told.aclose()  # type: ignore[attr-defined]  # it is a generator
        assert (shown.followed, shown.viewers) == (0, 0)

    asyncio.run(work())


def test_viewers_get_no_more_when_the_server_ends() -> None:
    async def work() -> None:
        shown = Live(Head().ask, "1")
        told = shown.messages([])
        await anext(told)
        waiting = asyncio.ensure_future(anext(told))
        await asyncio.sleep(0)
        shown.close()
        assert await asyncio.wait_for(waiting, 30) == live.KEEP
        with pytest.raises(StopAsyncIteration):
            await anext(told)
        assert shown.viewers == 0

    asyncio.run(work())


def test_topics_and_viewers_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_VIEWERS", 1)

    async def work() -> None:
        shown = Live(Head().ask, "1")
        with pytest.raises(ConfigurationError, match="unknown topic 'weather'"):
            await anext(shown.messages(["weather"]))
        first = shown.messages([])
        await anext(first)
        with pytest.raises(ConfigurationError, match="1 viewers are connected"):
            await anext(shown.messages([]))
        await first.aclose()  # type: ignore[attr-defined]  # it is a generator
        again = shown.messages([])
        await anext(again)
        await again.aclose()  # type: ignore[attr-defined]  # it is a generator

    asyncio.run(work())


def test_a_viewer_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodesFeed, "seconds", 0.0)
    monkeypatch.setattr(live, "MAX_WAITING", 2)
    monkeypatch.setattr(live, "FIRST_EVENTS", 0)

    async def work() -> None:
        head = Head()
        shown = Live(head.ask, "1")
        told = shown.messages(["nodes"])
        await following(told)
        await following(told)
        until = asyncio.get_running_loop().time() + 30
        while len(head.asked) < 8 and asyncio.get_running_loop().time() < until:
            head.loads[1] += 1.0
            await asyncio.sleep(0.01)
        left = [one async for one in told]  # it ends, because no viewer is notified any more
        assert len(left) <= 3
        assert shown.followed == 0

    asyncio.run(work())
