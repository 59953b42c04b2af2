"""What work offers to agents on other machines, and what it does not for those on this one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from sapwood.activity.offered_content import OfferedContent
from sapwood.code.bundle import Bundle
from sapwood.code.image import ProgramImage
from sapwood.code.interface import Interface
from sapwood.code.library import LibraryImage
from sapwood.content.offers import ContentOffers
from sapwood.content.refs import ContentRef, FileStamp
from sapwood.core.errors import ProgramError
from sapwood.data.slice import ContentPlace, FilePlace, MemoryPlace
from sapwood.data.sources import load


class Port:
    """A session with agents here (odd ranks) and elsewhere (even ranks)."""

    def __init__(self, *, elsewhere: bool = True) -> None:
        self.content = ContentOffers()
        self.elsewhere = elsewhere

    def shares_machine(self, rank: int | None = None) -> bool:
        return not self.elsewhere or (rank is not None and rank % 2 == 1)


@pytest.fixture
def port() -> Any:
    made = Port()
    yield made
    made.content.close()


def image_of(path: Path) -> ProgramImage:
    library = LibraryImage(
        language="c",
        file=os.fsencode(path),
        sha256="1" * 64,
        debug_file=b"",
        interface=Interface(),
    )
    bundle = Bundle(origin="")
    return ProgramImage(hash="", name="p", python=bundle, parameters={}, libraries=(library,))


def test_a_slice_in_memory_is_offered_to_agents_elsewhere_only(port: Any) -> None:
    x = np.arange(100.0)
    offered = OfferedContent(port)
    with load(x, fields=("x",)).publish() as published:
        ref = published.ref(10, 20)
        assert offered.slice(ref, 1) == (ref, ())
        assert len(port.content) == 0
        far, (needed,) = offered.slice(ref, 2)
    sha256 = hashlib.sha256(x[10:20].tobytes()).hexdigest()
    assert needed == ContentRef(sha256, 80, None, needed.offset)
    assert isinstance(ref.fields[0].place, MemoryPlace)
    assert far.fields[0].place == ContentPlace(sha256, 0, 80)
    assert far.fields[0].dtype == np.dtype("f8").str
    offered.close()
    assert len(port.content) == 0


def test_a_slice_of_a_file_is_named_only_when_an_agent_asks(port: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(100.0))
    offered = OfferedContent(port)
    with load(tmp_path / "x.npy", fields=("x",)).publish() as published:
        ref = published.ref(10, 20)
        far, (needed,) = offered.slice(ref, 2)
    place = ref.fields[0].place
    assert far == ref
    assert isinstance(place, FilePlace)
    assert needed == ContentRef("", 80, FileStamp.of(os.fsencode(place.path)), place.offset)
    offered.close()
    assert len(port.content) == 0


def test_libraries_are_offered_by_the_hash_that_their_build_gave(port: Any, tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(b"code")
    stamp = FileStamp.of(os.fsencode(path))
    handler = ContentRef("2" * 64, 4, stamp)
    offered = OfferedContent(port)
    assert offered.code(image_of(path), [handler]) == (ContentRef("1" * 64, 4, stamp), handler)
    offered.close()
    path.unlink()
    with pytest.raises(ProgramError, match="cannot be read"):
        offered.code(image_of(path), [])


def test_a_python_part_in_a_file_is_offered(port: Any, tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(b"code")
    (tmp_path / "python").write_bytes(b"bundle")
    stored = ContentRef("3" * 64, 6, FileStamp.of(os.fsencode(tmp_path / "python")))
    image = msgspec.structs.replace(image_of(path), stored=stored)
    offered = OfferedContent(port)
    assert stored in offered.code(image, [])
    assert len(port.content) == 2
    offered.close()


def test_nothing_is_looked_at_where_all_agents_are_here(tmp_path: Path) -> None:
    port: Any = Port(elsewhere=False)
    assert OfferedContent(port).code(image_of(tmp_path / "nowhere"), []) == ()
    assert len(port.content) == 0
