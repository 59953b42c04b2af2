"""Tables of links and of what runs: they fit 80 columns whatever is in them."""

from __future__ import annotations

import io
import time

import msgspec
import pytest
from rich.console import Console

from sapwood.cli.status_tables import activity_shown, chosen, explanations, links_shown
from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.transport.base import ConnectionFacts
from sapwood.core.errors import InputError
from sapwood.head.calls import NodeRecord, NodeStatus, TreeStatus
from sapwood.nodes.messages import (
    CommandActivity,
    Detour,
    NodeActivity,
    ProcessActivity,
    SessionActivity,
)
from sapwood.nodes.refusals import RefusedMachine

NOW = time.time()

LINK = LinkFigures(
    rank=1,
    state="up",
    silent=0.1,
    round_trip=0.00234,
    round_trip_variation=0.001,
    round_trip_least=0.002,
    messages_sent=1,
    bytes_sent=1,
    messages_received=1,
    bytes_received=1,
    unacknowledged=0,
    waiting=0,
    queued=2**20,
    dropped=0,
    resumptions=2,
    connection=ConnectionFacts(
        address="192.168.100.111:54321",
        local_address="192.168.100.110:7700",
        protocol="TLSv1.3",
        unsent=2**20,
    ),
)


def node(name: str, state: str = "ready", reason: str = "", **more: object) -> NodeStatus:
    record = NodeRecord(host=1, name=name, node="x", state=state, reason=reason, since=NOW - 1)
    made = NodeStatus(record=record, skew=-0.0421, skew_error=0.001, certificate_end=NOW + 7300)
    return msgspec.structs.replace(made, **more)


def status(*nodes: NodeStatus, refusals: tuple[RefusedMachine, ...] = ()) -> TreeStatus:
    return TreeStatus(time=NOW, nodes=list(nodes), refusals=list(refusals))


def text(*parts: object) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(*parts, sep="\n")
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def test_a_link_is_a_row() -> None:
    up = node("n1", link=LINK, interface="eth0")
    lines = text(*links_shown(status(up)))
    assert " ".join(lines[1].split()).startswith("n1 ready 192.168.100.111 ")
    assert " ".join(lines[1].split()).endswith(" 2.34 ms -42.1 ms 2 h 2 MiB 0 0")
    assert lines[0].split()[-2:] == ["drops", "resent"]


def test_what_both_ends_of_a_link_have_dropped_is_one_figure() -> None:
    made = ConnectionFacts(address="10.0.0.1:1", local_address="10.0.0.2:2", resent=3)
    near = msgspec.structs.replace(LINK, dropped=7, connection=made)
    far = msgspec.structs.replace(near, dropped=1, queued=0, connection=None)
    activity = NodeActivity(
        clock=NOW,
        daemon=ProcessActivity(pid=1, since=NOW, memory=0),
        sessions=[],
        commands=[],
        link=far,
    )
    lines = text(*links_shown(status(node("n1", link=near, activity=activity))))
    figures = dict(zip(reversed(lines[0].split()), reversed(lines[1].split()), strict=False))
    assert (figures["drops"], figures["resent"]) == ("8", "3")


def test_a_clock_that_cannot_be_told_from_a_right_one_is_not_said_to_be_wrong() -> None:
    right = node("n1", link=LINK, skew=0.0004)
    assert "±1.00 ms" in text(*links_shown(status(right)))[1]


def test_a_place_that_is_attached_elsewhere_is_named() -> None:
    session = SessionActivity(
        session="sapwood-x1",
        zygote=ProcessActivity(pid=1, since=NOW, memory=0),
        processes=[],
        detours=[Detour(12, home=1, at=0)],
    )
    activity = NodeActivity(
        clock=NOW,
        daemon=ProcessActivity(pid=1, since=NOW, memory=0),
        sessions=[session],
        commands=[],
    )
    below = node("n4", activity=activity)
    (line,) = explanations(
        status(
            node("n3"),
            msgspec.structs.replace(below, record=msgspec.structs.replace(below.record, host=4)),
        )
    )
    assert line == (
        "n4 reaches the root instead of n3, which it cannot reach: rank 12 of sapwood-x1"
    )


def test_who_is_not_there_is_explained() -> None:
    lines = explanations(
        status(
            node("n1"),
            node("n2", "lost", "nothing heard for 4.1 s", certificate_end=NOW - 1),
            node("n3", "removed", "it was removed", certificate_end=NOW - 1),
            node("n4", unanswered="it does not answer within 2 s"),
            refusals=(
                RefusedMachine(time=NOW - 2, name="n7", reason="the join token has expired"),
                RefusedMachine(
                    time=NOW - 2, address="10.0.0.9:5", reason="its certificate is over", times=3
                ),
                RefusedMachine(time=NOW - 7200, name="n8", reason="long ago"),
            ),
        )
    )
    assert len(lines) == 5
    assert lines[0].startswith("n2 is lost since ")
    assert "nothing heard for 4.1 s; its certificate ended " in lines[0]
    assert lines[1].endswith(": it was removed")
    assert lines[2].endswith("it does not answer within 2 s")
    assert lines[3].startswith("'n7' was not let in at ")
    assert lines[4].startswith("10.0.0.9:5 was not let in 3 times, last at ")


def test_what_runs_is_a_row_for_each_process() -> None:
    process = ProcessActivity(pid=100, since=NOW, memory=2**20)
    session = SessionActivity(
        session="sapwood-1",
        zygote=process,
        processes=[msgspec.structs.replace(process, rank=rank) for rank in (2, 1)],
    )
    command = CommandActivity(command=1, arguments=["sleep", "x" * 200], process=process)
    made = NodeActivity(clock=NOW, daemon=process, sessions=[session], commands=[command])
    shown = status(node("n1", activity=made))
    lines = text(*activity_shown(shown, shown.nodes))
    assert [line.split()[1] for line in lines[1:6]] == [
        "daemon",
        "zygote",
        "process",
        "process",
        "command",
    ]
    assert [line.split()[3] for line in lines[3:5]] == ["1", "2"]


def test_a_node_that_never_was_is_an_error() -> None:
    nodes = [node("n1"), node("n2"), node("n3")]
    assert [one.record.name for one in chosen(nodes, "n[2-3]")] == ["n2", "n3"]
    with pytest.raises(InputError, match=r"node n\[8-9\] does not exist"):
        chosen(nodes, "n1,n[8-9]")
