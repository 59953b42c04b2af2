"""Mutation testing of the communication stack: mistakes made on purpose are to be found.

::

    python tests/mutation/mutate.py --sample 100 --floor 0.9

Each mutant has one mistake in ``src/sapwood/comm``: a statement is missing, a condition is
negated, a comparison, an operator or a number is another one. It runs in a process of its own:
first the tests of its module, then short simulations, then all unit tests of the stack, until one
fails. Who survives is listed. The same seed draws the same mutants.

``equivalent.txt`` names mutants that do nothing wrong, each with the reason.

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
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sapwood" / "comm"
TESTS = ROOT / "tests" / "unit" / "comm"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")

CPU_SECONDS = 400
"""Processor time of one mutant; who takes more does not end, and is found."""

WALL_SECONDS = 1800
"""Time of one mutant, for those that wait for ever."""

MEMORY = 6 * 2**30
"""Bytes that one mutant may write to; tests reserve much more address space."""

FOUND, SURVIVED = 1, 0

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
        path: The file, below ``src/sapwood/comm``.
        name: The function that it is in.
        number: The how manieth possible mistake of its file it is.
        line: Where.
        what: Kind of mistake, and what was there.
    """

    path: str
    name: str
    number: int
    line: int
    what: str

    @property
    def key(self) -> str:
        """What tells it from others, without its line."""
        return f"{self.path} {self.name} {self.what}"


class Mutator(ast.NodeTransformer):
    """Counts all possible mistakes of a module, and makes one of them.

    Args:
        path: The file, below ``src/sapwood/comm``.
        wanted: Which mistake to make; none by default.
    """

    def __init__(self, path: str, wanted: int = -1) -> None:
        self.mutants: list[Mutant] = []
        self._path = path
        self._wanted = wanted
        self._names: list[str] = []
        self._function = False

    def _is_wanted(self, node: ast.AST, kind: str) -> bool:
        text = " ".join(ast.unparse(node).split())[:70]
        line = getattr(node, "lineno", 0)
        index = len(self.mutants)
        name = ".".join(self._names)
        self.mutants.append(Mutant(self._path, name, index, line, f"{kind}: {text}"))
        return index == self._wanted

    # --- where there are no mistakes to make -----------------------------------------------------

    def _inside(self, node: ast.AST, name: str, *, function: bool) -> ast.AST:
        before, self._function = self._function, function
        self._names.append(name)
        self.generic_visit(node)
        self._names.pop()
        self._function = before
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Look at the methods of what is no mere description."""
        bases = {ast.unparse(base).split("[")[0] for base in node.bases}
        if "Protocol" in bases:
            return node
        return self._inside(node, node.name, function=False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Look at a function, but not at what is written for people."""
        if node.name == "__repr__":
            return node
        return self._inside(node, node.name, function=True)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Leave the words of errors alone; that they are raised is a mistake to leave out."""
        if self._function and self._is_wanted(node, "leave out"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Leave words alone."""
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Leave types alone."""
        if node.value is not None and self._function:
            node.value = self.visit(node.value)
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Leave defaults and types of parameters alone."""
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
        """Leave out that something is forgotten; parameters that are not used are no state."""
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
    return compile(ast.fix_missing_locations(copy.deepcopy(tree)), str(path), "exec")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a mistake."""

    def __init__(self, mutant: Mutant) -> None:
        words = ("sapwood", "comm", *Path(mutant.path).with_suffix("").parts)
        self._package = words[-1] == "__init__"
        self._name = ".".join(words[:-1] if self._package else words)
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own way of being imported; None for all others."""
        del path, target
        if fullname != self._name:
            return None
        where = str(SOURCE / self._mutant.path)
        spec = importlib.util.spec_from_loader(
            fullname, self, origin=where, is_package=self._package
        )
        assert spec is not None
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        exec(mutated(self._mutant), module.__dict__)  # noqa: S102 - our own source


# --- what is to find it ------------------------------------------------------------------------


def simulations() -> None:
    """Run short simulations of all kinds; raise if an invariant does not hold."""
    from sapwood_simulation.faults import Faults  # noqa: PLC0415 - with the mistake
    from sapwood_simulation.kinds import made  # noqa: PLC0415 - with the mistake
    from sapwood_simulation.simulation import (  # noqa: PLC0415 - with the mistake
        SimulationOptions,
        collecting_seldom,
    )
    from sapwood_simulation.stream_simulation import StreamKind  # noqa: PLC0415 - with the mistake

    moving = Faults(sever=0.003, clog=0.001, partition=0.0005, split=0.1)
    ending = Faults(crash=0.002, pause=0.0005, sever=0.003, drop=0.01, reorder=0.01, zygote=0.0001)
    kinds = (
        StreamKind(),
        StreamKind(sync="time-out", late="next"),
        StreamKind(sync="time-out", seconds=3.0, on_loss="partial"),
        StreamKind(on_loss="fail", own_filters=True),
        StreamKind(sync="none", own_filters=True),
    )
    with collecting_seldom():
        for seed, faults in ((1, Faults()), (2, moving), (3, ending), (4, ending)):
            shape = SimulationOptions(
                seed=seed, agents=9, fanout=2 + seed % 2, waves=4, pipelined=2, faults=faults
            )
            for what in ("waves", "pieces", "groups"):
                made(what, shape).run()
            for kind in kinds:
                made("streams", shape, kind).run()
        made(
            "messages", SimulationOptions(seed=1, agents=9, fanout=2, waves=1, faults=ending)
        ).run()


def tests_of(mutant: Mutant | None) -> list[list[str]]:
    """Return what pytest is to run, first what is likely to find a mistake."""
    unit = [str(TESTS)]
    if mutant is None:
        return [unit]
    path = Path(mutant.path)
    own = TESTS / path.parent / f"test_{path.stem}.py"
    first = [str(SOURCE / path), *([str(own)] if own.exists() else [])]
    return [first, unit]


def tried(mutant: Mutant | None) -> tuple[bool, str]:
    """Run what may find a mistake; return whether it does, and how."""
    import pytest  # noqa: PLC0415 - imported before

    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-W"]
    options.append("ignore::pytest.PytestAssertRewriteWarning")  # imported before the fork
    quick, *rest = tests_of(mutant)
    if pytest.main([*options, *quick]) not in (0, 5):
        return True, "its own tests"
    try:
        simulations()
    except Exception as error:  # noqa: BLE001 - whatever it is, something is wrong
        return True, f"simulations: {str(error)[:90]}"
    for several in rest:
        if pytest.main([*options, *several]) not in (0, 5):
            return True, "unit tests"
    return False, ""


def run_apart(mutant: Mutant | None) -> tuple[bool, str, float]:
    """Try a mutant in a process of its own; return whether it was found, how, and the seconds."""
    begin = time.monotonic()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _child(mutant, writing)
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


def _child(mutant: Mutant | None, writing: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if mutant is not None:  # without any mistake, what pytest says is wanted
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            sys.meta_path.insert(0, Finder(mutant))
        try:
            found, how = tried(mutant)
        except BaseException:  # noqa: BLE001 - a module that cannot be imported is found, too
            found, how = True, traceback.format_exc()[-200:]
        os.write(writing, f"{FOUND if found else SURVIVED}{how}".encode())
        status = 0
    finally:
        os._exit(status)


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


def drawn(count: int, seed: int, only: str) -> Iterator[Mutant]:
    """Return a sample of all mutants, each file with the same chance for each of its mistakes."""
    known = equivalents()
    every = [
        mutant
        for path in sorted(SOURCE.rglob("*.py"))
        for mutant in mutants_of(path)
        if mutant.path.startswith(only) and mutant.key not in known
    ]
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    yield from chance.sample(every, min(count, len(every)))


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sample", type=int, default=100, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--floor", type=float, default=0.9, help="part that is to be found")
    parser.add_argument("--only", default="", help="beginning of a path below src/sapwood/comm")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no more after that")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="say which, and run nothing")
    options = parser.parse_args()
    sample = list(drawn(options.sample, options.seed, options.only))
    if options.list:
        _write(*(f"{one.path}:{one.line} {one.key}" for one in sample))
        return
    os.chdir(ROOT)
    _warm()
    wrong, how, seconds = run_apart(None)
    if wrong:
        sys.exit(f"the tests fail without any mistake: {how}")
    _write(f"{len(sample)} mutants; without any mistake the tests take {seconds:.0f} s")
    end = time.monotonic() + options.seconds if options.seconds else float("inf")
    survivors: list[Mutant] = []
    done = 0
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        runs = {pool.submit(_run_before, end, mutant): mutant for mutant in sample}
        for run in concurrent.futures.as_completed(runs):
            mutant, result = runs[run], run.result()
            if result is None:
                continue
            done += 1
            found, how, seconds = result
            verdict, how = ("found   ", how.splitlines()[-1]) if found else ("SURVIVED", "")
            where = f"{mutant.path}:{mutant.line}  {mutant.name}  {mutant.what}"
            _write(f"{verdict} {seconds:5.0f} s  {where}  [{how}]")
            if not found:
                survivors.append(mutant)
    rate = 1 - len(survivors) / max(1, done)
    _write(
        "", f"{done - len(survivors)} of {done} found: {rate:.1%}", *(one.key for one in survivors)
    )
    if rate < options.floor:
        sys.exit(f"less than {options.floor:.0%} of the mutants were found")


def _run_before(end: float, mutant: Mutant) -> tuple[bool, str, float] | None:
    return run_apart(mutant) if time.monotonic() < end else None


def _warm() -> None:
    """Import what tests need, except what is to be changed: processes are forked from this one."""
    for name in ("pytest", "hypothesis", "numpy", "msgspec", "structlog", "xdist", "typer"):
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)


def _write(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201 - the output of a command


if __name__ == "__main__":
    main()
