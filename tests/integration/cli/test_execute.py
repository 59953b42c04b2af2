"""``sapwood exec`` over two nodes of this machine and on it directly."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Sapwood = Callable[..., subprocess.CompletedProcess[str]]

PATIENCE = 60.0
MIB = 2**20

pytestmark = pytest.mark.timeout(180)


def command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("sapwood")), "exec", *words]


def memory(pid: int) -> int:
    """Bytes of a process that are in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


@pytest.mark.row("C3-IOF")
def test_equal_lines_are_folded_and_different_ones_kept_apart(sapwood: Sapwood) -> None:
    script = "echo same; echo $$; echo bad >&2; exit 3"
    done = sapwood("exec", "--on", "nodes:2", "--", "sh", "-c", script)
    assert done.returncode == 3
    first, *others = done.stdout.splitlines()
    assert first == "local[1-2]: same"
    assert [line.partition(": ")[0] for line in sorted(others)] == ["local1", "local2"]
    assert "local[1-2]: bad" in done.stderr
    assert "sapwood: local[1-2]: exit code 3" in done.stderr


def test_a_command_that_is_not_there_is_said_by_name(sapwood: Sapwood) -> None:
    done = sapwood("exec", "--on", "nodes:2", "--", "no-such-command")
    assert done.returncode == 127
    assert "sapwood: local[1-2]: command not found: 'no-such-command'" in done.stderr


def test_output_of_one_machine_is_as_it_came(sapwood: Sapwood) -> None:
    done = sapwood("exec", "--on", "local", "--", "printf", "a\\nb")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\nb", "")
    labelled = sapwood("exec", "--on", "local", "--label", "printf", "a\\nb")
    assert labelled.stdout == "local: a\nlocal: b\n"


def test_the_folder_of_the_command_can_be_chosen(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert sapwood("exec", "pwd").stdout == f"{tmp_path}\n"
    assert sapwood("exec", "--cwd", "there", "pwd").stdout == f"{tmp_path}/there\n"


def test_a_command_gets_variables_by_value_and_from_here(
    sapwood: Sapwood, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREE", "oak")
    words = ("--env", "TREE", "--env", "LEAF=a=b")
    done = sapwood("exec", "--on", "nodes:1", *words, "--", "sh", "-c", "echo $TREE $LEAF")
    assert (done.returncode, done.stdout) == (0, "oak a=b\n")
    done = sapwood("exec", "--env", "NO_SUCH_VARIABLE", "--", "true")
    assert done.returncode == 2
    assert "the environment variable 'NO_SUCH_VARIABLE' is not set here" in done.stderr


def test_lines_of_64_kib_stay_whole(sapwood: Sapwood) -> None:
    script = (
        "import os\nfor i in range(9): print(str(i) * 65536)\nprint('x' + os.environ['W'] * 65536)"
    )
    words = ("exec", "--on", "nodes:2", "--no-label", "--", "python3", "-c", script)
    done = sapwood(*words, W="y")
    assert done.returncode == 0
    expected = [str(i) * 65536 for i in range(9)] + ["x" + "y" * 65536]
    assert sorted(done.stdout.splitlines()) == sorted(expected * 2)


def test_events_are_lines_of_json(sapwood: Sapwood) -> None:
    script = r"printf 'h\303\251'; printf '\377' >&2; kill -9 $$"
    done = sapwood("exec", "--on", "local", "--json", "--", "sh", "-c", script)
    assert done.returncode == 137
    events = [json.loads(line) for line in done.stdout.splitlines()]
    output = {"event": "output", "node": "local"}
    assert {**output, "stream": "stdout", "data": "hé"} in events
    assert {**output, "stream": "stderr", "base64": "/w=="} in events
    ends = [{"event": "ended", "node": "local", "status": 137}, {"event": "exit", "status": 137}]
    assert events[-2:] == ends


def test_errors_are_json_too(sapwood: Sapwood) -> None:
    done = sapwood("exec", "--on", "moon:1", "--json", "--", "true")
    assert done.returncode == 2
    assert "names no machines" in json.loads(done.stdout)["error"]["what"]


@pytest.mark.parametrize("node", ["all", "local2"])
def test_ten_megabytes_of_standard_input_arrive_whole(
    node: str, environment: dict[str, str]
) -> None:
    data = os.urandom(MIB) * 10
    done = subprocess.run(
        command("--on", "nodes:2", "--stdin", node, "--", "sha256sum"),
        input=data,
        env=environment,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    whole = hashlib.sha256(data).hexdigest()
    empty = hashlib.sha256(b"").hexdigest()
    expected = {
        "all": {f"local[1-2]: {whole}  -"},
        "local2": {f"local1: {empty}  -", f"local2: {whole}  -"},
    }
    assert set(done.stdout.decode().splitlines()) == expected[node]


def test_a_slow_reader_makes_the_commands_wait_and_nothing_grow(
    environment: dict[str, str],
) -> None:
    """20 MB from each node, different ones: unread output stays in the nodes."""
    line = "b'%d' % (os.getpid() % 7) * 8191 + b'\\n'"
    script = f"import os\nline = {line}\nfor _ in range(2560): os.write(1, line)"
    process = subprocess.Popen(
        command("--on", "nodes:2", "--", "python3", "-c", script),
        stdout=subprocess.PIPE,
        env=environment,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        before, peak, size, reads = memory(process.pid), 0, 0, 0
        while data := process.stdout.read(256 * 1024):
            size += len(data)
            reads += 1
            threading.Event().wait(0.005)  # this is the slow reader
            if reads % 10 == 0 and process.poll() is None:
                peak = max(peak, memory(process.pid))
    assert process.returncode == 0
    assert size > 20 * MIB - 10_000
    assert peak - before < 40 * MIB  # bytes in transit and bytes that wait to be folded


@pytest.mark.row("D-20")
def test_whole_outputs_are_folded_compared_and_written(sapwood: Sapwood, tmp_path: Path) -> None:
    script = "echo one; echo two"
    on = ("exec", "--on", "nodes:3", "--cwd", str(tmp_path))
    folded = sapwood(*on, "-b", "--outdir", "kept", "--", "sh", "-c", script)
    assert (folded.returncode, folded.stdout) == (0, "--- local[1-3]\none\ntwo\n")
    kept = {path.name: path.read_text() for path in (tmp_path / "kept").iterdir()}
    assert kept == {f"local{n}.out": "one\ntwo\n" for n in (1, 2, 3)} | {
        f"local{n}.err": "" for n in (1, 2, 3)
    }
    once = "mkdir first 2>/dev/null && echo mine || echo usual"
    different = sapwood(*on, "--diff", "--", "sh", "-c", once)
    lines = different.stdout.splitlines()
    assert lines[1] == "usual"
    assert lines[-2:] == ["-usual", "+mine"]


def test_nodes_are_excluded_and_picked(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "some").write_text("local[2-3]\n")
    on = ("exec", "--on", "nodes:4", "--label")
    left = sapwood(*on, "--nodes", "local1,@./some", "--exclude", "local3", "--", "echo", "x")
    assert left.stdout == "local[1-2]: x\n"
    picked = sapwood(*on, "--exclude", "@./some", "--pick", "1", "--", "echo", "x")
    assert picked.stdout in {"local1: x\n", "local4: x\n"}
    refused = sapwood(*on, "--pick", "5", "--", "echo", "x")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "5 of 4 nodes cannot be picked" in refused.stderr
    none = sapwood(*on, "--exclude", "local[1-4]", "--", "echo", "x")
    assert (none.returncode, none.stdout) == (2, "")
    assert "no node is left" in none.stderr


def test_a_command_is_killed_where_it_runs_too_long(sapwood: Sapwood, tmp_path: Path) -> None:
    script = f"echo $$ >> pids; mkdir first 2>/dev/null && exit 5; exec sleep {PATIENCE}"
    words = ("--cwd", str(tmp_path), "--time-limit", "500 ms", "--", "sh", "-c", script)
    done = sapwood("exec", "--on", "nodes:2", *words)
    assert done.returncode == 124
    assert "killed because it ran longer than 0.5 s" in done.stderr
    assert "exit code 5" in done.stderr
    until_gone([int(pid) for pid in (tmp_path / "pids").read_text().split()])
    for wrong in ("soon", "0"):
        assert sapwood("exec", "--time-limit", wrong, "--", "true").returncode == 2


def test_machines_get_some_time_to_answer(sapwood: Sapwood, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec sleep {PATIENCE}\n")
    ssh.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = sapwood("exec", "--on", "ssh:n1", "--timeout", "300 ms", "--", "true", PATH=path)
    assert done.returncode == 6
    assert "n1" in done.stderr


def test_lines_of_a_shell_run_on_all_nodes(environment: dict[str, str]) -> None:
    done = subprocess.run(
        command("--on", "nodes:2", "--shell"),
        input="echo one\n\nfalse\necho two; exit 3\n",
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == "local[1-2]: one\nlocal[1-2]: two\n"
    assert done.stderr.endswith(
        "sapwood: local[1-2]: exit code 1\nsapwood: local[1-2]: exit code 3\n"
    )


def test_what_cannot_be_together_is_refused(sapwood: Sapwood) -> None:
    for words in (["--shell", "--", "true"], [], ["--json", "--diff", "--", "true"]):
        assert sapwood("exec", *words).returncode == 2


RUNNING = "trap 'exit 9' INT; echo $$; sleep 600 & echo $!; while :; do sleep 0.02; done"
STUBBORN = "trap '' INT TERM; echo $$; setsid sleep 600 & echo $!; while :; do sleep 0.02; done"


@contextmanager
def running(
    script: str, spec: str, nodes: int
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start a command that writes two process ids on each node."""
    process = subprocess.Popen(
        command("--on", spec, "--no-label", "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, [int(process.stdout.readline()) for _ in range(2 * nodes)]
        finally:
            process.kill()


def until_gone(pids: list[int]) -> None:
    for _ in range(int(PATIENCE * 100)):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return
        threading.Event().wait(0.01)
    pytest.fail(f"still there: {pids}")


both = pytest.mark.parametrize(("spec", "nodes"), [("local", 1), ("nodes:2", 2)])


@both
def test_an_interrupt_goes_to_the_command_and_its_exit_code_comes_back(
    spec: str, nodes: int
) -> None:
    with running(RUNNING, spec, nodes) as (process, pids):
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 9
        until_gone(pids)


@both
def test_a_second_interrupt_kills_what_does_not_heed_the_first(spec: str, nodes: int) -> None:
    with running(STUBBORN, spec, nodes) as (process, pids):
        process.send_signal(signal.SIGINT)
        threading.Event().wait(0.2)  # else both are one to the kernel
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        until_gone(pids)


@both
def test_nothing_is_left_when_the_client_is_killed(spec: str, nodes: int) -> None:
    with running(STUBBORN, spec, nodes) as (process, pids):
        process.kill()
        until_gone(pids)


def test_an_interrupt_is_heeded_while_nobody_reads_the_output() -> None:
    with running(f"echo 1; echo 1; exec yes {'x' * 1000}", "local", 1) as (process, _):
        process.send_signal(signal.SIGINT)  # `yes` ends
        assert process.stdout is not None
        while process.stdout.read(65536):
            pass
        assert process.wait(PATIENCE) == 130


def test_a_second_interrupt_is_heeded_while_nobody_reads_the_output() -> None:
    script = f"trap '' INT; echo $$; echo $$; exec yes {'x' * 1000}"
    with running(script, "local", 1) as (process, pids):
        process.send_signal(signal.SIGINT)
        threading.Event().wait(0.2)  # else both are one to the kernel
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        until_gone(pids)


def test_nothing_is_left_when_the_reader_goes_away() -> None:
    process = subprocess.Popen(
        command("--on", "local", "--", "yes"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(PATIENCE) != 0
