from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapwood.code import load_program
from sapwood.code.program import Program, parameter
from sapwood.core.errors import BuildError, ParameterError, ProgramError

TOML = """
[program]
name = "example"
description = "An example"
python = "example.py"
inputs = ["x"]
[parameters.k]
default = 4
minimum = 1
help = "how many"
[parameters.rate]
type = "float"
default = 1
[reduce]
total = "sum"
"""
PYTHON = """
from factor import FACTOR

def map(program, slice, state):
    return {"total": slice.x.sum() * program.k * FACTOR}

def done(program, state):
    return state["n"] >= program.k
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "prog"
    place.mkdir()
    (place / "program.toml").write_text(TOML)
    (place / "example.py").write_text(PYTHON)
    (place / "factor.py").write_text("FACTOR = 3\n")
    return place


def test_a_folder_is_a_program(folder: Path) -> None:
    program = load_program(folder, {"k": "5"})
    assert repr(program) == "example(k=5, rate=1.0)"
    assert program.description == "An example"
    assert tuple(program.inputs) == ("x",)
    assert program.reduce == {"total": "sum"}
    assert program.done({"n": 5})
    assert not program.done({"n": 4})
    assert sorted(program.bundle.files) == ["example.py", "factor.py", "program.toml"]


@pytest.mark.parametrize(
    ("wrong", "right", "named"),
    [
        ('descripton = "x"', "description", "[program]"),
        ("[reduces]", "reduce", "program.toml"),
        ("[parameters.z]\ndefault = 1\nminimun = 2", "minimum", "[parameters.z]"),
        ('[parameters.z]\ndefault = 1\ntype = "integer"', "int", "[parameters.z]"),
        ('[map]\nfunctions = "f"', "function", "[map]"),
    ],
)
def test_an_unknown_key_names_the_nearest(folder: Path, wrong: str, right: str, named: str) -> None:
    head, _, tail = TOML.partition("[parameters.k]")
    if wrong.startswith("["):
        (folder / "program.toml").write_text(TOML + wrong)
    else:
        (folder / "program.toml").write_text(f"{head}{wrong}\n[parameters.k]{tail}")
    with pytest.raises(ProgramError) as caught:
        load_program(folder)
    assert right in caught.value.hint
    assert named in caught.value.where


@pytest.mark.parametrize(
    "text",
    [
        "[program\n",
        "[program]\nname = 3\n",
        "name = 'x'\n",
        "[program]\nsources = 'a.c'\n",
        "[program]\nname = 'no map'\n",
        "[program]\npython = 'missing.py'\n",
        "[program]\npython = 'example.py'\n[map]\nfunction = 'f'\n",
        "[program]\npython = 'example.py'\n[reduce]\nx = 'product'\n",
        "[program]\npython = 'example.py'\n[parameters.map]\ndefault = 1\n",
        "program = 3\n",
        "\xff",
    ],
)
def test_a_wrong_program_toml_is_an_error_that_names_it(folder: Path, text: str) -> None:
    (folder / "program.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ProgramError) as caught:
        load_program(folder)
    assert "program.toml" in caught.value.where


def test_files_of_one_name_in_two_programs_do_not_meet(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    (other / "factor.py").write_text("FACTOR = 10\n")
    from types import SimpleNamespace  # noqa: PLC0415 - only this test needs it

    import numpy as np  # noqa: PLC0415 - as above

    part = SimpleNamespace(x=np.array([1.0]))
    totals = [load_program(place).map(part, {})["total"] for place in (folder, other)]
    assert totals == [12.0, 40.0]


CLASSES = """
from sapwood.code.program import Program, parameter
class One(Program):
    k: int = parameter(1)
    def map(self, slice, state):
        return {}
"""


def test_a_python_file_with_one_class_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(CLASSES)
    assert repr(load_program(tmp_path / "p.py", {"k": 2})) == "One(k=2)"


def test_of_several_classes_one_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(CLASSES + "class Two(Program):\n    pass\n")
    with pytest.raises(ProgramError) as caught:
        load_program(path)
    assert "p.py::One" in caught.value.hint
    assert load_program(f"{path}::Two").name == "Two"
    with pytest.raises(ProgramError) as caught:
        load_program(f"{path}::Twoo")
    assert "Two" in caught.value.hint


def test_a_class_beside_program_toml_says_everything(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(CLASSES)
    toml = tmp_path / "program.toml"
    toml.write_text("[program]\nname = 'shown'\npython = 'p.py'\n")
    assert load_program(tmp_path).name == "shown"
    toml.write_text("[program]\npython = 'p.py'\n[reduce]\nx = 'sum'\n")
    with pytest.raises(ProgramError) as caught:
        load_program(tmp_path)
    assert "[reduce]" in caught.value.what
    assert "One" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("x = 1\ndef f(:\n", BuildError, "p.py:2"),
        ("\nimport there_is_no_such_module\n", ProgramError, "p.py:2"),
        ("x = 1\n", ProgramError, "p.py"),
    ],
)
def test_a_python_file_that_cannot_be_used_is_an_error_with_its_line(
    tmp_path: Path, text: str, kind: type[ProgramError], line: str
) -> None:
    (tmp_path / "p.py").write_text(text)
    with pytest.raises(kind) as caught:
        load_program(tmp_path / "p.py")
    assert caught.value.where.endswith(line)


def test_a_missing_program_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "quantize.py").touch()
    with pytest.raises(ProgramError) as caught:
        load_program(tmp_path / "quantise.py")
    assert "quantize.py" in caught.value.hint
    with pytest.raises(ProgramError, match=r"program\.toml"):
        load_program(tmp_path)


class Here(Program):
    k: int = parameter(1)

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {}


def test_classes_and_objects_are_taken_as_they_are() -> None:
    program = load_program(Here, {"k": 2})
    again = load_program(program, {})
    assert (program.k, again.k) == (2, 2)
    assert load_program(program, {"k": 3}).k == 3
    with pytest.raises(ParameterError):
        load_program(Here, {"kk": 1})
    with pytest.raises(ProgramError):
        load_program(int)  # type: ignore[type-var]  # the wrong type is the test


def test_a_program_keeps_the_version_that_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(CLASSES)
    program = load_program(path)
    before = program.hash
    path.write_text(CLASSES.replace("parameter(1)", "parameter(5)"))
    assert program.hash == before
    assert load_program(program).parameters == {"k": 1}
    assert load_program(path).hash != before
    assert load_program(path).parameters == {"k": 5}


def test_a_missing_program_is_told_with_the_programs_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("import os\n")
    (tmp_path / "sums.py").write_text("class Sums(sapwood.Program):\n    pass\n")
    (tmp_path / "pi").mkdir()
    (tmp_path / "pi/program.toml").write_text("")
    with pytest.raises(ProgramError) as caught:
        load_program(tmp_path / "xyzzy")
    assert caught.value.hint == "the programs there are pi, sums.py"
