"""Machines that come at the same time, say nothing, or have another clock."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.cli.status_tables import status_of
from sapwood.nodes.joining import JOIN_PROTOCOL

from .conftest import PATIENCE, Cli, Until

SILENT = 300
"""Peers that connect and then say nothing: half of them not even a TLS greeting."""

WRONG_BY = 3000
"""Seconds by which the clock of a machine is wrong: 50 minutes."""

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long wrong_by(void) {  // seconds, or the file that has them
    const char *text = getenv("WRONG_BY");
    char found[32] = {0};
    if (*text != '/') return atol(text);
    int file = open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, found, sizeof found - 1) < 0) found[0] = 0;
    close(file);
    return atol(found);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    int status = next(which, now);
    if (!status && which == CLOCK_REALTIME) now->tv_sec += wrong_by();
    return status;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept) *kept = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""
"""A library that, preloaded, gives a process another time."""

SLOW = """
import time
import numpy as np
import sapwood


class Slow(sapwood.Program):
    reduce = {"sums": "sum:reproducible"}
    inputs = ("x",)
    pause: float = sapwood.parameter(0.05)

    def default_data(self):
        return {"x": np.random.default_rng(5).normal(size=(400, 3))}

    def init(self, data):
        return {"table": np.ones((4, 3)), "round": 0}

    def map(self, data, state):
        time.sleep(self.pause)
        return {"sums": np.sin(data["x"] @ state["table"].T).sum(axis=0)}

    def update(self, state, total):
        return {"table": state["table"] * 0.75 + total["sums"][:, None] / 400,
                "round": state["round"] + 1}

    def done(self, state):
        return state["round"] >= 60
"""


@contextmanager
def silent_peers(place: str) -> Iterator[None]:
    host, _, port = place.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([JOIN_PROTOCOL])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * SILENT)), hard))
    try:
        with ExitStack() as stack:
            for number in range(SILENT):
                made = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))
                if number % 2:
                    stack.enter_context(context.wrap_socket(made))
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_node_joins_beside_silent_peers(cli: Cli, head: Any) -> None:
    with silent_peers(head["places"][0]):
        cli.join(head["join"], "one")
        assert cli.states() == {"one": "ready"}
        with sapwood.connect().start(agents=2) as cluster:
            assert list(cluster.map(abs, [-1, -2])) == [1, 2]


@pytest.fixture
def clock(tmp_path: Path) -> list[str]:
    """The words before a command that give it another time; ``WRONG_BY=`` follows."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    return ["env", f"LD_PRELOAD={library}"]


@pytest.mark.parametrize(
    "sign", [1, pytest.param(-1, marks=pytest.mark.nightly)], ids=["ahead", "behind"]
)
@pytest.mark.nightly
def test_a_clock_that_is_wrong_by_fifty_minutes_is_shown(
    cli: Cli, head: Any, until: Until, clock: list[str], sign: int
) -> None:
    wrong_by = sign * WRONG_BY
    cli.join(head["join"], "n1", *clock, f"WRONG_BY={wrong_by}")

    def skew() -> float | None:
        (one,) = (one for one in status_of("default").nodes if one.record.state == "ready")
        return one.skew if one.skew_error is not None else None

    until(lambda: skew() is not None)
    assert abs((skew() or 0) - wrong_by) < 10
    with sapwood.connect().start(agents=2) as cluster:
        assert list(cluster.map(abs, [-1, -2])) == [1, 2]


@pytest.mark.parametrize("sign", [1, -1], ids=["ahead", "behind"])
@pytest.mark.nightly
def test_a_clock_that_jumps_in_a_run_changes_nothing(
    cli: Cli, head: Any, until: Until, clock: list[str], tmp_path: Path, sign: int
) -> None:
    """By ten days: beyond the life of its certificate."""
    (tmp_path / "slow.py").write_text(SLOW)
    wrong_by = tmp_path / "wrong-by"
    wrong_by.write_text("0")
    cli.join(head["join"], "n1", *clock, f"WRONG_BY={wrong_by}")
    with sapwood.connect().start(agents=2) as cluster:
        first = cluster.run(tmp_path / "slow.py", parameters={"pause": 0.0}).result(PATIENCE)
        run = cluster.run(tmp_path / "slow.py", parameters={"pause": 0.05})
        until(lambda: run.progress.iteration > 3)
        wrong_by.write_text(str(sign * 864_000))
        told = cluster.submit(time.time)
        assert abs(told.result(PATIENCE) - time.time() - sign * 864_000) < 3600
        assert run.progress.iteration < first["round"]
        assert run.result(PATIENCE)["table"].tobytes() == first["table"].tobytes()
        assert list(cluster.map(abs, [-1, -2])) == [1, 2]
    assert cli.states() == {"n1": "ready"}


@pytest.mark.nightly
def test_a_clock_by_which_certificates_are_not_valid_is_named(
    cli: Cli, head: Any, clock: list[str]
) -> None:
    words = [*clock, f"WRONG_BY={-10 * 3600}", sys.executable, "-m", "sapwood", "node", "join"]
    done = subprocess.run(
        [*words, head["join"], "--as", "late"],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert "its clock is 10.0 h behind the head's" in done.stderr
    assert "'late' was not let in at " in cli.run("node", "status", "--links")


def test_of_two_heads_that_begin_at_once_one_is_up(own_cli: Cli) -> None:
    words = [sys.executable, "-m", "sapwood", "up", "--no-node", "--json"]
    both = [
        subprocess.Popen(
            words,
            env=own_cli.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [(one.communicate(timeout=PATIENCE), one.returncode) for one in both]
    (up,) = [json.loads(out) for (out, _), status in said if status == 0]
    ((_, error),) = [what for what, status in said if status]
    assert "the cluster 'default' is up already" in error
    assert f"process {up['pid']}" in error
    assert os.getpgid(up["pid"])
    assert own_cli.json("node", "list") == {"nodes": []}
    assert "is down" in own_cli.run("down")
