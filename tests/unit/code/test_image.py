from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from sapwood.code import image, load_program
from sapwood.code.build import build
from sapwood.code.image import OpenProgram, ProgramImage, make_image, open_image
from sapwood.code.program import Program, parameter
from sapwood.core.errors import FunctionMissingError, ProgramError

FACTOR = 2


class Here(Program):
    reduce = {"total": "sum"}  # noqa: RUF012 - as users write it
    k: int = parameter(1)

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {"total": slice.data.sum() * self.k * FACTOR + state["add"]}


def travelled(program: Program) -> OpenProgram:
    image = make_image(program, build(program))
    return open_image(msgspec.msgpack.decode(msgspec.msgpack.encode(image), type=ProgramImage))


PART = SimpleNamespace(data=np.arange(4.0))


def test_a_class_of_an_imported_module_travels_by_value() -> None:
    opened = travelled(Here(k=3))
    assert opened.map(PART, {"add": 1})["total"] == 37.0
    opened.close()


def test_a_class_defined_in_a_function_travels() -> None:
    class Local(Here):
        def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
            return {"total": super().map(slice, state)["total"] + 1}

    assert travelled(Local()).map(PART, {"add": 0})["total"] == 13.0


def test_a_file_travels_as_it_was_when_it_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    text = (
        "from sapwood.code.program import Program\n"
        "import beside\n"
        "class P(Program):\n"
        "    reduce = {'x': 'sum'}\n"
        "    def map(self, slice, state):\n"
        "        return {'x': beside.value / state['d']}\n"
    )
    path.write_text(text)
    (tmp_path / "beside.py").write_text("value = 6\n")
    program = load_program(path)
    path.unlink()
    (tmp_path / "beside.py").write_text("value = 7\n")
    opened = travelled(program)
    assert opened.map(PART, {"d": 2}) == {"x": 3.0}
    with pytest.raises(ZeroDivisionError) as caught:
        opened.map(PART, {"d": 0})
    shown = "".join(traceback.format_exception(caught.value))
    assert f'File "{path}", line 6' in shown
    assert "beside.value / state['d']" in shown


@pytest.mark.slow
def test_a_script_s_class_opens_in_another_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, msgspec\n"
        "from sapwood.code.program import Program\n"
        "from sapwood.code.build import build\n"
        "from sapwood.code.image import make_image\n"
        "def double(x):\n"
        "    return 2 * x\n"
        "class P(Program):\n"
        "    reduce = {'x': 'sum'}\n"
        "    def map(self, slice, state):\n"
        "        return {'x': double(len(slice))}\n"
        "sys.stdout.buffer.write(msgspec.msgpack.encode(make_image(P(), build(P()))))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, check=True)
    opened = open_image(msgspec.msgpack.decode(done.stdout, type=ProgramImage))
    assert opened.map(range(4), {}) == {"x": 8}


@pytest.mark.parametrize(
    ("partial", "named"),
    [({"totl": 1}, "totl"), ({}, "total"), ({"total": 1, "x": 2}, "x"), ([1], "list")],
)
def test_a_map_that_returns_other_fields_is_an_error(partial: Any, named: str) -> None:
    class Wrong(Program):
        reduce = {"total": "sum"}  # noqa: RUF012 - as users write it

        def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
            return state["partial"]  # type: ignore[no-any-return]  # a test value

    program = travelled(Wrong())
    with pytest.raises(ProgramError) as caught:
        program.check_result(program.map(PART, {"partial": partial}))
    assert named in caught.value.what


def test_a_pure_python_program_has_no_native_functions() -> None:
    with pytest.raises(FunctionMissingError, match="dot"):
        travelled(Here()).call("dot", [], {})


def test_what_cannot_be_copied_is_an_error_that_says_so() -> None:
    handle = subprocess.Popen([sys.executable, "-c", ""])
    handle.wait()

    class Holds(Program):
        kept = handle

    with pytest.raises(ProgramError, match="cannot be sent"):
        make_image(Holds(), build(Here()))


def test_the_hash_follows_the_parameters_not() -> None:
    assert Here(k=1).hash == Here(k=2).hash


class Keeping(Here):
    closed: ClassVar[list[str]] = []

    def close(self) -> None:
        self.closed.append(self.library_path)


def test_a_program_gives_back_what_it_keeps_when_it_is_closed() -> None:
    opened = travelled(Keeping())
    kept: Any = opened.program
    opened.close()
    assert kept.closed == [""]


class Told(Program):
    sources = ("told.c",)
    reduce = {"x": "sum"}  # noqa: RUF012 - as users write it

    def build_environment(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        return {**environment, "CFLAGS": "-DTOLD=7"}


def test_a_program_says_with_which_variables_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told.c").write_text("int told(void) { return TOLD; }\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "__file__", str(tmp_path / "here.py"))
    opened = travelled(Told())
    assert opened.program.library_path == opened.image.libraries[0].path
    assert opened.function("told")() == 7
    opened.close()


def test_folders_of_another_python_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    here = f"python3.{sys.version_info.minor}"
    kept = [
        f"/opt/{here}/site-packages",
        "/home/me/work",
        f"/usr/lib/python3{sys.version_info.minor}.zip",
        "/usr/lib/python3/dist-packages",
        "/opt/mypython3.99/lib",
    ]
    other = ["/usr/lib/python3.99", "/x/lib/python3.99/site-packages", "/usr/lib/python399.zip"]
    monkeypatch.setattr(sys, "path", ["/first"])
    image._extend_search_path([os.fsencode(entry) for entry in (*other, *kept)])
    assert sys.path == ["/first", *kept]
