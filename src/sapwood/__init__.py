"""Sapwood turns a set of machines into one tree and runs compiled programs on it.

What is listed in ``__all__`` is the public API; it lives in ``sapwood.client`` and is imported
when first used, so that the processes of a cluster start fast. What programs are written with
comes from its own module: a runner, which imports programs, needs nothing else of the client.

The rooms, lowest first; each imports only those before it (import-linter holds this)::

    core  comm  environment  contexts  code  gpu  data  session  activity  client  compat
    testing  cli
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sapwood.client import (
        ANY,
        NOTHING,
        AgentGroup,
        AgentStatistics,
        AgentView,
        Cluster,
        Dataset,
        Filter,
        FunctionStatistics,
        Group,
        Here,
        Message,
        PlaceReport,
        Program,
        Progress,
        QueryResult,
        Request,
        Run,
        RunState,
        RunStatistics,
        SapwoodError,
        Settings,
        Stream,
        StreamCounters,
        StreamView,
        Topology,
        Version,
        Watch,
        WaveResult,
        empty,
        here,
        load,
        load_program,
        local,
        native,
        parameter,
        wait_all,
        wait_any,
        zeros,
    )

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "NOTHING",
    "AgentGroup",
    "AgentStatistics",
    "AgentView",
    "Cluster",
    "Dataset",
    "Filter",
    "FunctionStatistics",
    "Group",
    "Here",
    "Message",
    "PlaceReport",
    "Program",
    "Progress",
    "QueryResult",
    "Request",
    "Run",
    "RunState",
    "RunStatistics",
    "SapwoodError",
    "Settings",
    "Stream",
    "StreamCounters",
    "StreamView",
    "Topology",
    "Version",
    "Watch",
    "WaveResult",
    "empty",
    "here",
    "load",
    "load_program",
    "local",
    "native",
    "parameter",
    "wait_all",
    "wait_any",
    "zeros",
]

_FOR_PROGRAMS = {
    "Program": "sapwood.code.program",
    "Filter": "sapwood.code.filter",
    "NOTHING": "sapwood.code.filter",
    "native": "sapwood.code.program",
    "parameter": "sapwood.code.program",
    "empty": "sapwood.code.result_memory",
    "zeros": "sapwood.code.result_memory",
    "Group": "sapwood.comm.groups.handle",
    "Here": "sapwood.code.runner.here",
    "here": "sapwood.code.runner.here",
    "ANY": "sapwood.comm.letters.match",
    "Message": "sapwood.core.request",
    "Request": "sapwood.core.request",
    "wait_all": "sapwood.core.request",
    "wait_any": "sapwood.core.request",
    "SapwoodError": "sapwood.core.errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sapwood' has no attribute {name!r}")
    value = getattr(import_module(_FOR_PROGRAMS.get(name, "sapwood.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
