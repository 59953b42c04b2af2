"""The seam of OpenTelemetry: it is imported only on demand, and warns at most once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from sapwood.environment import tracing


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a process that has not looked yet."""
    for name in ("looked", "tracer", "runner"):
        monkeypatch.setattr(tracing.seam, name, {"looked": False}.get(name))
    for name in ("ENDPOINT", "TRACES_ENDPOINT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    hidden = [one for one in sys.modules if one.startswith(("opentelemetry", "sapwood.telemetry"))]
    for name in hidden:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [one for one in sys.modules if one.startswith("sapwood.telemetry")]:
        del sys.modules[name]


def test_nothing_is_imported_while_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for variables in ({}, {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}):
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        tracing.seam.looked = False
        tracing.look()
        assert tracing.seam.tracer is None
    with tracing.traced("run") as span, tracing.inside(None):
        assert span is None
    tracing.flush_runner()
    assert not any("telemetry" in one for one in sys.modules if one.startswith("sapwood."))


def test_what_is_missing_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with caplog.at_level(logging.WARNING):
        tracing.look()
        tracing.look()
    assert tracing.seam.tracer is None
    assert [one.getMessage().count("sapwood[otel]") for one in caplog.records] == [1]
    with tracing.continued({"traceparent": "00-1-2-01"}, "f"):
        assert tracing.seam.runner is False
    assert len(caplog.records) == 1  # runners say nothing


def test_without_its_room_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setattr(tracing, "_PACKAGE", "sapwood.there_is_no_such_package")
    tracing.look()
    assert tracing.seam.tracer is None
