"""A-ACT-5: a third-party transport, installed as a separate package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE = EXAMPLES / "transport"
QUANTIZE = EXAMPLES / "quantize"

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
    """Install the example into a separate folder."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", "install", *options, str(EXAMPLE)]
    subprocess.run(command, check=True, timeout=120)
    return folder


def run(script: str, installed: Path, *arguments: str) -> str:
    file = () if arguments else ("-c",)
    result = subprocess.run(
        [sys.executable, *file, script, *arguments],
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
    assert run(CHECKING, installed).endswith("11 checks\n")


@pytest.mark.row("A-ACT-5")
def test_places_talk_over_a_transport_of_somebody_else(installed: Path) -> None:
    assert run(TREE, installed) == "['over there']\n"


# --- whole sessions ---------------------------------------------------------------------------

SESSION = """
import os, signal, sys
from pathlib import Path
import numpy as np
import sapwood
from sapwood.session.embedded import embedded

PIXELS = np.random.default_rng(3).integers(0, 256, (60_000, 3), dtype=np.uint8)

def answers(cluster):
    chosen = {"colours": 5, "max_iterations": 8}
    found = cluster.run(sys.argv[1], PIXELS, parameters=chosen).result()
    waves = []
    with cluster.stream(lambda x: x * 2, reduce="sum", on_loss="replace") as stream:
        for wave in range(10):
            if wave == 5:
                agent = cluster.agents[1]
                os.kill(agent.pid, signal.SIGKILL)
            waves.append(stream.exchange(np.arange(50_000.0) * wave, timeout=60).total)
        assert cluster.agents[1].pid != agent.pid
    tasks = list(cluster.map(pow, range(20), [2] * 20))
    with cluster.topology(2) as tree, tree.stream(lambda x: x, reduce="sum") as stream:
        tasks.append(stream.exchange(3, timeout=60).total)
    return found, waves, tasks

with sapwood.local(4, fanout=2) as cluster:
    assert embedded(cluster.session).options.shared_memory
    expected = answers(cluster)
with sapwood.local(4, fanout=2, transport="abstract") as cluster:
    session = embedded(cluster.session)
    options, folder = session.options, Path(session.host._folder)
    assert not (options.shared_memory or options.fastpath or options.spin)
    assert list(folder.iterdir()) == []  # no socket with a file
    names = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()}
    assert {f"@{folder}/{rank}.sock" for rank in (0, *session.tree.junctions)} <= names
    found = answers(cluster)
    assert session.shortcut.passed == 0
np.testing.assert_equal(found, expected)
print("equal")
"""


@pytest.mark.row("A-ACT-5")
def test_a_session_over_a_transport_of_somebody_else_has_the_same_results(
    installed: Path, tmp_path: Path
) -> None:
    """An agent is killed meanwhile; none of the short cuts of one machine is in use."""
    script = tmp_path / "session.py"
    script.write_text(SESSION)
    assert run(str(script), installed, str(QUANTIZE)) == "equal\n"
