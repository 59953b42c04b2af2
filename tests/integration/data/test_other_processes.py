"""Slices are opened by other processes, as agents do it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from sapwood.data import Dataset, load
from sapwood.data.slice import SliceRef

READER = """
import sys, json, msgspec, resource
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.errors import SapwoodError
from sapwood.data.slice import SliceRef, open_slice

resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
ref = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=SliceRef)
try:
    part = open_slice(ref, MappedBlocks())
except SapwoodError as error:
    print(json.dumps({"error": error.code}))
else:
    sums = {name: float(array.sum(dtype="f8")) for name, array in part.arrays.items()}
    print(json.dumps({"start": part.start, "stop": part.stop, "sums": sums}))
"""


def read_elsewhere(ref: SliceRef) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", READER],
        input=msgspec.msgpack.encode(ref),
        capture_output=True,
        check=True,
        # The threads of the linear algebra library reserve address space for every core.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_slices_of_all_agents_add_up_to_the_whole(tmp_path: Path, kind: str) -> None:
    array = np.arange(1003 * 7, dtype=np.float32).reshape(1003, 7)
    np.save(tmp_path / "a.npy", array)
    data: Dataset = load(array if kind == "memory" else tmp_path / "a.npy")
    with data.publish() as published:
        answers = [
            read_elsewhere(published.ref(piece.start, piece.stop))
            for piece in data.split(3, chunk=10)
        ]
    assert [(answer["start"], answer["stop"]) for answer in answers] == [
        (0, 340),
        (340, 680),
        (680, 1003),
    ]
    assert sum(answer["sums"]["data"] for answer in answers) == array.sum(dtype="f8")


def test_a_withdrawn_dataset_cannot_be_opened_elsewhere() -> None:
    published = load(np.ones(10)).publish()
    ref = published.ref(0, 10)
    assert read_elsewhere(ref)["sums"] == {"data": 10}
    published.close()
    assert read_elsewhere(ref) == {"error": "SW401"}


def test_only_the_slice_of_a_large_file_is_mapped(tmp_path: Path) -> None:
    # 4 GiB, sparse; the reader may not have as much address space as that.
    path = tmp_path / "large.npy"
    whole = np.lib.format.open_memmap(path, "w+", np.float64, (2**22, 128))
    whole[-1] = 1
    del whole
    with load(path).publish() as published:
        assert read_elsewhere(published.ref(2**22 - 10, 2**22))["sums"] == {"data": 128}


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can become another user")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones(3))
    path.chmod(0)
    tmp_path.chmod(0o755)
    # The modules are imported before the user changes: others may not read this installation.
    code = (
        "import os, sys\n"
        "import sapwood.data.sources as sources, sapwood.data.codecs.npy, difflib\n"
        "from sapwood.core.errors import DataMissingError\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n"
        "    sources.load(sys.argv[1])\n"
        "except DataMissingError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert "cannot be read: Permission denied" in done.stdout
