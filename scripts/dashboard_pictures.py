"""Takes the pictures of docs/clusters/dashboard.md: `python scripts/dashboard_pictures.py`.

It needs Debian's chromium and playwright. The cluster is simulated; pages and server are the real
ones.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from sapwood.head import calls

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "simulation"))

from sapwood_simulation.seen_cluster import SimulatedHead, served  # noqa: E402 - after the path

AGENTS, ITERATIONS, ITEMS = 8, 30, 1_000_000
SHOTS = [
    ("overview", 1100, 900),
    ("tree", 1100, 880),
    ("nodes/n2", 1100, 640),
    ("runs/aa11bb22", 1100, 700),
]
"""Page, width and height of each picture."""


def record() -> dict[str, Any]:
    """Return who did what in a run whose fifth agent is slow until its items are moved."""
    draw = random.Random(3)  # noqa: S311 - a picture
    now, ends, iterations = 0.4, [0.4] * AGENTS, []
    share = ITEMS // AGENTS
    for number in range(1, ITERATIONS + 1):
        began, shares = now, []
        for agent in range(AGENTS):
            start = max(now, ends[agent]) + draw.uniform(0.0005, 0.002)
            slow = 2.2 if agent == 4 and number < 14 else 1.0
            took = draw.uniform(0.04, 0.06) * slow
            waited = start - ends[agent] if number > 1 else 0.0
            shares.append(
                {
                    "agent": agent + 1,
                    "started": start,
                    "seconds": took,
                    "waited": waited,
                    "items": share,
                    "bytes_up": 2048,
                }
            )
        ends = [one["started"] + one["seconds"] for one in shares]
        now = max(ends) + 0.004
        iterations.append(
            {"iteration": number, "started": began, "seconds": now - began, "agents": shares}
        )
    at = {one["iteration"]: one["started"] for one in iterations}
    move = {"source": 5, "target": 2, "items": 60_000, "reason": "agent 5 takes 2.2 times as long"}
    late: dict[str, Any] = {"agent": 5, "by": 7, "stop": 5 * share, "reason": "agent 5 is late"}
    helped = [
        {
            **late,
            "at": at[n] + 0.07,
            "iteration": n,
            "start": 5 * share - 40_000,
            "outcome": outcome,
        }
        for n, outcome in ((9, "used"), (11, "late"), (12, "used"))
    ]
    loss = {"agent": 3, "what": "replaced", "reason": "signal 9 ended its process"}
    return {
        "run": "quantize-1",
        "program": "quantize",
        "hash": "ab12",
        "began": time.time() - now,
        "seconds": now,
        "items": ITEMS,
        "done": ITERATIONS,
        "delegate": "measured",
        "agents": [
            {
                "agent": agent + 1,
                "node": f"n{agent // 2 + 1}",
                "start": agent * share,
                "stop": (agent + 1) * share,
                "rate": 2.4e6,
            }
            for agent in range(AGENTS)
        ],
        "iterations": iterations,
        "moves": [{"at": at[14], "iteration": 14, **move}],
        "late": helped,
        "losses": [{"at": at[6] + 0.02, "iteration": 10, **loss}],
        "checkpoints": [{"at": at[n], "iteration": n, "seconds": 0.002} for n in (8, 16, 24)],
        "counts": {
            "iterations": ITERATIONS,
            "moves": 1,
            "late": len(helped),
            "losses": 1,
            "checkpoints": 3,
        },
    }


def simulated(folder: Path) -> SimulatedHead:
    """Return a cluster with something to see."""
    head = SimulatedHead(24)
    head.session("day", AGENTS, fanout=4)
    for host in range(1, 5):
        head.note("node.joined", f"n{host} joined", f"n{host}")
    head.lost = {"n3", "n4"}
    head.note("node.lost", "nothing heard for 4.2 s", "n3")
    head.note("node.lost", "nothing heard for 4.2 s", "n4")
    found = record()
    progress = {
        "state": "running",
        "iteration": ITERATIONS,
        "iterations": 60,
        "seconds": found["seconds"],
        "seconds_per_iteration": 0.083,
        "items": ITEMS,
        "items_per_second": 1.2e7,
        "agents": AGENTS,
        "metrics": {"inertia": 1234.5},
    }
    (folder / "work.json").write_text(json.dumps(found))
    (folder / "progress.json").write_text(json.dumps(progress))
    (folder / "output.log").write_text("agent[1-8]: ready\n")
    now = time.time()
    head.runs = [
        calls.RunRecord(
            id="aa11bb22",
            program="quantize",
            session="day",
            state="running",
            created=now - 30,
            folder=str(folder),
        ),
        calls.RunRecord(
            id="cc33dd44",
            program="pi",
            session="",
            state="failed",
            created=now - 300,
            ended=now - 200,
            folder="/nowhere",
        ),
    ]
    return head


def main() -> None:
    """Take the pictures."""
    chromium = shutil.which("chromium")
    assert chromium, "install Debian's package chromium"
    with (
        tempfile.TemporaryDirectory() as folder,
        served(simulated(Path(folder))) as cluster,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, width, height in SHOTS:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(f"{cluster.url}#/{name}")
            page.locator("main .card").first.wait_for()
            page.wait_for_timeout(6000 if "/" not in name else 3000)  # something to draw over time
            file = f"dashboard-{name.split('/')[0]}{'-one' if '/' in name else ''}"
            path = ROOT / "docs" / "_static" / f"{file}.png"
            page.screenshot(path=path)
            print(path.name, path.stat().st_size)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
