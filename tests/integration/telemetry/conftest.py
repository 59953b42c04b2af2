"""A collector: a real HTTP server that takes OTLP in and decodes it."""

from __future__ import annotations

import gzip
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

HERE = Path(__file__).parent
PATIENCE = 60.0


class Collector:
    """The exported spans and metrics.

    Attributes:
        spans: The spans, as the protocol has them.
        services: The service that sent each span, by its id.
        metrics: The last value of each metric with its attributes.
        came: Set when metrics have come.
    """

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: dict[bytes, str] = {}
        self.metrics: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.units: dict[str, str] = {}
        self.came = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    data = gzip.decompress(data)
                if self.path == "/v1/traces":
                    collector.take_spans(ExportTraceServiceRequest.FromString(data))
                elif self.path == "/v1/metrics":
                    collector.take_metrics(ExportMetricsServiceRequest.FromString(data))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take_spans(self, request: ExportTraceServiceRequest) -> None:
        for of_resource in request.resource_spans:
            about = {one.key: one.value.string_value for one in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    self.spans.append(span)
                    self.services[span.span_id] = about["service.name"]

    def take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for of_resource in request.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    self.units[metric.name] = metric.unit
                    data = metric.sum if metric.HasField("sum") else metric.gauge
                    for point in data.data_points:
                        labels = {one.key: one.value.string_value for one in point.attributes}
                        integer = point.HasField("as_int")
                        value = point.as_int if integer else point.as_double
                        self.metrics[metric.name, frozenset(labels.items())] = value
        self.came.set()

    def named(self, name: str) -> list[Any]:
        """The spans of a name."""
        return [one for one in self.spans if one.name == name]

    def one(self, name: str) -> Any:
        """The only span of a name."""
        (found,) = self.named(name)
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    try:
        yield made
    finally:
        made.close()


def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a separate process, with variables but without OpenTelemetry's."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, *arguments],
        env=clean | {"OTEL_METRICS_EXPORTER": "none"} | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
