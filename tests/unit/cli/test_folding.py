from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cli.folding import HOLD, MAX_HELD, MAX_LINE, LineFolder, LineSplitter

NODES = ["n1", "n2", "n3"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def members(label: bytes) -> list[str]:
    """The nodes that a label stands for."""
    found: list[str] = []
    brackets = re.fullmatch(r"n\[(.*)\]", label.decode())
    for part in (brackets[1] if brackets else label.decode()[1:]).split(","):
        first, _, last = part.partition("-")
        found += [f"n{number}" for number in range(int(first), int(last or first) + 1)]
    return found


def shown_lines(text: bytes) -> dict[str, list[bytes]]:
    """Return the shown lines of each node, in order."""
    found: dict[str, list[bytes]] = {node: [] for node in NODES}
    for line in text.split(b"\n")[:-1]:
        label, _, rest = line.partition(b": ")
        for node in members(label):
            found[node].append(rest)
    return found


events = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(NODES),
            st.lists(st.sampled_from([b"a", b"b", b"\n", b"a\n", b"b\n", b"same\n"])).map(b"".join),
        ),
        st.floats(0, 2 * HOLD),
        st.sampled_from(NODES),
    )
)


@pytest.mark.row("C3-IOF")
@given(events)
@pytest.mark.slow
def test_every_line_of_every_node_comes_out_once_and_in_order(
    happening: list[tuple[str, bytes] | float | str],
) -> None:
    clock, shown = Clock(), bytearray()
    folder = LineFolder(NODES, shown.extend, clock)
    written = dict.fromkeys(NODES, b"")
    ended: set[str] = set()
    for event in happening:
        if isinstance(event, float):
            clock.now += event
            folder.show_due()
            assert folder.patience is None or folder.patience > 0
        elif isinstance(event, str):
            folder.end(event)
            ended.add(event)
        elif event[0] not in ended:
            written[event[0]] += event[1]
            folder.take(*event)
    folder.close()
    expected = {
        node: data.removesuffix(b"\n").split(b"\n") if data else []
        for node, data in written.items()
    }
    assert shown_lines(bytes(shown)) == expected
    assert folder.held == 0
    assert folder.patience is None


def test_what_all_nodes_write_does_not_wait() -> None:
    shown = bytearray()
    folder = LineFolder(NODES, shown.extend, Clock())
    folder.take("n1", b"x\ny\n")
    folder.take("n3", b"x\nz\n")
    assert not shown
    folder.take("n2", b"x\ny\n")
    assert bytes(shown) == b"n[1-3]: x\n"


def test_a_line_waits_for_the_other_nodes_only_so_long() -> None:
    clock, shown = Clock(), bytearray()
    folder = LineFolder(NODES, shown.extend, clock)
    folder.take("n1", b"x\n")
    folder.take("n2", b"x\n")
    assert folder.patience == HOLD
    folder.show_due()
    assert not shown
    clock.now = HOLD
    assert folder.patience == 0
    folder.show_due()
    assert bytes(shown) == b"n[1-2]: x\n"


def test_nodes_that_have_ended_are_not_waited_for() -> None:
    shown = bytearray()
    folder = LineFolder(NODES, shown.extend, Clock())
    folder.take("n1", b"x\n")
    folder.end("n2")
    assert not shown
    folder.end("n3")
    assert bytes(shown) == b"n1: x\n"


@pytest.mark.slow
def test_what_waits_is_bounded() -> None:
    shown: list[int] = []
    folder = LineFolder(NODES, lambda text: shown.append(len(text)), Clock())
    for _ in range(100):
        folder.take("n1", b"x" * (MAX_HELD // 20) + b"\n")
        assert folder.held <= MAX_HELD
    assert sum(shown) > 70 * MAX_HELD // 20


@pytest.mark.slow
def test_short_lines_count_as_well() -> None:
    shown: list[int] = []
    folder = LineFolder(NODES, lambda text: shown.append(len(text)), Clock())
    for _ in range(20):
        folder.take("n1", b"\n" * 64 * 1024)
        assert folder.held <= MAX_HELD
    assert shown


@given(st.lists(st.binary(max_size=5), max_size=20))
def test_bytes_are_cut_at_the_ends_of_lines_only(pieces: list[bytes]) -> None:
    splitter = LineSplitter()
    found = [line for piece in pieces for line in splitter.lines(piece)] + splitter.rest()
    data = b"".join(pieces)
    assert found == (data.removesuffix(b"\n").split(b"\n") if data else [])


def test_a_long_line_comes_whole_and_one_without_end_in_pieces() -> None:
    splitter = LineSplitter()
    assert splitter.lines(b"x" * 40_000) == []
    assert splitter.lines(b"y" * 25_536 + b"\n") == [b"x" * 40_000 + b"y" * 25_536]
    found: list[bytes] = []
    for _ in range(10):
        found += splitter.lines(b"z" * (MAX_LINE // 2))
    assert all(len(line) <= MAX_LINE for line in found)
    assert b"".join(found + splitter.rest()) == b"z" * (MAX_LINE * 5)
