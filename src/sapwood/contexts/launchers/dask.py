"""Nodes through Dask: machines of a running Dask cluster.

A separate process (:mod:`~sapwood.contexts.launchers.dask_holder`) is the client that Dask sees.
It takes one worker on each machine, and has a small actor there for each command, which carries the
command's standard streams. Actors end with that process, and that process ends with this one.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from sapwood.contexts.launchers import dask_holder
from sapwood.contexts.launchers.held import TIMEOUT, HeldLauncher
from sapwood.core.arguments import whole
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown

_SECURITY = ("tls_ca_file", "tls_client_cert", "tls_client_key", "require_encryption")
_SCHEMES = ("tcp://", "tls://", "ws://", "wss://")


class DaskLauncher(HeldLauncher):
    """Starts nodes on machines of a running Dask cluster.

    :meth:`request` asks for the machines, and :meth:`close` gives them back.

    Args:
        cluster: The address of its scheduler, for example ``tcp://10.0.0.5:8786``, or a
            ``distributed.Client``.
        nodes: How many machines; None for all that have a worker now.
        timeout: Seconds until machines that Dask does not have are given up.

    Raises:
        ConfigurationError: A number is out of range, this is not an address, or Dask is not
        installed.
    """

    name = "dask"
    title = "Dask"
    holder = Path(dask_holder.__file__)
    no_answer = "check the address of the scheduler, and the TLS settings of Dask here"

    def __init__(self, cluster: Any, nodes: int | None = None, *, timeout: float = TIMEOUT) -> None:
        address, security = _address_of(cluster)
        if nodes is not None and whole(nodes, "nodes", ConfigurationError) < 1:
            raise ConfigurationError("nodes cannot be 0", hint="leave it out for all machines")
        super().__init__(
            {
                "nodes": nodes or 0,
                "address": address,
                "security": security,
                "timeout": timeout,
            }
        )
        if importlib.util.find_spec("distributed") is None:
            raise ConfigurationError(
                "this Python has no Dask",
                where=sys.executable,
                hint="install the version that the cluster has: pip install distributed==VERSION",
            )


def _address_of(cluster: Any) -> tuple[str, dict[str, Any]]:
    """Return the address of a cluster's scheduler, and how to connect with it."""
    if isinstance(cluster, str):
        if not cluster.startswith(_SCHEMES):
            raise ConfigurationError(
                f"{shown(cluster)} is not an address of a Dask scheduler",
                hint="write tcp://HOST:8786 or tls://HOST:8786",
            )
        return cluster, {}
    scheduler = getattr(cluster, "scheduler", None)
    address = getattr(scheduler, "address", None)
    if not isinstance(address, str) or not address.startswith(_SCHEMES):
        raise ConfigurationError(
            "this is no Dask client that other processes can follow",
            where=shown(cluster),
            hint="give the address of the scheduler, or a distributed.Client that is connected "
            "with one by TCP; not LocalCluster(processes=False)",
        )
    security = getattr(cluster, "security", None)
    return address, {
        key: value for key in _SECURITY if (value := getattr(security, key, None)) is not None
    }
