"""Which exporters variables name."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from sapwood.core.errors import ConfigurationError
from sapwood.telemetry.exporters import resource, span_exporters


@pytest.mark.parametrize(
    ("variables", "kinds"),
    [
        ({}, ["OTLPSpanExporter"]),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["OTLPSpanExporter", "ConsoleSpanExporter"]),
        ({"OTEL_TRACES_EXPORTER": "console"}, ["ConsoleSpanExporter"]),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
    ],
)
def test_exporters(variables: dict[str, str], kinds: list[str]) -> None:
    made = span_exporters(variables)
    try:
        assert [type(one).__name__ for one in made] == kinds
    finally:
        for one in made:
            one.shutdown()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER names zipkin"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'"),
        (
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
            },
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is 'http/json'",
        ),
    ],
)
def test_what_there_is_not_is_refused_by_name(variables: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        span_exporters(variables)
    assert caught.value.hint


def test_the_variables_words_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resource({}, {}).attributes["service.name"] == "sapwood"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert resource({}).attributes["service.name"] == "mine"
