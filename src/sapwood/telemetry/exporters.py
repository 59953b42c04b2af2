"""Which exporters the standard variables name, and what processes say of themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, Literal

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter

from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown

PROTOCOL: Final = "http/protobuf"
"""The protocol to collectors that the extra brings."""

SERVICE: Final = "sapwood"
"""What processes are called, unless a variable names them."""


def span_exporters(variables: Mapping[str, str] = os.environ) -> list[SpanExporter]:
    """Return the exporters of traces.

    Raises:
        ConfigurationError: A variable names one that there is none of here.
    """
    made: dict[str, Any] = {"otlp": OTLPSpanExporter, "console": ConsoleSpanExporter}
    return [made[name]() for name in _names("TRACES", variables)]


def metric_exporters(variables: Mapping[str, str] = os.environ) -> list[MetricExporter]:
    """Return the exporters of metrics.

    Raises:
        ConfigurationError: A variable names one that there is none of here.
    """
    made: dict[str, Any] = {"otlp": OTLPMetricExporter, "console": ConsoleMetricExporter}
    return [made[name]() for name in _names("METRICS", variables)]


def resource(more: Mapping[str, str], variables: Mapping[str, str] = os.environ) -> Resource:
    """Return what this process says of itself; where the variables say something, that counts.

    Args:
        more: Further attributes.
        variables: Variables of this process.
    """
    own = {"service.version": version("sapwood"), **more}
    named = variables.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not variables.get("OTEL_SERVICE_NAME") and "service.name=" not in named:
        own["service.name"] = SERVICE
    return Resource.create(dict(own))


def _names(signal: Literal["TRACES", "METRICS"], variables: Mapping[str, str]) -> list[str]:
    variable = f"OTEL_{signal}_EXPORTER"
    names = [one.strip() for one in (variables.get(variable) or "otlp").split(",")]
    unknown = sorted(set(names) - {"otlp", "console", "none"})
    if unknown:
        raise ConfigurationError(
            f"{variable} names {', '.join(unknown)}", hint="use otlp, console or none"
        )
    if "otlp" in names:
        of_signal = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
        for variable in (of_signal, "OTEL_EXPORTER_OTLP_PROTOCOL"):
            protocol = variables.get(variable)
            if protocol:
                if protocol != PROTOCOL:
                    raise ConfigurationError(
                        f"{variable} is {shown(protocol)}",
                        hint=f"Sapwood speaks {PROTOCOL}, mostly at port 4318 of a collector",
                    )
                break
    return [one for one in names if one != "none"]
