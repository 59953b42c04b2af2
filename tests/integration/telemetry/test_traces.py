"""Traces at a real collector: parents of spans, and a missing collector."""

from __future__ import annotations

import socket

import pytest
from tests.integration.telemetry.conftest import HERE, Collector, run_python

SESSION = str(HERE / "traced_session.py")


@pytest.mark.row("D-7")
def test_a_users_span_is_the_parent_of_what_happens_at_agents(collector: Collector) -> None:
    done = run_python(SESSION, "mine", "tasks", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    assert done.stdout.split() == ["9", "2470", "45.0"], done.stderr
    mine, session = collector.one("my experiment"), collector.one("session")
    assert {one.trace_id for one in collector.spans} == {mine.trace_id}
    assert session.parent_span_id == mine.span_id
    single, batch = sorted(
        collector.named("tasks square"), key=lambda one: one.start_time_unix_nano
    )
    assert single.parent_span_id == batch.parent_span_id == mine.span_id
    # The first tasks of a batch have separate spans; so has user code of all others.
    calls = collector.named("call square")
    assert len(calls) == 1 + 16
    assert {one.parent_span_id for one in calls} == {single.span_id, batch.span_id}
    works = collector.named("my work")
    assert len(works) == 1 + 20
    assert [one.parent_span_id for one in works].count(batch.span_id) == 4
    run = collector.one("run Adding")
    assert run.parent_span_id == mine.span_id
    assert {one.key: one.value.int_value for one in run.attributes}["sapwood.iterations"] == 2
    assert {one.parent_span_id for one in collector.named("iteration")} == {run.span_id}
    maps = collector.named("my map")
    assert [one.parent_span_id for one in maps] == [run.span_id] * 4  # two agents, two iterations
    assert all(collector.services[one.span_id] == "sapwood" for one in (*maps, *calls))


@pytest.mark.row("D-7")
def test_a_command_continues_the_trace_around_it(collector: Collector) -> None:
    outside = "0af7651916cd43dd8448eb211c80319c"
    done = run_python(
        "-m", "sapwood", "exec", "--on", "local", "--", "sh", "-c", "echo $TRACEPARENT; exit 3",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_SERVICE_NAME="nightly",
        TRACEPARENT=f"00-{outside}-b7ad6b7169203331-01",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    span = collector.one("exec sh")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (outside, "b7ad6b7169203331")
    assert done.stdout.strip() == f"00-{outside}-{span.span_id.hex()}-01"
    assert span.status.message == "exit code 3"
    assert collector.services[span.span_id] == "nightly"


@pytest.mark.nightly
def test_a_collector_that_never_answers_stops_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts; no process reads
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        small = {"OTEL_BSP_MAX_QUEUE_SIZE": "2", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"}
        done = run_python(SESSION, OTEL_EXPORTER_OTLP_ENDPOINT=url, **small)
        assert done.stdout.split() == ["45.0"], done.stderr
        with silent.accept()[0] as asked:
            assert asked.recv(5) == b"POST "  # it was to take spans


@pytest.mark.nightly
def test_without_the_extra_there_is_one_warning() -> None:
    hidden = "import sys; sys.modules['opentelemetry'] = None\nimport sapwood\n"
    twice = (
        "for _ in range(2):\n"
        "    with sapwood.local(agents=1) as c: print(c.submit(abs, -1).result())"
    )
    done = run_python("-c", hidden + twice, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert done.stdout.split() == ["1", "1"], done.stderr
    assert done.stderr.count("sapwood[otel]") == 1, done.stderr
