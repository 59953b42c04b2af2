from __future__ import annotations

from typing import Any

from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.describe import describe

SOURCE = """
/* Sums.
 * More. @array x[n] */
// @array x[n]
double sum(const double *x, int n) { return x[n - 1]; }
int variadic(int a, ...) { return a; }
"""


def test_a_program_is_described(cache: BuildCache, program_of: Any) -> None:
    program = program_of(
        {"a.c": SOURCE},
        reduce={"return": "sum"},
        map='native("sum")',
        inputs=("x",),
        k='parameter(2, minimum=1, help="how many")',
    )
    plain = describe(program)
    assert (plain.map, plain.inputs, plain.functions, plain.targets) == ("sum", ("x",), (), ())
    assert plain.files == ("a.c", "p.py")
    assert [(p.name, p.type, p.allowed, p.help) for p in plain.parameters] == [
        ("k", "int", "at least 1", "how many")
    ]
    full = describe(program, build(program, cache=cache))
    assert full.hash == program.hash
    function, unbound = full.functions
    assert function.declaration == "double sum(const double *x, int n)"
    assert (function.doc, function.where, function.arrays) == ("Sums.", "a.c:5", ("x[n]",))
    assert (unbound.name, unbound.declaration) == ("variadic", "")
    assert "variable number" in unbound.unbound
    assert full.targets[0].bytes > 0
