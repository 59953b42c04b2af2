"""Groups of nodes on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.cli import node_groups
from sapwood.cli.node_groups import without_groups
from sapwood.core.errors import ConfigurationError, ResourceError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of settings, and a site without groups."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(node_groups, "SITE_FILE", tmp_path / "site" / "config.toml")
    (tmp_path / "sapwood").mkdir()
    return tmp_path / "sapwood"


def test_groups_are_replaced_by_their_nodes(folder: Path, tmp_path: Path) -> None:
    text = "# ours\ngpu: g[1-2],g7  # the new ones\nall: @gpu,n[1-3]\n"
    (folder / "groups").write_text(text)
    assert without_groups("login,@gpu") == "login,g[1-2],g7"
    assert without_groups("@all") == "g[1-2],g7,n[1-3]"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "groups").write_text("gpu: site\ncpu: c1\n")
    assert without_groups("@gpu,@cpu") == "g[1-2],g7,c1", "the user's come first"


def test_a_file_of_nodes_is_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts").write_text("n[1-2]\n\n# not today: n3\nn4\n")
    monkeypatch.chdir(tmp_path)
    assert without_groups("@./hosts") == "n[1-2],n4"
    with pytest.raises(ConfigurationError, match=r"No such file or directory \(none/hosts"):
        without_groups("@none/hosts")
    (tmp_path / "hosts").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="it is not text"):
        without_groups("@./hosts")


def test_partitions_of_slurm_are_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sinfo"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '"--noheader --format=%N --partition=debug") echo "n[1-2]"; echo m1;;\n'
        '"--noheader --format=%N") echo "n[1-9]";;\n'
        "*) echo 'sinfo: error: no such partition' >&2; exit 1;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert without_groups("@slurm:debug,login") == "n[1-2],m1,login"
    assert without_groups("@slurm") == "n[1-9]"
    with pytest.raises(ConfigurationError, match=r"no nodes of the partition 'big': .*no such"):
        without_groups("@slurm:big")
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResourceError, match="Slurm does not answer"):
        without_groups("@slurm")


def test_wrong_groups_are_errors(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the group 'gpu' is unknown .*`gpu: n1,n2`"):
        without_groups("@gpu")
    (folder / "groups").write_text("a: @b\nb: n1,@a\n")
    with pytest.raises(ConfigurationError, match="the group 'a' contains itself"):
        without_groups("@a")
    with pytest.raises(ConfigurationError, match="groups are a, b"):
        without_groups("@c")
