"""Rules of the house that no other tool holds."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import sapwood
from sapwood.core import errors as core_errors
from sapwood.core.errors import error_classes

ROOT = Path(__file__).parents[2]
EXTRAS = sorted(path.parent for path in (ROOT / "extras").glob("*/*/__init__.py"))
HOMES = (ROOT / "src" / "sapwood", *EXTRAS)
SOURCES = sorted(path for home in HOMES for path in home.rglob("*.py"))
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}

_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
_DOCUMENTED = re.compile(r"^\.\. auto\w+:: sapwood\.((?:types\.)?\w+)$", re.MULTILINE)


def test_the_public_names_are_exactly_the_documented_ones() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    public = {*sapwood.__all__, *(f"types.{name}" for name in sapwood.types.__all__)} - {"types"}
    assert sorted(_DOCUMENTED.findall(page)) == sorted(public)


@pytest.mark.parametrize("module", [sapwood, sapwood.types, sapwood.errors])
def test_every_public_name_is_there(module: ModuleType) -> None:
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name).__doc__, name
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("module", [sapwood, sapwood.types])
def test_names_are_imported_from_where_type_checkers_find_them(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_bytes())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    (typed,) = (node.body for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING")
    homes = {
        name.name: f"sapwood.{name.name}" if node.module == "sapwood" else node.module
        for node in typed
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert homes == module._names.home_of
    assert sorted(homes) == sorted(module.__all__)


def test_all_errors_are_public() -> None:
    names = {kind.__name__ for kind in error_classes().values()}
    assert {name for name in names if name in vars(core_errors)} == set(sapwood.errors.__all__)


@pytest.mark.slow
def test_what_programs_import_loads_nothing_of_the_client() -> None:
    # Every runner imports the program: what it loads, each of them loads.
    code = (
        "from sapwood import Program, SapwoodError, empty, native, parameter, zeros\n"
        "import sys\n"
        "rooms = {'client', 'activity', 'session', 'data', 'environment'}\n"
        "sys.exit(str(sorted(rooms & {name.split('.')[1] for name in sys.modules "
        "if name.startswith('sapwood.')}) or ''))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    "folder", ["src", "extras", "simulation", "tests", "benchmarks", "examples", "docs"]
)
def test_every_file_name_says_something(folder: str) -> None:
    names = {path.stem.removeprefix("test_") for path in (ROOT / folder).rglob("*.py")}
    assert not names & EMPTY_NAMES


def test_every_unit_test_file_stands_under_the_name_of_a_module() -> None:
    for test in (ROOT / "tests" / "unit").rglob("test_*.py"):
        room = test.parent.relative_to(ROOT / "tests" / "unit")
        name = test.stem.removeprefix("test_")
        if room == Path():
            continue  # about the whole house, like this file
        extra = next((home for home in EXTRAS if home.name == room.parts[0]), None)
        module = (extra.parent if extra is not None else HOMES[0]) / room / name
        assert module.with_suffix(".py").is_file() or module.is_dir(), test


def test_types_are_read_by_what_lets_one_thread_at_a_time_look_at_them() -> None:
    # core/typed.py says why; untyped values are read without type information.
    reads_a_type = re.compile(
        r"msgspec\.convert\(|Decoder\((?!\)|ext_hook|list\[Any\]|\s*ext_hook)|decode\(.*type=[A-Z]"
    )
    found = {
        path.relative_to(ROOT)
        for path in SOURCES
        if reads_a_type.search(path.read_text(encoding="utf-8").replace("FrameDecoder(", ""))
    }
    assert found == {Path("src/sapwood/core/typed.py")}


def test_one_name_means_one_thing() -> None:
    listed = ROOT / "tests" / "unit" / "repeated_class_names.toml"
    allowed = set(tomllib.loads(listed.read_text(encoding="utf-8")))
    count = Counter(
        name for path in SOURCES for name in set(_CLASS.findall(path.read_text(encoding="utf-8")))
    )
    repeated = {name for name, times in count.items() if times > 1}
    assert not repeated - allowed, "classes of several modules have these names: rename all but one"
    if (ROOT / "src" / "sapwood" / "fastpath").is_dir():  # without it some are not repeated
        gone = allowed - repeated
        assert not gone, f"only one module has these names now: take them out of {listed}"


def test_the_wheel_has_no_simulator() -> None:
    testing = {path.name for path in (ROOT / "src" / "sapwood" / "testing").iterdir()}
    assert testing - {"__pycache__"} == {
        "__init__.py",
        "devices.py",
        "languages.py",
        "launchers.py",
        "stores.py",
        "transports.py",
    }
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = packages["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/sapwood"]


AGENT_SIDE = {
    "agent",
    "agent_groups",
    "junction",
    "member",
    "secondary_tree",
    "shared_reactor",
}
"""What agents and junctions are made of; what runs in them imports it."""

PARTS_OF_THE_INTERFACE = {"invited", "session_life"}
"""What the interface exports, too, in modules that import little: commands that list need these."""


def test_the_rooms_of_the_client_know_a_session_by_its_interface_only() -> None:
    client = ROOT / "src" / "sapwood" / "client"
    makers = {client / "local.py", client / "hosts.py"}  # they make the session
    ones = {"in_process_session.py", "in_process_stream.py"}
    for room in ("client", "cli", "activity"):
        for path in (ROOT / "src" / "sapwood" / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            known = set(re.findall(r"^\s*from sapwood\.session\.(\w+) import", text, re.MULTILINE))
            assert not re.search(r"import sapwood\.session|from sapwood\.session import", text), (
                path
            )
            allowed = {"interface", *PARTS_OF_THE_INTERFACE} | (
                AGENT_SIDE if room == "activity" else set()
            )
            allowed |= {"embedded", "options"} if path in makers else set()
            allowed |= {"streams"} if path.name in ones else set()
            assert known <= allowed, path


# Futures of the standard library: what completes one after it was cancelled raises, and its
# callbacks are called on the thread that completes it, which may be an event loop.
PLAIN_FUTURES = {
    "core/futures.py": "makes them safe",
    "session/loop_thread.py": "a call of the loop: only the two threads have it, and both wait",
}
CALLBACKS = {
    "core/futures.py": "has them called on the dispatcher",
    "server/head_connections.py": "a task of asyncio: its callbacks are called by its loop",
    "server/connections.py": "a task of asyncio",
    "contexts/launchers/ray_holder.py": "a task of asyncio",
    "activity/run.py": "of a run, for callers; it passes them to its CallerFuture",
    "joblib.py": "of a task, called on the dispatcher",
    "client/unread.py": "the method of a CallerFuture that marks waves as read",
    "client/tree_work.py": "of a run, called on the dispatcher",
    "client/allocation_end.py": "of a run, called on the dispatcher",
    "sapwood_lizard/stepping.py": "of a run, called on the dispatcher",
}


@functools.cache
def _calls(path: Path) -> frozenset[str]:
    """Return the names of the functions and methods that a file calls, and of base classes."""
    return frozenset(_names_called(path))


def _names_called(path: Path) -> Iterator[str]:
    """Yield the names of the functions and methods that a file calls, and of base classes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plain = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "concurrent.futures"
        for alias in node.names
        if alias.name == "Future"
    }
    for node in ast.walk(tree):
        names = [node.func] if isinstance(node, ast.Call) else []
        names += node.bases if isinstance(node, ast.ClassDef) else []
        for name in names:
            found = name.value if isinstance(name, ast.Subscript) else name
            if isinstance(found, ast.Name) and found.id in plain:
                yield "Future"
            elif isinstance(found, ast.Attribute):
                of = found.value.id if isinstance(found.value, ast.Name) else ""
                yield "Future" if (of, found.attr) == ("futures", "Future") else found.attr


def _users(what: str) -> set[str]:
    return {
        str(path.relative_to(home if home is HOMES[0] else home.parent))
        for home in HOMES
        for path in SOURCES
        if path.is_relative_to(home) and what in _calls(path)
    }


@pytest.mark.slow
def test_only_futures_that_are_safe_to_complete_are_made() -> None:
    assert _users("Future") == set(PLAIN_FUTURES)


@pytest.mark.slow
def test_callbacks_of_futures_are_added_by_functions_that_keep_them_off_event_loops() -> None:
    assert _users("add_done_callback") == set(CALLBACKS)


def test_only_expected_skips_pass(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    reasons = ["Skipped: this machine has no NVIDIA GPU", "Skipped: odd"]
    assert conftest is not None
    assert conftest.unexpected_skips(reasons) == ["Skipped: odd"]


MAX_METHODS, MAX_ATTRIBUTES = 35, 20
"""Of one class; a class with more is several things."""

LARGE_CLASSES = {
    "options.py: SessionOptions": "the options of a session, a field each",
    "settings.py: NodeSettings": "the settings of nodes, a field each",
    "runner_host.py: RunnerHost": "it is to be split: a runner's process, and its requests",
}
"""Classes that are larger, and why."""


def _targets(node: ast.AST) -> list[ast.expr]:
    """Return what a statement assigns to, inside tuples, too."""
    left: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        left = list(node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        left = [node.target]
    flat = []
    while left:
        target = left.pop()
        if isinstance(target, ast.Tuple | ast.List):
            left.extend(target.elts)
        else:
            flat.append(target.value if isinstance(target, ast.Starred) else target)
    return flat


def _attributes(made: ast.ClassDef) -> set[str]:
    """Return the fields that a class declares, and the attributes that its methods assign."""
    found = {
        node.target.id
        for node in made.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "ClassVar" not in ast.unparse(node.annotation)
    }
    for method in made.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {
                target.attr
                for node in ast.walk(method)
                for target in _targets(node)
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
    return found


def test_attributes_are_counted_where_they_are_declared_and_where_they_are_assigned() -> None:
    text = """
class One:
    a: int
    shared: ClassVar[int]
    def __init__(self):
        self.b, (self.c, *self.d) = 1, (2, 3)
        self.e: int = 4
    def later(self, other):
        self.f += 1
        other.g = 2
"""
    (made,) = ast.parse(text).body
    assert isinstance(made, ast.ClassDef)
    assert _attributes(made) == {"a", "b", "c", "d", "e", "f"}


@pytest.mark.slow
def test_no_class_is_several_things() -> None:
    large = {}
    for path in HOMES[0].rglob("*.py"):
        for made in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(made, ast.ClassDef):
                methods = sum(
                    isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in made.body
                )
                attributes = len(_attributes(made))
                if methods > MAX_METHODS or attributes > MAX_ATTRIBUTES:
                    large[f"{path.name}: {made.name}"] = (methods, attributes)
    assert large.keys() == LARGE_CLASSES.keys(), large
