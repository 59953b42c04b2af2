"""Builds for other machines than this one, and on machines without a compiler."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.code.build import build, find_built, plan_build
from sapwood.code.cache import BuildCache
from sapwood.code.image import make_image, open_image
from sapwood.code.installed_tools import find_zig
from sapwood.code.shared_library import machine_of
from sapwood.code.target import Target, host_target, parse_target
from sapwood.core.errors import BuildError, InputError, ProgramError

ZIG = find_zig({"PATH": os.environ["PATH"]})
ROOT = Path(__file__).parents[3]
SOURCE = """
#include <math.h>
#include <stdint.h>

/** Sums square roots.
 * @array x[n] */
double roots(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += sqrt(x[i]);
    return sum;
}
"""
OTHER = parse_target(f"{'x86_64' if platform.machine() == 'aarch64' else 'aarch64'}-linux-gnu")

pytestmark = [
    pytest.mark.timeout(300),  # C libraries of other machines are compiled first
    pytest.mark.skipif(ZIG is None, reason="needs zig: pip install 'sapwood[cross]'"),
]


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine that has no compiler but zig's package."""
    folder = tmp_path / "bin"
    folder.mkdir()
    # Zig's C libraries are compiled once, not once for each test.
    return {"PATH": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build" / "zig")}


@pytest.mark.row("A-TOOL-1")
def test_a_machine_without_a_compiler_builds_by_zig(
    cache: BuildCache, program_of: Any, bare: dict[str, str]
) -> None:
    program = program_of({"a.c": SOURCE})
    built = build(program, cache=cache, environment=bare)
    assert "zig" in plan_build(program, environment=bare)[0].identity["compiler"]
    opened = open_image(make_image(program, built))
    try:
        assert opened.call("roots", [np.array([4.0, 9.0])], {}) == 5.0
    finally:
        opened.close()
    assert build(program, cache=cache, environment=bare).cached


@pytest.mark.nightly
def test_assertions_stay_in_what_zig_builds(
    cache: BuildCache, program_of: Any, bare: dict[str, str]
) -> None:
    text = "#include <assert.h>\n#ifdef NDEBUG\n#error without assertions\n#endif\n"
    program = program_of({"a.c": f"{text}int f(int x) {{ assert(x); return x; }}\n"})
    for target in (None, OTHER):
        assert build(program, cache=cache, environment=bare, target=target).interface.function("f")


@pytest.mark.row("A-TOOL-1")
def test_a_library_for_another_architecture_is_built_beside_this_machine_s(
    cache: BuildCache, program_of: Any, bare: dict[str, str]
) -> None:
    program = program_of({"a.c": SOURCE})
    here = build(program, cache=cache)
    there = build(program, cache=cache, environment=bare, target=OTHER)
    assert machine_of(Path(here.libraries[0].image.path)) == platform.machine()
    assert machine_of(Path(there.libraries[0].image.path)) == OTHER.architecture
    assert here.interface == there.interface
    assert there.target == OTHER
    assert build(program, cache=cache, environment=bare, target=OTHER).cached


def test_a_library_for_another_architecture_is_refused_by_name(
    cache: BuildCache, program_of: Any, bare: dict[str, str]
) -> None:
    program = program_of({"a.c": SOURCE})
    there = build(program, cache=cache, environment=bare, target=OTHER)
    with pytest.raises(ProgramError, match=f"is for {OTHER.architecture}, this machine is"):
        open_image(make_image(program, there))


@pytest.mark.parametrize(
    ("source", "where", "hint"),
    [
        ("int f(void) {\n  return y; }\n", "a.c:2", ""),
        ("int g(int);\nint f(int x) { return g(x); }\n", "a.c:2", "no source defines it"),
    ],
)
def test_errors_of_a_cross_build_name_their_line(
    cache: BuildCache, program_of: Any, bare: dict[str, str], source: str, where: str, hint: str
) -> None:
    with pytest.raises(BuildError) as caught:
        build(program_of({"a.c": source}), cache=cache, environment=bare, target=OTHER)
    assert caught.value.where == where
    assert hint in caught.value.hint


def test_what_would_be_built_is_known_without_building(
    cache: BuildCache, program_of: Any, bare: dict[str, str]
) -> None:
    program = program_of({"a.c": SOURCE})
    targets: list[Target] = [host_target(), OTHER]
    plans = [plan_build(program, environment=bare, target=each)[0] for each in targets]
    assert len({plan.key for plan in plans}) == len(targets)
    assert find_built(program, cache=cache, environment=bare) is None
    built = build(program, cache=cache, environment=bare)
    found = find_built(program, cache=cache, environment=bare)
    assert found is not None
    assert found.cached
    assert found.interface == built.interface
    assert find_built(program, cache=cache, environment=bare, target=OTHER) is None


def test_a_processor_that_the_compiler_does_not_know_is_its_error(
    cache: BuildCache, program_of: Any, bare: dict[str, str]
) -> None:
    target = parse_target(f"{OTHER.triple},cpu=abacus")
    with pytest.raises((BuildError, InputError)) as caught:
        build(program_of({"a.c": SOURCE}), cache=cache, environment=bare, target=target)
    assert "abacus" in str(caught.value)
