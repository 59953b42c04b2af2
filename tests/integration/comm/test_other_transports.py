"""A-ACT-5: a transport of somebody else, installed as a package of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "transport"

CHECKING = """
import asyncio, itertools, os, sys
from sapwood.comm.transport.registry import Transports
from sapwood.testing.transports import CHECKS, Setting

numbers = itertools.count()
transport, rest = Transports().find("abstract:somewhere")
assert rest == "somewhere"
assert type(transport).__module__ == "sapwood_abstract"
for check in CHECKS:
    asyncio.run(check(Setting(transport, lambda: f"sapwood-{os.getpid()}-{next(numbers)}")))
    print(check.__name__)
print(len(CHECKS), "checks")
"""

TREE = """
import asyncio, os
from sapwood.comm import events as ev, plain
from sapwood.comm.link import Identity
from sapwood.comm.node import Node
from sapwood.comm.driver import NodeDriver
from sapwood.comm.transport.registry import Transports
from sapwood.core.topology import flat

async def main():
    transport, name = Transports().find(f"abstract:tree-{os.getpid()}")
    loop, answered, asked = asyncio.get_running_loop(), [], []
    joined, done = asyncio.Event(), asyncio.Event()

    def answer(effect):
        child.post(ev.Answer(effect.source, effect.number, effect.body, None))

    def take(effect):
        answered.append(plain.decode(effect.body))
        done.set()

    handlers = {ev.PlaceJoined: lambda _: joined.set(), ev.Answered: take}
    root = NodeDriver(Node(Identity("c", 0, 1, 1, "a"), flat(1)), handlers, loop, print)
    child = NodeDriver(Node(Identity("c", 1, 1, 1, "b"), flat(1)), {ev.Asked: answer}, loop, print)
    listener = await transport.listen(name, root)
    child.post(ev.Begin())
    await transport.connect(name, child)
    await asyncio.wait_for(joined.wait(), 20)
    root.post(ev.Ask(1, "echo", 1, plain.encode("over there"), None))
    await asyncio.wait_for(done.wait(), 20)
    print(answered)
    root.close(); child.close(); listener.close()

asyncio.run(main())
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
