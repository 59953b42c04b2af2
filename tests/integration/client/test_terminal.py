"""Processes of a cluster are in the background of the terminal that the user sits at."""

import os
import pty
import subprocess
import sys
import termios

AT_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""

ASK_AND_TELL = """
import os, time, sapwood
from sapwood.core.errors import UserCodeError

def tell():
    with open("/dev/tty", "wb", buffering=0) as terminal:
        terminal.write(b"from an agent")

def ask():
    with open("/dev/tty", "rb", buffering=0) as terminal:
        return terminal.read()

with sapwood.local(agents=2) as cluster:
    cluster.submit(tell).result(timeout=30)
    try:
        cluster.submit(ask).result(timeout=30)
    except UserCodeError as error:
        print(error)
    same = cluster.submit(os.getsid, 0).result() == os.getsid(0)
    other = cluster.submit(os.getpgid, 0).result() != os.getpgid(0)
    print("session and group:", same, other)
    try:
        print("begin", flush=True)
        cluster.submit_to(1, time.sleep, 600).result()
    except KeyboardInterrupt:
        print("agents:", cluster.submit_to(2, abs, -3).result(timeout=30))
"""


def test_agents_neither_stop_at_the_terminal_nor_hear_its_interrupts() -> None:
    master, slave = pty.openpty()
    settings = termios.tcgetattr(slave)
    settings[3] |= termios.TOSTOP
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    command = [sys.executable, "-c", AT_A_TERMINAL, ASK_AND_TELL]
    with subprocess.Popen(
        command, stdin=slave, stdout=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        os.close(slave)
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line == "begin\n":
                assert os.read(master, 100) == b"from an agent"
                os.write(master, b"\x03")
    os.close(master)
    assert "Input/output error" in said[0]
    assert said[-3:] == ["session and group: True True\n", "begin\n", "agents: 3\n"]
    assert process.returncode == 0
