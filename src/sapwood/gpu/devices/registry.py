"""The device back-ends that are there: the built-in ones and those of plug-ins."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from sapwood.core.errors import ProgramError
from sapwood.core.suggest import suggest
from sapwood.gpu.devices.base import ENTRY_POINT_GROUP, Backend, DeviceFacts
from sapwood.gpu.devices.cuda import CudaBackend
from sapwood.gpu.devices.host import HostBackend
from sapwood.gpu.devices.opencl import OpenClBackend


@functools.cache
def backends() -> dict[str, Backend]:
    """Return the back-ends by name: CUDA, OpenCL, the host, then plug-ins.

    Raises:
        ProgramError: A plug-in cannot be imported, or takes the name of another back-end.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and rarely needed

    found: dict[str, Backend] = {}
    for made in (CudaBackend(), OpenClBackend(), HostBackend()):
        found[made.name] = made
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = point.load()
            plugin: Backend = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:
            raise ProgramError(
                f"device plug-in {point.name} cannot be imported: {error}",
                where=point.value,
                hint="repair or uninstall the package that provides it",
            ) from error
        if plugin.name in found:
            raise ProgramError(f"two device back-ends are called {plugin.name}", where=point.value)
        found[plugin.name] = plugin
    return found


def backend(name: str) -> Backend:
    """Return a back-end by name.

    Raises:
        ProgramError: There is none of that name.
    """
    found = backends().get(name)
    if found is None:
        raise ProgramError(f"unknown device back-end {name}", hint=suggest(name, backends()))
    return found


def discover_devices() -> tuple[DeviceFacts, ...]:
    """Return all devices of this machine, the processor as the last one.

    Example:
        >>> discover_devices()[-1].kind
        'cpu'
    """
    listed: Sequence[Backend] = sorted(backends().values(), key=lambda each: each.name == "host")
    return tuple(facts for each in listed for facts in each.discover())
