"""Periodic export of metrics, where the variables of OpenTelemetry ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sapwood.core.errors import SapwoodError
from sapwood.environment.logs import logger
from sapwood.environment.tracing import FigureSink
from sapwood.server.api import figures
from sapwood.server.head_connections import HeadConnection
from sapwood.server.metrics import ServerFigures, series

_log = logger("http")


async def export(
    sink: FigureSink, own: HeadConnection, server: Callable[[], ServerFigures]
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
                found = series(await figures(own, server()))
                await asyncio.to_thread(sink.send, found)
            except SapwoodError as error:
                _log.warning("no metrics exported", reason=error.what)
            await asyncio.sleep(sink.interval)
    finally:
        sink.close()
