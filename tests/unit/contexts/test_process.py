import os
import select
import signal
import subprocess
import sys

import pytest

from sapwood.contexts.process import children, describe_status


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-60, "killed by signal 60"),
    ],
)
def test_statuses_are_said_as_people_do(status: int, said: str) -> None:
    assert describe_status(status) == said


def test_children_are_those_of_the_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.pid in children(os.getpid())
    child.communicate(b"\n")
    assert child.pid not in children(os.getpid())


def test_a_process_that_is_gone_has_no_children() -> None:
    assert children(2**22) == []


CHRT = {os.SCHED_OTHER: ["--other"], os.SCHED_BATCH: ["--batch"], os.SCHED_IDLE: ["--idle"]}

MIDDLE = """
import os, signal
from sapwood.contexts.process import die_with_parent
parent = os.getpid()
pid = os.fork()
if pid == 0:
    die_with_parent(parent)
    print(os.getpid(), flush=True)
    signal.pause()
signal.pause()
"""


def test_a_process_ends_with_its_parent() -> None:
    middle = subprocess.Popen([sys.executable, "-c", MIDDLE], stdout=subprocess.PIPE)
    assert middle.stdout is not None
    child = int(middle.stdout.readline())
    watched = os.pidfd_open(child)
    middle.kill()
    middle.wait()
    middle.stdout.close()
    ended, _, _ = select.select([watched], [], [], 10)
    os.close(watched)
    assert ended


ORPHAN = """
import os
from sapwood.contexts.process import die_with_parent
die_with_parent(os.getppid() + 1)
print("still here")
"""


def test_a_process_whose_parent_is_gone_already_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""


FORGETFUL = """
import os, signal
from sapwood.contexts.process import forget_signals
signal.signal(signal.SIGTERM, lambda *_: None)
signal.set_wakeup_fd(os.pipe2(os.O_NONBLOCK)[1])
forget_signals()
assert signal.set_wakeup_fd(-1) == -1
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_signal_handlers_of_the_parent_are_forgotten() -> None:
    done = subprocess.run([sys.executable, "-c", FORGETFUL], capture_output=True, check=False)
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (os.SCHED_OTHER, os.SCHED_BATCH),
        (os.SCHED_BATCH, os.SCHED_BATCH),
        (os.SCHED_IDLE, os.SCHED_IDLE),
    ],
)
@pytest.mark.slow
def test_who_wakes_interrupts_nobody_but_as_the_user_has_chosen(chosen: int, found: int) -> None:
    script = "import os, sapwood.contexts.process as p; p.interrupt_nobody()"
    script += "; print(os.sched_getscheduler(0))"
    done = subprocess.run(
        ["chrt", *CHRT[chosen], "0", sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    assert int(done.stdout) == found
