"""Data of ten times the memory that the client may take, and more than an agent may."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

pytestmark = pytest.mark.row("A-DATA-1")

AGENTS = 2
ROUNDS = 2
GROUP = 500_000
LIMIT = 500

FRONT_END = """
import json, resource, sys
from pathlib import Path
import numpy as np
import pyarrow.parquet
import sapwood
from sapwood.environment.settings import LimitSettings, Settings

source = sys.argv[1]
room, agent_memory, agents = map(int, sys.argv[2:])


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":")) * 1024


settings = Settings(limits=LimitSettings(memory=agent_memory))
with sapwood.local(agents=agents, settings=settings) as cluster:
    cluster.submit(len, "warm").result()
    tiny = sapwood.load(Path(source).with_name("tiny.parquet"), fields=["x"])
    tiny.rows(0, 1)  # the libraries are there, and their threads have their stacks
    before = status("VmData"), status("VmRSS")
    resource.setrlimit(resource.RLIMIT_DATA, (before[0] + room,) * 2)
    run = cluster.run(Path(__file__).with_name("sums.py"), source)
    result = run.result()
    try:
        np.ones(room // 8)
        limited = False
    except MemoryError:
        limited = True
    print(json.dumps({
        "result": result,
        "limited": limited,
        "resident": status("VmHWM") - before[1],
        "anonymous": [int(one) for one in result["anonymous"]],
    }))
"""

SUMS = f"""
from pathlib import Path
import numpy as np
import sapwood


class Sums(sapwood.Program):
    inputs = ("x",)
    reduce = {{"sum": "sum", "n": "sum", "anonymous": "concat"}}

    def init(self, data):
        return {{"round": 0, "first": float(data.rows(0, 5)["x"].sum())}}

    def map(self, slice, state):
        total = sum(float(slice.x[i : i + 100_000].sum()) for i in range(0, len(slice), 100_000))
        lines = Path("/proc/self/status").read_text().splitlines()
        own = next(int(l.split()[1]) for l in lines if l.startswith("RssAnon:")) * 1024
        return {{"sum": total, "n": len(slice), "anonymous": np.array([own])}}

    def update(self, state, total):
        return {{**state, **total, "round": state["round"] + 1}}

    def done(self, state):
        return state["round"] == {ROUNDS}

    def result(self, state):
        return {{**state, "anonymous": state["anonymous"].tolist()}}
"""


def go_through(folder: Path, client: int, agent: int) -> None:
    """Run over ten times the memory that the client gets on top of what it has."""
    groups = 10 * client // (8 * GROUP) + 1
    values = np.arange(GROUP, dtype="f8") % 1000
    table = pa.table({"x": values})
    with parquet.ParquetWriter(folder / "x.parquet", table.schema) as writer:
        for _ in range(groups):
            writer.write_table(table)
    parquet.write_table(table.slice(0, 10), folder / "tiny.parquet")
    nbytes = groups * GROUP * 8
    assert nbytes > 10 * client
    assert nbytes / AGENTS > agent
    (folder / "client.py").write_text(FRONT_END)
    (folder / "sums.py").write_text(SUMS)
    answered = subprocess.run(
        [
            *(sys.executable, str(folder / "client.py")),
            *(str(folder / "x.parquet"), str(client), str(agent), str(AGENTS)),
        ],
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve a gigabyte
        },
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert answered.returncode == 0, answered.stderr
    found = json.loads(answered.stdout)
    assert found["limited"]  # so the limit was in force
    assert found["result"]["sum"] == groups * values.sum()
    assert found["result"]["n"] == groups * GROUP
    assert found["result"]["first"] == 10
    assert found["resident"] < client
    assert max(found["anonymous"]) < agent
    assert not list((folder / "cache").rglob("tmp*"))  # the files that hold slices have no names


def test_a_tenth_of_the_data_is_room_enough(tmp_path: Path) -> None:
    go_through(tmp_path, client=40 * 2**20, agent=192 * 2**20)


@pytest.mark.nightly
def test_a_tenth_of_four_gigabytes_is_room_enough(tmp_path: Path) -> None:
    go_through(tmp_path, client=400 * 2**20, agent=512 * 2**20)
