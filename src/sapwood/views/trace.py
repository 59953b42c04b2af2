"""A run as a trace, for https://ui.perfetto.dev and other readers of trace events.

The format is Chrome's, "JSON object": times are microseconds since the run began, an agent is a
thread of the process "agents", the root is the thread 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sapwood.activity.run_record import AgentShare, RecordedIteration, WorkStatistics

PID: Final = 1
ROOT: Final = 0


def trace_of(record: WorkStatistics) -> dict[str, Any]:
    """Return the record of a run as a trace.

    Example:
        >>> trace_of(WorkStatistics(run="r-1", program="fit", hash="", began=0.0))["traceEvents"]
        [{'name': 'process_name', 'ph': 'M', 'pid': 1, 'tid': 0, 'args': {'name': 'fit'}}]
    """
    threads = {share.agent for one in record.iterations for share in one.agents}
    threads |= {one.agent for one in record.agents}
    names = [_named("process_name", ROOT, record.program)]
    if record.iterations:
        names.append(_named("thread_name", ROOT, "root"))
    names += [_named("thread_name", rank, f"agent {rank}") for rank in sorted(threads)]
    spans = sorted([*_spans(record), *_marks(record)], key=lambda event: event["ts"])
    return {
        "traceEvents": [*names, *spans],
        "displayTimeUnit": "ms",
        "otherData": {"run": record.run, "began": record.began, "hash": record.hash},
    }


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": PID, "tid": thread, "args": {"name": name}}


def _spans(record: WorkStatistics) -> Iterator[dict[str, Any]]:
    ends: dict[int, float] = {}
    for one in record.iterations:
        for share in one.agents:
            begin = max(ends.get(share.agent, 0.0), share.started - share.waited)
            if share.started > begin:
                yield _span("wait", share.agent, begin, share.started, one)
            ends[share.agent] = _end(share)
            args = {"items": share.items, "bytes_up": share.bytes_up}
            yield _span("map", share.agent, share.started, _end(share), one, args)
        last = max(map(_end, one.agents), default=one.started)
        stop = one.started + one.seconds
        if not one.agents:
            yield _span("iteration", ROOT, one.started, stop, one)
        elif stop > last:
            yield _span("update", ROOT, last, stop, one)


def _end(share: AgentShare) -> float:
    return share.started + share.seconds


def _span(
    name: str,
    thread: int,
    begin: float,
    end: float,
    iteration: RecordedIteration,
    args: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": "run",
        "ph": "X",
        "ts": _microseconds(begin),
        "dur": _microseconds(end) - _microseconds(begin),
        "pid": PID,
        "tid": thread,
        "args": {"iteration": iteration.iteration, **(args or {})},
    }


def _marks(record: WorkStatistics) -> Iterator[dict[str, Any]]:
    for move in record.moves:
        text = f"{move.items} items moved to agent {move.target}"
        yield _mark(text, move.source, move.at, move.reason)
    for late in record.late:
        text = f"items of agent {late.agent} as well: {late.outcome}"
        yield _mark(text, late.by, late.at, late.reason)
    for loss in record.losses:
        yield _mark(loss.what, loss.agent, loss.at, loss.reason)
    for checkpoint in record.checkpoints:
        yield _mark("checkpoint", ROOT, checkpoint.at, "")


def _mark(name: str, thread: int, at: float, reason: str) -> dict[str, Any]:
    return {
        "name": name,
        "cat": "run",
        "ph": "i",
        "s": "t",
        "ts": _microseconds(at),
        "pid": PID,
        "tid": thread,
        "args": {"why": reason} if reason else {},
    }


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
