"""Sapwood turns a set of machines into one tree and runs compiled programs on it.

The names in ``__all__`` are the public API, together with the modules ``sapwood.types``,
``sapwood.errors`` and ``sapwood.plugins``. Each is imported from its own module when it is first
used, so that the processes of a cluster start fast. What programs are written with comes from its
own module: a runner, which imports programs, needs nothing else of the client.
"""

from typing import TYPE_CHECKING, Any

from sapwood.core.lazy_names import LazyNames

if TYPE_CHECKING:
    from sapwood import errors, types
    from sapwood.activity.joined_agent import join_as_agent
    from sapwood.activity.run import Run
    from sapwood.client.attaching import attach
    from sapwood.client.cluster import Cluster
    from sapwood.client.cluster_head import connect
    from sapwood.client.executing import execute
    from sapwood.client.hosts import dask, kubernetes, ray, slurm, ssh, start
    from sapwood.client.local import local
    from sapwood.client.pool import Pool
    from sapwood.client.stream import Stream
    from sapwood.code.filter import NOTHING, Filter
    from sapwood.code.load import load_program
    from sapwood.code.program import Program, native, parameter
    from sapwood.code.result_memory import empty, zeros
    from sapwood.code.runner.here import here
    from sapwood.code.stencil import Stencil
    from sapwood.comm.groups.handle import Group
    from sapwood.core.errors import SapwoodError
    from sapwood.data.sources import load
    from sapwood.environment.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "NOTHING",
    "Cluster",
    "Filter",
    "Group",
    "Pool",
    "Program",
    "Run",
    "SapwoodError",
    "Settings",
    "Stencil",
    "Stream",
    "attach",
    "connect",
    "dask",
    "empty",
    "errors",
    "execute",
    "here",
    "join_as_agent",
    "kubernetes",
    "load",
    "load_program",
    "local",
    "native",
    "parameter",
    "ray",
    "slurm",
    "ssh",
    "start",
    "types",
    "zeros",
]

if not TYPE_CHECKING:
    _names = LazyNames(
        __name__,
        {
            "sapwood.activity.joined_agent": "join_as_agent",
            "sapwood.activity.run": "Run",
            "sapwood.client.attaching": "attach",
            "sapwood.client.cluster": "Cluster",
            "sapwood.client.cluster_head": "connect",
            "sapwood.client.executing": "execute",
            "sapwood.client.hosts": "dask kubernetes ray slurm ssh start",
            "sapwood.client.local": "local",
            "sapwood.client.pool": "Pool",
            "sapwood.client.stream": "Stream",
            "sapwood.code.filter": "NOTHING Filter",
            "sapwood.code.load": "load_program",
            "sapwood.code.program": "Program native parameter",
            "sapwood.code.result_memory": "empty zeros",
            "sapwood.code.runner.here": "here",
            "sapwood.code.stencil": "Stencil",
            "sapwood.comm.groups.handle": "Group",
            "sapwood.core.errors": "SapwoodError",
            "sapwood.data.sources": "load",
            "sapwood.environment.settings": "Settings",
            "sapwood.errors": "errors",
            "sapwood.types": "types",
        },
    )

    def __getattr__(name: str) -> Any:
        if name in _names.home_of:
            value = globals()[name] = _names.find(name)
            return value
        from sapwood.old_names import find_old  # noqa: PLC0415 - for one release, and rarely used

        return find_old(name)

    def __dir__() -> list[str]:
        return sorted([*__all__, "__version__"])
