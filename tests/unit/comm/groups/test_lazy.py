"""What a place does with groups is imported with the first one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sapwood.comm.groups import events as gev
from sapwood.comm.groups.groups import Groups
from sapwood.comm.groups.lazy import EVENTS, MESSAGES
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.peers import PeerTable
from sapwood.core.topology import flat
from sapwood_simulation.network import Network


@pytest.mark.parametrize(
    "module", ["sapwood.comm.groups.groups", "sapwood.comm.streams.bulk", "numpy"]
)
def test_a_place_without_groups_and_large_arrays_imports_none_of_it(module: str) -> None:
    code = f"import sys, sapwood.comm.node; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_first_of_each_kind_finds_somebody_who_takes_it() -> None:
    near = PeerTable(Identity("c", 1, 0, 0, ""), flat(2), LinkTiming())
    groups = Groups(near, lambda _reduce: pytest.fail("nothing to gather"), is_agent=True)
    assert set(groups.on_event) == set(EVENTS)
    assert set(groups.on_message) == set(MESSAGES)


def test_a_place_that_never_had_a_group_has_nothing_to_forget() -> None:
    network = Network(flat(2), 1)
    network.start()
    network.post(1, gev.ForgetGroups())
    assert network.nodes[1].groups.groups is None
    assert len(network.nodes[1].groups) == 0
