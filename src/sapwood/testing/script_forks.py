"""Scripts that run as processes of their own without each of them importing everything anew.

``python -m sapwood.testing.script_forks MODULE...`` imports modules and then forks for each line of
its input, a :class:`Script` as JSON. The fork runs the script as Python would, and the line that
answers is its exit status. :class:`ScriptForks` is the other side.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_PRELOADED = ("numpy", "uvloop", "sapwood.client.local", "sapwood.code.build")
"""What nearly every script that has a cluster imports."""


class ScriptForks:
    """A process that runs scripts in forks of itself, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *_PRELOADED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # it and what it forks end together
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # threads do not live on in forks
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(
        self,
        script: Path,
        arguments: Sequence[str] = (),
        *,
        folder: Path,
        variables: Mapping[str, str] | None = None,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end.

        Args:
            script: Its file.
            arguments: What it gets on its command line.
            folder: Its working folder.
            variables: Its environment, if not that of this process.
            timeout: Seconds after which it is killed, and the process that forks, too.
        """
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place) / "out", Path(place) / "err"
            out.touch()  # nobody else does if the process that forks has gone
            err.touch()
            task = [str(script), *arguments], str(folder), {**(variables or os.environ)}
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps([*task, str(out), str(err)]) + "\n")
            self._process.stdin.flush()
            watch = threading.Timer(timeout, os.killpg, (self._process.pid, signal.SIGKILL))
            watch.start()
            answer = self._process.stdout.readline()
            watch.cancel()
            watch.join()
            status = int(answer) if answer else -signal.SIGKILL
            return subprocess.CompletedProcess(
                task[0], status, out.read_text("utf-8"), err.read_text("utf-8")
            )


def main(modules: Sequence[str]) -> None:
    """Import modules, and fork for each line of the input."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    while line := sys.stdin.readline():
        words, folder, variables, out, err = json.loads(line)
        if (child := os.fork()) == 0:
            _become(words, folder, variables, (os.devnull, out, err))
            return
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, flush=True)  # noqa: T201 - the answer


def _become(
    words: list[str], folder: str, variables: dict[str, str], files: tuple[str, str, str]
) -> None:
    """Run a script as ``python script`` does."""
    for descriptor, (path, flags) in enumerate(
        zip(files, (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT), strict=True)
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    script = Path(words[0])
    sys.argv[:] = words
    sys.path[0] = str(script.parent.resolve())
    module = types.ModuleType("__main__")
    vars(module).update(__file__=str(script), __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(compile(script.read_bytes(), str(script), "exec"), vars(module))  # noqa: S102 - its purpose


if __name__ == "__main__":
    main(sys.argv[1:])
