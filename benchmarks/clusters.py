"""A cluster of a head and the machines of a benchmark, made by the commands that users type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from machines import HEAD, Machines

PATIENCE = 60.0
"""Seconds after which a machine that has not joined counts as missing."""

SAPWOOD = (sys.executable, "-m", "sapwood")


@contextmanager
def head_up(lan: Machines, name: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Start a head without a node, and yield the line by which machines join it.

    Args:
        lan: The machines; the caller is on their head.
        name: Of the cluster.
        variables: More for the environment of all that belongs to it.
    """
    environment = {**os.environ, **variables}
    listen = ("--listen", f"{lan.address(HEAD)}:0", "--no-node", "--json")
    made = subprocess.run(
        [*SAPWOOD, "up", "--cluster", name, *listen],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    try:
        yield json.loads(made.stdout)["join"]
    finally:
        down = [*SAPWOOD, "down", "--cluster", name]
        subprocess.run(down, env=environment, stdout=subprocess.DEVNULL, check=False)


def join_all(lan: Machines, line: str, variables: Mapping[str, str]) -> None:
    """Have all machines join, at once, and wait for them; end the script where one does not."""
    joining = [
        subprocess.Popen(
            lan.command(node, [*SAPWOOD, "node", "join", line, "--as", node, "--background"]),
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
        )
        for node in lan.names
    ]
    for process in joining:
        if process.wait(PATIENCE):
            sys.exit("error: a node did not join; what it says stands above")
