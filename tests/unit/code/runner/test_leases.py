"""Results in a runner's memory: open while a process reads them, and not for ever."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.runner.calls import Bulk
from sapwood.code.runner.leases import MAX_OPENED, LeasedResults
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock


@pytest.fixture
def adoption() -> Iterator[LeasedResults]:
    with closing(LeasedResults(MappedBlocks())) as made:
        yield made


def taken(adoption: LeasedResults, block: SharedBlock) -> Payload:
    """Take a result that is stored in a block of this process, which is the runner, too."""
    payload = adoption.payload(Bulk(shared=block.ref(0, 8)))
    assert payload is not None
    return payload


def descriptors() -> int:
    """Count what is open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_blocks_that_a_runner_gives_up_do_not_stay_open(adoption: LeasedResults) -> None:
    before = descriptors()
    for _ in range(3 * MAX_OPENED):
        with SharedBlock(8) as block:
            adoption.give_back(taken(adoption, block).owner, os.getpid())
            block.discard()
    assert descriptors() - before <= MAX_OPENED
    assert len(adoption.opened) <= MAX_OPENED


@pytest.mark.parametrize("read_until", ["its end", "later"])
def test_the_memory_of_a_runner_that_ended_is_free_though_others_map_it(
    adoption: LeasedResults, read_until: str
) -> None:
    with SharedBlock(2**20) as block:
        others = MappedBlocks()
        lease = taken(adoption, block).owner
        others.view(block.ref())
        if read_until == "its end":
            adoption.give_back(lease, lease.runner)
        adoption.runner_ended()
        if read_until == "later":
            assert os.fstat(block.fd).st_blocks
            adoption.give_back(lease, 0)
        assert not os.fstat(block.fd).st_blocks


def test_what_was_used_last_stays_open(adoption: LeasedResults) -> None:
    with SharedBlock(8) as often:
        fd = taken(adoption, often).owner.fd
        for _ in range(2 * MAX_OPENED):
            with SharedBlock(8) as block:
                adoption.give_back(taken(adoption, block).owner, os.getpid())
            again = taken(adoption, often).owner
            adoption.give_back(again, os.getpid())
            assert again.fd == fd
        assert next(reversed(adoption.opened)) == often.inode


@given(st.lists(st.integers(0, 7), max_size=60))
@pytest.mark.slow
def test_what_is_read_stays_whatever_comes(order: list[int]) -> None:
    blocks: dict[int, SharedBlock] = {}
    read: deque[tuple[int, Payload]] = deque()
    with closing(LeasedResults(MappedBlocks())) as adoption, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sapwood.code.runner.leases.MAX_OPENED", 3)
        for which in order:
            if which not in blocks:
                blocks[which] = SharedBlock(8)
                blocks[which].view[:8] = which.to_bytes(8)
            if not any(which == one for one, _ in read):
                read.append((which, taken(adoption, blocks[which])))
            if len(read) > 4:
                adoption.give_back(read.popleft()[1].owner, os.getpid())
        assert [int.from_bytes(payload.view) for _, payload in read] == [one for one, _ in read]
        assert len(adoption.opened) <= max(3, len(read) + 1)
    for block in blocks.values():
        block.close()
