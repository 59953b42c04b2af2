"""The types of what Sapwood returns and takes, for annotations and ``isinstance``.

Structs are of two kinds: ``...Info`` is a snapshot of something, ``...Statistics`` what was counted
over a time. What one operation returned is a ``...Result``. All others are handles: calls return
them, and programs make none of them; only tests make a ``Slice``.
"""

from typing import TYPE_CHECKING, Any

from sapwood.core.lazy_names import LazyNames

if TYPE_CHECKING:
    from sapwood.activity.progress import RunInfo, RunState
    from sapwood.activity.run_record import WorkStatistics
    from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
    from sapwood.activity.task_future import TaskFuture
    from sapwood.client.actors import Actor, Actors
    from sapwood.client.autoscaling import AutoscaleBounds, Autoscaling
    from sapwood.client.cluster import AgentInfo
    from sapwood.client.cluster_head import ClusterHead, NodeInfo
    from sapwood.client.credentials import HeadCredentials
    from sapwood.client.detached_runs import DetachedRun, DetachedRuns
    from sapwood.client.executing import ExecResult, NodeResult
    from sapwood.client.group import AgentGroup
    from sapwood.client.messages import QueryResult
    from sapwood.client.persistent import PersistentDataset
    from sapwood.client.pool import AsyncResult, PoolResults
    from sapwood.client.staging import Stage
    from sapwood.client.stream import StreamInfo, StreamStatistics
    from sapwood.client.submitting import TaskOptions
    from sapwood.client.topology import Topology
    from sapwood.code.profiles import ProfileResult, StackCount
    from sapwood.code.runner.here import AgentContext
    from sapwood.code.stacks import FrameInfo, StackInfo, StackResult, ThreadInfo
    from sapwood.code.watch import VersionInfo, Watch
    from sapwood.comm.messages import PlaceStatistics
    from sapwood.comm.messaging.envelope import ANY
    from sapwood.core.request import Message, Request
    from sapwood.data.dataset import Dataset
    from sapwood.data.slice import Slice
    from sapwood.head.calls import CredentialInfo, IssuedCredential, RevokeResult
    from sapwood.head_client.stage_reports import (
        CollectInfo,
        EnvironmentInfo,
        StagedFilesInfo,
        StageInfo,
    )
    from sapwood.merging.merged import Merged
    from sapwood.session.interface import InvitationInfo, WaveResult

__all__ = [
    "ANY",
    "Actor",
    "Actors",
    "AgentContext",
    "AgentGroup",
    "AgentInfo",
    "AgentStatistics",
    "AsyncResult",
    "AutoscaleBounds",
    "Autoscaling",
    "ClusterHead",
    "CollectInfo",
    "CredentialInfo",
    "Dataset",
    "DetachedRun",
    "DetachedRuns",
    "EnvironmentInfo",
    "ExecResult",
    "FrameInfo",
    "FunctionStatistics",
    "HeadCredentials",
    "InvitationInfo",
    "IssuedCredential",
    "Merged",
    "Message",
    "NodeInfo",
    "NodeResult",
    "PersistentDataset",
    "PlaceStatistics",
    "PoolResults",
    "ProfileResult",
    "QueryResult",
    "Request",
    "RevokeResult",
    "RunInfo",
    "RunState",
    "RunStatistics",
    "Slice",
    "StackCount",
    "StackInfo",
    "StackResult",
    "Stage",
    "StageInfo",
    "StagedFilesInfo",
    "StreamInfo",
    "StreamStatistics",
    "TaskFuture",
    "TaskOptions",
    "ThreadInfo",
    "Topology",
    "VersionInfo",
    "Watch",
    "WaveResult",
    "WorkStatistics",
]

if not TYPE_CHECKING:
    _names = LazyNames(
        __name__,
        {
            "sapwood.activity.progress": "RunInfo RunState",
            "sapwood.activity.run_record": "WorkStatistics",
            "sapwood.activity.statistics": "AgentStatistics FunctionStatistics RunStatistics",
            "sapwood.activity.task_future": "TaskFuture",
            "sapwood.client.actors": "Actor Actors",
            "sapwood.client.autoscaling": "Autoscaling AutoscaleBounds",
            "sapwood.client.cluster": "AgentInfo",
            "sapwood.client.cluster_head": "ClusterHead NodeInfo",
            "sapwood.client.credentials": "HeadCredentials",
            "sapwood.client.detached_runs": "DetachedRun DetachedRuns",
            "sapwood.client.executing": "ExecResult NodeResult",
            "sapwood.client.group": "AgentGroup",
            "sapwood.client.messages": "QueryResult",
            "sapwood.client.persistent": "PersistentDataset",
            "sapwood.client.pool": "AsyncResult PoolResults",
            "sapwood.client.staging": "Stage",
            "sapwood.client.stream": "StreamInfo StreamStatistics",
            "sapwood.client.submitting": "TaskOptions",
            "sapwood.client.topology": "Topology",
            "sapwood.code.runner.here": "AgentContext",
            "sapwood.code.profiles": "ProfileResult StackCount",
            "sapwood.code.stacks": "FrameInfo StackInfo StackResult ThreadInfo",
            "sapwood.code.watch": "VersionInfo Watch",
            "sapwood.comm.messages": "PlaceStatistics",
            "sapwood.comm.messaging.envelope": "ANY",
            "sapwood.core.request": "Message Request",
            "sapwood.data.dataset": "Dataset",
            "sapwood.data.slice": "Slice",
            "sapwood.head.calls": "CredentialInfo IssuedCredential RevokeResult",
            "sapwood.head_client.stage_reports": (
                "CollectInfo EnvironmentInfo StageInfo StagedFilesInfo"
            ),
            "sapwood.merging.merged": "Merged",
            "sapwood.session.interface": "InvitationInfo WaveResult",
        },
    )

    if not _names.is_installed("Merged"):  # for `from sapwood.types import *`
        __all__.remove("Merged")  # noqa: PYI056 - type checkers do not see this block

    def __getattr__(name: str) -> Any:
        value = globals()[name] = _names.find(name)
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
