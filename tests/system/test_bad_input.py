"""What bad input gets: an error of one screen, its exit code, and nothing left behind."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.core.errors import RunnerCrashError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUANTIZE, LOGISTIC, PI = (str(EXAMPLES / name) for name in ("quantize", "logistic", "pi"))
COMMAND = [sys.executable, "-c", "from sapwood.cli.main import main; main()"]
SCREEN = 24
"""Lines of a screen."""

SOON = 60
"""Seconds in which a command ends on a machine that is busy with other tests."""

PROGRAM = """
[program]
sources = ["first.c"]
[map]
function = "{function}"
[reduce]
total = "sum"
"""

SOURCE = """
#include <stdint.h>
/* @array data[n]
 * @array total[1]
 */
void first(const double *data, int64_t n, double *total) {{ total[0] = n > 0 ? {value} : 0; }}
"""

ENDLESS = """
import time
import numpy as np
from pathlib import Path
from sapwood import Program

class Endless(Program):
    reduce = {"n": "sum"}
    def default_data(self):
        return np.zeros(4)
    def init(self, data):
        return {}
    def map(self, slice, state):
        Path("mapping").touch()
        time.sleep(1000)
"""


class Failure:
    """How a command ended that was to fail."""

    def __init__(self, exit_code: int, said: str) -> None:
        assert exit_code != 0
        assert len(said.splitlines()) <= SCREEN, said
        assert "Traceback" not in said
        self.exit_code = exit_code
        self.text = " ".join(said.split())


Fail = Callable[..., Failure]


@pytest.fixture
def fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Run the command line in an empty folder, in this process, and say how it failed."""

    def run(*arguments: str, **variables: str) -> Failure:
        for name, value in {"NO_COLOR": "1", "COLUMNS": "80", **variables}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(app, arguments, prog_name="sapwood")
        return Failure(done.exit_code, done.stderr)

    return run


def program_folder(folder: Path, *, function: str = "first", value: str = "data[0]") -> str:
    folder.mkdir()
    (folder / "program.toml").write_text(PROGRAM.format(function=function))
    (folder / "first.c").write_text(SOURCE.format(value=value))
    return str(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.png", None, "SW131: there is no such file"),
        ("odd.weird", b"?", "files that end in '.weird' cannot be read"),
        ("empty.png", b"", "SW132: the file is empty"),
        ("broken.png", b"\x89PNG\r\n\x1a\n?", "SW133: the image cannot be decoded"),
        ("broken.npy", b"\x93NUMPY?", "SW133: the file is damaged or cut short"),
        ("header.csv", b"r,g,b\n", "SW132: the file holds a header but no rows"),
        ("ragged.csv", b"1,2,3\n4,5\n", "SW132: a row has 2 cells where 3 are expected"),
        ("word.csv", b"1,2,3\n4,x,6\n", "word.csv:2"),
        ("nan.csv", b"1,2,3\n4,nan,6\n", "1 NaN; the first at row 1, column 1"),
        ("floats.csv", b"1,2,3\n4,5,6\n", "give uint8 of shape"),
    ],
)
def test_data_that_cannot_be_used(
    tmp_path: Path, fail: Fail, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    failure = fail("run", QUANTIZE, "--data", name)
    assert failure.exit_code == 2
    assert message in failure.text
    assert name in failure.text


def test_data_of_one_field_where_two_are_wanted_says_what_the_command_line_takes(
    tmp_path: Path, fail: Fail
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    failure = fail("run", LOGISTIC, "--data", "x.npy")
    assert failure.exit_code == 2
    assert "write an .npz file with the arrays x, y" in failure.text


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("colors=8", "unknown parameter colors where: quantize hint: did you mean colours?"),
        ("colours=1", "give 2 to 256"),
        ("colours=many", "cannot be read from 'many'"),
    ],
)
def test_parameters_that_do_not_fit(fail: Fail, parameter: str, message: str) -> None:
    failure = fail("run", QUANTIZE, "-p", parameter)
    assert failure.exit_code == 2
    assert message in failure.text


def test_a_hint_is_never_refused_itself(tmp_path: Path, fail: Fail) -> None:
    np.save(tmp_path / "black.npy", np.zeros((9, 3), np.uint8))
    failure = fail("run", QUANTIZE, "--data", "black.npy", "--agents", "2")
    assert failure.exit_code == 2
    assert "colours=1" not in failure.text
    assert "give a picture of at least two colours" in failure.text


def test_programs_that_are_not_there_are_not_looked_for_among_data(
    tmp_path: Path, fail: Fail
) -> None:
    program_folder(tmp_path / "first")
    (tmp_path / "fist.npy").touch()
    failure = fail("run", "fist")
    assert failure.exit_code == 2
    assert "did you mean 'first'?" in failure.text
    assert "fist.npy" not in failure.text


def test_a_source_that_does_not_compile(tmp_path: Path, fail: Fail) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    program_folder(tmp_path / "bad", value="undeclared")
    failure = fail("run", "bad", "--data", "x.npy", "--agents", "2")
    assert failure.exit_code == 3
    assert "first.c:6" in failure.text
    assert "undeclared" in failure.text


def test_no_compiler(tmp_path: Path, fail: Fail) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    program_folder(tmp_path / "good")
    arguments = ("run", "good", "--data", "x.npy", "--agents", "2")
    failure = fail(*arguments, PATH=str(tmp_path), CC="", ZIG="none")
    assert failure.exit_code == 3
    assert "SW123: this machine has no C compiler" in failure.text


def test_a_function_that_the_source_does_not_define(tmp_path: Path, fail: Fail) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    program_folder(tmp_path / "other", function="frist")
    failure = fail("run", "other", "--data", "x.npy", "--agents", "2")
    assert failure.exit_code == 2
    assert "SW124" in failure.text
    assert "did you mean first?" in failure.text


def test_a_length_without_annotation_is_recognised(tmp_path: Path, fail: Fail) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    folder = Path(program_folder(tmp_path / "bare"))
    source = (folder / "first.c").read_text()
    (folder / "first.c").write_text(source.replace("@array data[n]", ""))
    failure = fail("run", "bare", "--data", "x.npy", "--agents", "2")
    assert failure.exit_code == 2
    assert "@array data[n]" in failure.text


def test_more_agents_than_the_memory_allows(fail: Fail) -> None:
    failure = fail("run", PI, "--agents", "100000000", "--set", "limits.agents=1000000000")
    assert failure.exit_code == 5
    assert "use at most" in failure.text


def test_more_agents_than_open_files(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    done = subprocess.run(
        [*COMMAND, "run", PI, "--agents", "64"],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        preexec_fn=limit,
    )
    failure = Failure(done.returncode, done.stderr)
    assert failure.exit_code == 5
    assert "64 agents need" in failure.text
    assert "ulimit -n" in failure.text


def test_a_full_disk(tmp_path: Path) -> None:
    shell = shutil.which("unshare")
    probe = [shell or "unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if shell is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets us mount no file system")
    noise = np.random.default_rng(0).integers(0, 256, (100, 100, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")  # larger than the disk
    short = ["run", QUANTIZE, "--agents", "2", "-q", "--data", str(tmp_path / "noise.png")]
    short += ["-p", "max_iterations=1"]
    full = tmp_path / "full"
    full.mkdir()
    mount = f"mount -t tmpfs -o size=16k,mode=700 tmpfs {full}"
    script = f'{mount} && "$@"; status=$?; find {full}; exit $status'
    for arguments, name in (
        ([*short, "--set", f"cache.folder={full}"], "cache"),
        ([*short, "--output", f"{full}/large.png"], "large.png"),
    ):
        done = subprocess.run(
            [shell, "-rm", "sh", "-c", script, "sh", *COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 5, done.stderr
        assert name in done.stderr
        assert "free space" in done.stderr
        assert "scratch" not in done.stdout
        assert "large.png" not in done.stdout


def test_an_output_that_no_picture_can_be(fail: Fail) -> None:
    failure = fail("run", QUANTIZE, "--agents", "2", "-q", "--output", "picture.xyz")
    assert failure.exit_code == 2
    assert "use .png" in failure.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    process = subprocess.Popen(
        [*COMMAND, "run", "endless.py", "--agents", "2"],
        cwd=tmp_path,
        env={**os.environ, "SAPWOOD_TEST": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "mapping").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=SOON)
    deadline = time.monotonic() + SOON
    assert process.returncode == (-number if number == signal.SIGKILL else 130)
    while others := _processes_with(str(tmp_path)):
        assert time.monotonic() < deadline, others
        time.sleep(0.01)


def test_user_code_that_forks_and_returns_twice_is_answered_once() -> None:
    class Forks(sapwood.Program):
        reduce = {"n": "sum"}  # noqa: RUF012 - as users write it
        then: str = sapwood.parameter("return")

        def init(self, data: sapwood.types.Dataset) -> dict[str, int]:
            del data
            return {}

        def map(self, slice: range, state: dict[str, int]) -> dict[str, int]:  # noqa: A002 - the API
            del state
            if self.then == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os.fork()
            return {"n": len(slice)}

    with sapwood.local(agents=2) as cluster:
        for _ in range(3):
            assert cluster.run(Forks(), range(10)).result(SOON) == {"n": 10}
        crash = cluster.run(Forks(then="kill"), range(10))
        with pytest.raises(sapwood.SapwoodError, match="killed"):
            crash.result(SOON)
        assert cluster.run(Forks(), range(10)).result(SOON) == {"n": 10}


@pytest.mark.parametrize("flowing", [False, True], ids=["fresh", "flowing"])
def test_a_cluster_in_a_forked_process_says_whose_it_is(*, flowing: bool) -> None:
    """Every call that would wait for the owner's thread is refused, and the owner continues."""
    with sapwood.local(agents=2) as cluster, cluster.stream(abs, reduce="sum") as stream:
        for _ in range(200 if flowing else 1):
            assert stream.exchange(-1).total == 2
        calls: dict[str, Callable[[], Any]] = {
            "submit": lambda: cluster.submit(pow, 2, 3),
            "send": lambda: cluster.send(1, 5),
            "send to several": lambda: cluster.send([1, 2], 5),
            "receive": lambda: cluster.receive(timeout=3),
            "receive from one": lambda: cluster.receive(1, timeout=3),
            "query": lambda: cluster.query(os.getpid, timeout=3),
            "query a handler": lambda: cluster.query("handler", timeout=3),
            "submit_to": lambda: cluster.submit_to(1, os.getpid),
            "barrier": lambda: cluster.group().barrier(timeout=3),
            "exchange": lambda: stream.exchange(1),
            "broadcast": lambda: stream.broadcast(1),
            "waves": lambda: list(stream.waves()),
            "flush": lambda: stream.flush(timeout=3),
            "configure": stream.configure,
            "stream": lambda: cluster.stream(abs),
            "topology": lambda: cluster.topology(fanout=2),
        }
        said = _said_by_a_forked_child(calls, [stream.close, cluster.close])
        assert said == dict.fromkeys(calls, "SW403: the cluster belongs to process")
        assert cluster.submit(pow, 2, 3).result(SOON) == 8
        assert stream.exchange(-1).total == 2


def _said_by_a_forked_child(
    calls: dict[str, Callable[[], Any]], closes: list[Callable[[], None]]
) -> dict[str, str]:
    """Return what each call raised in a forked child; a child that hangs is ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        try:
            said = {}
            for name, call in calls.items():
                try:
                    said[name] = f"returned {call()!r}"
                except sapwood.SapwoodError as error:
                    said[name] = f"{error.code}: {error.what}"[
                        : len("SW403: the cluster belongs to process")
                    ]
                os.write(writing, f"{name}={said[name]}\n".encode())
            for close in closes:
                close()
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        lines = file.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the child ended with {status} after {lines}"
    return dict(line.split("=", 1) for line in lines)


def test_a_program_that_prints_without_end_and_dies_is_still_reported() -> None:
    def chatty() -> None:
        for _ in range(20_000):
            os.write(1, b"another line of a talkative program\n")
        os._exit(7)

    with sapwood.local(agents=1) as cluster:
        error = cluster.submit(chatty).exception(SOON)
        assert isinstance(error, RunnerCrashError)
        assert "status 7" in str(error)


def _processes_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if text.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
