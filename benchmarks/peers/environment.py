"""The Python environments of the peers that Sapwood is measured against.

``python benchmarks/peers/environment.py`` makes them under ``build/peers``; benchmarks make those
that they need. mpi4py loads the machine's Open MPI.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "peers"

TIME_LIMIT = 900.0
"""Seconds that an installation may take."""

PACKAGES = {
    "mpi": ("numpy", "pyarrow", "mpi4py>=4.1"),
    "dask": ("numpy", "pyarrow", "distributed"),
    "ray": ("numpy", "pyarrow", "ray"),
}
"""What pip installs for each peer."""


class PeerMissingError(Exception):
    """A peer cannot be measured on this machine; the text says why."""


def peer_python(peer: str, *, make: bool = True) -> Path:
    """Return the interpreter of a peer's environment.

    Args:
        peer: Its name, a key of :data:`PACKAGES`.
        make: Make the environment if there is none yet.

    Raises:
        PeerMissingError: The peer cannot be installed, or its environment is missing and must
            not be made.
    """
    if peer == "mpi" and shutil.which("mpirun") is None:
        raise PeerMissingError("no Open MPI on this machine: install openmpi-bin")
    folder = FOLDER / peer
    python = folder / "bin" / "python"
    done = folder / "complete"
    packages = " ".join(PACKAGES[peer])
    if done.exists() and done.read_text(encoding="ascii") == packages:
        return python
    if not make:
        raise PeerMissingError("no environment yet: run python benchmarks/peers/environment.py")
    print(f"making {folder} (once, some minutes)", file=sys.stderr)
    if not python.exists():
        venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "-q", *PACKAGES[peer]]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.CalledProcessError as error:
        raise PeerMissingError(f"{peer} cannot be installed: {error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise PeerMissingError(f"{peer} was not installed within {TIME_LIMIT:.0f} s") from error
    done.write_text(packages, encoding="ascii")
    return python


def mpi_python(*, make: bool = True) -> Path:
    """Return the interpreter that has mpi4py; see :func:`peer_python`."""
    return peer_python("mpi", make=make)


if __name__ == "__main__":
    for name in PACKAGES:
        try:
            print(peer_python(name))
        except PeerMissingError as missing:
            print(f"{name}: {missing}", file=sys.stderr)
