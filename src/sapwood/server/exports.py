"""Periodic export of metrics, where the variables of OpenTelemetry ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sapwood.core.errors import SapwoodError
from sapwood.environment.logs import logger
from sapwood.environment.tracing import MetricSink
from sapwood.server.api import collect_metrics
from sapwood.server.head_connections import HeadConnection
from sapwood.server.metrics import ServerMetrics, series

_log = logger("http")


async def export(
    sink: MetricSink, own: HeadConnection, server: Callable[[], ServerMetrics]
) -> None:
    """Export the metrics of the cluster until this is cancelled.

    A collector that does not answer blocks a separate thread only, and the next export comes later.

    Args:
        sink: Exports them.
        own: The server's own connection to the head.
        server: Returns how the HTTP server is.
    """
    try:
        while True:
            try:
                found = series(await collect_metrics(own, server()))
                await asyncio.to_thread(sink.send, found)
            except SapwoodError as error:
                _log.warning("no metrics exported", reason=error.what)
            await asyncio.sleep(sink.interval)
    finally:
        sink.close()
