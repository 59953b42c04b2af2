from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

Sapwood = Callable[..., subprocess.CompletedProcess[str]]


def test_show_for_people(sapwood: Sapwood, squares: Path) -> None:
    shown = sapwood("program", "show", str(squares))
    assert shown.returncode == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    assert "squares: Sums of squares" in text
    assert "void squares(const double *x, int64_t n, double *total)" in text
    assert "Sums the squares of some numbers. x[n], total[1] squares.c:9" in text
    assert "rounds int 3 1 to 1000000 iterations to run" in text
    assert "files program.toml, squares.c, squares.py" in text
    assert "reduce total by sum" in text
    assert f"{platform.machine()} " in text[text.index("Targets built") :]
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_json(sapwood: Sapwood, squares: Path) -> None:
    shown = json.loads(sapwood("program", "show", str(squares), "--json").stdout)
    assert (shown["name"], shown["map"], shown["inputs"]) == ("squares", "squares", ["x"])
    assert len(shown["hash"]) == 64
    assert [one["name"] for one in shown["parameters"]] == ["rounds", "power"]
    assert shown["functions"][0]["arrays"] == ["x[n]", "total[1]"]
    (target,) = shown["targets"]
    assert target["language"] == "c"
    assert target["bytes"] > 0


def test_functions_that_cannot_be_called_say_why(sapwood: Sapwood, squares: Path) -> None:
    source = squares / "squares.c"
    source.write_text(source.read_text() + "\nint any(int first, ...) { return first; }\n")
    shown = json.loads(sapwood("program", "show", str(squares), "--json").stdout)
    (unbound,) = [one for one in shown["functions"] if one["unbound"]]
    assert unbound["name"] == "any"


def test_a_program_without_native_code(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "mean.py").write_text(
        "import sapwood\n"
        "class Mean(sapwood.Program):\n"
        "    reduce = {'total': 'mean'}\n"
        "    def map(self, slice, state):\n"
        "        return {'total': slice.data.mean()}\n"
    )
    shown = sapwood("program", "show", "mean.py", PATH="/nonexistent")
    assert shown.returncode == 0, shown.stderr
    assert "Python" in shown.stdout
    assert "Targets" not in shown.stdout


def test_a_folder_without_program(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shown = sapwood("program", "show", "empty")
    assert shown.returncode == 2
    assert "program.toml" in shown.stderr
