"""A-ACT-5: a transport of somebody else, installed as a package of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "transport"

CHECKING = """
import itertools, os
from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.registry import Transports
from sapwood.testing.transports import CHECKS, Setting

loop, numbers = Reactor(), itertools.count()
transport, rest = Transports().find("abstract:somewhere")
assert rest == "somewhere"
assert type(transport).__module__ == "sapwood_abstract"

def new_address():
    return f"sapwood-{os.getpid()}-{next(numbers)}"

for check in CHECKS:
    check(Setting(transport, new_address, loop, loop.run))
    print(check.__name__)
print(len(CHECKS), "checks")
"""

TREE = """
import os
from sapwood.comm import events as ev, plain
from sapwood.comm.link import Identity
from sapwood.comm.node import Node
from sapwood.comm.driver import NodeDriver
from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.registry import Transports
from sapwood.core.topology import flat

transport, name = Transports().find(f"abstract:tree-{os.getpid()}")
loop = Reactor()

def ask(effect):
    root.post(ev.Ask(1, "echo", 1, plain.encode("over there"), None))

def answer(effect):
    child.post(ev.Answer(effect.source, effect.number, effect.body, None))

def take(effect):
    print([plain.decode(effect.body)])
    loop.stop()

handlers = {ev.PlaceJoined: ask, ev.Answered: take}
root = NodeDriver(Node(Identity("c", 0, 1, 1, "a"), flat(1)), handlers, loop, print)
child = NodeDriver(Node(Identity("c", 1, 1, 1, "b"), flat(1)), {ev.Asked: answer}, loop, print)
listener = transport.listen(name, root, loop)
child.post(ev.Begin())
transport.connect(name, child, loop, print)
loop.call_later(20, loop.stop)
loop.run()
root.close(); child.close(); listener.close()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the example into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", "install", *options, str(EXAMPLE)]
    subprocess.run(command, check=True, timeout=120)
    return folder


def run(script: str, installed: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.row("A-ACT-5")
def test_a_transport_of_somebody_else_passes_all_checks(installed: Path) -> None:
    assert run(CHECKING, installed).endswith("10 checks\n")


@pytest.mark.row("A-ACT-5")
def test_places_talk_over_a_transport_of_somebody_else(installed: Path) -> None:
    assert run(TREE, installed) == "['over there']\n"
