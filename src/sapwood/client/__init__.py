"""The public Python API, re-exported by ``sapwood``; nothing else is public."""

from sapwood.activity.progress import Progress, RunState
from sapwood.activity.run import Run
from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
from sapwood.client.cluster import AgentView, Cluster
from sapwood.client.group import AgentGroup
from sapwood.client.local import local
from sapwood.client.messages import QueryResult
from sapwood.client.stream import Stream, StreamView
from sapwood.client.stream_counters import StreamCounters
from sapwood.client.topology import Topology
from sapwood.code import load_program
from sapwood.code.filter import NOTHING, Filter
from sapwood.code.program import Program, native, parameter
from sapwood.code.result_memory import empty, zeros
from sapwood.code.runner.here import Here, here
from sapwood.code.watch import Version, Watch
from sapwood.comm.groups.handle import Group
from sapwood.comm.letters.match import ANY
from sapwood.comm.messages import PlaceReport
from sapwood.core.errors import SapwoodError
from sapwood.core.request import Message, Request, wait_all, wait_any
from sapwood.data import Dataset, load
from sapwood.environment.settings import Settings
from sapwood.session.wave_result import WaveResult

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
