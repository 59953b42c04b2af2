"""Whole outputs of commands on many nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.cli import gathering
from sapwood.cli.gathering import Gathered, OutputFiles
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.nodes.commands import NodeExit, NodeOutput

NODES = ["n1", "n2", "n3", "n4"]


def give(view: Gathered | OutputFiles, texts: dict[str, bytes], stream: str = "stdout") -> None:
    for node, text in texts.items():
        for at in range(0, len(text), 5):
            view.wrote(NodeOutput(node, stream, text[at : at + 5]))


def finish(view: Gathered | OutputFiles, status: int = 0) -> None:
    for node in NODES:
        view.ended(NodeExit(node, status if node == "n4" else 0))
    view.close(status)


def test_equal_outputs_are_shown_once(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    view = Gathered(NODES, diff=False, raw=False)
    give(view, {"n3": b"same\nlines\n", "n1": b"same\nlines\n", "n4": b"other"})
    give(view, {"n2": b"bad\n", "n1": b"bad\n"}, "stderr")
    finish(view, 3)
    shown = capfdbinary.readouterr()
    assert shown.out == b"--- n[1,3]\nsame\nlines\n--- n4\nother\n"
    assert shown.err == b"--- n[1-2]\nbad\nsapwood: n4: exit code 3\n"


def test_others_are_compared_with_the_most_frequent_output(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    view = Gathered(NODES, diff=True, raw=False)
    give(view, {"n1": b"a\nx\n\xff\n", "n2": b"a\nb\n\xff\n", "n3": b"a\nb\n\xff\n"})
    finish(view)
    shown = capfdbinary.readouterr().out
    assert shown == (
        b"--- n[2-3]\na\nb\n\xff\n"
        b"--- n[2-3]\n+++ n1\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n \xff\n"
        b"--- n[2-3]\n+++ n4\n@@ -1,3 +0,0 @@\n-a\n-b\n-\xff\n"
    )


def test_no_output_shows_nothing(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for diff in (False, True):
        finish(Gathered(NODES, diff=diff, raw=False))
    assert capfdbinary.readouterr() == (b"", b"")


def test_too_much_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_GATHERED", 2**20)
    view = Gathered(NODES, diff=False, raw=False)
    view.wrote(NodeOutput("n1", "stdout", bytes(2**20)))
    with pytest.raises(ResourceError, match=r"larger than 1 MiB .--fold.*--outdir"):
        view.wrote(NodeOutput("n2", "stderr", b"x"))


def test_each_node_has_its_files(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = tmp_path / "new" / "folder"
    view = OutputFiles(folder, NODES, Gathered(NODES, diff=False, raw=False))
    give(view, {"n1": b"one\n", "n2": b"two"})
    give(view, {"n2": b"bad"}, "stderr")
    finish(view)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.stat().st_size} == {
        "n1.out": b"one\n",
        "n2.out": b"two",
        "n2.err": b"bad",
    }
    assert len(list(folder.iterdir())) == 8
    assert capfdbinary.readouterr().out == b"--- n1\none\n--- n2\ntwo\n"


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"outputs cannot be written: .*--outdir .*file"):
        OutputFiles(tmp_path / "file", NODES, Gathered(NODES, diff=False, raw=False))


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    view = OutputFiles(tmp_path, ["full"], Gathered(["full"], diff=False, raw=False))
    view._files["full", "stdout"].close()
    with Path("/dev/full").open("wb", buffering=0) as full:
        view._files["full", "stdout"] = full
        with pytest.raises(ConfigurationError, match="No space left on device"):
            view.wrote(NodeOutput("full", "stdout", b"x"))
    view.close(0)
