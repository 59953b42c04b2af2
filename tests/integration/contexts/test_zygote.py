"""A client's hold on real processes: forked, watched, killed, and none left."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.contexts.spawner import Spawner
from sapwood.core.errors import ResourceError

PATIENCE = 30.0

ENTRIES = """
import os, signal, sys
from functools import partial, wraps

def entry(run):
    # The call itself is assembled.
    return wraps(run)(lambda *who: partial(run, *who))

@entry
def sleep(configuration, rank, incarnation, runner_factory):
    signal.pause()

@entry
def leave(configuration, rank, incarnation, runner_factory):
    os._exit(rank)

@entry
def write(configuration, rank, incarnation, runner_factory):
    with open(configuration.decode(), "a") as file:
        file.write(f"{rank} {incarnation} {os.environ.get('COLOUR')}\\n")

@entry
def list_descriptors(configuration, rank, incarnation, runner_factory):
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    numbers.remove(max(numbers))  # what listed them
    with open(configuration.decode(), "a") as file:
        file.write(f"{sum(number > 2 for number in numbers)}\\n")

@entry
def fail(configuration, rank, incarnation, runner_factory):
    raise RuntimeError("no")

@entry
def breed(configuration, rank, incarnation, runner_factory):
    for own_session in (False, True):
        if os.fork() == 0:
            if own_session:
                os.setsid()
            signal.pause()
    between = os.fork()
    if between == 0:
        # A grandchild whose own parent is gone.
        if os.fork() == 0:
            os.setsid()
            signal.pause()
        os._exit(0)
    os.waitpid(between, 0)
    with open(configuration.decode(), "w") as file:
        file.write("bred")
    signal.pause()
"""


ENDLESS = """
from pathlib import Path

Path(__file__).with_name("begun").touch()
number = 0
while True:
    number += 1
    try:
        __import__(f"nothing{number}")
    except Exception:
        pass
"""
"""A module whose import ends only from outside."""


class Front:
    """A client with a loop that runs when the test waits."""

    def __init__(
        self,
        folder: Path,
        environment: dict[str, str] | None = None,
        borrow: Callable[[], socket.socket] | None = None,
        later: tuple[str, ...] = (),
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.reports: list[orders.Report] = []
        self.ended = False
        self.folder = folder / "session"
        self.folder.mkdir(parents=True)
        self.notes = folder / "notes"
        self.spawner = Spawner(
            ZygotePlan(("entries",), later),
            orders.ConfigureProcesses(
                str(self.folder), str(self.notes).encode(), environment or {}
            ),
            self.reports.append,
            self._end,
            borrow,
        )
        self.spawner.start()
        self.spawner.listen(self.loop)

    def _end(self) -> None:
        self.ended = True

    def spawn(self, function: str, *ranks: int) -> None:
        self.spawner.spawn([orders.ProcessSpec(f"entries:{function}", rank, 1) for rank in ranks])

    def until(self, condition: Callable[[], object]) -> None:
        deadline = self.loop.time() + PATIENCE
        while not condition():
            assert self.loop.time() < deadline, self.reports
            self.loop.run_until_complete(asyncio.sleep(0.002))

    def spawned(self) -> dict[int, int]:
        return {r.rank: r.pid for r in self.reports if isinstance(r, orders.Spawned)}

    def exits(self) -> dict[int, int]:
        return {r.rank: r.status for r in self.reports if isinstance(r, orders.Exited)}

    def close(self) -> None:
        self.spawner.detach()
        self.spawner.close()
        self.loop.close()


MakeFront = Callable[..., Front]


@pytest.fixture
def make_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeFront]:
    (tmp_path / "entries.py").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    made: list[Front] = []

    def make(later: tuple[str, ...] = ()) -> Front:
        made.append(Front(tmp_path, {"COLOUR": "green"}, later=later))
        return made[-1]

    yield make
    for front in made:
        front.close()


@pytest.fixture
def front(make_front: MakeFront) -> Front:
    return make_front()


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child} | descendants(child)
    return found


def test_processes_are_forked_and_reported(front: Front) -> None:
    front.spawn("sleep", *range(1, 101))
    front.until(lambda: len(front.spawned()) == 100)
    pids = set(front.spawned().values())
    assert len(pids) == 100
    assert pids <= descendants(front.spawner.pid)
    front.spawner.close()
    assert not any(alive(pid) for pid in pids)


def test_a_process_gets_who_it_is_and_its_environment(front: Front) -> None:
    front.spawn("write", 4)
    front.until(front.exits)
    assert front.notes.read_text() == "4 1 green\n"
    assert front.exits() == {4: 0}


def test_a_process_has_one_descriptor_of_its_zygote(front: Front) -> None:
    front.spawn("list_descriptors", 1, 2, 3)
    front.until(lambda: len(front.exits()) == 3)
    assert front.notes.read_text() == "1\n1\n1\n"


def test_every_end_is_reported_with_its_status(front: Front) -> None:
    front.spawn("leave", 1, 2, 77)
    front.spawn("sleep", 3)
    front.until(lambda: 3 in front.spawned())
    front.spawner.kill(front.spawned()[3], signal.SIGKILL)
    front.until(lambda: len(front.exits()) == 4)
    assert front.exits() == {1: 1, 2: 2, 77: 77, 3: -9}


def test_an_import_that_nobody_waits_for_ends(tmp_path: Path, make_front: MakeFront) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    front = make_front(("endless",))
    front.spawn("sleep", 1)
    front.until(lambda: front.spawned() and (tmp_path / "begun").exists())
    (pid,) = front.spawned().values()
    zygote = front.spawner._process
    front.close()
    assert zygote is not None
    assert zygote.returncode == 0  # it was not killed
    assert not alive(pid)
    assert not front.folder.exists()


def test_a_zygote_gives_signs_of_life_until_it_is_stopped(front: Front) -> None:
    front.until(lambda: any(isinstance(report, orders.Ready) for report in front.reports))
    for _ in range(3):
        assert not front.spawner.is_silent(1, 100)
        front.until(
            lambda: front.spawner._heartbeats.missed == 0 and front.spawner._heartbeats._looks == 0
        )
    os.kill(front.spawner.pid, signal.SIGSTOP)
    asked = [front.spawner.is_silent(2, 100) for _ in range(3)]
    assert asked == [False, False, True]
    os.kill(front.spawner.pid, signal.SIGCONT)
    front.until(lambda: front.spawner._heartbeats._looks == 0)
    assert not front.spawner.is_silent(2, 100)
    assert not any(isinstance(report, orders.HeartbeatReply) for report in front.reports)


def test_a_zygote_gives_signs_of_life_while_it_imports(
    tmp_path: Path, make_front: MakeFront
) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    front = make_front(("endless",))
    front.spawn("sleep", 1)
    front.until(lambda: front.spawned() and (tmp_path / "begun").exists())
    for _ in range(3):
        assert not front.spawner.is_silent(100, 100)
        front.until(lambda: front.spawner._heartbeats._looks == 0)


def test_a_zygote_that_is_ended_takes_its_processes_with_it(front: Front) -> None:
    front.spawn("sleep", 1, 2)
    front.until(lambda: len(front.spawned()) == 2)
    os.kill(front.spawner.pid, signal.SIGSTOP)
    front.spawner.end()
    front.spawner.close()
    front.until(lambda: not any(alive(pid) for pid in front.spawned().values()))
    assert not front.ended  # whoever ended it knows


def test_orders_to_a_stopped_zygote_keep_nobody_waiting_and_are_obeyed_later(front: Front) -> None:
    front.spawn("sleep", 1)
    front.until(front.spawned)
    os.kill(front.spawner.pid, signal.SIGSTOP)
    for _ in range(5000):  # more than a socket takes
        front.spawner.kill(front.spawned()[1], signal.SIGCONT)
    front.spawn("leave", 5)
    assert front.spawner._unsent
    os.kill(front.spawner.pid, signal.SIGCONT)
    front.until(lambda: front.exits() == {5: 5})
    assert not front.spawner._unsent


def test_an_entry_that_raises_ends_with_its_traceback(
    make_front: MakeFront, capfd: pytest.CaptureFixture[str]
) -> None:
    front = make_front()  # here, so that its standard error is the one that is captured
    front.spawn("fail", 1)
    front.until(front.exits)
    assert front.exits() == {1: 1}
    assert "RuntimeError: no" in capfd.readouterr().err


def test_only_own_processes_are_killed(front: Front) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    front.spawner.kill(other.pid)
    front.spawn("leave", 1)
    front.until(front.exits)  # the order before was obeyed, too
    assert other.poll() is None
    other.communicate(b"\n")


def test_closing_ends_everything_and_removes_the_folder(front: Front) -> None:
    front.spawn("breed", 1)
    front.until(front.notes.exists)
    everybody = descendants(front.spawner.pid)
    assert len(everybody) >= 4
    front.spawner.close()
    assert not any(alive(pid) for pid in everybody)
    assert not front.folder.exists()


def test_a_zygote_that_is_killed_takes_its_processes_with_it(front: Front) -> None:
    front.spawn("sleep", 1, 2)
    front.until(lambda: len(front.spawned()) == 2)
    os.kill(front.spawner.pid, signal.SIGKILL)
    front.until(lambda: front.ended)
    front.until(lambda: not any(alive(pid) for pid in front.spawned().values()))


def test_orders_after_the_end_are_dropped(front: Front) -> None:
    os.kill(front.spawner.pid, signal.SIGKILL)
    front.until(lambda: front.ended)
    front.spawn("sleep", 1)
    front.spawner.kill(1)
    assert front.spawned() == {}


def test_a_zygote_that_cannot_start_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    spawner = Spawner(
        ZygotePlan(()), orders.ConfigureProcesses("", b""), lambda _: None, lambda: None
    )
    with pytest.raises(ResourceError, match="cannot start a process"):
        spawner.start()


def test_a_configuration_that_a_zygote_cannot_take_is_a_clear_error() -> None:
    configure = orders.ConfigureProcesses("", bytes(orders.MAX_ORDER))
    spawner = Spawner(ZygotePlan(()), configure, lambda _: None, lambda: None)
    with pytest.raises(ResourceError, match="the most is"):
        spawner.start()
    assert not spawner.pid


FRONT_END = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sapwood.contexts import orders
from sapwood.contexts.spawner import Spawner
from sapwood.contexts.plan import ZygotePlan

folder = Path(sys.argv[1]) / "session"
folder.mkdir()
notes = str(Path(sys.argv[1]) / "notes").encode()
configure = orders.ConfigureProcesses(str(folder), notes, {})
spawner = Spawner(ZygotePlan(("entries",)), configure, lambda _: None, lambda: None)
spawner.start()
spawner.spawn([orders.ProcessSpec("entries:breed", 1, 1)])
print(spawner.pid, flush=True)
input()
"""


def test_a_client_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "entries.py").write_text(ENTRIES)
    front = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(FRONT_END), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert front.stdin is not None
    assert front.stdout is not None
    zygote = int(front.stdout.readline())
    wait_for((tmp_path / "notes").exists)
    everybody = {zygote} | descendants(zygote)
    front.kill()
    front.communicate()
    wait_for(lambda: not any(alive(pid) for pid in everybody))
    wait_for(lambda: not (tmp_path / "session").exists())


def wait_for(condition: Callable[[], object]) -> None:
    loop = asyncio.new_event_loop()
    deadline = loop.time() + PATIENCE
    while not condition():
        assert loop.time() < deadline
        loop.run_until_complete(asyncio.sleep(0.005))
    loop.close()


def test_a_further_tree_borrows_the_zygote_and_ends_alone(
    make_front: MakeFront, tmp_path: Path
) -> None:
    first = make_front()
    first.spawn("sleep", 1)
    first.until(first.spawned)
    second = Front(tmp_path / "second", borrow=first.spawner.lend)
    assert second.spawner.pid == 0
    second.spawn("sleep", 1, 2)
    second.spawn("write", 3)
    second.until(lambda: second.exits() == {3: 0})
    assert second.notes.read_text() == "3 1 green\n"
    sleeping = [pid for rank, pid in second.spawned().items() if rank != 3]
    second.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in sleeping)
    assert not second.folder.exists()
    assert not first.exits()
    assert first.folder.exists()
    first.spawn("leave", 4)
    first.until(lambda: first.exits() == {4: 4})


def test_a_zygote_that_ends_is_told_to_all_that_borrow_it(
    make_front: MakeFront, tmp_path: Path
) -> None:
    first = make_front()
    second = Front(tmp_path / "second", borrow=first.spawner.lend)
    second.spawn("sleep", 1)
    second.until(second.spawned)
    os.kill(first.spawner.pid, signal.SIGKILL)
    second.until(lambda: second.ended)
    first.until(lambda: first.ended)
    (sleeping,) = second.spawned().values()
    second.until(lambda: not Path(f"/proc/{sleeping}").exists())
    second.close()


def test_who_cannot_borrow_has_a_zygote_of_its_own(make_front: MakeFront, tmp_path: Path) -> None:
    first = make_front()
    first.spawner.detach()
    first.spawner.close()
    second = Front(tmp_path / "second", borrow=first.spawner.lend)
    assert second.spawner.pid
    second.spawn("sleep", 1)
    second.until(second.spawned)
    second.close()
    assert not second.folder.exists()
