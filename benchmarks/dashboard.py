"""What the dashboard costs: at the head and its server with 1,000 nodes, and until a page is seen.

The nodes are simulated; the head's glance, the server and the pages are the real ones. Processor
time is counted, so other work on the machine matters little; first paint is by the clock.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sapwood.comm.link_figures import LinkFigures
from sapwood.head import calls
from sapwood.head.glance import NodeGlances, cluster_glance
from sapwood.nodes import messages
from sapwood.nodes.control import NodeView
from sapwood.nodes.joining import NodeFacts

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

NODES = 1000
LOOKS = 100
PER_SECOND = 2
SECONDS = 10.0
PAINTS = 5


def head_share() -> float:
    """Return the share of a core that a head needs for two glances a second."""
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

    glances = NodeGlances(ask)
    began = time.process_time()
    for _ in range(LOOKS):
        nodes = cluster_glance(records, views, links, glances)
        messages.to_value(calls.ClusterGlance(time=0.0, nodes=nodes))
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
        script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        for _ in range(PAINTS):
            page = browser.new_page()
            page.goto(f"{cluster.url}#/tree")
            page.locator("svg.tree .cell").first.wait_for()
            paints.append(page.evaluate(script))
            page.close()
        print(f"first paint of the tree: median {statistics.median(paints):.0f} ms")
        page = browser.new_page()
        page.goto(f"{cluster.url}#/tree")
        page.locator("svg.tree .cell").first.wait_for()
        began, clock = time.process_time(), time.monotonic()
        page.wait_for_timeout(SECONDS * 1000)
        share = (time.process_time() - began) / (time.monotonic() - clock)
        print(f"server, simulated head and this script, one viewer: {share:.1%} of a core")
        browser.close()


if __name__ == "__main__":
    print(f"{NODES} nodes, {PER_SECOND} glances a second")
    print(f"head: {head_share():.1%} of a core")
    pages()
