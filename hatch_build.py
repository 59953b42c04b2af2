"""Builds the library of shortcuts into the package, where there is a C compiler; optional."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/sapwood/fastpath/native")


class BuildFastpath(BuildHookInterface[Any]):
    """Compiles ``fastpath.c``; without a compiler the wheel is one of pure Python."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are collected."""
        del version
        native = Path(self.root) / NATIVE
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if self.target_name != "wheel" or compiler is None or not sys.platform.startswith("linux"):
            return
        if not (native / "fastpath.c").is_file():
            return  # the optional package fastpath was deleted
        library = native / "fastpath.so"
        scratch = library.with_suffix(".new")
        command = [
            compiler,
            "-O2",
            "-std=gnu11",
            "-fPIC",
            "-shared",
            "-o",
            scratch,
            "fastpath.c",
            "-lm",
        ]
        done = subprocess.run(command, cwd=native, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"fastpath is not built: {done.stderr}")
            return
        scratch.replace(library)  # a process that runs has the old one
        build_data["artifacts"].append(str(NATIVE / library.name))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
