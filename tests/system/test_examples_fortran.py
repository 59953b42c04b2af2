"""Fortran, a language of a separate package: installed, found by its entry point, run on agents."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.testing.languages import CHECKS, Check, Sample, loaded, make

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "fortran"
COMMAND = [sys.executable, "-c", "from sapwood.cli.main import main; main()"]
TEXT = """
integer(c_int64_t) function twice(i) bind(c)
  use iso_c_binding
  integer(c_int64_t), value :: i
  twice = 2 * i
end function twice

! Adds up.
function total(x, n) result(s) bind(c)
  use iso_c_binding
  integer(c_int64_t), value :: n
  real(c_double), intent(in) :: x(n)
  real(c_double) :: s
  s = sum(x)
end function total

subroutine scale(x, n, &
    factor, y) bind(c)  ! continued
  use iso_c_binding
  integer(c_int64_t), value :: n
  real(c_double), value :: factor
  real(c_double), dimension(n), intent(in) :: x
  real(c_double), dimension(n), intent(out) :: y
  y = factor * x
end subroutine scale
"""

pytestmark = pytest.mark.skipif(shutil.which("gfortran") is None, reason="needs gfortran")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder, as pip does anywhere."""
    pytest.importorskip("hatchling", reason="needs hatchling to build the package")
    target = tmp_path_factory.mktemp("site")
    source = shutil.copytree(FOLDER, tmp_path_factory.mktemp("source") / "fortran")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*command, str(source)], check=True, timeout=120)
    return target


@pytest.fixture
def language(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(installed))
    yield importlib.import_module("sapwood_fortran.language").Fortran()
    for name in [name for name in sys.modules if name.startswith("sapwood_fortran")]:
        del sys.modules[name]


@pytest.mark.row("A-CODE-6")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_suite_for_languages(language: Any, check: Check, tmp_path: Path) -> None:
    sample = Sample(
        language=language,
        source="a.f90",
        text=TEXT,
        changed=TEXT.replace("2 * i", "3 * i"),
        broken=TEXT.replace("2 * i", "2 * * i"),
        broken_line=5,
    )
    check(sample, tmp_path)


def sapwood(installed: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [*COMMAND, *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.row("A-CODE-6")
def test_the_example_program_runs_over_agents(installed: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(3).normal(size=(10_001, 4))
    np.savez(tmp_path / "data.npz", points=rows)
    output = tmp_path / "result.npz"
    program = str(FOLDER / "moments")
    data = ["--data", str(tmp_path / "data.npz"), "--output", str(output)]
    answer = sapwood(installed, "run", program, "--agents", "3", *data)
    assert len(answer["statistics"]["agents"]) == 3
    found = np.load(output)
    np.testing.assert_allclose(found["mean"], rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found["variance"], rows.var(axis=0), atol=1e-12)


def test_the_plug_in_is_listed_by_its_entry_point(installed: Path) -> None:
    listed = sapwood(installed, "node", "check", "--compilers")["languages"]
    fortran = next(each for each in listed if each["name"] == "fortran")
    assert (fortran["suffixes"], fortran["missing"]) == ([".f90", ".f03", ".f08"], "")


def test_shapes_and_intents_are_read_from_the_declarations(language: Any, tmp_path: Path) -> None:
    text = """
module sizes
  use iso_c_binding
contains
subroutine mix(a, n, d, b, best) bind(c, name="Mix")
  integer(c_int64_t), value :: n, d
  real(c_float), intent(inout) :: a(d, 2*n)
  integer(c_int32_t), intent(in) :: b(d)
  integer(c_int), intent(out) :: best
  integer :: k
  best = 0
  do k = 1, int(d)
    a(k, :) = a(k, :) + b(k)
    best = max(best, b(k))
  end do
end subroutine mix
end module sizes
"""
    sample = Sample(
        language=language, source="m.f90", text=text, changed="", broken="", broken_line=0
    )
    product = make(sample, tmp_path)
    (mix,) = product.interface.functions
    assert [(p.name, p.role.value, p.shape) for p in mix.parameters] == [
        ("a", "inout", ("2*n", "d")),
        ("n", "scalar", None),
        ("d", "scalar", None),
        ("b", "input", ("d",)),
        ("best", "output", None),
    ]
    with loaded(sample, product) as code:
        a = np.zeros((4, 3), np.float32)
        answer = code.function("Mix", {})(a=a, n=2, b=np.array([1, 5, 3], np.int32))
        np.testing.assert_array_equal(answer["a"], [[1, 5, 3]] * 4)
        assert answer["best"] == 5


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        ("real(c_double), intent(in) :: x(:)", "declare the extents of x"),
        ("real(c_double), intent(in) :: x(*)", "declare the extents of x"),
        ("real(c_double) :: x(3)", "x has no intent"),
        ("real(c_double), intent(in) :: x", "give it the attribute value"),
        ("character(c_char), value :: x", "the type of x"),
        ("real(c_double), pointer, intent(in) :: x(:)", "x is pointer"),
        ("", "x is not declared"),
    ],
)
def test_what_cannot_be_called_says_why(language: Any, declaration: str, reason: str) -> None:
    assert language  # it makes the package importable
    procedures = importlib.import_module("sapwood_fortran.procedures")
    source = f"subroutine f(x) bind(c)\n{declaration}\nend subroutine\n"
    (unbound,) = procedures.read_procedures(source, "f.f90").unbound
    assert reason in unbound.reason
    assert unbound.where == "f.f90:1"
