"""Core dumps of processes that hold keys: a dump would have the keys of a cluster in it."""

from __future__ import annotations

import resource


def leave_no_core_dump() -> None:
    """Let this process and its children leave no core dump, unless a child raises the limit.

    Only the soft limit changes, so users can set ``ulimit -c`` in commands that they run on nodes.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
