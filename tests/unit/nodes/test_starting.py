"""From a bare Python to a daemon: stubs against noise, damage, full disks and other Pythons."""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.contexts import orders
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.contexts.orders import ProcessSpec
from sapwood.contexts.process import c_library
from sapwood.contexts.runtime import Runtime
from sapwood.core.errors import ResourceError
from sapwood.environment.settings import CacheSettings, NodeSettings
from sapwood.nodes import starting, stub
from sapwood.nodes.daemon import DaemonOrder
from sapwood.nodes.fetched_libraries import FetchedLibraries
from sapwood.nodes.starting import AwaitedDaemon, DaemonStarter, shell_command

PATIENCE = 30.0
SECRET = "s" * 52
DAEMON = """
import json, os, sys
def main(told, say):
    say(joined="n1", pid=os.getpid(), told=told)
    sys.stdin.read()
"""
"""What stands for the daemon: it joins nothing, and ends with its channel."""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.005)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """A runtime that has a daemon and nothing else."""
    home = tmp_path / "files"
    nodes = home / "sapwood" / "nodes"
    nodes.mkdir(parents=True)
    (home / "sapwood" / "__init__.py").touch()
    (nodes / "__init__.py").touch()
    (nodes / "daemon.py").write_text(DAEMON)
    files = {str(path.relative_to(home)): path for path in home.rglob("*.py")}
    return Runtime(files, [home / "sapwood" / "__init__.py"])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


# --- the stub -----------------------------------------------------------------------------------


class Stub:
    """A stub at the other end of pipes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", Path(stub.__file__).read_text() + "\nmain()\n"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def tell(self, what: Any) -> None:
        self.write(json.dumps(what).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() in {b"\n", b""}  # an answer begins a new line
        return json.loads(self.process.stdout.readline() or "null")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def node(cache: Path) -> Iterator[Stub]:
    del cache  # it says where the stub keeps the runtime
    with closing(Stub()) as made:
        yield made


def send_archive(node: Stub, runtime: Runtime, *, damage: bool = False) -> None:
    packed, digest = runtime.archive
    node.tell({"digest": digest, "size": len(packed)})
    node.write(packed[:-1] + bytes([packed[-1] ^ 1]) if damage else packed)


def test_a_machine_with_the_same_files_needs_no_archive(node: Stub, runtime: Runtime) -> None:
    offer = runtime.offer("auto")
    offer["path"] = [str(Path(runtime._stamps[0][0]).parents[1]), *offer["path"]]
    node.tell(offer)
    said = node.hear()
    assert said["runtime"] == "shared"
    node.tell({"token": "t"})
    assert node.hear()["joined"] == "n1"


def test_an_archive_is_kept_under_its_identity(node: Stub, runtime: Runtime, cache: Path) -> None:
    node.tell(runtime.offer("send"))
    assert node.hear()["runtime"] == "wanted"
    send_archive(node, runtime)
    assert node.hear() == {"runtime": "received"}
    node.tell({"token": "t"})
    joined = node.hear()
    assert joined["told"] == {"token": "t"}
    kept = cache / "sapwood" / "runtime"
    assert [path.name for path in kept.iterdir()] == [runtime.identity]
    assert (kept.stat().st_mode & 0o777) == 0o700
    with closing(Stub()) as again:
        again.tell(runtime.offer("send"))
        assert again.hear()["runtime"] == "kept"


def test_a_damaged_archive_is_refused_and_nothing_of_it_kept(
    node: Stub, runtime: Runtime, cache: Path
) -> None:
    node.tell(runtime.offer("send"))
    node.hear()
    send_archive(node, runtime, damage=True)
    assert node.hear() == {"error": "the runtime arrived damaged"}
    assert node.process.wait(PATIENCE) == 3
    assert list((cache / "sapwood" / "runtime").iterdir()) == []


def test_an_archive_that_ends_in_the_middle_leaves_nothing(
    node: Stub, runtime: Runtime, cache: Path
) -> None:
    node.tell(runtime.offer("send"))
    node.hear()
    packed, digest = runtime.archive
    node.tell({"digest": digest, "size": len(packed)})
    node.write(packed[: len(packed) // 2])
    node.process.communicate(timeout=PATIENCE)
    assert list((cache / "sapwood" / "runtime").iterdir()) == []


def test_without_room_nothing_is_received(node: Stub, runtime: Runtime, cache: Path) -> None:
    node.tell(runtime.offer("send"))
    node.hear()
    node.tell({"digest": "0", "size": 1 << 60})
    assert "its disk is full" in node.hear()["error"]
    assert list((cache / "sapwood" / "runtime").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with closing(Stub()) as node:
        node.tell(runtime.offer("send"))
        error = node.hear()["error"]
        assert "cannot keep the runtime" in error
        assert str(tmp_path / "file") in error


def test_another_python_is_told_before_anything_is_sent(node: Stub, runtime: Runtime) -> None:
    node.tell(runtime.offer("send") | {"abi": "cpython-399-riscv64-linux-gnu"})
    assert node.hear() == {
        "abi": str(sysconfig.get_config_var("SOABI")),
        "python": platform.python_version(),
        "libc": c_library(),
    }
    node.tell({"refused": "there is none for it"})
    assert node.hear() == {"error": "there is none for it"}
    assert node.process.wait(PATIENCE) == 3


def test_a_head_may_have_a_runtime_for_another_python(node: Stub, runtime: Runtime) -> None:
    node.tell(runtime.offer("send") | {"abi": "cpython-399-riscv64-linux-gnu"})
    node.hear()
    node.tell(runtime.offer("send"))
    assert node.hear()["runtime"] == "wanted"
    send_archive(node, runtime)
    assert node.hear() == {"runtime": "received"}


def test_a_stub_whose_head_is_gone_ends(node: Stub, runtime: Runtime) -> None:
    node.tell(runtime.offer("send"))
    node.hear()
    _, errors = node.process.communicate(timeout=PATIENCE)
    assert (node.process.returncode, errors) == (0, b"")


# --- the shell's command --------------------------------------------------------------------------


def run_shell(command: str, told: bytes, **named: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", command], input=told, capture_output=True, check=False, **named
    )


TOLD = b"12\nprint('hey')"
READY = b'\n{"ready": "yes"}\n'


def test_the_command_runs_what_it_is_told() -> None:
    assert run_shell(shell_command(), TOLD).stdout == READY + b"hey\n"


def test_an_interpreter_may_be_several_words_and_have_spaces(tmp_path: Path) -> None:
    spaced = tmp_path / "a b's" / "python"
    spaced.parent.mkdir()
    spaced.symlink_to(sys.executable)
    assert run_shell(shell_command([str(spaced)]), TOLD).stdout == READY + b"hey\n"
    words = ["env", "GREETING=a b", sys.executable]
    told = b"45\nimport os; print(os.environ.get('GREETING'))  "
    assert run_shell(shell_command(words), told).stdout == READY + b"a b\n"


def test_the_stub_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("print('the file of another user')")
    told = b"29\nimport json; json.loads('[]')"
    done = run_shell(shell_command(), told, cwd=tmp_path)
    assert (done.stdout, done.returncode) == (READY, 0)


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/true;reboot", "/bin/false"])
def test_a_machine_without_python_says_so(python: str) -> None:
    done = run_shell(shell_command([python]), TOLD)
    assert json.loads(done.stdout.removeprefix(READY)) == {
        "error": "it has no Python 3.11 or newer"
    }
    assert done.returncode == 3


def test_the_first_interpreter_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / f"python3.{sys.version_info.minor}"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    done = run_shell(shell_command(), TOLD, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout == READY + b"hey\n"


def pythons(folder: Path, *versions: str) -> None:
    """Make programs that are called as Pythons are, say what they are, and do nothing else."""
    for name, version in (one.split("=") for one in versions):
        program = folder / name
        numbers = tuple(map(int, version.split(".")))
        program.write_text(
            f"""#!{sys.executable} -S
import sys
sys.version_info = {numbers}
if "-I" in sys.argv:
    exec(sys.argv[sys.argv.index("-c") + 1])
else:
    print("{name} starts")
"""
        )
        program.chmod(0o755)


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (("python3=3.{same}.9", "python3.12=3.12.1", "python3.14=3.14.0"), "python3"),
        (("python3=3.13.1", "python3.{same}=3.{same}.2"), "python3.{same}"),
        (("python3=3.12.1", "python3.13=3.13.0", "python3.12=3.12.1"), "python3.13"),
        (("python3=3.10.1", "python3.12=3.12.0"), "python3.12"),
        (("python3=3.99.1",), "python3"),
    ],
)
@pytest.mark.slow
def test_a_python_of_the_same_minor_version_is_taken_or_else_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: Sequence[str], taken: str
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    pythons(tmp_path, *(one.format(same=11) for one in there))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    done = run_shell(shell_command(), TOLD, env={"PATH": str(tmp_path)})
    assert done.stdout.removeprefix(READY).decode() == f"{taken.format(same=11)} starts\n"


@pytest.mark.parametrize("named", [True, False])
def test_a_python_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    pythons(tmp_path, "python3=3.10.13")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    words = [str(tmp_path / "python3")] if named else []
    done = run_shell(shell_command(words), TOLD, env={"PATH": str(tmp_path)})
    assert json.loads(done.stdout.removeprefix(READY)) == {
        "error": "its Python is 3.10.13, and Sapwood needs 3.11 or newer: install one there, or "
        "name one in nodes.python"
    }
    assert done.returncode == 3


def test_the_command_has_one_word_for_whatever_shell_the_user_has() -> None:
    assert shell_command().startswith("exec /bin/sh -c '")


# --- the starter ----------------------------------------------------------------------------------


class Loop:
    """Calls at once what comes from other threads."""

    def call_soon_threadsafe(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)


class Before(LocalLauncher):
    """Runs something before the command, as login scripts do, or instead of it."""

    def __init__(self, before: str) -> None:
        super().__init__(1)
        self.before = before

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        return super().start(host, f"{self.before}\n{command}")


class Leading(LocalLauncher):
    """Leads machines to the head, or says why it does not."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__(1)
        self.refuses = refuses
        self.forwarded: list[tuple[str, str]] = []
        self.settled: list[subprocess.Popen[bytes]] = []

    def forward(self, channel: subprocess.Popen[bytes], path: str, target: str) -> None:
        assert channel.poll() is None
        self.forwarded.append((path, target))
        if self.refuses:
            raise ResourceError(self.refuses)

    def settle(self, channel: subprocess.Popen[bytes]) -> None:
        self.settled.append(channel)


class Started:
    """A starter, and all that it tells."""

    def __init__(
        self, launcher: LocalLauncher, addresses: Sequence[str] = (), **named: Any
    ) -> None:
        self.reports: list[orders.Report] = []
        self.ways: list[str] = []
        self.expected: list[ProcessSpec] = []
        self.slots = threading.Semaphore(1)
        self.starter = DaemonStarter(
            launcher,
            "local1",
            self.slots,
            lambda rank, incarnation: DaemonOrder(
                f"{SECRET} {rank} {incarnation}", list(addresses)
            ),
            self.expected.append,
            self.reports.append,
            NodeSettings(runtime="send", **named),
            self.ways.append,
            libraries=FetchedLibraries(CacheSettings()),
        )
        self.starter.listen(Loop())  # type: ignore[arg-type]  # all of a loop that it needs

    @property
    def trouble(self) -> list[str]:
        """Why daemons did not come, or ended."""
        return [one.reason for one in self.reports if isinstance(one, orders.Exited)]

    def spawn(self, incarnation: int = 1) -> None:
        self.starter.spawn([ProcessSpec("", 1, incarnation)])

    def first(self) -> orders.Report:
        until(lambda: self.reports)
        return self.reports[0]


@pytest.fixture
def start(
    runtime: Runtime, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Started]]:
    del cache  # as above
    monkeypatch.setattr(starting, "own_runtime", lambda: runtime)
    made: list[Started] = []

    def begin(before: str = ":", launcher: LocalLauncher | None = None, **named: Any) -> Started:
        made.append(Started(launcher or Before(before), **named))
        return made[-1]

    yield begin
    for one in made:
        one.starter.close()


Start = Callable[..., Started]


def test_a_daemon_is_started_and_ends_with_its_starter(start: Start) -> None:
    one = start()
    one.spawn()
    report = one.first()
    assert isinstance(report, orders.Spawned)
    assert Path(f"/proc/{report.pid}").exists()
    assert [(spec.rank, spec.incarnation) for spec in one.expected] == [(1, 1)]
    one.starter.close()
    assert not Path(f"/proc/{report.pid}").exists()
    assert not one.trouble


class Careless(LocalLauncher):
    """A launcher with a mistake in it."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        raise KeyError("no such partition")


def test_a_mistake_of_a_launcher_is_that_of_its_machine(start: Start) -> None:
    """It once ended the thread without a word, and the machine never came again."""
    one = start(launcher=Careless(1))
    one.spawn()
    until(lambda: one.reports)
    report = one.first()
    assert isinstance(report, orders.Exited)
    assert report.reason == "KeyError: 'no such partition'"
    assert one.trouble == [report.reason]
    one.spawn(2)
    until(lambda: len(one.reports) == 2)


@pytest.mark.row("A-CODE-3")
@pytest.mark.parametrize(
    ("abi", "reason"),
    [
        ("cpython-399-riscv64-linux-gnu", "pip install --target FOLDER .*manylinux2014_riscv64"),
        ("", "not an ordinary build of CPython: name another one in nodes.python"),
        ("cpython-399t-x86_64-linux-gnu", "not an ordinary build of CPython"),
        ("pypy311-pp73-x86_64-linux-gnu", "not an ordinary build of CPython"),
    ],
)
@pytest.mark.slow
def test_a_machine_whose_python_does_not_fit_is_named_with_what_to_do(
    start: Start, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, abi: str, reason: str
) -> None:
    """The machine is this one; it is the head whose Python seems to be another."""
    runtime._abi = "another"
    monkeypatch.setattr(secrets, "token_hex", lambda _count: "known")
    answers = ({"ready": "yes"}, {"abi": abi, "python": "3.99.1"})
    lines = " ".join(f"'sapwood-known:{json.dumps(one)}'" for one in answers)
    one = start(f"printf '%s\\n' {lines}; ")
    one.spawn()
    assert isinstance(one.first(), orders.Exited)
    (trouble,) = one.trouble
    assert re.search(reason, trouble), trouble
    assert "its Python 3.99.1 (" in trouble


WAY_DAEMON = """
import json, os, sys
def main(told, say):
    assert told["way"] is True, told
    say(way="/x/head.sock")
    refused = json.loads(sys.stdin.buffer.readline())["refused"]
    if refused:
        say(error=refused)
        sys.exit(1)
    say(joined="n1", pid=os.getpid())
    sys.stdin.read()
"""
"""What stands for a daemon that reaches the head by no address."""


def test_a_machine_that_reaches_the_head_by_no_address_is_led_there(
    start: Start, runtime: Runtime
) -> None:
    runtime._files["sapwood/nodes/daemon.py"].write_text(WAY_DAEMON)
    launcher = Leading()
    one = start(launcher=launcher, addresses=("10.0.0.1:7", "127.0.0.1:7"))
    one.spawn()
    assert isinstance(one.first(), orders.Spawned)
    assert launcher.forwarded == [("/x/head.sock", "127.0.0.1:7")]
    assert one.ways == [launcher.name]
    assert len(launcher.settled) == 1


@pytest.mark.slow
def test_a_machine_that_cannot_be_led_to_the_head_is_named_with_the_cause(
    start: Start, runtime: Runtime
) -> None:
    runtime._files["sapwood/nodes/daemon.py"].write_text(WAY_DAEMON)
    launcher = Leading("ssh forwards nothing")
    one = start(launcher=launcher, addresses=("127.0.0.1:7",))
    one.spawn()
    assert isinstance(one.first(), orders.Exited)
    assert one.trouble == ["ssh forwards nothing"]
    assert len(launcher.settled) == 1
    assert not one.ways


NOISE = r"""
echo 'Welcome to n1!'; echo '{"motd": "today"}'; echo '[1, 2]'; echo 42; echo '{"runtime": 7}'
printf '\377\376\n'; echo '{"error": {}}'; head -c 200000 /dev/zero | tr '\0' x; echo
head -c 5000 /dev/zero | tr '\0' '['; echo
echo '{"error": "maintenance today"}'; echo '{"runtime": "kept"}'; echo '{"ready": "yes"}'
echo 'a warning' >&2
read answer; read -r other
printf '\033]0;%s\007quota: 80%%' title
"""


def test_what_login_scripts_print_disturbs_nobody(start: Start) -> None:
    one = start(NOISE)
    one.spawn()
    assert isinstance(one.first(), orders.Spawned)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("exit 7", "exited with code 7"),
        ("echo 'quota exceeded' >&2; exit 1", "quota exceeded"),
        ("exec kill -KILL $$", "killed by SIGKILL"),
        ("export XDG_CACHE_HOME=/dev/null", "it cannot keep the runtime in /dev/null"),
        ("echo no >&2; exec sleep 600 >&- </dev/null", "no"),
    ],
    ids=["exit", "message", "killed", "no folder", "hangs without output"],
)
@pytest.mark.slow
def test_why_a_machine_does_not_come_is_told(start: Start, before: str, reason: str) -> None:
    one = start(before)
    one.spawn()
    report = one.first()
    assert isinstance(report, orders.Exited)
    assert reason in report.reason
    (trouble,) = one.trouble
    assert trouble == report.reason
    assert one.slots.acquire(timeout=PATIENCE), "others can start no more"


def test_a_machine_without_python_is_told(start: Start) -> None:
    one = start(python=["/nowhere/python"])
    one.spawn()
    report = one.first()
    assert isinstance(report, orders.Exited)
    assert report.reason == "it has no Python 3.11 or newer"


def test_a_machine_that_does_not_answer_in_time_is_told(start: Start) -> None:
    one = start("exec sleep 600", start_timeout=0.2)
    one.spawn()
    report = one.first()
    assert isinstance(report, orders.Exited)
    assert report.reason == "it did not answer within 0.2 s"


def test_a_daemon_that_ends_is_told_with_its_cause(start: Start) -> None:
    one = start()
    one.spawn()
    begun = one.first()
    assert isinstance(begun, orders.Spawned)
    one.starter.kill(begun.pid)
    until(lambda: len(one.reports) == 2)
    ended = one.reports[1]
    assert isinstance(ended, orders.Exited)
    assert (ended.pid, ended.status, ended.reason) == (begun.pid, -9, "killed by SIGKILL")
    assert one.trouble == ["killed by SIGKILL"]


def test_a_daemon_that_is_stopped_can_be_ended(start: Start) -> None:
    one = start()
    one.spawn()
    begun = one.first()
    assert isinstance(begun, orders.Spawned)
    os.kill(begun.pid, 19)
    one.starter.kill(begun.pid)
    until(lambda: len(one.reports) == 2)


@pytest.mark.parametrize("hangs", ["exec sleep 600", "exec sleep 600 <&-; "], ids=["on", "off"])
def test_a_machine_that_hangs_holds_nobody_when_all_end(start: Start, hangs: str) -> None:
    # Writes to it fill the pipe: a thread that closed the pipe meanwhile would wait.
    one = start(hangs)
    one.spawn()
    until(lambda: one.starter._channels)
    begun = time.monotonic()
    one.starter.close()
    assert time.monotonic() - begun < starting.END_TIMEOUT
    assert not one.trouble, "the end of a cluster is not a fault"


@pytest.mark.slow
def test_a_new_attempt_cuts_the_one_before(start: Start, tmp_path: Path) -> None:
    one = start(f"test -e {tmp_path}/twice || {{ touch {tmp_path}/twice; exec sleep 600; }}")
    one.spawn()
    until((tmp_path / "twice").exists)
    one.spawn(2)
    until(lambda: any(isinstance(report, orders.Spawned) for report in one.reports))


def test_what_waits_for_its_turn_is_not_started_after_the_end(start: Start, tmp_path: Path) -> None:
    one = start(f"touch {tmp_path}/begun")
    with one.slots:
        one.spawn()
        one.starter.detach()
    one.starter.close()
    assert not (tmp_path / "begun").exists()


def test_reports_wait_until_somebody_listens(start: Start) -> None:
    one = start("exit 7")
    one.starter._loop = None
    one.spawn()
    until(lambda: one.starter._early)
    assert not one.reports
    one.starter.listen(Loop())  # type: ignore[arg-type]  # as above
    assert isinstance(one.first(), orders.Exited)


def test_a_daemon_that_somebody_else_starts_is_expected_and_gone_with_its_link() -> None:
    expected: list[ProcessSpec] = []
    reports: list[orders.Report] = []
    calls: list[Callable[[], None]] = []
    loop = SimpleNamespace(call_soon=lambda call, *args: calls.append(partial(call, *args)))
    starter = AwaitedDaemon(expected.append, reports.append)
    starter.start()
    starter.listen(loop)  # type: ignore[arg-type]  # all that it uses
    starter.spawn([ProcessSpec("", 3, 2)])
    assert expected == [ProcessSpec("", 3, 2)]
    starter.kill(77)
    assert not reports  # whoever kills it is not told while it does
    calls.pop()()
    assert reports == [orders.Exited(3, 2, 77, 0, "its link is gone")]
    starter.kill(77)
    starter.detach()
    calls.pop()()
    starter.kill(77)
    starter.close()
    assert len(reports) == 1
    assert not calls
