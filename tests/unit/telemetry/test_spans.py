"""Spans of a client: the queue is bounded, and whoever makes spans never waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from sapwood.telemetry.spans import MAX_CARRIER, OpenTelemetryTracer

ROOM = 32


class StuckExporter(SpanExporter):
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        self.asked, self.may_go = threading.Event(), threading.Event()
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.may_go.wait()
        self.taken += len(spans)
        return SpanExportResult.SUCCESS


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(kept: InMemorySpanExporter) -> Iterator[OpenTelemetryTracer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    yield OpenTelemetryTracer(provider)
    provider.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_a_stuck_collector_costs_bounded_memory_and_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not by the name of the module: other tests import that room anew.
    monkeypatch.setitem(OpenTelemetryTracer.flush.__globals__, "FLUSH_SECONDS", 0.01)
    exporter, provider = StuckExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, ROOM, 1.0, max_export_batch_size=8))
    tracer = OpenTelemetryTracer(provider)
    try:
        for _ in range(100):
            tracer.begin("run").end()
        assert exporter.asked.wait(20)
        for _ in range(1000):  # each returns, although nothing is collected
            tracer.begin("run").end()
        tracer.flush()
    finally:
        exporter.may_go.set()
        provider.shutdown()
    assert exporter.taken <= 100 + ROOM


def test_a_part_of_a_span_that_is_over(
    tracer: OpenTelemetryTracer, kept: InMemorySpanExporter
) -> None:
    run = tracer.begin("run")
    tracer.record("iteration", run, (1.5, 2.0), {"sapwood.iteration": 3})
    run.end(ValueError("x" * 1000), {"sapwood.state": "failed"})
    run.end()  # it is over
    iteration, whole = kept.get_finished_spans()
    assert iteration.parent is not None
    assert whole.context is not None
    assert iteration.parent.span_id == whole.context.span_id
    assert (iteration.start_time, iteration.end_time) == (1_500_000_000, 2_000_000_000)
    assert whole.status.status_code is StatusCode.ERROR
    assert whole.status.description == "x" * 200
    assert whole.attributes == {"sapwood.state": "failed", "error.type": "ValueError"}


def test_what_begins_in_a_session_is_part_of_it_unless_the_user_has_a_span(
    tracer: OpenTelemetryTracer, kept: InMemorySpanExporter
) -> None:
    session = tracer.begin("session")
    with tracer.inside(session):
        tracer.begin("run").end()
        with tracer.inside(tracer.begin("another")):
            tracer.begin("task").end()
    run, task = kept.get_finished_spans()
    assert run.parent is not None
    assert task.parent is not None
    assert run.parent.span_id == task.parent.span_id


def test_what_goes_with_a_call_is_bounded(tracer: OpenTelemetryTracer) -> None:
    assert "traceparent" in tracer.begin("run").carrier
    token = context.attach(baggage.set_baggage("user", "ann"))
    try:
        assert tracer.begin("run").carrier["baggage"] == "user=ann"
    finally:
        context.detach(token)
    token = context.attach(baggage.set_baggage("user", "a" * 4090))
    token_2 = context.attach(baggage.set_baggage("more", "b" * 4090))
    try:
        assert tracer.begin("run").carrier.keys() == {"traceparent"}
    finally:
        context.detach(token_2)
        context.detach(token)
    assert MAX_CARRIER < 64 * 1024
