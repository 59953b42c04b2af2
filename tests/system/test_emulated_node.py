"""A machine of another architecture becomes a node: its runtime, and its build of each program.

The machine is a process on this one, whose Python is one for aarch64 under the user-mode emulator
of qemu, with all processes that it begins: a private table of binary formats (``binfmt_misc``) has
the kernel start the emulator. ``scripts/prepare_arm64.sh`` gets what that needs.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.client.hosts import start_on
from sapwood.code.installed_tools import find_zig
from sapwood.code.shared_library import machine_of
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.core.errors import NodeLostError
from sapwood.environment.settings import ClusterSettings, CommSettings, NodeSettings, Settings
from sapwood.session.embedded import embedded

from .test_other_architecture import PATIENCE, PROGRAM, SOURCE, machines

ROOT = Path(__file__).parents[2]
EMULATED = ROOT / "build" / "arm64"
HERE = platform.machine()

FORMAT = ":".join(
    (
        "",
        *("aarch64", "M", ""),
        r"\x7fELF\x02\x01\x01" + 9 * r"\x00" + r"\x02\x00\xb7\x00",
        7 * r"\xff" + r"\x00" + 8 * r"\xff" + r"\xfe\xff\xff\xff",
        *("{qemu}", "F"),
    )
)
"""Programs for aarch64, in the format of ``binfmt_misc``."""

EMULATOR = r"""#!/bin/sh
# Who starts the emulator adopts orphans for the node: qemu does not know that call.
exec {python} -S -c 'import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])' unshare --user --map-root-user --mount sh -c '
set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s "{format}" >/proc/sys/fs/binfmt_misc/register
export QEMU_LD_PREFIX={root} XDG_CACHE_HOME={cache}
exec {root}/usr/bin/python3 "$@"' sh "$@"
"""
"""Runs the Python for aarch64, where the kernel runs all programs for aarch64."""


def missing() -> str:
    """Return why there can be no such node here; empty where there can."""
    if HERE != "x86_64":
        return "the emulator set is for x86-64"
    if not (EMULATED / "packages").is_dir():
        return "no aarch64 Python: sh scripts/prepare_arm64.sh build/arm64 .venv"
    if find_zig({}) is None:
        return "needs zig: pip install 'sapwood[cross]'"
    mounted = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "binfmt_misc"]
    tried = subprocess.run(
        [*mounted, "none", "/proc/sys/fs/binfmt_misc"], capture_output=True, text=True, check=False
    )
    return f"no private binfmt_misc (Linux 6.7): {tried.stderr.strip()}" * bool(tried.returncode)


pytestmark = [
    pytest.mark.nightly,  # emulation is slow; agents of both kinds in one tree are tested always
    pytest.mark.timeout(500),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


class Machines(LocalLauncher):
    """Two machines: this one, and one for aarch64.

    Args:
        folder: Where the programs ``python`` of both are, and what the second one keeps.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(2, ["near", "far"])
        self.folder = folder
        texts = {
            "near": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
            "far": EMULATOR.format(
                python=sys.executable,
                format=FORMAT.format(qemu=(EMULATED / "qemu").resolve()),
                root=EMULATED / "root",
                cache=folder / "cache",
            ),
        }
        for host, text in texts.items():
            program = folder / host / "a-python"
            program.parent.mkdir()
            program.write_text(text)
            program.chmod(0o755)

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command on one of them."""
        return super().start(host, f'PATH="{self.folder / host}:$PATH"; export PATH; {command}')


def settings(**nodes: object) -> Settings:
    named = {"listen": "127.0.0.1:0", "python": ["a-python"], "start_timeout": 120.0, **nodes}
    return Settings(
        cluster=ClusterSettings(ready_timeout=PATIENCE, join_timeout=PATIENCE),
        comm=CommSettings(heartbeat=2.0, failure_after=60.0),
        nodes=NodeSettings(**named),  # type: ignore[arg-type]  # by name
    )


@pytest.fixture(scope="module", autouse=True)
def zig_cache(own_surroundings: None) -> Iterator[None]:
    """Keep the C libraries of other machines from one run of the tests to the next."""
    del own_surroundings
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ROOT / "build" / "zig"))
        yield


@pytest.mark.row("A-CODE-3")
@pytest.mark.row("A-CODE-4")
def test_a_node_of_another_architecture_joins_and_gets_its_build(tmp_path: Path) -> None:
    """Each program is built once for each target, and each node gets its library once."""
    (tmp_path / "spread.c").write_text(SOURCE)
    (tmp_path / "p.py").write_text(PROGRAM)
    data = np.random.default_rng(6).uniform(0, 1000, 20_003)
    with sapwood.local(2) as here:
        expected = here.run(tmp_path / "p.py", data).result(PATIENCE)
    chosen = settings(packages=[str(EMULATED / "packages")])
    with start_on(Machines(tmp_path), 4, settings=chosen) as cluster:
        assert machines(cluster) == [HERE, HERE, "aarch64", "aarch64"]
        assert {target.architecture for target in cluster.targets} == {HERE, "aarch64"}
        run = cluster.run(tmp_path / "p.py", data)
        found = run.result(PATIENCE)
        np.testing.assert_array_equal(found["counts"], expected["counts"])
        np.testing.assert_allclose(found["total"], expected["total"], rtol=1e-12)
        assert [agent.errors for agent in run.statistics.agents] == [0, 0, 0, 0]
        loaded = sapwood.load_program(tmp_path / "p.py")
        with cluster.stream(loaded["added"], reduce="gather") as stream:
            assert stream.exchange(1, timeout=PATIENCE).total == [1, 1, 65, 65]
        sent = embedded(cluster.session).content.sent.total()
        again = cluster.run(tmp_path / "p.py", data).result(PATIENCE)
        np.testing.assert_allclose(again["total"], found["total"], rtol=1e-12)
        assert embedded(cluster.session).content.sent.total() == sent  # all of it was there
    entries = Path(os.environ["XDG_CACHE_HOME"], "sapwood", "entries").glob("*/library.so")
    built = [machine_of(path) for path in entries if b"spread" in path.read_bytes()]
    assert sorted(built) == ["aarch64", HERE]


def test_without_its_libraries_it_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(NodeLostError, match="1 of 2 nodes did not come") as caught:
        start_on(Machines(tmp_path), 2, settings=settings())
    assert "far: its Python 3.11" in caught.value.where
    assert "pip install --target FOLDER --only-binary=:all:" in caught.value.where
