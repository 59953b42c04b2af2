import errno
import mmap
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sapwood.comm import shared_memory
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock, SharedRef
from sapwood.core.errors import ProtocolError, ResourceError


def memfds() -> int:
    targets = [
        str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()
    ]
    return sum(target.startswith("/memfd:sapwood") for target in targets)


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("/memfd:sapwood")


def test_what_one_writes_the_other_reads() -> None:
    with SharedBlock(10_000) as block:
        block.view[100:103] = b"abc"
        assert bytes(MappedBlocks().view(block.ref(100, 3))) == b"abc"
        block.view[100:103] = b"xyz"
        assert bytes(MappedBlocks().view(block.ref(100, 3))) == b"xyz"


def test_a_reader_cannot_write_unless_it_says_so() -> None:
    with SharedBlock(10) as block:
        blocks = MappedBlocks()
        assert blocks.view(block.ref()).readonly
        blocks.view(block.ref(), writable=True)[:2] = b"ok"
        assert bytes(block.view[:2]) == b"ok"


@pytest.mark.parametrize("nbytes", [0, 1, mmap.PAGESIZE, mmap.PAGESIZE + 1])
def test_a_block_is_at_least_as_large_as_asked(nbytes: int) -> None:
    with SharedBlock(nbytes) as block:
        assert block.capacity >= max(nbytes, 1)
        assert block.capacity % mmap.PAGESIZE == 0
        assert len(block.view) == block.capacity


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1},
        {"nbytes": -1},
        {"offset": 4096},
        {"nbytes": 4097},
        {"offset": 2**62, "nbytes": 2**62},
    ],
)
def test_a_reference_out_of_bounds_is_refused(change: dict[str, int]) -> None:
    with SharedBlock(4096) as block:
        ref = msgspec.structs.replace(block.ref(0, 10), **change)
        with pytest.raises(ProtocolError, match="out of bounds"):
            MappedBlocks().view(ref)


@pytest.mark.parametrize("change", [{"inode": 1}, {"capacity": 2**20}])
def test_a_reference_to_another_block_is_refused(change: dict[str, int]) -> None:
    with SharedBlock(4096) as block:
        ref = msgspec.structs.replace(block.ref(0, 10), **change)
        with pytest.raises(ProtocolError, match="replaced"):
            MappedBlocks().view(ref)


def test_a_block_that_took_the_place_of_another_is_refused() -> None:
    first = SharedBlock(4096)
    ref = first.ref(0, 10)
    first.close()
    with SharedBlock(4096) as second:
        assert second.fd == ref.fd  # the kernel gives the lowest free number
        with pytest.raises(ProtocolError, match="replaced"):
            MappedBlocks().view(ref)


def test_the_memory_of_a_process_that_is_gone_is_gone() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        block = SharedBlock(4096)
        os.write(writer, msgspec.msgpack.encode(block.ref(0, 10)))
        os._exit(0)
    os.waitpid(child, 0)
    ref = msgspec.msgpack.decode(os.read(reader, 1000), type=SharedRef)
    os.close(reader)
    os.close(writer)
    with pytest.raises(ProtocolError, match=f"process {child} is gone"):
        MappedBlocks().view(ref)


def test_a_mapping_outlives_the_block() -> None:
    block = SharedBlock(4096)
    block.view[:3] = b"abc"
    view = MappedBlocks().view(block.ref(0, 3))
    block.close()
    assert bytes(view) == b"abc"


def test_nothing_is_left_after_close() -> None:
    before = memfds(), mappings()
    block = SharedBlock(2**20)
    blocks = MappedBlocks()
    blocks.view(block.ref())
    assert memfds() > before[0]
    assert mappings() == before[1] + 2
    block.close()
    block.close()
    blocks.forget()
    assert (memfds(), mappings()) == before


def test_an_array_keeps_the_memory_that_it_looks_at() -> None:
    block = SharedBlock(8)
    array = np.frombuffer(block.view, "u1", 8)
    block.view[:1] = b"\x07"
    block.close()
    assert array[0] == 7


def test_a_block_is_mapped_once() -> None:
    with SharedBlock(4096) as block:
        blocks = MappedBlocks()
        before = mappings()
        views = [blocks.view(block.ref(i, 1)) for i in range(20)]
        assert len(views) == 20
        assert mappings() == before + 1


def test_bytes_of_others_that_stay_mapped_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "MAX_MAPPED_BYTES", 3 * 4096)
    seen = MappedBlocks()
    blocks: list[SharedBlock] = []
    mapped: list[int] = []
    for pages in (1, 2, 1, 5, 1):
        block = SharedBlock(4096 * pages)
        blocks.append(block)
        block.view[:1] = b"x"
        assert bytes(seen.view(block.ref())[:1]) == b"x"
        block.view.release()
        mapped.append(_pages_of(blocks))
    assert mapped == [1, 3, 3, 5, 1]  # one is always mapped, however large
    seen.forget()
    assert _pages_of(blocks) == 0
    for block in blocks:
        block.close()


def test_what_its_maker_has_given_up_does_not_stay_mapped() -> None:
    seen, blocks = MappedBlocks(), [SharedBlock(4096) for _ in range(6)]
    views = [seen.view(block.ref()) for block in blocks]
    for block in blocks[:3]:  # those that were not looked at for longest
        block.close()
    seen.forget_gone()
    assert len(seen) == 3
    views[0][:1].tobytes()  # valid as long as a view of it exists
    for block in blocks[3:]:
        block.close()
    seen.forget_gone()
    assert len(seen) == 0


def test_blocks_of_processes_that_end_do_not_add_up() -> None:
    seen = MappedBlocks()
    with SharedBlock(4096) as kept:
        for _ in range(50):
            with SharedBlock(4096) as block:
                seen.view(block.ref())
            seen.view(kept.ref())
            assert len(seen) <= 3


def _pages_of(blocks: list[SharedBlock]) -> int:
    """Return how many pages of blocks are mapped besides by who made them."""
    found = 0
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        place, _, _, _, inode, *_ = line.split()
        if int(inode) in {block.inode for block in blocks} and "memfd:sapwood" in line:
            start, stop = (int(one, 16) for one in place.split("-"))
            found += (stop - start) // 4096
    return found


def test_only_so_many_blocks_stay_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "MAX_MAPPED_BLOCKS", 2)
    several = [SharedBlock(4096) for _ in range(4)]
    blocks = MappedBlocks()
    before = mappings()
    for block in several:
        blocks.view(block.ref())
    assert mappings() == before + 2
    for block in several:
        block.close()


@pytest.mark.parametrize("nbytes", [2**50, 2**62])
def test_more_memory_than_there_is_is_a_clear_error(nbytes: int) -> None:
    before = memfds()
    with pytest.raises(ResourceError, match="shared memory"):
        SharedBlock(nbytes)
    assert memfds() == before


def test_a_large_block_that_fits_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "LARGE_BLOCK", 2**20)
    with SharedBlock(2**20) as block:
        assert os.fstat(block.fd).st_blocks * 512 >= 2**20


@pytest.mark.parametrize("nbytes", [1, 5000, mmap.PAGESIZE, 100_000, 2**21, 2**21 + 5000])
def test_a_block_begins_with_its_content(nbytes: int) -> None:
    first, second = os.urandom(nbytes), memoryview(b"second")
    with SharedBlock(nbytes + 3 * mmap.PAGESIZE, [(0, first), (nbytes + 5000, second)]) as block:
        assert block.view[:nbytes] == first
        assert block.view[nbytes + 5000 :][:6] == second
        rest = [block.view[nbytes : nbytes + 5000], block.view[nbytes + 5006 :]]
        assert not any(bytes(part).strip(b"\0") for part in rest)
        assert os.fstat(block.fd).st_blocks * 512 == block.capacity


def test_content_for_which_there_is_no_memory_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_fd: int, data: memoryview, offset: int) -> int:
        if offset:
            raise OSError(errno.ENOSPC, "full")
        return min(len(data), 4096)  # so much was left

    monkeypatch.setattr(os, "pwrite", full)
    before = memfds()
    with pytest.raises(ResourceError, match="shared memory"):
        SharedBlock(10_000, [(0, bytes(10_000))])
    assert memfds() == before
