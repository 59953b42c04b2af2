"""The hook for OpenTelemetry: code that can be traced asks :data:`seam` for a tracer.

Mostly there is none. The package ``telemetry`` has the rest, and is imported only if the standard
variables (``OTEL_…``) ask for it. Delete it, and everything works without traces.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Final, Literal, Protocol

from sapwood.core.errors import SapwoodError

Attributes = Mapping[str, str | int | float | bool]
"""Attributes of a span, by name."""

Carrier = dict[str, str]
"""Headers that continue a trace elsewhere, by W3C Trace Context."""

CALL_SPAN: Final = "sapwood-call"
"""Entry of a carrier: the call that it comes with is a separate span at the runner."""

FLUSH_SECONDS: Final = 2.0
"""Seconds that a session which ends waits for its spans to be sent."""

_PACKAGE: Final = "sapwood.telemetry"


class TraceSpan(Protocol):
    """Something that takes time, which whoever looks at traces should see."""

    @property
    def carrier(self) -> Carrier:
        """What continues the trace elsewhere, with this span as the parent."""

    def end(
        self, error: BaseException | str | None = None, attributes: Attributes | None = None
    ) -> None:
        """It is over; only the first call counts.

        Args:
            error: How it failed, if it did.
            attributes: Attributes that are known only now.
        """


class Tracer(Protocol):
    """Makes spans."""

    def begin(self, name: str, attributes: Attributes | None = None) -> TraceSpan:
        """Begin a span: part of the one in which the caller is, if there is one."""

    def record(
        self, name: str, within: TraceSpan, when: tuple[float, float], attributes: Attributes
    ) -> None:
        """Tell of a part of a span that is over already.

        Args:
            name: What it is.
            within: The span.
            when: Begin and end, seconds since 1970.
            attributes: Its attributes.
        """

    def inside(self, span: TraceSpan) -> AbstractContextManager[None]:
        """Make a span the parent of spans that start meanwhile, unless the caller is in another."""

    def flush(self) -> None:
        """Send what has ended, and wait a little for that."""


class MetricSink(Protocol):
    """Exports metrics.

    Attributes:
        interval: Seconds between two exports.
    """

    interval: float

    def send(self, found: Iterable[tuple[str, str, str, Sequence[Any]]]) -> None:
        """Export metrics, and wait for that: name, kind, meaning and values of each."""

    def close(self) -> None:
        """End."""


class _Seam:
    """What this process traces with.

    Attributes:
        tracer: None if nothing is traced.
    """

    __slots__ = ("looked", "runner", "tracer")

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.looked = False
        self.runner: Any = None


seam: Final = _Seam()
"""Its attribute ``tracer`` is what everybody looks at."""


def wanted(signal: Literal["TRACES", "METRICS"], variables: Mapping[str, str]) -> bool:
    """Whether the standard variables ask for traces or metrics.

    Example:
        >>> endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
        >>> wanted("TRACES", {}), wanted("TRACES", endpoint)
        (False, True)
        >>> wanted("TRACES", endpoint | {"OTEL_TRACES_EXPORTER": "none"})
        False
        >>> wanted("METRICS", endpoint | {"OTEL_SDK_DISABLED": "true"})
        False
    """
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = variables.get(f"OTEL_{signal}_EXPORTER", "").strip()
    if exporter:
        return exporter != "none"
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(variables.get(name) for name in names)


def optional_module(part: str, *, quiet: bool = False) -> ModuleType | None:
    """Return a module of the package ``telemetry``; None if it, or what it needs, is not there.

    Args:
        part: Name of the module in it.
        quiet: Whether to say nothing of what is missing.
    """
    try:
        return importlib.import_module(f"{_PACKAGE}.{part}")
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith(_PACKAGE):
            return None
        if not missing.startswith("opentelemetry"):
            raise
        if not quiet:
            warn(
                "the variables OTEL_… ask for OpenTelemetry, and it is not installed: nothing is "
                "sent; install sapwood[otel], or set OTEL_SDK_DISABLED=true",
                missing=missing,
            )
        return None


def warn(what: str, **facts: str) -> None:
    """Warn of what keeps traces or metrics from being sent."""
    from sapwood.environment.logs import logger  # noqa: PLC0415 - runners start faster without it

    logger("telemetry").warning(what, **facts)


def metric_exporter() -> MetricSink | None:
    """Return what exports metrics, if the variables ask for it and it can be done."""
    if not wanted("METRICS", os.environ):
        return None
    module = optional_module("metrics")
    if module is None:
        return None
    try:
        made: MetricSink = module.MetricExporter()
    except SapwoodError as error:
        warn("no metrics are sent", reason=error.what, hint=error.hint)
        return None
    return made


def look() -> None:
    """Trace from now on, if the variables ask for it; only the first call looks."""
    if seam.looked:
        return
    seam.looked = True
    if not wanted("TRACES", os.environ):
        return
    spans = optional_module("spans")
    if spans is None:
        return
    try:
        seam.tracer = spans.tracer()
    except SapwoodError as error:
        warn("nothing is traced", reason=error.what, hint=error.hint)


def inside(span: TraceSpan | None) -> AbstractContextManager[None]:
    """Make a span the parent of spans that start in the block, unless the caller is in another."""
    if span is None or seam.tracer is None:
        return contextlib.nullcontext()
    return seam.tracer.inside(span)


@contextlib.contextmanager
def traced(name: str, attributes: Attributes | None = None) -> Iterator[TraceSpan | None]:
    """Have a span for the block; it gives the span, or None if nothing is traced."""
    tracer = seam.tracer
    if tracer is None:
        yield None
        return
    span = tracer.begin(name, attributes)
    try:
        yield span
    except BaseException as error:
        span.end(error)
        raise
    span.end()


# --- in runners -----------------------------------------------------------------------------------


@contextlib.contextmanager
def continued(carrier: Carrier, function: str) -> Iterator[None]:
    """Add spans of user code in the block to the trace that a carrier names.

    Args:
        carrier: Trace headers of the call.
        function: Name of the called function.
    """
    spans = optional_module("spans", quiet=True) if seam.runner is None else seam.runner
    seam.runner = spans or False
    if not spans:
        yield
        return
    with spans.continued(carrier, function):
        yield


def flush_runner() -> None:
    """Send what user code here has traced, as the session is about to end."""
    spans = sys.modules.get(f"{_PACKAGE}.spans")
    if spans is not None:
        spans.flush_global()
