"""The public Python API, re-exported by ``sapwood``; nothing else is public."""

from sapwood.activity.progress import Progress, RunState
from sapwood.activity.run import Run
from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
from sapwood.client.cluster import AgentView, Cluster
from sapwood.client.local import local
from sapwood.code import load_program
from sapwood.code.program import Program, native, parameter
from sapwood.code.result_memory import empty, zeros
from sapwood.code.runner.here import Here, here
from sapwood.code.watch import Version, Watch
from sapwood.core.errors import SapwoodError
from sapwood.core.request import Request, wait_all, wait_any
from sapwood.data import Dataset, load
from sapwood.environment.settings import Settings

__all__ = [
    "AgentStatistics",
    "AgentView",
    "Cluster",
    "Dataset",
    "FunctionStatistics",
    "Here",
    "Program",
    "Progress",
    "Request",
    "Run",
    "RunState",
    "RunStatistics",
    "SapwoodError",
    "Settings",
    "Version",
    "Watch",
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
