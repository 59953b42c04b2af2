"""Nodes through Ray: machines of a running Ray cluster.

A separate process (:mod:`~sapwood.contexts.launchers.ray_holder`) is the program that Ray sees:
this one stays free of Ray's threads and signal handlers, and may use Ray itself. That process asks
for a placement group with one bundle on each machine. A command on a machine is the child of
a small actor there, which carries its standard streams. Ray ends the actors and the group with that
process, and that process ends with this one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from sapwood.contexts.launchers import ray_holder
from sapwood.contexts.launchers.held import TIMEOUT, HeldLauncher
from sapwood.core.arguments import whole
from sapwood.core.errors import ConfigurationError


class RayLauncher(HeldLauncher):
    """Starts nodes on machines of a running Ray cluster.

    :meth:`request` asks for the machines, and :meth:`close` gives them back.

    Args:
        nodes: How many machines.
        cpus: CPUs of Ray on each; 0 means as many as each of that many machines has.
        gpus: GPUs of Ray on each.
        address: The cluster; empty means ``RAY_ADDRESS``, or that which runs on this machine.
        timeout: Seconds until machines that Ray does not have free are given up.

    Raises:
        ConfigurationError: A number is out of range, or there is no Ray.
    """

    name = "ray"
    title = "Ray"
    holder = Path(ray_holder.__file__)
    environment: ClassVar[Mapping[str, str]] = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    no_answer = "start this on a machine of the cluster, and see what `ray status` says there"

    def __init__(
        self,
        nodes: int,
        *,
        cpus: int = 0,
        gpus: int = 0,
        address: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(
            {
                "nodes": whole(nodes, "nodes", ConfigurationError),
                "cpus": cpus,
                "gpus": gpus,
                "address": address,
                "timeout": timeout,
            },
            cpus,
        )
        if (address or os.environ.get("RAY_ADDRESS", "")).startswith(("ray://", "http")):
            raise ConfigurationError(
                "a Ray cluster needs the address of its GCS here, not of a client server",
                where=address or "RAY_ADDRESS",
                hint="start this on a machine of the cluster, with RAY_ADDRESS=auto",
            )
        if importlib.util.find_spec("ray") is None:
            raise ConfigurationError(
                "this Python has no Ray",
                where=sys.executable,
                hint="install the version that the cluster has: pip install ray==VERSION",
            )

    def where(self) -> str:
        """Return where the cluster is looked for."""
        return super().where() or os.environ.get("RAY_ADDRESS", "auto")
