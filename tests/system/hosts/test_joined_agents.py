"""C3-AGENT: a process on a host without ssh access joins a cluster over hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import Network, until

pytestmark = [
    pytest.mark.row("C3-AGENT"),
    pytest.mark.timeout(120),
    pytest.mark.nightly,
]

OWNER = """
import json, operator, sys
import sapwood
from sapwood.environment.settings import CommSettings, NodeSettings, Settings

settings = Settings(comm=CommSettings(grace=0.5), nodes=NodeSettings(ssh=sys.argv[1:]))
with sapwood.ssh(["n1"], 1, settings=settings) as cluster:
    with cluster.stream(abs, reduce=operator.add, follow=True) as stream:
        print(json.dumps(cluster.invite()), flush=True)
        for _ in sys.stdin:
            result = stream.broadcast(-1).result(60)
            print(json.dumps([result.total, result.agents]), flush=True)
"""


def test_from_another_host(hosts: Network) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(hosts.folder / "cache0")}
    owner = subprocess.Popen(
        hosts.command("head", sys.executable, "-c", OWNER, *hosts.ssh_options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    begun: list[subprocess.Popen[str]] = []
    assert owner.stdin is not None
    assert owner.stdout is not None

    def asked() -> Any:
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write("\n")
        owner.stdin.flush()
        return json.loads(owner.stdout.readline())

    def joined() -> subprocess.Popen[str]:
        sapwood = str(Path(sys.executable).with_name("sapwood"))
        made = subprocess.Popen(
            hosts.command("n2", sapwood, "agent", "join", line), stdout=subprocess.PIPE, text=True
        )
        begun.append(made)
        assert made.stdout is not None
        assert f"process {made.pid}" in made.stdout.readline()
        return made

    try:
        (line,) = json.loads(owner.stdout.readline())
        assert f"@{hosts.address('head')}:" in line
        first = joined()
        assert asked() == [2, [1, 2]]
        first.kill()
        until(lambda: asked() == [1, [1]])
        second = joined()
        assert asked() == [2, [1, 3]]
        owner.stdin.close()
        assert owner.wait(60) == 0
        assert second.wait(60) == 0
        assert second.stdout is not None
        assert "the session has ended" in second.stdout.read()
    finally:
        for process in (*begun, owner):
            process.kill()
            process.wait(60)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
