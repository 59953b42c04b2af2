"""User spans: one around a session, and others in user functions."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import sapwood


class Adding(sapwood.Program):
    inputs = ("data",)
    reduce = {"total": "sum"}  # noqa: RUF012 - as users write it

    def init(self, data: Any) -> dict[str, Any]:
        return {"count": 0, "total": 0.0}

    def map(self, part: Any, state: Mapping[str, Any]) -> dict[str, Any]:
        with trace.get_tracer("user").start_as_current_span("my map"):
            return {"total": float(part["data"].sum())}

    def update(self, state: Mapping[str, Any], total: Mapping[str, Any]) -> dict[str, Any]:
        return {"count": state["count"] + 1, "total": total["total"]}

    def done(self, state: Mapping[str, Any]) -> bool:
        return bool(state["count"] == 2)

    def result(self, state: Mapping[str, Any]) -> float:
        return float(state["total"])


def square(number: int) -> int:
    with trace.get_tracer("user").start_as_current_span("my work"):
        return number * number


def say(answer: object) -> None:
    sys.stdout.write(f"{answer}\n")


def main() -> None:
    if "mine" in sys.argv:  # else the variables alone decide
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    with (
        trace.get_tracer("user").start_as_current_span("my experiment"),
        sapwood.local(agents=2) as cluster,
    ):
        if "tasks" in sys.argv:
            say(cluster.submit(square, 3).result())
            say(sum(cluster.map(square, range(20))))
        say(cluster.run(Adding(), np.arange(10.0)).result())
    if "mine" in sys.argv:
        provider.shutdown()


if __name__ == "__main__":
    main()
