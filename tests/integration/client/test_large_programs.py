"""Programs that are too large for a message: files, classes, and what methods refer to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.code.image import INLINE_BYTES
from sapwood.environment.settings import Settings
from sapwood_simulation.local_session_server import attach_here, local_session_server

ROOTS = ["embedded", "attached"]

FILE = """\
import sapwood

BLOB = {blob!r}


def joined(a, b):
    return a + b


class Lengths(sapwood.Program):
    reduce = {{"n": {reduce}}}

    def map(self, slice, state):
        return {{"n": len(slice) * len(BLOB)}}
"""

SIZES = [65_536, INLINE_BYTES + 1, 9 * 2**20]


@pytest.mark.parametrize("reduce", ["'sum'", "joined"])
@pytest.mark.parametrize("size", SIZES)
def test_a_file_of_any_size_runs(
    make_cluster: Callable[..., sapwood.Cluster], tmp_path: Path, size: int, reduce: str
) -> None:
    path = tmp_path / "lengths.py"
    path.write_text(FILE.format(blob="x" * size, reduce=reduce))
    cluster = make_cluster(2)
    program = sapwood.load_program(str(path))
    assert cluster.run(program, data=range(10)).result() == {"n": 10 * size}


def test_a_client_on_another_machine_sends_its_large_program(tmp_path: Path) -> None:
    path = tmp_path / "lengths.py"
    path.write_text(FILE.format(blob="x" * 2**20, reduce="joined"))
    settings = Settings()
    with (
        local_session_server(settings, agents=2) as address,
        attach_here(address, settings) as cluster,
    ):
        session: Any = cluster.session
        session.link.sharing = False  # as if it saw neither memory nor files of the root
        program = sapwood.load_program(str(path))
        assert cluster.run(program, data=range(10)).result() == {"n": 10 * 2**20}


def test_a_class_and_its_globals_may_hold_arrays(
    make_cluster: Callable[..., sapwood.Cluster],
) -> None:
    offsets = np.arange(20_000.0)

    class Table(sapwood.Program):
        reduce = {"s": "sum"}  # noqa: RUF012 - as users write it
        table = np.arange(1_000_000.0)

        def map(self, slice: Any, state: Any) -> Any:  # noqa: A002 - as Program.map
            return {"s": float(slice.data.sum() + self.table[-1] + offsets[-1])}

    cluster = make_cluster(1)
    assert cluster.run(Table, data=np.ones(10)).result()["s"] == 10.0 + 999_999 + 19_999


def test_a_program_that_is_too_large_is_an_error_of_its_run(
    make_cluster: Callable[..., sapwood.Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.code.image.MAX_PROGRAM_BYTES", 2**20)
    cluster = make_cluster(1)

    class Table(sapwood.Program):
        reduce = {"s": "sum"}  # noqa: RUF012 - as users write it
        table = np.zeros(200_000)

        def map(self, slice: Any, state: Any) -> Any:  # noqa: A002 - as Program.map
            return {"s": float(slice.data.sum())}

    with pytest.raises(sapwood.errors.ProgramError, match="the most is 1 MiB"):
        cluster.run(Table, data=np.ones(10)).result()
    assert cluster.submit(abs, -3).result() == 3
