"""What every launcher must do: a suite that any implementation can be put through.

::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_launcher(check: Check) -> None:
        check(MyLauncher(["n1", "n2"]))

The machines of the launcher need a shell, and no Python. Each check leaves nothing on them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from sapwood.contexts.launchers.base import Launcher

PATIENCE = 30.0
"""Seconds after which something that did not happen counts as never happening."""

WORDS = "a 'b c' \"d\" $e `f` \\g * ü"
"""What a shell on the way could read otherwise."""


@contextlib.contextmanager
def started(launcher: Launcher, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command on the first machine of a launcher; it ends with the block.

    Raises:
        AssertionError: A standard stream is not a pipe.
    """
    process = launcher.start(launcher.hosts[0], command)
    try:
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None, "a standard stream of the command is not a pipe"
        yield process
    finally:
        process.kill()
        process.communicate()


def said(launcher: Launcher, command: str, told: bytes = b"") -> tuple[int, bytes, bytes]:
    """Return status, output and errors of a command with some input."""
    with started(launcher, command) as process:
        out, errors = process.communicate(told, timeout=PATIENCE)
        return process.returncode, out, errors


def names_machines_once(launcher: Launcher) -> None:
    """The launcher has machines with different names, and several starts may be pending."""
    assert launcher.name, "the launcher has no name"
    assert launcher.hosts, "the launcher has no machine"
    assert len(set(launcher.hosts)) == len(launcher.hosts), "a machine is there twice"
    assert all(launcher.hosts)
    assert launcher.concurrency >= 1


def runs_a_command_of_the_shell(launcher: Launcher) -> None:
    """The command is one of a shell, and no shell on the way changes its words."""
    quoted = WORDS.replace("'", "'\\''")
    status, out, errors = said(launcher, f"x='{quoted}'; printf '%s' \"$x\"")
    assert (status, out.decode()) == (0, WORDS), errors


def connects_standard_input(launcher: Launcher) -> None:
    """All bytes arrive, of any value, and then the end."""
    sent = bytes(range(256)) * 1024
    status, out, _ = said(launcher, "cat", sent)
    assert status == 0
    assert out == sent, "standard input or output is not carried as it is"


def answers_while_the_command_runs(launcher: Launcher) -> None:
    """A line that is written arrives at once, and so does its answer."""
    with started(launcher, 'while read -r line; do echo "got $line"; done') as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        for number in range(3):
            stdin.write(b"%d\n" % number)
            stdin.flush()
            assert stdout.readline() == b"got %d\n" % number


def keeps_output_and_errors_apart(launcher: Launcher) -> None:
    """Standard error is separate from standard output."""
    status, out, errors = said(launcher, "echo output; echo trouble >&2")
    assert (status, out) == (0, b"output\n")
    assert b"trouble\n" in errors


def returns_the_exit_code(launcher: Launcher) -> None:
    """The exit code of the command is that of what was started."""
    assert said(launcher, "exit 0")[0] == 0
    assert said(launcher, "exit 3")[0] == 3


def ends_with_its_standard_input(launcher: Launcher) -> None:
    """Nothing outlives its input: a command that reads ends when the input does."""
    with started(launcher, "cat >/dev/null; echo over") as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.close()
        process.stdin = None
        assert stdout.read() == b"over\n"
        assert process.wait(PATIENCE) == 0


def is_cut_by_a_kill(launcher: Launcher) -> None:
    """When what was started is killed, the command reads the end of its input and may end."""
    with started(launcher, "echo begun; exec cat") as process:
        stdout = process.stdout
        assert stdout is not None
        assert stdout.readline() == b"begun\n"
        process.kill()
        assert process.wait(PATIENCE) != 0
        assert stdout.read() == b"", "the command still runs, though its channel was cut"


def is_deaf_to_the_terminal(launcher: Launcher) -> None:
    """Ctrl-C at the terminal is the client's business: it does not reach what was started."""
    with started(launcher, "cat") as process:
        assert os.getpgid(process.pid) != os.getpgrp(), "it gets the signals of the terminal"


def starts_several_at_once(launcher: Launcher) -> None:
    """As many commands as the launcher says run at a time."""
    with contextlib.ExitStack() as stack:
        hosts = list(launcher.hosts)[: launcher.concurrency]
        begun = time.monotonic()
        running = [launcher.start(host, "echo here; cat") for host in hosts]
        for process in running:
            stack.callback(process.communicate)
            stack.callback(process.kill)
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
        assert time.monotonic() - begun < PATIENCE


def explains_an_end(launcher: Launcher) -> None:
    """A cause is one line, whatever is known of it, and what was said counts."""
    host = launcher.hosts[0]
    for status in (0, 1, 3, 127, 255, -9, -64):
        for text in ("", "\n", "no such thing\n", "first\nno such thing", "{0} %s\x00\n"):
            cause = launcher.explain(host, status, text)
            assert cause.strip(), "an end has no cause"
            assert "\n" not in cause, "a cause is longer than a line"
    assert "no such thing" in launcher.explain(host, 3, "first\nno such thing\n")
    assert launcher.explain(host, 3, "") != launcher.explain(host, 4, "")


def is_closed_twice(launcher: Launcher) -> None:
    """Closing what is closed does nothing."""
    launcher.close()
    launcher.close()


Check = Callable[[Launcher], None]

CHECKS: Sequence[Check] = (
    names_machines_once,
    runs_a_command_of_the_shell,
    connects_standard_input,
    answers_while_the_command_runs,
    keeps_output_and_errors_apart,
    returns_the_exit_code,
    ends_with_its_standard_input,
    is_cut_by_a_kill,
    is_deaf_to_the_terminal,
    starts_several_at_once,
    explains_an_end,
    is_closed_twice,
)
"""Everything that a launcher must do."""
