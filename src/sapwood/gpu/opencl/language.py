"""OpenCL C as a language: each kernel of a ``.cl`` source is a function that agents can map."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sapwood.code import transfers
from sapwood.code.interface import Interface
from sapwood.code.languages.base import Artefact, BuildRequest, LoadedCode
from sapwood.code.runner.options import ORDINAL
from sapwood.core.errors import BuildError, ConfigurationError, FunctionMissingError, ResourceError
from sapwood.gpu.devices.base import Device, DeviceFacts, Module
from sapwood.gpu.devices.opencl import INSTALL, OpenClBackend
from sapwood.gpu.discovery import choose_device

CHOICE: Final = "SAPWOOD_OPENCL_DEVICE"
"""Environment variable: number of the device; by default agents take them in turn."""

_LIBRARY: Final = "kernels.cl"


class OpenCl:
    """OpenCL C.

    The text is what travels: the driver of the node where a kernel runs compiles it. A build
    compiles it too where there is a device, so that mistakes are shown before the run.
    """

    name = "opencl"
    suffixes: tuple[str, ...] = (".cl",)
    absorbs: tuple[str, ...] = ()

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        """Return the device that compiles, if there is one."""
        found = OpenClBackend().discover()
        return {"device": f"{found[0].name}, {found[0].driver}" if found else "none"}

    def build(self, request: BuildRequest) -> Artefact:
        """Join the sources and have a device compile them, where there is one.

        Raises:
            BuildError: They do not compile.
        """
        text = "".join(
            f'#line 1 "{source}"\n{(request.folder / source).read_text(encoding="utf-8")}\n'
            for source in request.sources
        )
        (request.output / _LIBRARY).write_text(text, encoding="utf-8")
        if OpenClBackend().discover():
            device = OpenClBackend().open()
            try:
                device.build(text)
            except BuildError as error:
                raise located(error, request.sources[0], request.origin) from None
            finally:
                device.close()
        return Artefact(library=_LIBRARY)

    def discover(self, request: BuildRequest, artefact: Artefact) -> Interface:
        """Return the kernels of the sources."""
        from sapwood.gpu.opencl.parse import (  # noqa: PLC0415 - needs a parser that runners do not
            kernel_signatures,
        )

        return Interface(
            functions=tuple(
                signature
                for source in request.sources
                for signature in kernel_signatures(source, (request.folder / source).read_bytes())
            )
        )

    def load(self, path: Path, interface: Interface) -> LoadedCode:
        """Compile the kernels for this agent's device.

        Raises:
            ResourceError: This node has no OpenCL device.
        """
        found = OpenClBackend().discover()
        if not found:
            raise ResourceError("this node has no OpenCL device", where=path.name, hint=INSTALL)
        device = OpenClBackend().open(chosen_device(os.environ, found))
        transfers.watch(device.statistics)
        text = path.read_text(encoding="utf-8")
        return OpenClKernels(device, device.build(text), text, interface)

    def unload(self, code: LoadedCode) -> None:
        """Free the device."""
        if isinstance(code, OpenClKernels):
            code.device.close()


class OpenClKernels:
    """Kernels on this agent's device."""

    def __init__(self, device: Device, module: Module, text: str, interface: Interface) -> None:
        from sapwood.gpu.opencl.groups import group_sizes  # noqa: PLC0415 - only where kernels run

        self.device = device
        self._module = module
        self._interface = interface
        self._groups = group_sizes(text)

    def function(self, name: str, constants: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a kernel, ready to be called with arrays."""
        from sapwood.gpu.resident import KernelFunction  # noqa: PLC0415 - as above

        signature = self._interface.function(name)
        if signature is None:
            raise FunctionMissingError(f"the sources have no kernel {name}")
        block = self._groups.get(name, ())
        return KernelFunction(signature, self.device, self._module, constants, block)


def chosen_device(environment: Mapping[str, str], devices: Sequence[DeviceFacts]) -> int:
    """Return the number of the device that this process uses.

    Args:
        environment: May name it; else it says which of the machine's agents this is.
        devices: The devices of the machine, at least one.

    Raises:
        ConfigurationError: The variable names none of them.
    """
    text = environment.get(CHOICE, "")
    if not text:
        return choose_device(devices, int(environment.get(ORDINAL, "0"))).index
    if not text.isdigit() or int(text) >= len(devices):
        hint = f"say a number from 0 to {len(devices) - 1}"
        raise ConfigurationError(f"{CHOICE} is {text}", where=CHOICE, hint=hint)
    return int(text)


def located(error: BuildError, source: str, origin: str) -> BuildError:
    """Return an error of a driver's compiler with the place that its text names."""
    import re  # noqa: PLC0415 - only after a mistake

    text = error.details.get("compiler output", "")
    lines = "\n".join(line for line in text.splitlines() if "error" in line)
    found = re.search(r"([\w./-]+\.cl):(\d+):\d+", lines)
    where = f"{found[1]}:{found[2]}" if found else source
    details = {**error.details, "folder": origin}
    return BuildError(f"{source} does not compile for OpenCL", where=where, details=details)
