"""The public Python API, re-exported by ``sapwood``; nothing else is public."""

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
from sapwood.client.merged import Merged
from sapwood.client.messages import QueryResult
from sapwood.client.persistent import PersistentDataset
from sapwood.client.staging import Stage
from sapwood.client.stream import Stream, StreamCounters, StreamView
from sapwood.client.submitting import TaskOptions
from sapwood.client.topology import Topology
from sapwood.code import load_program
from sapwood.code.filter import NOTHING, Filter
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
from sapwood.data import Dataset, load
from sapwood.environment.settings import Settings
from sapwood.head.stage_reports import (
    CollectReport,
    EnvironmentReport,
    StagedFiles,
    StageReport,
)
from sapwood.session.port import InvitationView, WaveResult

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
