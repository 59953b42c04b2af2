"""Events and runs as Parquet files, which DuckDB, pandas, Polars and Spark read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sapwood.client.detached_runs import DetachedRun
from sapwood.core.errors import ConfigurationError, InputError
from sapwood.head.ledger import LedgerEvent

Parquet = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write them to this Parquet file, for SQL, and show how many."
    ),
]
"""The option of commands that list something."""


def write_events(path: Path, pages: Iterable[Sequence[LedgerEvent]]) -> int:
    """Write events, a row each; return how many.

    The columns are ``number``, ``time`` (UTC), ``kind``, ``node``, ``session``, ``text`` and
    ``facts``, a map of text by name.

    Args:
        path: The file; it is replaced when all rows are written.
        pages: The events, some at a time, each a row group.

    Raises:
        DataError: The package pyarrow is not installed.
        InputError: The file cannot be written.
    """
    pa = _pyarrow()
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("time", pa.timestamp("us", tz="UTC")),
            ("kind", pa.string()),
            ("node", pa.string()),
            ("session", pa.string()),
            ("text", pa.string()),
            ("facts", pa.map_(pa.string(), pa.string())),
        ]
    )
    return _write(path, schema, (map(_event_row, page) for page in pages))


def write_runs(path: Path, runs: Sequence[DetachedRun]) -> int:
    """Write detached runs, a row each; return how many.

    The columns are ``id``, ``program``, ``session``, ``state``, ``reason``, ``began`` and ``ended``
    (UTC), ``seconds``, ``restarts``, ``iterations``, ``items``, ``agents``, ``parameters`` (JSON),
    ``metrics`` and ``calls``: for each recorded call of an agent its ``iteration``, ``agent``,
    ``node``, ``started`` and ``seconds`` (since the run began), ``waited``, ``items`` and
    ``bytes_up``.

    Args:
        path: The file; it is replaced when all rows are written.
        runs: The runs.

    Raises:
        DataError: The package pyarrow is not installed.
        InputError: The file cannot be written.
    """
    pa = _pyarrow()
    time, count = pa.timestamp("us", tz="UTC"), pa.int64()
    call = pa.struct(
        [
            ("iteration", count),
            ("agent", count),
            ("node", pa.string()),
            ("started", pa.float64()),
            ("seconds", pa.float64()),
            ("waited", pa.float64()),
            ("items", count),
            ("bytes_up", count),
        ]
    )
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("program", pa.string()),
            ("session", pa.string()),
            ("state", pa.string()),
            ("reason", pa.string()),
            ("began", time),
            ("ended", time),
            ("seconds", pa.float64()),
            ("restarts", count),
            ("iterations", count),
            ("items", count),
            ("agents", count),
            ("parameters", pa.string()),
            ("metrics", pa.map_(pa.string(), pa.float64())),
            ("calls", pa.list_(call)),
        ]
    )
    return _write(path, schema, [map(_run_row, runs)])


def check_only_parquet(path: Path | None, **others: bool) -> None:
    """Refuse other forms of output beside a Parquet file.

    Args:
        path: The file; None if none is wanted.
        others: Options by name, and whether they are given.

    Raises:
        ConfigurationError: One is given.
    """
    given = [f"--{name}" for name, is_given in others.items() if is_given]
    if path is not None and given:
        raise ConfigurationError(
            f"--parquet and {given[0]} are both given", hint="leave one of them out"
        )


def _pyarrow() -> Any:
    from sapwood.data.arrow_columns import pyarrow_for  # noqa: PLC0415 - it imports numpy

    return pyarrow_for("--parquet")


def _event_row(event: LedgerEvent) -> dict[str, Any]:
    row = msgspec.structs.asdict(event)
    return row | {"time": _time(event.time), "facts": list(event.facts.items())}


def _run_row(run: DetachedRun) -> dict[str, Any]:
    record, progress, work = run.record, run.progress, run.work
    nodes = {} if work is None else {one.agent: one.node for one in work.agents}
    calls = [
        {"iteration": one.iteration, "node": nodes.get(call.agent, "")}
        | msgspec.structs.asdict(call)
        for one in (() if work is None else work.iterations)
        for call in one.agents
    ]
    return {
        "id": record.id,
        "program": record.program,
        "session": record.session,
        "state": record.state,
        "reason": record.reason,
        "began": _time(record.created),
        "ended": _time(record.ended) if record.ended else None,
        "seconds": run.seconds,
        "restarts": len(record.restarts),
        "iterations": None if progress is None else progress.iteration,
        "items": None if progress is None else progress.items,
        "agents": None if progress is None else progress.agents,
        "parameters": msgspec.json.encode(record.wanted.spec.parameters or {}).decode(),
        "metrics": [] if progress is None else list(progress.metrics.items()),
        "calls": calls,
    }


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _write(path: Path, schema: Any, groups: Iterable[Iterable[dict[str, Any]]]) -> int:
    """Write groups of rows to a file beside the wanted one, which then takes its place."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package, which is there
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    if path.exists() and not path.is_file():
        raise InputError("the path exists and is not a regular file", where=f"--parquet {path}")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with pq.ParquetWriter(part, schema) as file:
            for group in groups:
                rows = list(group)
                count += len(rows)
                file.write_table(pa.Table.from_pylist(rows, schema))
        part.replace(path)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(f"the file cannot be written: {reason}", where=str(path)) from error
    finally:
        part.unlink(missing_ok=True)
    return count
