"""Metrics of a cluster by OTLP: the same metrics as `/metrics`."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from sapwood.telemetry.exporters import metric_exporters, resource

INTERVAL: Final = 60.0
"""Seconds between two exports, unless ``OTEL_METRIC_EXPORT_INTERVAL`` says something else."""

SHORTEST: Final = 0.1
"""Seconds between them at least."""

TIMEOUT: Final = 30.0
"""Seconds that one export may take."""

Samples = Sequence[tuple[tuple[tuple[str, str], ...], float]]
"""Values of a metric with their labels."""

_UNITS: Final = {"_seconds": "s", "_bytes": "By"}


class MetricExporter:
    """Exports metrics that are counted elsewhere. All work happens in the caller of :meth:`send`.

    Attributes:
        interval: Seconds between two exports.

    Raises:
        ConfigurationError: A variable says what cannot be done.
    """

    def __init__(self, variables: Mapping[str, str] = os.environ) -> None:
        self.interval = INTERVAL
        text = variables.get("OTEL_METRIC_EXPORT_INTERVAL", "")
        if text.isdecimal():
            self.interval = max(int(text) / 1000, SHORTEST)
        readers = [
            PeriodicExportingMetricReader(one, export_interval_millis=math.inf)
            for one in metric_exporters(variables)
        ]
        self._provider = MeterProvider(readers, resource({}), shutdown_on_exit=False)
        self._meter = self._provider.get_meter("sapwood")
        self._values: dict[str, Samples] = {}

    def send(self, found: Iterable[tuple[str, str, str, Samples]]) -> None:
        """Export metrics, and wait for that; a collector that is gone is waited for no longer.

        Args:
            found: Name, kind (``gauge``, ``counter`` or ``histogram``), meaning and values of each,
                as Prometheus calls them. A histogram is sent as the counters that it is made of.
        """
        for name, kind, about, samples in itertools.chain.from_iterable(map(parts, found)):
            known = name in self._values
            self._values[name] = samples
            if not known:
                self._add(name, kind, about)
        self._provider.force_flush(TIMEOUT * 1000)

    def close(self) -> None:
        """End."""
        self._provider.shutdown(0)

    def _add(self, name: str, kind: str, about: str) -> None:
        called, unit = named(name)
        if kind == "counter":
            self._meter.create_observable_counter(called, [self._observe(name)], unit, about)
        else:
            self._meter.create_observable_gauge(called, [self._observe(name)], unit, about)

    def _observe(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def values(_options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, dict(labels)) for labels, value in self._values[name]]

        return values


def parts(
    metric: tuple[str, str, str, Samples],
) -> list[tuple[str, str, str, Samples]]:
    """Return a metric, or the counters of a histogram, because single values are not known here.

    Example:
        >>> values = [((("le", "1"),), 3), ((), 2)]
        >>> [one[0] for one in parts(("t_seconds", "histogram", "", values))]
        ['t_seconds_bucket', 't_seconds_sum']
    """
    name, kind, about, samples = metric
    if kind != "histogram":
        return [metric]
    return [
        (f"{name}_bucket", "counter", about, samples[:-1]),
        (f"{name}_sum", "counter", about, samples[-1:]),
    ]


def named(name: str) -> tuple[str, str]:
    """Return what OpenTelemetry calls a metric, and its unit: collectors put the name back.

    Example:
        >>> named("sapwood_node_sent_bytes_total"), named("sapwood_nodes")
        (('sapwood_node_sent', 'By'), ('sapwood_nodes', '1'))
    """
    called = name.removesuffix("_total")
    for ending, unit in _UNITS.items():
        if called.endswith(ending):
            return called.removesuffix(ending), unit
    return called, "1"
