"""Public names of before version 0.1, which work until version 0.2 and warn."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from sapwood import errors

MOVED = {
    "ANY": "types.ANY",
    "AgentGroup": "types.AgentGroup",
    "AgentStatistics": "types.AgentStatistics",
    "AgentView": "types.AgentInfo",
    "CollectReport": "types.CollectInfo",
    "Dataset": "types.Dataset",
    "DetachedRun": "types.DetachedRun",
    "DetachedRuns": "types.DetachedRuns",
    "EnvironmentReport": "types.EnvironmentInfo",
    "ExecResult": "types.ExecResult",
    "FunctionStatistics": "types.FunctionStatistics",
    "Here": "types.AgentContext",
    "InvitationView": "types.InvitationInfo",
    "Merged": "types.Merged",
    "Message": "types.Message",
    "NodeResult": "types.NodeResult",
    "PersistentDataset": "types.PersistentDataset",
    "PlaceReport": "types.PlaceStatistics",
    "Progress": "types.RunInfo",
    "QueryResult": "types.QueryResult",
    "Request": "types.Request",
    "RunState": "types.RunState",
    "RunStatistics": "types.RunStatistics",
    "StageReport": "types.StageInfo",
    "StagedFiles": "types.StagedFilesInfo",
    "StreamCounters": "types.StreamStatistics",
    "StreamView": "types.StreamInfo",
    "TaskFuture": "types.TaskFuture",
    "TaskOptions": "types.TaskOptions",
    "Topology": "types.Topology",
    "Version": "types.VersionInfo",
    "Watch": "types.Watch",
    "WaveResult": "types.WaveResult",
    "WorkRecord": "types.WorkStatistics",
    "on": "start",
} | {
    name: f"errors.{name}"
    for name in errors.__all__
    if name != "SapwoodError" and not issubclass(getattr(errors, name), errors.StoreError)
}
"""Where in ``sapwood`` each name is now."""

REPLACED = {
    "Stage": ("client.staging.Stage", "sapwood.connect(NAME).stage()"),
    "create_session": (
        "client.attaching.create_session",
        "sapwood.connect(NAME).create_session()",
    ),
    "request_session": (
        "client.attaching.request_session",
        "sapwood.connect(NAME).request_session()",
    ),
    "runs": ("client.detached_runs.runs", "sapwood.connect(NAME).runs"),
    "wait_all": (
        "core.request.wait_all",
        "concurrent.futures.wait(), or sapwood.here().wait_all() on an agent",
    ),
    "wait_any": (
        "core.request.wait_any",
        "concurrent.futures.wait(), or sapwood.here().wait_any() on an agent",
    ),
}
"""What each of these names stands for, and what to use instead."""


def find_old(name: str) -> Any:
    """Return what an old name of ``sapwood`` stands for, and warn its user.

    Raises:
        AttributeError: There never was such a name.
    """
    if name in MOVED:
        path = MOVED[name]
        instead = f"sapwood.{path}"
    elif name in REPLACED:
        path, instead = REPLACED[name]
    else:
        raise AttributeError(f"module 'sapwood' has no attribute {name!r}")
    warnings.warn(
        f"sapwood.{name} works until version 0.2: use {instead}", DeprecationWarning, stacklevel=3
    )
    module, _, attribute = f"sapwood.{path}".rpartition(".")
    return getattr(import_module(module), attribute)
