"""What a machine says of itself when it becomes a node."""

from __future__ import annotations

import os
import platform
import socket
import time

import msgspec

from sapwood.comm.machine import boot_id
from sapwood.contexts.process import c_library
from sapwood.environment.cores import usable_cores
from sapwood.environment.folders import heads_folder


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says of itself.

    Attributes:
        name: What it calls itself; a label, not an identity.
        pid: Of its daemon.
        user: Who runs it.
        python: Version of its Python.
        architecture: Of its processor.
        cores: How many processes may run at once.
        clock: Its time, seconds since 1970.
        addresses: Where it could be reached.
        c_library: Name and version of its C library.
        boot: Its :func:`~sapwood.comm.machine.boot_id`.
        has_head: Whether its user runs a head, whose folder processes of a node can read.
    """

    name: str
    pid: int
    user: str
    python: str
    architecture: str
    cores: int
    clock: float
    addresses: list[str] = []
    c_library: str = ""
    boot: str = ""
    has_head: bool = False

    @classmethod
    def here(cls, name: str = "") -> NodeFacts:
        """Return the facts of this machine; without a name it is called by its host name."""
        return cls(
            name=name or socket.gethostname(),
            pid=os.getpid(),
            user=str(os.geteuid()),
            python=platform.python_version(),
            architecture=platform.machine(),
            cores=usable_cores(),
            clock=time.time(),
            c_library=c_library(),
            boot=boot_id(),
            has_head=any(heads_folder().glob("*/head.json")),
        )
