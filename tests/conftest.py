"""What every test gets: nothing may be left behind by it."""

import contextlib
import gc
import operator
import os
import re
import secrets
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from sapwood_simulation.simulation import COLLECT_AFTER

if TYPE_CHECKING:
    import sapwood

# libuv keeps a pipe for signals from the first loop of a process on: let it be there already.
uvloop.new_event_loop().close()

# A shell lets what it begins in the background ignore Ctrl-C, and that is inherited: commands that
# tests interrupt would continue, and the tests wait for them in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example may take says nothing where many processes share the processors. The same
# examples each time: a change is not refused for an older fault; `make torture` draws
# others, and twice as many.
settings.register_profile("nightly", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "sapwood", settings.get_profile("nightly"), derandomize=True, max_examples=50
)
settings.load_profile("sapwood")

FRESH_SEED = "SAPWOOD_FRESH_SEED"
"""Holds the first fresh seed of this run; give it to repeat one. Workers inherit it."""

os.environ.setdefault(FRESH_SEED, str(secrets.randbelow(10**9)))

GRACE = 30.0
"""Seconds that dying processes and threads get to be gone."""


def pytest_report_header() -> str:
    """Say which seeds this run explores."""
    return f"fresh seeds from {FRESH_SEED}={os.environ[FRESH_SEED]}"


UNEXPECTED_SKIPS = "SAPWOOD_UNEXPECTED_SKIPS"
"""``fail``: a test that is skipped for a reason not in EXPECTED_SKIPS fails the run."""

EXPECTED_SKIPS = Path(__file__).with_name("expected_skips.txt")


def unexpected_skips(reasons: list[str]) -> list[str]:
    """Return the reasons that no pattern of EXPECTED_SKIPS matches."""
    lines = EXPECTED_SKIPS.read_text().splitlines()
    expected = re.compile("|".join(line for line in lines if line and not line.startswith("#")))
    return sorted({reason for reason in reasons if not expected.search(reason)})


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that has skipped tests that the machine should be able to run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get(UNEXPECTED_SKIPS) != "fail" or reporter is None:
        return  # a worker has no reporter
    skipped = reporter.stats.get("skipped", [])
    reasons = [each.longrepr[2] for each in skipped if isinstance(each.longrepr, tuple)]
    if unexpected := unexpected_skips(reasons):
        reporter.write_line("")
        for reason in unexpected:
            reporter.write_line(f"skipped, and not expected to be: {reason}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def fresh_seed() -> int:
    """The first of the seeds that this run explores: another one each time, unless it is given."""
    return int(os.environ[FRESH_SEED])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that in the end no worker is left alone with it."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def pytest_collection_finish() -> None:
    """Spare the collector what stays to the end: thousands of tests and all imported modules.

    What tests make it sees seldom: simulations make much that lives until they are over.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 10, 10)


class Leftovers:
    """What this process holds: children and theirs, threads, descriptors, folders."""

    def __init__(self) -> None:
        self.children = {
            pid: top for top in _children(os.getpid()) for pid in (top, *_descendants(top))
        }
        self.threads = {thread.name for thread in threading.enumerate() if thread.is_alive()}
        self.descriptors = _descriptors()
        self.folders = set(_session_folders())

    def since(self, before: "Leftovers", *, standing: bool) -> list[str]:
        """Say what is held now and was not before.

        Args:
            before: The resources held then.
            standing: A long-lived cluster may have replaced processes that are gone. The
                resources that its loop holds are checked when it has ended.
        """
        found = [f"thread {name}" for name in self.threads - before.threads]
        found += [f"folder {path}" for path in self.folders - before.folders]
        if not standing or len(self.children) > len(before.children):
            new = self.children.keys() - before.children.keys()
            if not standing:  # what a cluster of the module replaces meanwhile is not this test's
                new = {pid for pid in new if self.children[pid] not in before.children}
            found += [f"process {pid}: {_command(pid)}" for pid in new]
        if not standing:
            new_ones = self.descriptors - before.descriptors
            found += [f"descriptor {name} -> {_target(name)}" for name, *_ in new_ones]
        return found


@contextlib.contextmanager
def leaving_nothing(*, standing: bool) -> Iterator[None]:
    """Fail what leaves a process, thread, socket, shared memory or folder behind."""
    before = Leftovers()
    yield
    deadline = time.monotonic() + GRACE
    turn = 0
    while left := Leftovers().since(before, standing=standing):
        if turn % 30 < 3:  # the young first: to look at all that is there takes long
            gc.collect(turn % 30)
        turn += 1
        if time.monotonic() > deadline:
            pytest.fail("left behind:\n  " + "\n  ".join(left))
        threading.Event().wait(0.01)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(
    own_surroundings: None, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fail a test that leaves something behind."""
    del own_surroundings  # it says where the folders are
    if "standing" in request.fixturenames:
        request.getfixturevalue("standing")  # all its processes run before the test begins
    with leaving_nothing(standing="nothing_is_left_behind_by_all" in request.fixturenames):
        yield


@pytest.fixture(scope="module")
def nothing_is_left_behind_by_all(own_surroundings: None) -> Iterator[None]:
    """Fail a module whose tests, together, leave something behind: for those with one cluster."""
    del own_surroundings  # as above
    with leaving_nothing(standing=False):
        yield


@pytest.fixture(scope="module")
def clusters(nothing_is_left_behind_by_all: None) -> Iterator["list[sapwood.Cluster]"]:
    """One agent, three, and five under junctions: for all tests of a module that harm none."""
    del nothing_is_left_behind_by_all  # it looks when these have ended
    import sapwood  # noqa: PLC0415 - few modules need it

    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(sapwood.local(agents, fanout=fanout))
            for agents, fanout in ((1, 0), (3, 0), (5, 2))
        ]
        for cluster in made:
            with cluster.stream(abs, reduce=operator.add) as stream:
                stream.broadcast(-1).result(GRACE)  # runners, and those of filters, are there
        yield made


@pytest.fixture(autouse=True, scope="session")
def own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's configuration out of tests, and what tests make out of the user's folders."""
    home = tmp_path_factory.getbasetemp()
    # Both workers use one build cache: headers take long to precompile.
    common = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home
    runtime = home / "run"
    runtime.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        # Sessions of other programs on this machine come and go in the usual folders.
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        patch.setenv("XDG_CACHE_HOME", str(common / "cache"))
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        for name in list(os.environ):
            if name.startswith("SAPWOOD_") and name != FRESH_SEED:
                patch.delenv(name)
        yield


def _children(pid: int) -> list[int]:
    found: list[int] = []
    if pid == os.getpid() and not _has_children():
        return found
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - tests replace methods of Path
    except (FileNotFoundError, ProcessLookupError):
        return found
    for task in tasks:
        try:
            text = _read(Path(f"/proc/{pid}/task/{task}/children"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += map(int, text.split())
    return found


def _has_children() -> bool:
    """Say whether this process has children, also dead ones; one system call for most tests."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in _children(pid):
        found += [child, *_descendants(child)]
    return found


def _descriptors() -> set[tuple[str, int, int]]:
    """Return number, device and inode of each socket, pipe, memory file and anonymous inode."""
    found: set[tuple[str, int, int]] = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - before and after each test: quickly
        try:
            state = os.fstat(int(name))
        except OSError:
            continue
        kind = stat.S_IFMT(state.st_mode)
        if kind in {0, stat.S_IFSOCK, stat.S_IFIFO} or (
            kind == stat.S_IFREG and not state.st_nlink
        ):
            found.add((name, state.st_dev, state.st_ino))
    return found


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - tests replace methods of Path
    except FileNotFoundError:
        return "(closed)"


def _session_folders() -> list[str]:
    folder = os.environ["XDG_RUNTIME_DIR"]
    names = os.listdir(folder) if os.access(folder, os.R_OK) else []  # noqa: PTH208 - as above
    return [f"{folder}/{name}" for name in names if name.startswith("sapwood-")]


def _command(pid: int) -> str:
    try:
        return _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")[:200]
    except (FileNotFoundError, ProcessLookupError):
        return "(gone)"


def _read(path: Path) -> str:
    """Read a file without the methods of ``Path``, which tests replace."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read()
