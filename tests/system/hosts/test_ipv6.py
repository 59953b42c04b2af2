"""A machine without IPv4 addresses, also without the loopback address of IPv4."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.hosts.network import missing

WITHOUT_IPV4 = 'ip link set lo up && ip address del 127.0.0.1/8 dev lo && exec "$@"'
PROGRAM = """
import sapwood
with sapwood.start("nodes:2", agents=2) as cluster:
    print(sorted(cluster.map(abs, [-1, -2])))
"""


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_nodes_of_this_machine_need_no_ipv4(tmp_path: Path) -> None:
    words = ["unshare", "--net", "bash", "-c", WITHOUT_IPV4, "bash", sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        words,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[1, 2]\n"), done.stderr
