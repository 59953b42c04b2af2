"""Metrics at a real collector: those of `/metrics`, by a head without HTTP clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.server.conftest import until, web_head
from tests.integration.telemetry.conftest import PATIENCE, Collector

from sapwood.telemetry.metrics import named


@pytest.mark.row("D-7")
def test_a_head_exports_what_a_scrape_shows(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    with web_head(tmp_path, "") as web:
        assert collector.came.wait(PATIENCE)  # no client has asked for anything
        with web.client("connect", "observe", secure=True) as client:
            answer = client.get("/api/v1/metrics").json()
            there = ("sapwood_http_responses", frozenset({("status", "200")}))
            until(lambda: collector.metrics.get(there) == 1)  # that answer was exported, too
    for metric in answer["metrics"]:
        name, unit = named(metric["name"])
        if metric["kind"] == "histogram":
            first = frozenset(metric["samples"][0]["labels"].items())
            assert (f"{metric['name']}_bucket", first) in collector.metrics
            continue
        for sample in metric["samples"]:
            labels = frozenset(sample["labels"].items())
            assert (name, labels) in collector.metrics
            assert collector.units[name] == unit
    start = ("sapwood_head_start_time", frozenset[tuple[str, str]]())
    (scraped,) = [
        one["samples"][0]["value"]
        for one in answer["metrics"]
        if one["name"] == "sapwood_head_start_time_seconds"
    ]
    assert collector.metrics[start] == scraped
