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


@pytest.fixture(scope="module", params=["g++", "clang++"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A library with debug information of each kind."""
    if shutil.which(request.param) is None:
        pytest.skip(f"this machine has no {request.param}")
    folder = tmp_path_factory.mktemp("scanned")
    (folder / "a.cpp").write_text(SOURCE)
    libraries = []
    for number, flags in enumerate((["-O2", "-gdwarf-5"], ["-O0", "-gdwarf-4"])):
        libraries.append(folder / f"{number}.so")
        command = [request.param, *flags, "-shared", "-fPIC", "-o", libraries[-1], "a.cpp"]
        subprocess.run(command, check=True, cwd=folder)
    return libraries


def test_it_finds_what_reading_everything_finds(built: list[Path]) -> None:
    for library in built:
        found = [[die.offset for die in definitions(unit)] for unit in units(library)]
        assert found == [list(all_definitions(unit.get_top_DIE())) for unit in units(library)]
    names = {
        dwarf._text(dwarf._origins(die), "DW_AT_name")
        for unit in units(built[1])
        for die in definitions(unit)
    }
    assert {"entry", "deep"} <= names
    assert "declared_only" not in names


def test_a_form_that_is_not_known_is_read_by_pyelftools(
    built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [die.offset for unit in units(built[0]) for die in definitions(unit)]
    monkeypatch.setattr(dwarf_scan, "_BYTES", {"data1": 1})
    monkeypatch.setattr(dwarf_scan, "_BLOCKS", set())
    assert [die.offset for unit in units(built[0]) for die in definitions(unit)] == expected
