"""Large messages where no memory is shared: in pieces, through junctions that may hold little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.comm import values
from sapwood.core.errors import CancelledError
from sapwood.session.embedded import EmbeddedSession

MakeSession = Callable[..., EmbeddedSession]
PATIENCE = 60.0
MIB = 2**20
JUNCTION_MAY_HOLD = 16 * MIB


def peak_memory(pid: int) -> int:
    """Return the largest resident size that a process ever had, bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process is gone")


@pytest.fixture
def apart(make_session: MakeSession) -> EmbeddedSession:
    """Four agents below two junctions, of which no two share memory."""
    return make_session(4, 2, shared_memory=False)


@pytest.mark.row("C2-AM")
def test_a_large_message_goes_through_a_junction_that_holds_a_part_of_it(
    apart: EmbeddedSession,
) -> None:
    array = np.arange(40 * MIB // 8, dtype="f8")
    junction = apart.supervisor.processes[apart.tree.parents[1]].pid
    assert apart.ask(1, "ping", np.zeros(MIB)).result(PATIENCE) is not None
    before = peak_memory(junction)
    answer = apart.ask(1, "ping", array).result(PATIENCE)
    np.testing.assert_array_equal(answer, array)
    assert peak_memory(junction) - before < JUNCTION_MAY_HOLD < array.nbytes


@pytest.mark.row("C2-AM")
@pytest.mark.nightly
def test_a_gigabyte_goes_through_a_junction_that_holds_a_part_of_it(apart: EmbeddedSession) -> None:
    array = np.arange(2**30 // 8, dtype="f8")
    junction = apart.supervisor.processes[apart.tree.parents[1]].pid
    assert apart.ask(1, "ping", np.zeros(MIB)).result(PATIENCE) is not None
    before = peak_memory(junction)
    answer = apart.ask(1, "ping", array).result(10 * PATIENCE)
    assert np.array_equal(answer, array)
    assert peak_memory(junction) - before < JUNCTION_MAY_HOLD


@pytest.mark.row("C2-AM")
def test_small_messages_overtake_none_and_large_ones_share_the_way(apart: EmbeddedSession) -> None:
    arrays = [np.full(3 * MIB, number, dtype="u1") for number in range(3)]
    large = [apart.ask(1, "ping", array) for array in arrays]
    others = [apart.ask(rank, "ping", rank) for rank in (2, 3, 4)]
    assert [other.result(PATIENCE) for other in others] == [2, 3, 4]
    for array, answer in zip(arrays, large, strict=True):
        np.testing.assert_array_equal(answer.result(PATIENCE), array)


@pytest.mark.row("C2-AM")
def test_a_request_can_be_taken_back_while_it_moves(apart: EmbeddedSession) -> None:
    encoded = values.encode(np.zeros(20 * MIB, dtype="u1"))
    asked = apart.ask_encoded(1, "ping", encoded.body, encoded)
    apart.requests.withdraw(asked)
    with pytest.raises(CancelledError, match="was cancelled"):
        asked.result(PATIENCE)
    assert apart.ask(1, "ping", 7).result(PATIENCE) == 7


@pytest.mark.row("C2-AM")
@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_message_of_any_size_comes_back(
    make_session: MakeSession, *, shared_memory: bool
) -> None:
    session = make_session(2, 0, shared_memory=shared_memory)
    for size in (0, 1, 64 * 1024, 64 * 1024 + 1, 300_000, 5 * MIB):
        sent: dict[str, Any] = {"array": np.arange(size, dtype="u1"), "size": size}
        answer = session.ask(2, "ping", sent).result(PATIENCE)
        np.testing.assert_array_equal(answer["array"], sent["array"])
