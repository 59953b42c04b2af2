"""Mutation testing of the pure cores: mistakes made on purpose are to be found.

::

    python tests/mutation/mutate.py --sample 100 --floor 0.9

Each mutant has one mistake in ``src/sapwood/comm`` or ``src/sapwood/lifecycle``: a statement is
missing, a condition is negated, a comparison, an operator or a number is another one. Only what
runs the statement with the mistake can find it. So the tool first notes, once, which test and which
simulation runs which statement, and how long it takes (in ``build/``, kept until sources or tests
change). Then each mutant has a separate process, which runs what reaches its statement until one
fails: some simulations, the tests of its module, other tests, more simulations, the shortest of
each first. A mutant that no test has found within :data:`SECONDS` of tests survives, and so does
one that nothing reaches. The same seed draws the same mutants.

No mistakes are made in text for people (``__repr__``, the words of errors, formatted strings), in
types, in defaults of parameters, in protocols, and in assertions, which tell a type checker what
holds anyway: tests of these would repeat them word by word. ``equivalent.txt`` names other mutants
that do nothing wrong, each with the reason.

No library does this here: those that are kept (mutmut, cosmic-ray) change files of the working
tree or start a test session in a new interpreter for each mutant, which costs more than what most
mutants need to be found.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import copy
import ctypes
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sapwood"
PACKAGES = ("comm", "lifecycle")
"""The packages in which mistakes are made."""

TESTS = ROOT / "tests"
SIMULATOR = ROOT / "simulation"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
NOTES = ROOT / "build" / "mutation.json"
"""What reaches which statement."""

USED = (
    *(SOURCE / package for package in PACKAGES),  # their examples
    TESTS / "unit" / "comm",
    TESTS / "unit" / "lifecycle",
    TESTS / "unit" / "session" / "test_starters.py",
    TESTS / "unit" / "session" / "test_supervisor.py",
    TESTS / "simulation" / "test_machine_life.py",
    TESTS / "simulation" / "test_process_life.py",
    TESTS / "integration" / "comm",
)
"""Where the tests are that are to find mistakes. Those of the simulator run many seeds each: the
simulations of :func:`scenarios` find the same in less time."""

SECONDS = (2.0, 4.0, 3.0, 4.0)
"""Processor time, as noted, of the first simulations, the tests of the module, the other tests and
the other simulations that are tried on one mutant."""

LONGEST = 60
"""Seconds after which a test is too slow to be used."""

SLOWER = 6.0
"""A test that takes that much longer with a mistake than without counts as endless."""

WALL_SECONDS = 900
"""Time of one mutant, for those that wait for ever."""

MEMORY = 6 * 2**30
"""Bytes that one mutant may write to; tests reserve much more address space."""

FOUND, SURVIVED = 1, 0

PR_SET_PDEATHSIG = 1
"""Of Linux: have a signal when the parent ends, so that no mutant outlives an interrupted run."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


class Mutant(NamedTuple):
    """One mistake.

    Attributes:
        path: The file, below ``src/sapwood``.
        name: The function that it is in.
        number: The how manieth possible mistake of its file it is.
        line: Where.
        statement: Line of the statement that it is in.
        what: Kind of mistake, and what was there.
    """

    path: str
    name: str
    number: int
    line: int
    statement: int
    what: str

    @property
    def key(self) -> str:
        """What tells it from others, without its line."""
        return f"{self.path} {self.name} {self.what}"


class Mutator(ast.NodeTransformer):
    """Counts all possible mistakes of a module, and makes one of them.

    Args:
        path: The file, below ``src/sapwood``.
        wanted: Which mistake to make; none by default.
    """

    def __init__(self, path: str, wanted: int = -1) -> None:
        self.mutants: list[Mutant] = []
        self._path = path
        self._wanted = wanted
        self._names: list[str] = []
        self._function = False
        self._statement_line = 0

    def visit(self, node: ast.AST) -> Any:
        """Look at a node, and know which statement it is in."""
        if not isinstance(node, ast.stmt):
            return super().visit(node)
        before, self._statement_line = self._statement_line, node.lineno
        changed = super().visit(node)
        self._statement_line = before
        return changed

    def _is_wanted(self, node: ast.AST, kind: str) -> bool:
        text = " ".join(ast.unparse(node).split())[:70]
        line = getattr(node, "lineno", 0)
        index = len(self.mutants)
        name = ".".join(self._names)
        what = f"{kind}: {text}"
        self.mutants.append(Mutant(self._path, name, index, line, self._statement_line, what))
        return index == self._wanted

    # --- statements without mutants --------------------------------------------------------------

    def _inside(
        self, node: ast.ClassDef | ast.FunctionDef, name: str, *, function: bool
    ) -> ast.AST:
        before, self._function = self._function, function
        self._names.append(name)
        node.body = [self.visit(one) for one in node.body]  # no decorators, bases and types
        self._names.pop()
        self._function = before
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Visit the methods of a class that is more than a description."""
        bases = {ast.unparse(base).split("[")[0] for base in node.bases}
        if "Protocol" in bases:
            return node
        return self._inside(node, node.name, function=False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Look at a function, but not at what is written for people."""
        if node.name in {"__repr__", "__str__"}:
            return node
        return self._inside(node, node.name, function=True)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Leave the words of errors alone; that they are raised is a mistake to leave out."""
        if self._function and self._is_wanted(node, "leave out"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Leave alone what is said to a type checker."""
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Leave words alone."""
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Leave types alone."""
        if node.value is not None and self._function:
            node.value = self.visit(node.value)
        return node

    # --- mistakes ----------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Leave a call out."""
        if isinstance(node.value, ast.Constant):
            return node
        return self._statement(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Leave out that an attribute or an element changes."""
        is_state = any(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets)
        if not is_state or (self._names and self._names[-1] == "__init__"):
            return self.generic_visit(node)
        return self._statement(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Leave out that something grows."""
        return self._statement(node)

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        """Remove a deletion; deleted unused parameters are not state."""
        if all(isinstance(one, ast.Name) for one in node.targets):
            return node
        return self._statement(node)

    def _statement(self, node: ast.stmt) -> ast.AST:
        if self._function and self._is_wanted(node, "leave out"):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        """Negate a condition."""
        return self._condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Negate a condition."""
        return self._condition(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        """Negate a condition."""
        if isinstance(node.test, ast.Constant):
            return self.generic_visit(node)
        return self._condition(node)

    def _condition(self, node: ast.If | ast.IfExp | ast.While) -> ast.AST:
        if self._function and self._is_wanted(node.test, "negate"):
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
            return node
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Leave out the last part of a condition."""
        if self._function and self._is_wanted(node, "without its last part"):
            left = node.values[:-1]
            return left[0] if len(left) == 1 else ast.copy_location(ast.BoolOp(node.op, left), node)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Compare in another way."""
        swapped = COMPARISONS.get(type(node.ops[0]))
        bounds = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        if self._function and swapped and bounds and self._is_wanted(node, "other bound"):
            node.ops[0] = swapped()
            return node
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Calculate something else."""
        swapped = OPERATORS.get(type(node.op))
        words = any(isinstance(one, ast.JoinedStr) for one in (node.left, node.right))
        if self._function and swapped and not words and self._is_wanted(node, "other operator"):
            if isinstance(node.op, ast.Add):  # of lists as well as of numbers: without the second
                return node.left
            node.op = swapped()
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Take another number."""
        value = node.value
        if not isinstance(value, int | float) or not self._function:
            return node
        if not self._is_wanted(node, "other constant"):
            return node
        return ast.copy_location(
            ast.Constant(not value if isinstance(value, bool) else value + 1), node
        )


def mutants_of(path: Path) -> list[Mutant]:
    """Return all possible mistakes of a file."""
    mutator = Mutator(str(path.relative_to(SOURCE)))
    mutator.visit(ast.parse(path.read_text(encoding="utf-8")))
    return mutator.mutants


def mutated(mutant: Mutant) -> CodeType:
    """Return the module with the mistake."""
    path = SOURCE / mutant.path
    tree = Mutator(mutant.path, mutant.number).visit(ast.parse(path.read_text(encoding="utf-8")))
    return compile(
        ast.fix_missing_locations(copy.deepcopy(tree)), str(path), "exec", dont_inherit=True
    )


class Marker(ast.NodeTransformer):
    """Has each statement of each function say that it is reached, by :data:`REACHED`.

    Args:
        first: The number of line 0 of this file.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._function = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Mark the statements of a function."""
        before, self._function = self._function, True
        changed = self.generic_visit(node)
        self._function = before
        return changed

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Mark the statements of a block."""
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody") if self._function else ():
            block = getattr(node, field, None)
            if isinstance(block, list):
                setattr(node, field, [one for old in block for one in self._marked(old)])
        return node

    def _marked(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return [statement]  # words
        number = ast.Constant(self._first + statement.lineno)
        call = ast.Call(ast.Name(REACHED, ast.Load()), [number], [])
        return [ast.copy_location(ast.Expr(call), statement), statement]


REACHED = "__reached__"
PARTS = 8
"""Into how many processes the tests are divided whose notes are taken."""

LINES = 100_000
"""More lines than a file has: statements have the number of their file times this, plus a line."""


def files() -> list[str]:
    """Return all files with mistakes to make, below ``src/sapwood``."""
    return sorted(str(path.relative_to(SOURCE)) for path in sources())


def sources() -> list[Path]:
    """Return the files in which mistakes are made."""
    return [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]


def marked(path: str) -> CodeType:
    """Return a module whose statements say that they are reached."""
    where = SOURCE / path
    tree = Marker(files().index(path) * LINES).visit(ast.parse(where.read_text(encoding="utf-8")))
    return compile(ast.fix_missing_locations(tree), str(where), "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules of the stack in another way.

    Args:
        changed: Makes the code of each of them, by file; others are imported as they are.
        names: What they find as their own.
    """

    def __init__(self, changed: Mapping[str, Callable[[], CodeType]], **names: Any) -> None:
        self._changed: dict[str, tuple[str, Callable[[], CodeType]]] = {}
        for path, code in changed.items():
            words = ("sapwood", *Path(path).with_suffix("").parts)
            name = ".".join(words[:-1] if words[-1] == "__init__" else words)
            self._changed[name] = (path, code)
        self._names = names

    def install(self) -> None:
        """Import the modules, also where they are imported already.

        At once, because pytest would otherwise import files whose examples it tests.
        """
        for name in list(sys.modules):
            if name.split(".")[0] in {"sapwood", "sapwood_simulation"}:
                del sys.modules[name]
        sys.meta_path.insert(0, self)
        for name in self._changed:
            importlib.import_module(name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own way of being imported; None for all others."""
        del path, target
        if fullname not in self._changed:
            return None
        file = self._changed[fullname][0]
        spec = importlib.util.spec_from_loader(
            fullname, self, origin=str(SOURCE / file), is_package=file.endswith("__init__.py")
        )
        assert spec is not None
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        module.__dict__.update(self._names)
        exec(self._changed[module.__name__][1](), module.__dict__)  # noqa: S102 - our own source


# --- what is to find it ------------------------------------------------------------------------


def scenarios() -> dict[str, Callable[[], object]]:
    """Return short simulations of all kinds, by name; each raises if an invariant does not hold."""
    from sapwood_simulation.faults import Faults  # noqa: PLC0415 - with the mistake
    from sapwood_simulation.kinds import made  # noqa: PLC0415 - with the mistake
    from sapwood_simulation.simulation import SimulationOptions  # noqa: PLC0415 - as above
    from sapwood_simulation.stream_simulation import StreamKind  # noqa: PLC0415 - as above

    weathers = {
        "calm": Faults(),
        "moving": Faults(sever=0.003, clog=0.001, partition=0.0005, split=0.1),
        "ending": Faults(
            crash=0.002, pause=0.0005, sever=0.003, drop=0.01, reorder=0.01, zygote=0.0001
        ),
        "slow": Faults(latency=0.003, jitter=0.5, slow=0.3, stall=0.05, skew=0.1, pause=0.001),
        "storm": Faults(
            crash=0.004, sever=0.01, clog=0.002, swizzle=0.001, halt=0.0003, zygote=0.0003,
            drop=0.03, duplicate=0.03, reorder=0.03, split=0.2,
        ),
    }  # fmt: skip
    kinds = {
        "plain": StreamKind(),
        "late": StreamKind(sync="time-out", late="next"),
        "late-filters": StreamKind(sync="time-out", late="next", own_filters=True),
        "partial": StreamKind(sync="time-out", seconds=3.0, on_loss="partial"),
        "fail": StreamKind(on_loss="fail", own_filters=True),
        "none": StreamKind(sync="none", own_filters=True),
    }

    def run(what: str, shape: SimulationOptions, kind: StreamKind | None = None) -> None:
        made(what, shape, kind).run()

    found: dict[str, Callable[[], object]] = {}
    for seed in range(1, 13):
        for weather, faults in weathers.items():
            if weather == "calm" and seed > 2:
                continue
            shape = SimulationOptions(
                seed=seed,
                agents=5 + 4 * (seed % 3),
                fanout=(0, 2, 3, 2)[seed % 4],
                waves=4,
                pipelined=2,
                spares=seed % 3 == 0,
                faults=faults,
            )
            for what in ("waves", "pieces", "groups"):
                found[f"{what} {weather} {seed}"] = functools.partial(run, what, shape)
            for name, kind in kinds.items():
                found[f"streams {name} {weather} {seed}"] = functools.partial(
                    run, "streams", shape, kind
                )
            if seed <= 4:
                few = SimulationOptions(seed=seed, agents=7, fanout=2, waves=1, faults=faults)
                for what in ("messages", "membership", "sessions"):
                    found[f"{what} {weather} {seed}"] = functools.partial(run, what, few)
                without_zygotes = msgspec.structs.replace(faults, zygote=0.0, halt=0.0, stall=0.0)
                few = msgspec.structs.replace(few, faults=without_zygotes)
                found[f"nodes {weather} {seed}"] = functools.partial(run, "nodes", few)
    return found


def arguments(*more: str) -> list[str]:
    """Return the arguments of each run of pytest."""
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-W"]
    options.append("ignore::pytest.PytestAssertRewriteWarning")  # imported before the fork
    return [*options, *more]


class Notes(NamedTuple):
    """What one test or simulation runs.

    Attributes:
        seconds: Processor time that it takes.
        lines: Statements that it reaches, each :data:`LINES` times its file, plus its line.
    """

    seconds: float
    lines: frozenset[int]


class Noting:
    """As a plug-in of pytest: which test reaches which statement, and what it costs.

    Args:
        reached: To which statements add themselves.
    """

    def __init__(self, reached: set[int]) -> None:
        self.tests: dict[str, Notes] = {}
        self.failed: list[str] = []
        self._reached = reached
        self._begin = 0.0
        self._fails = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Wait for no test that is too slow to be used."""
        import pytest  # noqa: PLC0415 - imported before

        for item in items:
            item.add_marker(pytest.mark.timeout(LONGEST), append=False)

    def pytest_runtest_logstart(self) -> None:
        """Begin a test."""
        self._reached.clear()
        self._fails = False
        self._begin = time.process_time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that it failed."""
        self._fails |= report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End a test."""
        if self._fails:
            self.failed.append(nodeid)
        elif self._reached:
            seconds = time.process_time() - self._begin
            self.tests[nodeid] = Notes(round(seconds, 3), frozenset(self._reached))


class Trying:
    """As a plug-in of pytest: run some tests, in their order, and say which one fails.

    Args:
        wanted: Their names.
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self.failed = ""
        self._order = {name: index for index, name in enumerate(wanted)}

    def pytest_sessionstart(self) -> None:
        """Look for no shorter example, and keep none: that it fails is enough."""
        import hypothesis  # noqa: PLC0415 - imported before

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        usual = hypothesis.settings.get_profile("sapwood")
        hypothesis.settings.register_profile("mutant", usual, phases=phases, database=None)
        hypothesis.settings.load_profile("mutant")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take those that are wanted, the shortest first."""
        import pytest  # noqa: PLC0415 - imported before

        items[:] = [item for item in items if item.nodeid in self._order]
        items.sort(key=lambda item: self._order[item.nodeid])
        for item in items:
            item.add_marker(pytest.mark.timeout(LONGEST * SLOWER), append=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note who found the mistake."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that cannot even be imported."""
        if report.failed:
            self.failed = self.failed or report.nodeid


def test_files() -> list[Path]:
    """Return all files with tests that may find a mistake."""
    return [
        path
        for used in USED
        for path in ([used] if used.is_file() else sorted(used.rglob("*.py")))
        if SOURCE in path.parents or path.name.startswith("test_")
    ]


def states() -> dict[str, str]:
    """Return for each file with tests, and for simulations, what their notes depend on."""
    tool = (Marker, Noting, scenarios)
    every = hashlib.sha256("".join(inspect.getsource(part) for part in tool).encode())
    for path in (*sources(), *sorted(SIMULATOR.rglob("*.py"))):
        every.update(path.read_bytes())
    for path in sorted(TESTS.rglob("conftest.py")):
        every.update(path.read_bytes())
    found = {"": every.hexdigest()}
    for path in test_files():
        one = every.copy()
        one.update(path.read_bytes())
        found[str(path.relative_to(ROOT))] = one.hexdigest()
    return found


def noted(workers: int) -> dict[str, Notes]:
    """Return what reaches which statement, by the name of the test; look where it has changed."""
    now = states()
    kept: dict[str, Any] = json.loads(NOTES.read_text(encoding="utf-8")) if NOTES.exists() else {}
    kept = {name: one for name, one in kept.items() if now.get(name) == one["state"]}
    new = [name for name in now if name not in kept]
    begin = time.monotonic()
    parts = [new[index::PARTS] for index in range(PARTS)]
    NOTES.parent.mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        runs = [pool.submit(_noted_apart, [name for name in part if name]) for part in parts]
        runs.append(pool.submit(_noted_apart, [name for name in new if not name]))
        for run in concurrent.futures.as_completed(runs):
            for name, tests in run.result().items():
                kept[name] = {"state": now[name], "tests": tests}
            NOTES.write_text(json.dumps(kept), encoding="utf-8")
    if new:
        took = time.monotonic() - begin
        _write(f"noted what {len(new)} files with tests and simulations reach, in {took:.0f} s")
    tests = {test: note for one in kept.values() for test, note in one["tests"].items()}
    failed = [name.removeprefix(FAILED) for name in tests if name.startswith(FAILED)]
    _write(*(f"not used, too slow or wrong without any mistake: {name}" for name in failed))
    return {test: Notes(seconds, frozenset(lines)) for test, (seconds, lines) in tests.items()}


def _noted_apart(names: list[str]) -> dict[str, dict[str, tuple[float, list[int]]]]:
    """Run files with tests, or simulations, in a separate process; return what they reach."""
    if not names:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "notes"
        pid = os.fork()
        if not pid:
            _note_child(names, result)
        os.waitpid(pid, 0)
        if not result.exists():
            sys.exit(f"the tests of {', '.join(names)} cannot be run")
        found: dict[str, dict[str, tuple[float, list[int]]]] = json.loads(result.read_text())
    return found


def _note_child(names: list[str], result: Path) -> None:
    try:
        reached: set[int] = set()
        changed = {path: functools.partial(marked, path) for path in files()}
        Finder(changed, **{REACHED: reached.add}).install()
        found: dict[str, dict[str, tuple[float, list[int]]]] = {name: {} for name in names}
        if "" in names:
            from sapwood_simulation.simulation import collecting_seldom  # noqa: PLC0415 - marked

            with collecting_seldom():
                for name, run in scenarios().items():
                    reached.clear()
                    begin = time.process_time()
                    try:
                        run()
                    except Exception as error:  # noqa: BLE001 - no seed for this, but one to look at
                        found[""][f"{FAILED}{name} {error}"] = (0.0, [])
                        continue
                    seconds = round(time.process_time() - begin, 3)
                    found[""][f"{SIMULATED}{name}"] = (seconds, sorted(reached))
        tests = [name for name in names if name]
        if tests:
            import pytest  # noqa: PLC0415 - imported before

            noting = Noting(reached)
            _quiet()
            pytest.main(arguments("--continue-on-collection-errors", *tests), plugins=[noting])
            for name, notes in noting.tests.items():
                found[name.split("::")[0]][name] = (notes.seconds, sorted(notes.lines))
            for name in noting.failed:
                found[name.split("::")[0]][f"{FAILED}{name}"] = (0.0, [])
        result.write_text(json.dumps(found))
    except BaseException:  # noqa: BLE001 - the parent reports the missing result
        traceback.print_exc()
    finally:
        os._exit(0)


SIMULATED = "simulation "
"""What the names of simulations begin with, among those of tests."""

FAILED = "failed "
"""What the names of tests begin with that cannot be used."""


def chosen(mutant: Mutant, notes: dict[str, Notes]) -> list[list[str]]:
    """Return what is to be run for a mutant, the shortest first.

    Returns:
        Simulations, tests, and more simulations.
    """
    number = files().index(mutant.path) * LINES + mutant.statement
    reaching = {name for name, one in notes.items() if number in one.lines}
    path = Path(mutant.path)
    own = (
        f"{(SOURCE / path).relative_to(ROOT)}::",
        f"tests/unit/{path.parent / f'test_{path.stem}.py'}::",
    )
    simulated = {name for name in reaching if name.startswith(SIMULATED)}
    module = {name for name in reaching if name.startswith(own)}
    first = _short(simulated, notes, SECONDS[0])
    tests = _short(module, notes, SECONDS[1])
    tests += _short(reaching - simulated - module, notes, SECONDS[2])
    return [first, tests, _short(simulated.difference(first), notes, SECONDS[3])]


def _short(names: Iterable[str], notes: dict[str, Notes], seconds: float) -> list[str]:
    """Return the shortest of some tests, as many as fit into a time."""
    found = []
    for name in sorted(names, key=lambda name: (notes[name].seconds, name)):
        seconds -= notes[name].seconds
        if seconds < 0:
            break
        found.append(name)
    return found


def tried(plan: list[list[str]]) -> str:
    """Run what may find a mistake; return what found it, or nothing."""
    import pytest  # noqa: PLC0415 - imported before

    for names in plan:
        if names and names[0].startswith(SIMULATED):
            how = _simulated(names)
        else:
            trying = Trying(names)
            paths = dict.fromkeys(name.split("::")[0] for name in names)
            if names:
                pytest.main(arguments("-x", *paths), plugins=[trying])
            how = trying.failed
        if how:
            return how
    return ""


def _simulated(names: list[str]) -> str:
    from sapwood_simulation.simulation import collecting_seldom  # noqa: PLC0415 - with the mistake

    every = scenarios()
    with collecting_seldom():
        for name in names:
            try:
                every[name.removeprefix(SIMULATED)]()
            except Exception as error:  # noqa: BLE001 - whatever it is, something is wrong
                return f"{name}: {' '.join(str(error).split())[:90]}"
    return ""


def run_apart(mutant: Mutant, notes: dict[str, Notes]) -> tuple[bool, str, float]:
    """Try a mutant in a separate process; return whether it was found, how, and the seconds."""
    begin = time.monotonic()
    plan = chosen(mutant, notes)
    if not any(plan):
        return False, "nothing runs it", 0.0
    limit = 30 + SLOWER * sum(notes[name].seconds for names in plan for name in names)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _child(mutant, plan, int(limit), writing)
    os.close(writing)
    ended = _ended(pid, begin + WALL_SECONDS)
    with open(reading, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        said = file.read() if ended else ""
    seconds = time.monotonic() - begin
    if not said:
        return True, "it did not end, or its process died", seconds
    return said[0] == str(FOUND), said[1:], seconds


def _ended(pid: int, limit: float) -> bool:
    ended = False
    while not ended and time.monotonic() < limit:
        ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # with what a test has left behind
    if not ended:
        os.waitpid(pid, 0)
    return ended


def _child(mutant: Mutant, plan: list[list[str]], limit: int, writing: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        _quiet()
        try:
            Finder({mutant.path: functools.partial(mutated, mutant)}).install()
            how = tried(plan)
        except BaseException:  # noqa: BLE001 - a module that cannot be imported is found, too
            how = traceback.format_exc()[-200:]
        os.write(writing, f"{FOUND if how else SURVIVED}{how}".encode())
        status = 0
    finally:
        os._exit(status)


def _quiet() -> None:
    """Read nothing, and write nothing."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)


# --- the command -------------------------------------------------------------------------------


def equivalents() -> dict[str, str]:
    """Return mutants that do nothing wrong, by key, with the reason."""
    found: dict[str, str] = {}
    key = ""
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else ():
        if line.startswith("    "):
            found[key] = f"{found[key]} {line.strip()}".strip()
        elif line and not line.startswith("#"):
            key = line.strip()
            found[key] = ""
    return found


def drawn(count: int, seed: int, only: str, match: str = "") -> Iterator[Mutant]:
    """Return a sample of all mutants, each file with the same chance for each of its mistakes."""
    known = equivalents()
    every = [
        mutant
        for path in sources()
        for mutant in mutants_of(path)
        if mutant.path.startswith(only) and match in mutant.key and mutant.key not in known
    ]
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    yield from chance.sample(every, min(count, len(every)))


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sample", type=int, default=100, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--floor", type=float, default=0.9, help="part that is to be found")
    parser.add_argument("--only", default="", help="beginning of a path below src/sapwood")
    parser.add_argument("--match", default="", help="part of a key, for some mutants again")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no more after that")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="say which, and run nothing")
    options = parser.parse_args()
    sample = list(drawn(options.sample, options.seed, options.only, options.match))
    if options.list:
        _write(*(f"{one.path}:{one.line} {one.key}" for one in sample))
        return
    os.chdir(ROOT)
    _warm()
    notes = noted(options.workers)
    _write(f"{len(sample)} mutants, {len(notes)} tests and simulations")
    begin = time.monotonic()
    end = time.monotonic() + options.seconds if options.seconds else float("inf")
    survivors: list[Mutant] = []
    done = 0
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        runs = {pool.submit(_run_before, end, mutant, notes): mutant for mutant in sample}
        for run in concurrent.futures.as_completed(runs):
            mutant, result = runs[run], run.result()
            if result is None:
                continue
            done += 1
            found, how, seconds = result
            verdict, how = "found   " if found else "SURVIVED", (how.splitlines() or [""])[-1]
            where = f"{mutant.path}:{mutant.line}  {mutant.name}  {mutant.what}"
            _write(f"{verdict} {seconds:5.0f} s  {where}  [{how}]")
            if not found:
                survivors.append(mutant)
    rate = 1 - len(survivors) / max(1, done)
    took = time.monotonic() - begin
    found_all = f"{done - len(survivors)} of {done} found: {rate:.1%}, in {took:.0f} s"
    _write("", found_all, *(one.key for one in survivors))
    if rate < options.floor:
        sys.exit(f"less than {options.floor:.0%} of the mutants were found")


def _run_before(
    end: float, mutant: Mutant, notes: dict[str, Notes]
) -> tuple[bool, str, float] | None:
    return run_apart(mutant, notes) if time.monotonic() < end else None


def _warm() -> None:
    """Import what tests need, except what is to be changed: processes are forked from this one."""
    for name in (
        "pytest",
        "hypothesis",
        "numpy",
        "msgspec",
        "structlog",
        "xdist",
        "typer",
        "uvloop",
    ):
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)


def _write(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201 - the output of a command


if __name__ == "__main__":
    main()
