"""Lines of many nodes: in the order of their times, equal ones folded, what is lost is said."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import pytest

from sapwood.cli import cluster_logs
from sapwood.cli.cluster_logs import folded
from sapwood.core.errors import InputError
from sapwood.environment.log_files import LogLine, Wanted
from sapwood.environment.log_ring import LogPage, LogRing
from sapwood.head import calls
from sapwood.head.parts.components import Components
from sapwood.head.parts.nodes import Nodes
from sapwood.head.protocol.call import HeadCall
from sapwood.nodes.messages import ReadLogs


def line(node: str, second: float, event: str, **fields: Any) -> LogLine:
    return LogLine(f"1970-01-01T00:00:{second:09.6f}Z", "info", "x", event, node, fields=fields)


def shown(*lines: LogLine) -> list[tuple[str, str]]:
    return [(one.label, one.line.event) for one in folded(lines)]


def test_equal_lines_of_several_nodes_are_one() -> None:
    lines = [line(f"n{n}", n / 10, "up") for n in (1, 2, 3, 5)]
    assert shown(*lines, line("n9", 0.2, "up", why="not equal")) == [
        ("n[1-3,5]", "up"),
        ("n9", "up"),
    ]


def test_lines_far_apart_or_of_one_node_stay_apart() -> None:
    lines = [line("n1", 1, "up"), line("n1", 1.1, "up"), line("n2", 3, "up")]
    assert shown(*lines) == [("n1", "up"), ("n1", "up"), ("n2", "up")]


def test_the_lines_of_a_node_keep_their_order() -> None:
    lines = [line("n1", 1, "a"), line("n2", 1.1, "b"), line("n2", 1.2, "a")]
    assert shown(*lines) == [("n1", "a"), ("n2", "b"), ("n2", "a")]


class Head:
    """A head with one node, whose clock is 100 s ahead."""

    def __init__(self) -> None:
        self.client = self
        self.rings = {0: LogRing(), 1: LogRing()}
        self.records = [calls.NodeRecord(host=1, name="n1", node="x", state="ready")]

    def call_within(self, _timeout: float, call: HeadCall[..., Any]) -> Any:
        if call is Nodes.every:
            return self.records
        nodes = [calls.NodeStatus(record=one, skew=100.0) for one in self.records]
        return calls.TreeStatus(time=0.0, nodes=nodes, refusals=[])

    def ask(self, call: HeadCall[..., Any], host: int, read: ReadLogs) -> Future[LogPage]:
        assert call is Components.logs
        answer: Future[LogPage] = Future()
        answer.set_result(self.rings[host].read(read.after, read.level, limit=30))
        return answer

    def log(self, host: int, second: int, event: str, level: int = 20) -> None:
        moment = f"1970-01-01T00:{second // 60:02}:{second % 60:02}Z"
        text = json.dumps({"timestamp": moment, "level": "info", "event": event})
        self.rings[host].append(text.encode(), level)


def reader(head: Head, wanted: Wanted = Wanted()) -> cluster_logs._Reader:  # noqa: B008 - frozen
    return cluster_logs._Reader(head, wanted)  # type: ignore[arg-type]


def events(lines: list[LogLine]) -> list[tuple[str, str]]:
    return [(one.node, one.event) for one in sorted(lines, key=lambda one: one.timestamp)]


def test_times_are_those_of_the_head() -> None:
    head = Head()
    head.log(0, 10, "first")
    head.log(1, 115, "second")
    head.log(0, 20, "third")
    found = reader(head).read()
    assert events(found) == [("head", "first"), ("n1", "second"), ("head", "third")]


def test_lines_are_read_once_and_those_of_a_new_daemon_from_its_beginning() -> None:
    head = Head()
    reading = reader(head)
    for number in range(5):
        head.log(1, 100 + number, f"line {number}")
    assert len(reading.read()) == 5
    assert reading.read() == []
    head.rings[1] = LogRing()
    head.log(1, 110, "anew")
    assert events(reading.read()) == [("n1", "anew")]


def test_lines_that_were_lost_are_said() -> None:
    head = Head()
    head.rings[1] = LogRing(1000)
    reading = reader(head)
    for number in range(50):
        head.log(1, 100, f"line {number}")
    found = reading.read()
    lost = [one for one in found if one.component == "logs"]
    assert len(lost) == 1
    assert lost[0].fields["dropped"] + len(found) - 1 == 50
    assert lost[0].event == f"… {lost[0].fields['dropped']} lines dropped"


def test_only_what_is_wanted_is_read() -> None:
    head = Head()
    head.log(0, 10, "of the head")
    head.log(1, 110, "old")
    head.log(1, 130, "new")
    assert events(reader(head, Wanted(nodes=("n1",), after=20.0)).read()) == [("n1", "new")]
    assert events(reader(head, Wanted(level="error")).read()) == []
    with pytest.raises(InputError, match="node n7 does not exist"):
        reader(head, Wanted(nodes=("n7",))).refuse_unknown()


def test_a_node_that_is_not_there_is_named_once() -> None:
    head = Head()
    head.records = [
        calls.NodeRecord(host=1, name="n1", node="x", state="lost", reason="killed"),
        calls.NodeRecord(host=2, name="n2", node="x", state="removed"),
    ]
    reading = reader(head)
    reading.read()
    assert list(reading.problems()) == ["sapwood: n1 is lost, its lines cannot be read: killed"]
    reading.read()
    assert list(reading.problems()) == []
