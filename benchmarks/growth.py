"""How a barrier and a reduction grow with the number of agents, in virtual time.

The protocol cores of production run under virtual time, each message taking 100 µs on its link.
``growth.barrier``
    All agents call a barrier of a group at once; until the last of them knows that all have.
``growth.reduction``
    One wave of a stream: a value down to every agent, a sum of their answers up.
``growth.*.busy``
    The same where a place is busy with each message for 10 µs, so that a place with 16 children
    handles them one after the other.

The floor is the depth of the tree times the latency of a link, up and down. The times are exact:
one run of each is enough, whatever the machine does besides.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from report import Figure, Options, Report
from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.messages import StreamSpec
from sapwood.comm.messages.groups import GroupCall
from sapwood.core.topology import ROOT, kary
from sapwood_simulation.timed import TimedTree

LATENCY = 1e-4
"""Seconds that a message takes on a link."""

BUSY = 1e-5
"""Seconds that a place is busy with each message, in the figures that say so."""

FANOUT = 16


@dataclass(frozen=True)
class Growth:
    """Virtual seconds for one number of agents."""

    agents: int
    floor: float
    barrier: float
    reduction: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Virtual time of a barrier and a reduction.")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--quick", action="store_true", help="up to 1,000 agents")
    parser.add_argument("--agents", type=int, nargs="+", help="numbers of agents")
    parser.add_argument("--output", default="", help="folder for growth.png")
    given = parser.parse_args()
    numbers = given.agents or [10**power for power in range(2, 4 if given.quick else 6)]
    gc.disable()  # a hundred thousand places are not garbage
    found: dict[str, list[Growth]] = {"": [], ".busy": []}
    options = Options(given.json, given.quick, 1, tuple(numbers))
    with Report("Growth, virtual time", options) as report:
        for agents in numbers:
            for name, handling in (("", 0.0), (".busy", BUSY)):
                begin = time.perf_counter()
                growth = measured(agents, handling)
                found[name].append(growth)
                for kind, seconds in (("barrier", growth.barrier), ("reduction", growth.reduction)):
                    report.add(
                        Figure.of(
                            f"growth.{kind}{name}", agents, [seconds], [growth.floor], unit="us"
                        )
                    )
                took = time.perf_counter() - begin
                print(f"… {took:.0f} s of real time", file=sys.stderr, flush=True)
                gc.collect()
    if given.output:
        plot(found, Path(given.output) / "growth.png")


def measured(agents: int, handling: float) -> Growth:
    """Return the virtual times for a number of agents."""
    tree = kary(agents, FANOUT)
    depth = sum(1 for _ in tree.ancestors(1))
    timed = TimedTree(tree, LATENCY, handling)
    timed.start()
    return Growth(agents, 2 * depth * LATENCY, _barrier(timed), _reduction(timed))


def _barrier(timed: TimedTree) -> float:
    agents = timed.tree.agents
    entered: list[gev.GroupEntered] = []
    finished: list[float] = []

    def on_effect(_rank: int, effect: ev.Effect) -> None:
        if isinstance(effect, gev.GroupEntered):
            entered.append(effect)
        elif isinstance(effect, gev.GroupFinished):
            finished.append(timed.now)

    timed.on_effect = on_effect
    for rank in range(1, agents + 1):
        timed.post(rank, gev.EnterGroup(((1, agents + 1),), "all"))
    timed.run()
    assert len(entered) == agents
    begin = timed.now
    call = GroupCall("barrier")
    for rank in range(1, agents + 1):
        timed.post(rank, gev.CallGroup(entered[0].group, 1, call, 0, b"", None))
    timed.run()
    assert len(finished) == agents
    return max(finished) - begin


def _reduction(timed: TimedTree) -> float:
    agents = timed.tree.agents
    timed.post(ROOT, ev.OpenStream(StreamSpec(1, "test", ((1, agents + 1),), {"x": "sum"})))
    timed.run()
    seconds = timed.wave(1, {"x": 1})
    assert timed.totals[-1] == {"x": agents}
    return seconds


def plot(found: dict[str, list[Growth]], path: Path) -> None:
    """Draw times against numbers of agents."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra that only --output needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    figure, panel = plt.subplots(figsize=(7, 4))
    for name, points in found.items():
        agents = [one.agents for one in points]
        busy = f", {BUSY * 1e6:.0f} µs for each message" if name else ""
        panel.plot(agents, [one.barrier * 1e3 for one in points], "o-", label=f"barrier{busy}")
        panel.plot(agents, [one.reduction * 1e3 for one in points], "s--", label=f"reduction{busy}")
    floors = found[""]
    panel.plot(
        [one.agents for one in floors],
        [one.floor * 1e3 for one in floors],
        "k:",
        label="depth x latency, up and down",
    )
    panel.set(xscale="log", xlabel="agents", ylabel="virtual time, ms", ylim=(0, None))
    panel.set_title(f"fan-out {FANOUT}, links of {LATENCY * 1e6:.0f} µs")
    panel.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
