"""What the ledger records of the processes of sessions."""

from __future__ import annotations

from typing import NamedTuple

from sapwood.contexts.orders import Exited, Report, RunnerLost, Spawned
from sapwood.contexts.process import describe_status


class ProcessEvent(NamedTuple):
    """An event of the ledger, without node and session."""

    kind: str
    text: str
    facts: dict[str, str]


def event_of(report: Report) -> ProcessEvent | None:
    """Return what the ledger records of a report; None for nothing.

    Example:
        >>> event_of(RunnerLost(3, 4711, -9)).text
        'runner of rank 3: killed by SIGKILL'
        >>> event_of(Exited(3, 1, 4711, 0)) is None
        True
    """
    if isinstance(report, RunnerLost):
        return ProcessEvent(
            "runner.lost",
            f"runner of rank {report.rank}: {describe_status(report.status)}",
            {
                "rank": str(report.rank),
                "process": str(report.pid),
                "status": str(report.status),
            },
        )
    if isinstance(report, Exited) and (report.status or report.reason):
        return ProcessEvent(
            "process.lost",
            f"rank {report.rank}: {report.reason or describe_status(report.status)}",
            {"rank": str(report.rank), "status": str(report.status)},
        )
    if isinstance(report, Spawned) and report.incarnation > 1:
        return replacement_of(report.rank, report.incarnation)
    return None


def replacement_of(rank: int, incarnation: int) -> ProcessEvent:
    """Return what the ledger records of a process that takes the place of another one."""
    return ProcessEvent(
        "process.replaced",
        f"another process begins as rank {rank}",
        {"rank": str(rank), "incarnation": str(incarnation)},
    )
