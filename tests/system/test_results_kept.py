"""A result is shown whole, and kept where its file cannot hold it."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
import sapwood

class Base(sapwood.Program):
    reduce = {"n": "sum"}

    def map(self, slice, state):
        return {"n": len(slice)}

class Complex(Base):
    def result(self, state):
        return {"z": 1 + 2j}

class Shown(Base):
    def result(self, state):
        return {"inner": {"x": 1}, "names": ["a", "b"], "rows": np.eye(2), "nothing": None,
                "empty": [], "many": list(range(20)), "text": "two\\nlines"}
"""

SAPWOOD = str(Path(sys.executable).with_name("sapwood"))


def run(tmp_path: Path, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "programs.py").write_text(PROGRAM)
    (tmp_path / "x.csv").write_text("1\n2\n3\n")
    command = [SAPWOOD, "run", f"programs.py::{name}", "--data", "x.csv", "--agents", "1", *words]
    return subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )


def test_every_entry_of_a_result_is_shown(tmp_path: Path) -> None:
    done = run(tmp_path, "Shown")
    assert done.returncode == 0, done
    shown = [line.rstrip() for line in done.stdout.splitlines()]
    begin = shown.index("  inner")
    assert shown[begin : begin + 12] == [
        "  inner",
        "    x 1",
        "  names a, b",
        "  rows",
        "    1, 0",
        "    0, 1",
        "  nothing null",
        "  empty []",
        "  many 0, 1, 2, 3, 4, 5, 6, 7, … 12 more",
        "  text",
        "    two",
        "    lines",
    ]


def test_a_result_that_its_file_cannot_hold_is_shown_and_kept(tmp_path: Path) -> None:
    done = run(tmp_path, "Complex", "--output", "r.json")
    assert done.returncode == 2, done
    assert "z (1+2j)" in done.stdout
    (kept,) = re.findall(r"the result is kept in (\S+)", done.stderr)
    assert Path(kept).parent == tmp_path
    assert pickle.loads(Path(kept).read_bytes()) == {"z": 1 + 2j}  # noqa: S301 - of this test
    assert not (tmp_path / "r.json").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_result_whose_disk_is_full_is_kept(tmp_path: Path) -> None:
    (tmp_path / "r.json").symlink_to("/dev/full")
    done = run(tmp_path, "Shown", "--output", "r.json")
    assert done.returncode == 5, done
    (kept,) = re.findall(r"the result is kept in (\S+)", done.stderr)
    assert Path(kept).exists()
