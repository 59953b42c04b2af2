"""Core dumps of processes that hold keys: a dump would have the keys of a cluster in it."""

from __future__ import annotations

import resource

NO_DUMP = 1
"""The limit that prevents dumps to files and to programs.

A file would need a page at least. A program that gets dumps (``kernel.core_pattern``) gets them
also with the limit 0, but not with this one: see ``core(5)`` and ``do_coredump`` of Linux.
"""


def leave_no_core_dump() -> None:
    """Let this process and its children leave no core dump, unless a child raises the limit.

    Only the soft limit changes, so users can set ``ulimit -c`` in commands that they run on nodes.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = NO_DUMP if hard == resource.RLIM_INFINITY else min(NO_DUMP, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, hard))
