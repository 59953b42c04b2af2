"""What the variables of processes become where programs and environments are staged."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.code.runner.packages import VARIABLE
from sapwood.content.file_trees import MARK
from sapwood.contexts.local_user import LocalUser
from sapwood.core.errors import ConfigurationError
from sapwood.nodes.staged_use import STAGE_VARIABLE, with_environment, with_staged_programs

OTHER = LocalUser(  # noqa: S604 - their shell is a fact, it is not run
    name="ann", uid=54321, gid=54321, groups=(54321,), home="/nonexistent", shell="/bin/sh"
)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stage with the environment ``grove``, and ``data``, which is none."""
    names, tree = tmp_path / "names", tmp_path / "trees" / "digest" / "grove"
    names.mkdir()
    tree.mkdir(parents=True)
    (tree / MARK).touch()
    (names / "grove").symlink_to(tree)
    (names / "data").mkdir()
    monkeypatch.setenv(STAGE_VARIABLE, str(names))
    return names


def test_who_chooses_no_environment_has_the_variables_as_they_were(stage: Path) -> None:
    assert stage.is_dir()
    assert with_environment({"A": "1"}, {"PATH": "/bin"}) == {"A": "1"}


def test_an_environment_comes_first_then_the_programs_beside_this_python(stage: Path) -> None:
    folder = str((stage / "grove").resolve())
    found = with_environment({VARIABLE: "grove", "A": "1"}, {"PATH": "/bin", "PYTHONPATH": "/own"})
    assert found == {
        "A": "1",
        VARIABLE: folder,
        "PYTHONPATH": f"{folder}:/own",
        "PATH": f"{folder}/bin:{Path(sys.executable).parent}:/bin",
    }
    # The folder and not the name: that may be another environment's tomorrow.
    assert "names" not in found[VARIABLE]
    alone = with_environment({VARIABLE: "grove", "PATH": "/mine"}, {"PATH": "/bin"})
    assert alone["PYTHONPATH"] == folder
    assert alone["PATH"].endswith(":/mine")


@pytest.mark.parametrize("name", ["nothing", "data", "../names/grove", ".."])
def test_what_is_no_staged_environment_is_refused(stage: Path, name: str) -> None:
    assert stage.is_dir()
    with pytest.raises(ConfigurationError, match=r"no environment .* is staged on this node"):
        with_environment({VARIABLE: name}, {})


def test_where_nothing_is_staged_there_is_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STAGE_VARIABLE, raising=False)
    with pytest.raises(ConfigurationError, match="no environment 'grove' is staged"):
        with_environment({VARIABLE: "grove"}, {})


def test_who_cannot_read_the_stage_is_told_so(stage: Path) -> None:
    stage.parent.chmod(0o700)
    with pytest.raises(ConfigurationError, match="the user ann cannot read what is staged"):
        with_environment({VARIABLE: "grove"}, {}, OTHER)


def test_staged_programs_are_found_after_all_others() -> None:
    found = with_staged_programs({"PATH": "/a:/b", STAGE_VARIABLE: "/stage"})
    assert found["PATH"] == "/a:/b:/stage"
    assert with_staged_programs({"PATH": "/a"}) == {"PATH": "/a"}
    assert with_staged_programs({STAGE_VARIABLE: "/stage"})["PATH"].endswith(":/stage")
