"""NVIDIA's compilers: nvcc of a CUDA toolkit, and NVRTC, which pip can install."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "NVCC"
"""Environment variable that names nvcc."""

INSTALL_NVRTC: Final = "pip install 'sapwood[nvrtc]'"
"""How to get NVRTC."""

_USUAL_PLACE: Final = "/usr/local/cuda/bin/nvcc"
_NVRTC_LIBRARY: Final = re.compile(r"libnvrtc\.so\.(\d+)")


def find_nvcc(environment: Mapping[str, str]) -> str | None:
    """Return the path of nvcc: what ``NVCC`` names, that on PATH, or the toolkit's usual one."""
    wanted = environment.get(VARIABLE, "").strip()
    found = shutil.which(wanted or "nvcc", path=environment.get("PATH", ""))
    if found is None and not wanted and "PATH" in environment:
        found = shutil.which(_USUAL_PLACE)
    return found


@functools.cache
def find_nvrtc() -> str | None:
    """Return the path of NVRTC's library in the package that pip installed, or None."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    libraries = [
        path
        for folder in folders
        for path in Path(folder).glob("*/lib/libnvrtc.so.*")
        if _NVRTC_LIBRARY.fullmatch(path.name)
    ]
    return str(max(libraries, key=_version)) if libraries else None


def _version(library: Path) -> int:
    found = _NVRTC_LIBRARY.fullmatch(library.name)
    return int(found[1]) if found else 0
