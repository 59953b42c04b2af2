"""Stepping over entries finds what reading all of them finds."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from sapwood.code import dwarf, dwarf_scan
from sapwood.code.dwarf_scan import definitions

SOURCE = r"""
#include <map>
#include <string>
#include <vector>

namespace outer { namespace inner {
int deep(int a) { return a + 1; }
struct Named { int method(int x) { return x; } int other(int x); };
int Named::other(int x) { return method(x); }
} }
inline int inlined(int x) { return 3 * x; }
template <class T> T generic(T x) { T y = x; for (T i = 0; i < x; i++) y += inlined(i); return y; }
static int hidden(int x) { return generic(x) + outer::inner::deep(x); }
extern "C" int entry(const double *values, long n) {
  std::vector<double> copy(values, values + n);
  std::map<std::string, int> counts;
  for (double each : copy) counts[std::to_string(each)] += hidden(int(each));
  return int(counts.size());
}
int declared_only(int x);
"""


def all_definitions(scope: Any) -> Iterator[int]:
    """Find the same without steps over anything."""
    for die in scope.iter_children():
        if die.tag == "DW_TAG_subprogram":
            if not {"DW_AT_declaration", "DW_AT_inline"} & die.attributes.keys():
                yield die.offset
        elif die.tag == "DW_TAG_namespace":
            yield from all_definitions(die)


def units(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(ELFFile(file).get_dwarf_info().iter_CUs())


@pytest.fixture(
    scope="module",
    params=[
        ("g++", "-O0", "-gdwarf-4"),
        ("clang++", "-O2", "-gdwarf-5"),
        pytest.param(("g++", "-O2", "-gdwarf-5"), marks=pytest.mark.nightly),
        pytest.param(("clang++", "-O0", "-gdwarf-4"), marks=pytest.mark.nightly),
    ],
    ids="".join,
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with debug information of some kind."""
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"this machine has no {request.param[0]}")
    folder = tmp_path_factory.mktemp("scanned")
    (folder / "a.cpp").write_text(SOURCE)
    command = [*request.param, "-shared", "-fPIC", "-o", "a.so", "a.cpp"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "a.so"


def test_it_finds_what_reading_everything_finds(built: Path) -> None:
    found = [[die.offset for die in definitions(unit)] for unit in units(built)]
    assert found == [list(all_definitions(unit.get_top_DIE())) for unit in units(built)]
    names = {
        dwarf._text(dwarf._origins(die), "DW_AT_name")
        for unit in units(built)
        for die in definitions(unit)
    }
    assert {"entry", "deep"} <= names
    assert "declared_only" not in names


def test_a_form_that_is_not_known_is_read_by_pyelftools(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [die.offset for unit in units(built) for die in definitions(unit)]
    monkeypatch.setattr(dwarf_scan, "_BYTES", {"data1": 1})
    monkeypatch.setattr(dwarf_scan, "_BLOCKS", set())
    assert [die.offset for unit in units(built) for die in definitions(unit)] == expected
