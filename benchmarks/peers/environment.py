"""The Python environment of the peer that Sapwood is measured against: mpi4py over Open MPI.

``python benchmarks/peers/environment.py`` makes it under ``build/peers``; benchmarks make it
themselves when they need it. mpi4py is compiled against the machine's Open MPI.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "peers" / "mpi"

TIME_LIMIT = 900.0
"""Seconds that the compilation may take."""


class PeerMissingError(Exception):
    """The peer cannot be measured on this machine; the text says why."""


def mpi_python(*, make: bool = True) -> Path:
    """Return the interpreter of the environment.

    Args:
        make: Make the environment if there is none yet.

    Raises:
        PeerMissingError: There is no Open MPI, mpi4py cannot be installed, or there is no
            environment and none is to be made.
    """
    if shutil.which("mpirun") is None or shutil.which("mpicc") is None:
        raise PeerMissingError("no Open MPI on this machine: install openmpi-bin, libopenmpi-dev")
    python = FOLDER / "bin" / "python"
    done = FOLDER / "complete"
    if done.exists():
        return python
    if not make:
        raise PeerMissingError("no environment yet: run python benchmarks/peers/environment.py")
    print(f"making {FOLDER} (once, some minutes)", file=sys.stderr)
    venv.create(FOLDER, with_pip=True, clear=True)
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "numpy",
        "mpi4py",
        "--no-binary",
        "mpi4py",
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.CalledProcessError as error:
        raise PeerMissingError(f"mpi4py cannot be installed: {error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise PeerMissingError(f"mpi4py was not compiled within {TIME_LIMIT:.0f} s") from error
    done.touch()
    return python


if __name__ == "__main__":
    try:
        print(mpi_python())
    except PeerMissingError as missing:
        sys.exit(str(missing))
