from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

Sapwood = Callable[..., subprocess.CompletedProcess[str]]

COMMAND = [sys.executable, "-c", "from sapwood.cli.main import main; main()"]
EXPECTED = float((np.arange(1000.0) ** 2).sum())

SOON = 60
"""Seconds in which a command ends on a machine that is busy with other tests."""

ROUNDS = 1_000_000
"""Iterations of a run that has not ended before it is interrupted."""


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    """Variables with the build cache of all tests: most of these here build the same."""
    return {**environment, "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}


def test_json_has_everything(sapwood: Sapwood, squares: Path) -> None:
    words = ("--agents", "5", "--fanout", "2", "-p", "rounds=4", "--json")
    done = sapwood("run", str(squares), *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert answer["program"] == "squares"
    assert answer["parameters"] == {"rounds": 4, "power": 2.0}
    assert answer["items"] == 1000
    assert answer["result"] == {"total": EXPECTED}  # whole numbers: no junction changes it
    assert answer["progress"]["state"] == "done"
    assert answer["progress"]["iteration"] == answer["progress"]["iterations"] == 4
    agents = answer["statistics"]["agents"]
    parts = [(start, start + 200, 4) for start in range(0, 1000, 200)]
    assert [(a["start"], a["stop"], a["calls"]) for a in agents] == parts
    assert all(function["calls"] == 4 for a in agents for function in a["functions"])


def test_a_run_goes_on_from_a_checkpoint(sapwood: Sapwood, squares: Path) -> None:
    words = ("run", str(squares), "--agents", "1", "--set", "limits.checkpoints=1")
    done = sapwood(*words, "--checkpoint", "state", "--json")
    assert json.loads(done.stdout)["statistics"]["checkpoints"] == 2
    again = sapwood(*words, "--resume", "state")
    assert again.returncode == 0, again.stderr
    assert "resumed after iteration 2" in again.stdout
    assert f"total {EXPECTED:.7g}" in again.stdout
    for more in ("--detach", "--watch"):
        refused = sapwood("run", str(squares), "--resume", "state", more)
        assert refused.returncode == 2
        assert "leave out --checkpoint" in refused.stderr


def test_tables_and_lines_for_people(sapwood: Sapwood, squares: Path, tmp_path: Path) -> None:
    done = sapwood("run", str(squares), "--agents", "2", "--output", "result.json", "--verbose")
    assert done.returncode == 0, done.stderr
    assert "squares: done after 3 iterations, total" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("squares: 3 iterations in ")
    assert lines[2] == f"  total {EXPECTED:.7g}"
    assert ["1", "0..500", "500", "3", "0"] in [line.split()[:5] for line in lines]
    assert any(line.startswith("wrote result.json (") for line in lines)
    assert max(map(len, lines)) <= 80
    assert json.loads((tmp_path / "result.json").read_text()) == {"total": EXPECTED}


def test_what_a_program_prints_is_not_among_the_json(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "talking.py").write_text("""
import sapwood

print("said at once")

class Talking(sapwood.Program):
    reduce = {"n": "sum"}

    def default_data(self):
        return range(10)

    def map(self, slice, state):
        return {"n": len(slice)}

    def update(self, state, total):
        print("said later")
        return total
""")
    done = sapwood("run", str(tmp_path / "talking.py"), "--agents", "1", "--json")
    assert json.loads(done.stdout)["items"] == 10
    assert "said at once" in done.stderr
    assert "said later" in done.stderr
    told = sapwood("run", str(tmp_path / "talking.py"), "--agents", "1")
    assert "said later" in told.stdout


def test_quiet_says_nothing(sapwood: Sapwood, squares: Path) -> None:
    done = sapwood("run", str(squares), "--agents", "1", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "texts"),
    [
        (["-p", "round=4"], 2, ["SW121", "round", "did you mean", "rounds"]),
        (["-p", "rounds=none"], 2, ["SW121", "rounds", "whole number"]),
        (["-p", "rounds=0"], 2, ["SW121", "below its minimum"]),
        (["-p", "rounds"], 2, ["-p name=value"]),
        (["--data", "none.npy"], 2, ["SW131", "none.npy"]),
        (["--data", "squares"], 2, ["SW131", "squares", "cannot be read in pieces"]),
        (["--output", "nowhere/x.json"], 2, ["does not exist", "nowhere"]),
        (["--output", "x.doc"], 2, [".doc"]),
        (["--memory-limit", "1"], 2, ["limits.memory", "64 MiB"]),
        (["--memory-limit", "much"], 2, ["limits.memory", "a size such as"]),
        (["--set", "limits.tiem=3"], 2, ["did you mean 'time'"]),
    ],
)
def test_wrong_input_is_one_screen(
    sapwood: Sapwood, squares: Path, arguments: list[str], code: int, texts: list[str]
) -> None:
    done = sapwood("run", str(squares), "--agents", "1", *arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("sapwood: error SW")
    assert len(done.stderr.splitlines()) <= 24
    assert "Traceback" not in done.stderr
    for text in texts:
        assert text in done.stderr


def test_a_full_disk(sapwood: Sapwood, squares: Path, tmp_path: Path) -> None:
    (tmp_path / "full.json").symlink_to("/dev/full")
    done = sapwood("run", str(squares), "--agents", "1", "--output", "full.json")
    assert done.returncode == 5
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_exception_in_a_method_of_the_program_leaves_no_half_file(
    sapwood: Sapwood, squares: Path, tmp_path: Path
) -> None:
    methods = squares / "squares.py"
    methods.write_text(
        methods.read_text()
        + "\ndef output(program, result, data, path):\n    path.write_text('half')\n    1 / 0\n"
    )
    done = sapwood("run", str(squares), "--agents", "1", "--output", "x.json")
    assert done.returncode == 4
    assert "error SW201: ZeroDivisionError" in done.stderr
    assert "where: squares.output" in done.stderr
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
@pytest.mark.parametrize("method", ["update", "output"])
def test_a_program_does_not_end_the_command_with_its_own_status(
    sapwood: Sapwood, tmp_path: Path, method: str, leave: str
) -> None:
    (tmp_path / "leaves.py").write_text(
        "import os, sys\n"
        "import sapwood\n"
        "class Leaves(sapwood.Program):\n"
        "    reduce = {'n': 'sum'}\n"
        "    def init(self, data): return {'n': 0.0}\n"
        "    def map(self, items, state): return {'n': 1.0}\n"
        "    def update(self, state, total): return total\n"
        "    def done(self, state): return True\n"
        "    def output(self, result, data, path): path.write_text('')\n"
        f"    def {method}(self, *args): {leave}(0)\n"
    )
    np.save(tmp_path / "data.npy", np.ones(4))
    done = sapwood("run", "leaves.py", "--data", "data.npy", "--output", "out", "--agents", "1")
    assert done.returncode == 4, done.stderr
    assert f"user code called {leave}(0)" in done.stderr
    assert f"Leaves.{method}" in done.stderr


def test_data_with_names_that_are_no_text(sapwood: Sapwood, squares: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff.npy")
    np.save(odd, np.full(10, 2.0))
    done = sapwood("run", str(squares), "--agents", "3", "--data", str(odd), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == {"total": 40.0}
    assert json.loads(done.stdout)["data"].endswith("odd\N{REPLACEMENT CHARACTER}.npy")


def test_a_program_whose_path_is_no_text(sapwood: Sapwood, squares: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff")
    squares.rename(odd)
    done = sapwood("run", str(odd), "--agents", "1")
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr


def test_no_such_program(sapwood: Sapwood) -> None:
    done = sapwood("run", "nowhere")
    assert done.returncode == 2
    assert "SW120" in done.stderr


def test_a_source_that_does_not_compile(sapwood: Sapwood, squares: Path) -> None:
    source = squares / "squares.c"
    source.write_text(source.read_text().replace("x[i] * x[i]", "x[i] * y[i]"))
    done = sapwood("run", str(squares), "--agents", "1")
    assert done.returncode == 3
    assert "error SW122: squares.c does not compile" in done.stderr
    assert "where: squares.c:11" in done.stderr
    assert "compiler output:" in done.stderr
    assert "'y' undeclared" in done.stderr


def test_no_compiler(sapwood: Sapwood, squares: Path) -> None:
    done = sapwood("run", str(squares), "--agents", "1", PATH="/nonexistent", ZIG="none")
    assert done.returncode == 3
    assert "SW123" in done.stderr
    assert "apt-get install gcc" in done.stderr


def test_a_crash_of_user_code(sapwood: Sapwood, squares: Path) -> None:
    source = squares / "squares.c"
    source.write_text(source.read_text().replace("*total = 0;", "*(volatile int *)0 = 1;"))
    done = sapwood("run", str(squares), "--agents", "2", "--json")
    assert done.returncode == 4
    assert "SW202" in done.stderr
    assert "SIGSEGV" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "SW202"


def test_a_call_over_its_time_limit(sapwood: Sapwood, squares: Path) -> None:
    source = squares / "squares.c"
    source.write_text(
        source.read_text().replace("*total = 0;", "for (volatile int forever = 1; forever;) {}")
    )
    done = sapwood("run", str(squares), "--agents", "1", "--time-limit", "200ms")
    assert done.returncode == 4
    assert "SW203" in done.stderr


def test_dry_run_builds_and_runs_nothing(sapwood: Sapwood, squares: Path, tmp_path: Path) -> None:
    arguments = ("run", str(squares), "--agents", "3", "-p", "rounds=7", "--dry-run")
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    planned = sapwood(*arguments, **own)
    assert planned.returncode == 0, planned.stderr
    assert "squares.c" in planned.stdout
    assert "-O3" in planned.stdout
    assert "not built yet" in planned.stdout
    assert ["rounds", "int", "7"] in [line.split()[:3] for line in planned.stdout.splitlines()]
    assert ["3", "667..1000", "333"] in [line.split() for line in planned.stdout.splitlines()]
    assert max(map(len, planned.stdout.splitlines())) <= 80
    assert not list(tmp_path.glob("cache/sapwood/entries/*"))
    refused = sapwood(*arguments, "--watch")
    assert refused.returncode == 2
    assert "leave one of them out" in refused.stderr

    assert sapwood("run", str(squares), "--agents", "3", "--quiet", **own).returncode == 0
    plan = json.loads(sapwood(*arguments, "--json", **own).stdout)
    assert plan["built"] is True
    assert [part["items"] for part in plan["split"]] == [334, 333, 333]


@pytest.mark.parametrize("then", ["usleep(3000);", "for (volatile int forever = 1; forever;) {}"])
def test_ctrl_c_ends_the_run_and_leaves_nothing(
    environment: dict[str, str],
    squares: Path,
    tmp_path: Path,
    until: Callable[[Callable[[], object]], None],
    then: str,
) -> None:
    begins_with(squares, f'close(creat("{tmp_path}/mapping", 0600)); {then}')
    process = subprocess.Popen(
        [*COMMAND, "run", str(squares), "--agents", "2", "-p", f"rounds={ROUNDS}"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: (tmp_path / "mapping").exists() or process.poll() is not None)
    family: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SOON)
    assert process.returncode == 130
    assert "sapwood: interrupted, cancelling the run" in errors
    assert "Traceback" not in errors
    assert len(family) > 2  # agents, and what started them
    assert psutil.wait_procs(family, timeout=SOON)[1] == []


def test_a_terminal_gets_a_live_display(
    environment: dict[str, str], squares: Path, tmp_path: Path
) -> None:
    begins_with(squares, "usleep(3000);")  # it waits rather than computes
    master, slave = pty.openpty()
    command = [*COMMAND, "run", str(squares), "--agents", "1", "-p", f"rounds={ROUNDS}"]
    variables = {**environment, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=variables, stderr=slave, stdout=subprocess.DEVNULL
    ) as process:
        os.close(slave)
        seen = read_until(master, b"items/s")
        process.send_signal(signal.SIGINT)
        seen += read_until(master, b"interrupted")
        drain(master)
    os.close(master)
    text = seen.decode()
    assert f"/{ROUNDS}" in text
    assert "total 3.328335e+08" in text
    assert "1 agent" in text


def begins_with(program: Path, statements: str) -> None:
    """Let each call of a program begin with some statements."""
    source = program / "squares.c"
    text = source.read_text().replace("*total = 0;", f"{statements} *total = 0;")
    source.write_text(f"#include <fcntl.h>\n#include <unistd.h>\n{text}")


def read_until(descriptor: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        ready, _, _ = select.select([descriptor], [], [], 30)
        assert ready, f"{text!r} never came, but {seen!r}"
        try:
            seen += os.read(descriptor, 4096)
        except OSError:  # EIO: no process writes to the terminal any more
            pytest.fail(f"the command ended before {text!r} came: {seen!r}")
    return seen


def drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        pass  # Linux ends a pseudo-terminal without writers this way


@pytest.mark.row("D-19")
def test_a_profile_and_a_trace_are_written_by_the_names_of_their_files(
    sapwood: Sapwood, squares: Path, tmp_path: Path
) -> None:
    words = ("run", str(squares), "--agents", "2", "-p", "rounds=3", "-q")
    done = sapwood(*words, "--profile", "fit.folded", "--report", "run.json")
    assert done.returncode == 0, done.stderr
    for line in (tmp_path / "fit.folded").read_text().splitlines():
        assert line.rpartition(" ")[2].isdecimal()
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    maps = [one for one in events if one["name"] == "map"]
    assert {one["tid"] for one in maps} == {1, 2}
    assert {one["args"]["iteration"] for one in maps} <= {1, 2, 3}
    done = sapwood(*words, "--profile", "fit.html", "--report", "run.html")
    assert done.returncode == 0, done.stderr
    assert "FlameGraph" in (tmp_path / "fit.html").read_text()
    assert '"profile":{"agents":2' in (tmp_path / "run.html").read_text()
    done = sapwood(*words, "--profile", "fit.png")
    assert done.returncode == 2
    assert "does not say in which form" in done.stderr
    done = sapwood(*words, "--profile", "fit.html", "--detach")
    assert "leave out --profile" in done.stderr
