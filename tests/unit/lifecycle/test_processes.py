import itertools

import pytest

from sapwood.core.errors import InternalError
from sapwood.core.topology import Tree, flat, kary
from sapwood.lifecycle.processes import (
    TRANSITIONS,
    LifeEvent,
    ProcessRecord,
    ProcessState,
    ProcessTable,
)


@pytest.mark.parametrize(("state", "event"), [*itertools.product(ProcessState, LifeEvent)], ids=str)
def test_the_table_is_what_happens(state: ProcessState, event: LifeEvent) -> None:
    record = ProcessRecord(3)
    record.state = state
    if (state, event) in TRANSITIONS:
        record.advance(event)
        assert record.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(InternalError, match=f"rank 3 got {event.value} while {state.value}"):
            record.advance(event)
        assert record.state is state


def table(tree: Tree) -> ProcessTable:
    found = ProcessTable(tree)
    for rank in range(1, tree.size):
        found.add(rank, (), new=False)
    return found


def test_all_ready_means_everybody() -> None:
    processes = table(kary(4, 2))
    for rank in range(1, 7):
        assert not processes.all_ready()
        processes[rank].advance(LifeEvent.JOINED)
    assert processes.all_ready()
    processes[3].advance(LifeEvent.CUT_OFF)
    assert not processes.all_ready()
    processes.check()


def test_agents_are_the_leaves_in_order() -> None:
    assert [record.rank for record in table(kary(4, 2)).agents()] == [1, 2, 3, 4]


def test_a_record_says_what_it_is() -> None:
    assert repr(ProcessRecord(3)) == "ProcessRecord(3, starting, pid 0)"


def test_lost_is_what_users_see_of_ending_pausing_and_giving_up() -> None:
    shown = {state: state.shown for state in ProcessState}
    lost = {state for state, what in shown.items() if what == "lost"}
    assert lost == {ProcessState.ENDING, ProcessState.PAUSED, ProcessState.GIVEN_UP}
    assert {state for state in ProcessState if state.is_lost} == lost


def test_processes_are_gone_until_they_have_joined() -> None:
    processes = table(flat(3))
    for rank in (1, 2, 3):
        processes[rank].advance(LifeEvent.JOINED)
    processes[1].advance(LifeEvent.CUT_OFF)
    processes[2].advance(LifeEvent.GONE)
    assert processes.gone((1, 2, 3)) == [2]
    processes[2].advance(LifeEvent.EXITED)
    processes[2].advance(LifeEvent.SPAWNED)
    assert processes.gone((1, 2, 3)) == [2]


def test_a_record_that_contradicts_its_state_is_an_internal_error() -> None:
    processes = table(flat(1))
    processes[1].pid = 101
    processes[1].advance(LifeEvent.GONE)
    processes.check()
    processes[1].pid = 0
    with pytest.raises(InternalError, match="rank 1 is ending: its process has an id"):
        processes.check()


def test_agents_are_those_of_the_present_tree() -> None:
    tree = flat(2)
    table = ProcessTable(tree)
    for rank in (1, 2):
        table.add(rank, (), new=False)
    larger = tree.with_agents({3: 0})
    table.change(larger)
    table.add(3, (), new=True)
    assert [record.rank for record in table.agents()] == [1, 2, 3]
    table.change(larger.without([2]))
    table[2].advance(LifeEvent.REMOVED)
    assert [record.rank for record in table.agents()] == [1, 3]
