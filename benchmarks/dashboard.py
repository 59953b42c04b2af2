"""What the dashboard costs: at the head and its server with 1,000 nodes, a page, and a run.

The nodes are simulated; the head's snapshot, the server and the pages are the real ones. Processor
time is counted, so other work on the machine matters little; first paint is by the clock. The run
is a real detached one at a real head: each pair is one alone and one that a browser's connection
follows, in an order that changes. What the head and the processes of the run take of the processor
is compared; the browser itself is not counted, because it runs elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from sapwood.comm.link_figures import LinkFigures
from sapwood.head import calls
from sapwood.head.snapshot import NodeSnapshots, cluster_snapshot
from sapwood.nodes import messages
from sapwood.nodes.node_facts import NodeFacts
from sapwood.nodes.registry import NodeView

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

NODES = 1000
LOOKS = 100
PER_SECOND = 2
SECONDS = 10.0
PAINTS = 9
PAIRS = int(os.environ.get("PAIRS", "6"))


def head_share() -> float:
    """Return the share of a core that a head needs for two snapshots a second."""
    facts = NodeFacts(name="n", pid=1, user="u", python="3", architecture="x", cores=16, clock=0.0)
    records = [
        calls.NodeRecord(host=host, name=f"n{host}", node=f"sw{host}", state="ready", facts=facts)
        for host in range(1, NODES + 1)
    ]
    views = {
        one.host: NodeView(
            host=one.host,
            name=one.name,
            node=one.node,
            state="ready",
            facts=facts,
            skew=0.0,
            trouble="",
        )
        for one in records
    }
    links = {one.host: _link(one.host) for one in records}
    daemon = messages.ProcessActivity(pid=1, since=0.0, memory=2**25)
    said = messages.to_value(
        messages.NodeActivity(clock=0.0, daemon=daemon, sessions=[], commands=[], load=1.5)
    )

    def ask(_host: int) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(said)
        return answer

    snapshots = NodeSnapshots(ask)
    began = time.process_time()
    for _ in range(LOOKS):
        nodes = cluster_snapshot(records, views, links, snapshots)
        messages.to_value(calls.ClusterSnapshot(time=0.0, nodes=nodes))
    return (time.process_time() - began) / LOOKS * PER_SECOND


def _link(host: int) -> LinkFigures:
    return LinkFigures(
        rank=host,
        state="up",
        silent=0.0,
        round_trip=0.001,
        round_trip_variation=0.0,
        round_trip_least=0.001,
        messages_sent=1,
        bytes_sent=100,
        messages_received=1,
        bytes_received=100,
        unacknowledged=0,
        waiting=0,
        queued=0,
        dropped=0,
        resumptions=0,
        connection=None,
    )


def pages() -> None:
    """Print what the server needs while a browser shows 1,000 nodes, and the first paint."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - what it is about

    from sapwood_simulation.seen_cluster import SimulatedHead, served  # noqa: PLC0415 - as above

    chromium = shutil.which("chromium")
    assert chromium, "install Debian's package chromium"
    with served(SimulatedHead(NODES)) as cluster, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        paints: list[float] = []
        drawn: list[float] = []
        script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        for _ in range(PAINTS):
            page = browser.new_page()
            page.goto(f"{cluster.url}#/tree")
            page.locator("svg.tree .cell").first.wait_for()
            paints.append(page.evaluate(script))
            drawn.append(page.evaluate("performance.now()"))
            page.close()
        print(f"first paint of the tree: median {statistics.median(paints):.0f} ms", end=", ")
        print(f"all of {NODES} nodes drawn: {statistics.median(drawn):.0f} ms")
        page = browser.new_page()
        page.goto(f"{cluster.url}#/tree")
        page.locator("svg.tree .cell").first.wait_for()
        began, clock = time.process_time(), time.monotonic()
        page.wait_for_timeout(SECONDS * 1000)
        share = (time.process_time() - began) / (time.monotonic() - clock)
        print(f"server, simulated head and this script, one viewer: {share:.1%} of a core")
        browser.close()


# --- the cost to a run ----------------------------------------------------------------------------

PROGRAM = """
import numpy, sapwood

class Pi(sapwood.Program):
    reduce = {"inside": "sum"}
    steps: int = sapwood.parameter(120)
    def default_data(self): return range(400_000)
    def init(self, data): return {"n": 0, "inside": 0.0}
    def map(self, slice, state):
        x = numpy.arange(slice.start, slice.stop) / 400_000
        for _ in range(20):
            inside = float((x * x + x[::-1] ** 2 < 1).sum())
        return {"inside": inside}
    def update(self, state, total): return {"n": state["n"] + 1, "inside": total["inside"]}
    def done(self, state): return state["n"] >= self.steps
    def iterations(self): return self.steps
    def result(self, state): return state["inside"]
"""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, Any]]:
    """A cluster of this machine whose HTTP server asks for no credential."""
    os.environ |= {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG")}
    up = cli("up", "--http", "127.0.0.1:0", "--http-no-token", "--json")
    try:
        yield json.loads(up)
    finally:
        cli("down")


def cli(*words: str) -> str:
    """Run a command of Sapwood; return what it writes."""
    command = [sys.executable, "-m", "sapwood", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Follower:
    """The connection of a browser that shows a run: it reads all that it receives."""

    def __init__(self, url: str, run: str) -> None:
        self._url = f"{url}/api/v1/live?topics=run&about={run}"
        self._over = threading.Event()
        self.messages = 0
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        import httpx  # noqa: PLC0415 - of the tests

        with httpx.stream("GET", self._url, timeout=30, trust_env=False) as answer:
            for line in answer.iter_lines():
                self.messages += line.startswith("event:")
                if self._over.is_set():
                    return

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()


def processor_times(top: int) -> tuple[float, float]:
    """Return the processor seconds of all that a head has begun, and of it and its server alone."""
    import psutil  # noqa: PLC0415 - of the tests

    found, own = 0.0, 0.0
    process = psutil.Process(top)
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
            if one.pid == top or "sapwood.server.process" in one.cmdline():
                own += times.user + times.system
    return found, own


class RunCost(NamedTuple):
    """What a run took.

    Attributes:
        processor: Seconds of a core, of all its processes, the head and its HTTP server.
        served: Of these, those of head and server.
        seconds: By the clock.
        messages: The messages that a follower received.
    """

    processor: float
    served: float
    seconds: float
    messages: int


def one_run(head: dict[str, Any], program: Path, *, followed: bool) -> RunCost:
    """Return what a run took."""
    before = processor_times(head["pid"])
    begun = json.loads(cli("run", str(program), "--detach", "--agents", "2", "--json"))["id"]
    follower = Follower(head["http"][0], begun) if followed else None
    answer = json.loads(cli("run", "follow", begun, "--json"))
    if follower is not None:
        follower.close()
    all_of_it, served = processor_times(head["pid"])
    return RunCost(
        all_of_it - before[0],
        served - before[1],
        answer["statistics"]["seconds"],
        follower.messages if follower else 0,
    )


def run_cost() -> None:
    """Print by how much a run takes longer when a browser shows it."""
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "looked_at.py"
        program.write_text(PROGRAM)
        with cluster(Path(name)) as head:
            one_run(head, program, followed=True)  # all that is made once is there
            cost: list[float] = []
            served: list[float] = []
            seconds: list[float] = []
            for pair in range(PAIRS):
                order = (True, False) if pair % 2 else (False, True)
                found = {one: one_run(head, program, followed=one) for one in order}
                alone, looked = found[False], found[True]
                cost.append(looked.processor / alone.processor - 1)
                served.append((looked.served - alone.served) / alone.processor)
                seconds.append(looked.seconds / alone.seconds - 1)
                print(
                    f"  alone {alone.processor:.2f} s of a core ({alone.served:.2f} s of it head "
                    f"and server) in {alone.seconds:.2f} s, followed {looked.processor:.2f} s "
                    f"({looked.served:.2f} s) in {looked.seconds:.2f} s, {looked.messages} messages"
                )
    print(f"cost of a viewer to a run, median of {PAIRS} pairs: {statistics.median(served):+.1%}")
    print("of its processor time is what head and server take more; all together", end=" ")
    print(f"{statistics.median(cost):+.1%}, time {statistics.median(seconds):+.1%}")


if __name__ == "__main__":
    print(f"{NODES} nodes, {PER_SECOND} snapshots a second")
    print(f"head: {head_share():.1%} of a core")
    pages()
    run_cost()
