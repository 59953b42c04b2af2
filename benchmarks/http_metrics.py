"""What a scrape of `/metrics` costs the HTTP server, by the number of nodes.

python benchmarks/http_metrics.py
"""

from __future__ import annotations

import time

from sapwood.head import calls
from sapwood.head.parts.cluster import HeadFacts
from sapwood.nodes import messages
from sapwood.server.metrics import ClusterMetrics, as_text, series

NODES = (10, 100, 1000, 2000)
TIMES = 20


def snapshot(count: int) -> calls.ClusterSnapshot:
    """Return nodes that are all there and have said everything."""
    nodes = [
        calls.NodeSnapshot(
            host=number,
            name=f"gpu-node-{number:04}.cluster",
            state="ready",
            cores=128,
            skew=0.0012,
            certificate_end=1.795e9,
            link="up",
            round_trip=0.00123,
            sent=123456789012 + number,
            received=98765432109 + number,
            load=12.34,
            free_memory=48 * 2**30 + number,
            processes=4,
        )
        for number in range(count)
    ]
    return calls.ClusterSnapshot(time=1.0, nodes=nodes)


def main() -> None:
    """Print a table."""
    head = HeadFacts(
        name="lab", cluster="sw-1", version="1", pid=1, started=1.7e9, addresses=[], clients=3
    )
    print(f"{'nodes':>6} {'bytes':>9} {'ms of processor time':>21}")
    for count in NODES:
        sent = messages.to_value(snapshot(count))
        began = time.process_time()
        for _ in range(TIMES):
            found = messages.from_value(sent, calls.ClusterSnapshot)
            text = as_text(series(ClusterMetrics(head=head, snapshot=found)))
        spent = (time.process_time() - began) / TIMES
        assert count != 1000 or len(text) < 1_000_000
        print(f"{count:6} {len(text):9} {spent * 1e3:21.1f}")


if __name__ == "__main__":
    main()
