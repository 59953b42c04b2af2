"""Slurm's programs as far as the launcher asks them, of a cluster whose one job waits for a word.

The job is the process of ``salloc``. It is there as long as that lives, and runs once it was
granted. A step is a process of this machine, which ends with the job.
"""

from __future__ import annotations

import os
from pathlib import Path

JOB = "7"
"""The number of the job."""

_SALLOC = """\
echo $$ > {folder}/pid
echo "salloc: Pending job allocation 7" >&2
read -r word < {folder}/gate
if [ "$word" != granted ]; then
    echo "salloc: error: Job submit/allocate failed: $word" >&2
    exit 1
fi
: > {folder}/runs
while [ "$1" != sh ]; do shift; done
SLURM_JOB_ID=7 SLURM_JOB_NODELIST='n[1-2]' exec "$@"
"""

_SQUEUE = """\
state=PENDING
[ -e {folder}/runs ] && state=RUNNING
if [ -e {folder}/cancelled ]; then
    state=CANCELLED
else
    kill -0 "$(cat {folder}/pid)" 2>/dev/null || exit 1
fi
echo "7|$state|N/A|n[1-2]|main|Resources"
"""

_SCANCEL = """\
: > {folder}/cancelled
kill "$(cat {folder}/pid)" $(cat {folder}/steps 2>/dev/null)
"""

_SRUN = """\
echo $$ >> {folder}/steps
while [ "$1" != sh ]; do shift; done
exec "$@"
"""


class SlurmPrograms:
    """The programs, in a folder to begin ``PATH`` with.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.mkfifo(folder / "gate")
        texts = {
            "salloc": _SALLOC,
            "squeue": _SQUEUE,
            "scancel": _SCANCEL,
            "srun": _SRUN,
            "sinfo": "echo 'main|2'\n",
        }
        for name, text in texts.items():
            program = folder / name
            program.write_text("#!/bin/sh\n" + text.format(folder=folder))
            program.chmod(0o755)

    def answer(self, word: str = "granted") -> None:
        """Let the job that waits run, or be refused for a reason."""
        with (self.folder / "gate").open("w") as gate:
            gate.write(f"{word}\n")

    @property
    def pid(self) -> int:
        """The process of the last ``salloc``; 0 before there was one."""
        try:
            return int((self.folder / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    @property
    def has_job(self) -> bool:
        """Whether there is a job."""
        return self.pid > 0 and Path(f"/proc/{self.pid}").exists()
