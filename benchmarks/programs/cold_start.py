"""Starts a cluster in this fresh process and prints what it took, as JSON.

``python cold_start.py AGENTS``; ``startup.py`` runs it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, ClassVar

TOPOLOGY_FANOUT = 4

begin_import = time.perf_counter()
from sapwood import Program, local  # noqa: E402 - the import itself is measured

import_seconds = time.perf_counter() - begin_import


class Touch(Program):
    """Makes every agent work once."""

    reduce: ClassVar = {"items": "sum"}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        """Count."""
        return {"items": len(slice)}


def main() -> None:
    """Start, look, work, look again."""
    from memory import descendants, total_pss  # noqa: PLC0415 - not part of what is measured

    agents = int(sys.argv[1])
    begin = time.perf_counter()
    cluster = local(agents=agents)
    seconds = time.perf_counter() - begin
    with cluster:
        assert [agent.state for agent in cluster.agents] == ["ready"] * agents
        idle = total_pss(descendants())
        begin = time.perf_counter()
        total = cluster.run(Touch(), range(agents)).result()
        first_run = time.perf_counter() - begin
        assert total["items"] == agents
        working = total_pss(descendants())
        begin = time.perf_counter()
        with cluster.topology(fanout=TOPOLOGY_FANOUT) as topology:
            further = time.perf_counter() - begin
            assert topology.run(Touch(), range(agents)).result()["items"] == agents
            with_topology = total_pss(descendants())
    found = {"import": import_seconds, "seconds": seconds, "first_run": first_run}
    found |= {"topology": further, "topology_pss": with_topology - working}
    print(json.dumps({**found, "idle": idle / agents, "working": working / agents}))


if __name__ == "__main__":
    main()
