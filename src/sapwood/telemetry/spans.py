"""Spans by the SDK of OpenTelemetry: in clients those of Sapwood, in runners those of users."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from sapwood.code.runner.options import ORDINAL
from sapwood.core.failures import new_thread
from sapwood.environment.tracing import (
    CALL_SPAN,
    FLUSH_SECONDS,
    Attributes,
    Carrier,
    TraceSpan,
    wanted,
)
from sapwood.telemetry.exporters import resource, span_exporters

MAX_CARRIER: Final = 8192
"""Bytes of what goes with a call; of more than that, only the parent goes."""

MAX_DESCRIPTION: Final = 200
"""Characters of an error that are exported."""

_NAME: Final = "sapwood"


class OpenedSpan:
    """A span that has begun.

    Args:
        span: It.
        around: The context in which it began; baggage is in it.
    """

    def __init__(self, span: Span, around: Context) -> None:
        self.context = trace.set_span_in_context(span, around)
        self._span = span

    @property
    def carrier(self) -> Carrier:
        """What continues the trace elsewhere, with this span as the parent."""
        made: Carrier = {}
        propagate.inject(made, self.context)
        if sum(map(len, (*made, *made.values()))) > MAX_CARRIER:
            made = {name: made[name] for name in ("traceparent",) if name in made}
        return made

    def end(
        self, error: BaseException | str | None = None, attributes: Attributes | None = None
    ) -> None:
        """It is over; only the first call counts."""
        if not self._span.is_recording():
            return
        self._span.set_attributes(dict(attributes or {}))
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, str(error)[:MAX_DESCRIPTION]))
            if isinstance(error, BaseException):
                self._span.set_attribute("error.type", type(error).__qualname__)
        self._span.end()


class OpenTelemetryTracer:
    """Makes spans by a provider.

    Args:
        provider: It; its queue is bounded, and spans that find no room are dropped.
    """

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(_NAME)
        found = {name.lower(): os.environ.get(name, "") for name in ("TRACEPARENT", "TRACESTATE")}
        self._outside = {name: text for name, text in found.items() if text}

    def begin(self, name: str, attributes: Attributes | None = None) -> TraceSpan:
        """Begin a span: part of the one in which the caller is, or else of `TRACEPARENT`."""
        around = contexts.get_current()
        if self._outside and not trace.get_current_span(around).get_span_context().is_valid:
            around = propagate.extract(self._outside, around)
        span = self._tracer.start_span(name, around, attributes=dict(attributes or {}))
        return OpenedSpan(span, around)

    def record(
        self, name: str, within: TraceSpan, when: tuple[float, float], attributes: Attributes
    ) -> None:
        """Tell of a part of a span that is over already."""
        assert isinstance(within, OpenedSpan)  # noqa: S101 - they are all made here
        began, ended = (int(seconds * 1e9) for seconds in when)
        span = self._tracer.start_span(
            name, within.context, attributes=dict(attributes), start_time=began
        )
        span.end(ended)

    @contextlib.contextmanager
    def inside(self, span: TraceSpan) -> Iterator[None]:
        """Make a span the parent of spans that start meanwhile, unless the caller is in another."""
        assert isinstance(span, OpenedSpan)  # noqa: S101 - they are all made here
        if trace.get_current_span().get_span_context().is_valid:
            yield
            return
        token = contexts.attach(span.context)
        try:
            yield
        finally:
            contexts.detach(token)

    def flush(self) -> None:
        """Send what has ended, and wait a little for that."""
        _flush(self._provider)


def tracer() -> OpenTelemetryTracer:
    """Return the maker of a client's spans: with the user's provider, or its own.

    What users set up counts. If they have set nothing up, their own spans are still their affair:
    a library does not decide where these go.

    Raises:
        ConfigurationError: A variable says what cannot be done.
    """
    known = trace.get_tracer_provider()
    return OpenTelemetryTracer(known if isinstance(known, TracerProvider) else _new_provider())


# --- in runners -----------------------------------------------------------------------------------


class _Runner:
    """Whether this runner was made ready."""

    ready = False


@contextlib.contextmanager
def continued(carrier: Carrier, function: str) -> Iterator[None]:
    """Add spans of user code in the block to the trace that a carrier names.

    In a runner no other code sets up a provider: the variables decide where spans of users go.
    """
    if not _Runner.ready:
        _Runner.ready = True
        unset = not isinstance(trace.get_tracer_provider(), TracerProvider)
        if unset and wanted("TRACES", os.environ):
            trace.set_tracer_provider(_new_provider(os.environ.get(ORDINAL, "")))
    token = contexts.attach(propagate.extract(carrier))
    try:
        if CALL_SPAN not in carrier:
            yield
            return
        made = trace.get_tracer(_NAME)
        with made.start_as_current_span(f"call {function}", kind=SpanKind.CONSUMER):
            yield
    finally:
        contexts.detach(token)


def flush_global() -> None:
    """Send what was traced by the provider of this process, and wait a little for that."""
    _flush(trace.get_tracer_provider())


def _new_provider(agent: str = "") -> TracerProvider:
    more = {"sapwood.agent": agent} if agent else {}
    made = TracerProvider(resource=resource(more), shutdown_on_exit=False)
    for exporter in span_exporters():
        made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def _flush(provider: trace.TracerProvider) -> None:
    """Flush a provider on a separate thread, so that a silent collector blocks only that."""
    if isinstance(provider, TracerProvider):
        thread = new_thread("sapwood-traces", provider.force_flush)
        thread.start()
        thread.join(FLUSH_SECONDS)
