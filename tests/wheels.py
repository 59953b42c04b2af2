"""Wheels that tests make themselves, and locks of them: nothing of it needs a network."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    *,
    tag: str = "py3-none-any",
    scripts: str = "",
) -> str:
    """Make version 1.0 of a package in a folder of wheels; return its line in a lock.

    Args:
        folder: Where to.
        name: Of the package.
        files: What it has, by name.
        tag: For which machines it is.
        scripts: Its programs, a line each: ``NAME=MODULE:FUNCTION``.
    """
    info = f"{name}-1.0.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*content, f"{info}/RECORD"])
    path = folder / f"{name}-1.0-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as packed:
        for one, text in content.items():
            packed.writestr(zipfile.ZipInfo(one), text)  # of the same time always
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def write_lock(path: Path, wheels: Path, *lines: str) -> Path:
    """Write requirements that are found in a folder of wheels and nowhere else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["--no-index", f"--find-links {wheels}", *lines, ""]))
    return path
