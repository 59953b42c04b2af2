"""Sapwood turns a set of machines into one tree and runs compiled programs on it.

The names in ``__all__`` are the public API; each is imported from its own module
when first used, so that the processes of a cluster start fast. What programs are written with
comes from its own module: a runner, which imports programs, needs nothing else of the client.

The rooms, lowest first; each imports only those before it (import-linter checks this)::

    core  comm  environment  contexts  code  gpu  data  session  activity  fastpath  client
    compat  testing  cli
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sapwood.activity.joined_agent import join_as_agent
    from sapwood.activity.progress import Progress, RunState
    from sapwood.activity.run import Run
    from sapwood.activity.run_record import WorkRecord
    from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
    from sapwood.activity.task_future import TaskFuture
    from sapwood.client.attaching import attach, create_session, request_session
    from sapwood.client.cluster import AgentView, Cluster
    from sapwood.client.detached_runs import DetachedRun, DetachedRuns, runs
    from sapwood.client.executing import ExecResult, NodeResult, execute
    from sapwood.client.group import AgentGroup
    from sapwood.client.hosts import connect, dask, kubernetes, on, ray, slurm, ssh
    from sapwood.client.local import local
    from sapwood.client.messages import QueryResult
    from sapwood.client.persistent import PersistentDataset
    from sapwood.client.staging import Stage
    from sapwood.client.stream import Stream, StreamCounters, StreamView
    from sapwood.client.submitting import TaskOptions
    from sapwood.client.topology import Topology
    from sapwood.code.filter import NOTHING, Filter
    from sapwood.code.load import load_program
    from sapwood.code.program import Program, native, parameter
    from sapwood.code.result_memory import empty, zeros
    from sapwood.code.runner.here import Here, here
    from sapwood.code.watch import Version, Watch
    from sapwood.comm.groups.handle import Group
    from sapwood.comm.messages import PlaceReport
    from sapwood.comm.messaging.envelope import ANY
    from sapwood.core.errors import (
        AgentLostError,
        ArgumentError,
        BuildError,
        CancelledError,
        ClosedError,
        CommunicationError,
        CompilerMissingError,
        ConfigurationError,
        DataError,
        DataMissingError,
        DataShapeError,
        DataValueError,
        DrainedError,
        ExecutionError,
        FunctionMissingError,
        GroupError,
        InputError,
        InternalError,
        MemoryLimitError,
        NodeLostError,
        NotReadyError,
        ParameterError,
        ProcessSpentError,
        ProgramError,
        ProtocolError,
        ResourceError,
        RunnerCrashError,
        SapwoodError,
        SecurityError,
        TimeLimitError,
        UserCodeError,
    )
    from sapwood.core.request import Message, Request, wait_all, wait_any
    from sapwood.data.dataset import Dataset
    from sapwood.data.sources import load
    from sapwood.environment.settings import Settings
    from sapwood.head_client.stage_reports import (
        CollectReport,
        EnvironmentReport,
        StagedFiles,
        StageReport,
    )
    from sapwood.merging.merged import Merged
    from sapwood.session.port import InvitationView, WaveResult

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "NOTHING",
    "AgentGroup",
    "AgentLostError",
    "AgentStatistics",
    "AgentView",
    "ArgumentError",
    "BuildError",
    "CancelledError",
    "ClosedError",
    "Cluster",
    "CollectReport",
    "CommunicationError",
    "CompilerMissingError",
    "ConfigurationError",
    "DataError",
    "DataMissingError",
    "DataShapeError",
    "DataValueError",
    "Dataset",
    "DetachedRun",
    "DetachedRuns",
    "DrainedError",
    "EnvironmentReport",
    "ExecResult",
    "ExecutionError",
    "Filter",
    "FunctionMissingError",
    "FunctionStatistics",
    "Group",
    "GroupError",
    "Here",
    "InputError",
    "InternalError",
    "InvitationView",
    "MemoryLimitError",
    "Merged",
    "Message",
    "NodeLostError",
    "NodeResult",
    "NotReadyError",
    "ParameterError",
    "PersistentDataset",
    "PlaceReport",
    "ProcessSpentError",
    "Program",
    "ProgramError",
    "Progress",
    "ProtocolError",
    "QueryResult",
    "Request",
    "ResourceError",
    "Run",
    "RunState",
    "RunStatistics",
    "RunnerCrashError",
    "SapwoodError",
    "SecurityError",
    "Settings",
    "Stage",
    "StageReport",
    "StagedFiles",
    "Stream",
    "StreamCounters",
    "StreamView",
    "TaskFuture",
    "TaskOptions",
    "TimeLimitError",
    "Topology",
    "UserCodeError",
    "Version",
    "Watch",
    "WaveResult",
    "WorkRecord",
    "attach",
    "connect",
    "create_session",
    "dask",
    "empty",
    "execute",
    "here",
    "join_as_agent",
    "kubernetes",
    "load",
    "load_program",
    "local",
    "native",
    "on",
    "parameter",
    "ray",
    "request_session",
    "runs",
    "slurm",
    "ssh",
    "wait_all",
    "wait_any",
    "zeros",
]

_HOMES = {
    "sapwood.activity.joined_agent": "join_as_agent",
    "sapwood.activity.progress": "Progress RunState",
    "sapwood.activity.run": "Run",
    "sapwood.activity.run_record": "WorkRecord",
    "sapwood.activity.statistics": "AgentStatistics FunctionStatistics RunStatistics",
    "sapwood.activity.task_future": "TaskFuture",
    "sapwood.client.attaching": "attach create_session request_session",
    "sapwood.client.cluster": "AgentView Cluster",
    "sapwood.client.detached_runs": "DetachedRun DetachedRuns runs",
    "sapwood.client.executing": "ExecResult NodeResult execute",
    "sapwood.client.group": "AgentGroup",
    "sapwood.client.hosts": "connect dask kubernetes on ray slurm ssh",
    "sapwood.client.local": "local",
    "sapwood.merging.merged": "Merged",
    "sapwood.client.messages": "QueryResult",
    "sapwood.client.persistent": "PersistentDataset",
    "sapwood.client.staging": "Stage",
    "sapwood.client.stream": "Stream StreamCounters StreamView",
    "sapwood.client.submitting": "TaskOptions",
    "sapwood.client.topology": "Topology",
    "sapwood.code.filter": "NOTHING Filter",
    "sapwood.code.load": "load_program",
    "sapwood.code.program": "Program native parameter",
    "sapwood.code.result_memory": "empty zeros",
    "sapwood.code.runner.here": "Here here",
    "sapwood.code.watch": "Version Watch",
    "sapwood.comm.groups.handle": "Group",
    "sapwood.comm.messages": "PlaceReport",
    "sapwood.comm.messaging.envelope": "ANY",
    "sapwood.core.request": "Message Request wait_all wait_any",
    "sapwood.data.dataset": "Dataset",
    "sapwood.data.sources": "load",
    "sapwood.environment.settings": "Settings",
    "sapwood.head_client.stage_reports": "CollectReport EnvironmentReport StageReport StagedFiles",
    "sapwood.session.port": "InvitationView WaveResult",
}

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sapwood' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF.get(name, "sapwood.core.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
