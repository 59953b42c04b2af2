"""Programs and data reach agents that see neither the client's memory nor its files.

The agents are in a separate mount namespace, in which an empty file system covers the folder
of the client: its build cache, its programs and its data. ``comm.shared_memory`` is off.
"""

from __future__ import annotations

import contextlib
import operator
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from PIL import Image
from pyarrow import feather, parquet

import sapwood
import sapwood.joblib
from sapwood.client import shared_files
from sapwood.content import offers, serving
from sapwood.core.errors import ResourceError, RunnerCrashError, SapwoodError
from sapwood.core.topology import plan
from sapwood.environment.settings import (
    CacheSettings,
    ClusterSettings,
    CommSettings,
    PlaceSettings,
    RestartSettings,
    Settings,
)
from sapwood.session.embedded import embedded
from sapwood_lizard.directory import read_directory
from sapwood_lizard.execution import run_with_runner
from sapwood_lizard.launch import check
from sapwood_lizard.runner_module import RunnerModule

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT = 100.0
AGENTS = 3

SUMS = """
#include <stddef.h>
#include <stdint.h>
double total(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}
double crash(double x) { volatile int *nowhere = 0; *nowhere = 1; return x; }
void combine(double *into, const double *from, size_t n) {
    for (size_t i = 0; i < n; i++) into[i] += from[i];
}
"""

PROGRAM = """
import numpy as np
import sapwood


class Sums(sapwood.Program):
    sources = ["sums.c"]
    inputs = ("x",)
    reduce = {"sum": "sum"}
    rounds: int = sapwood.parameter(1, minimum=1)
    total = sapwood.native("total")

    def init(self, data):
        return {"round": 0, "sum": np.zeros(1)}

    def map(self, part, state):
        x = np.ascontiguousarray(part.x, "f8").ravel()
        return {"sum": np.array([self.total(x, len(x))])}

    def update(self, state, total):
        return {"round": state["round"] + 1, "sum": total["sum"]}

    def done(self, state):
        return state["round"] >= self.rounds

    def result(self, state):
        return float(state["sum"][0])


class Combined(Sums):
    reduce = {"sum": sapwood.native("combine")}
"""


class Strangers:
    """Makes clusters whose agents do not see a folder.

    Attributes:
        front: The folder that only the client sees.
        content: The content folder of the agents.
    """

    def __init__(self, folder: Path) -> None:
        self.front = folder / "front"
        self.content = folder / "content"
        self.front.mkdir()
        self._command = folder / "python"
        self._command.write_text(
            "#!/bin/sh\nexec unshare -rm sh -c "
            f'\'mount -t tmpfs tmpfs {self.front} && exec {sys.executable} "$@"\' sh "$@"\n'
        )
        self._command.chmod(0o755)

    def cluster(self, agents: int = AGENTS, fanout: int = 2, **cluster: Any) -> sapwood.Cluster:
        """Start a cluster of agents that do not see the folder."""
        options = {"content_folder": str(self.content), **cluster}
        # All places below the root are begun by another zygote than what the root itself begins.
        below = PlaceSettings(interpreter=[str(self._command)])
        places = {f"1-{plan(agents, fanout).size - 1}": below}
        settings = Settings(
            comm=CommSettings(shared_memory=False),
            cluster=ClusterSettings(places=places, **options),
            cache=CacheSettings(folder=str(self.front / "cache")),
            restart=RestartSettings(limit=20, backoff=0.01, backoff_max=0.05),
        )
        return sapwood.local(agents, fanout=fanout, settings=settings)

    def program(self, name: str = "Sums", **parameters: Any) -> Any:
        """Write a program that the agents do not see."""
        folder = self.front / "program"
        folder.mkdir(exist_ok=True)
        (folder / "sums.c").write_text(SUMS)
        (folder / "sums.py").write_text(PROGRAM)
        return sapwood.load_program(f"{folder / 'sums.py'}::{name}", parameters)

    def example(self, name: str, **parameters: Any) -> Any:
        """Copy an example to where agents do not see it."""
        folder = self.front / "examples" / name
        if not folder.exists():
            shutil.copytree(EXAMPLES / name, folder)
        return sapwood.load_program(folder, parameters)


def _strangers(folder: Path) -> Strangers:
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    try:
        refused = subprocess.run(probe, capture_output=True, check=False).returncode
    except FileNotFoundError:
        refused = 1
    if refused:
        pytest.skip("this machine lets us mount no file system")
    return Strangers(folder)


@pytest.fixture
def strangers(tmp_path: Path) -> Strangers:
    return _strangers(tmp_path)


@pytest.fixture(scope="module")
def nodes(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Strangers, sapwood.Cluster]]:
    """A cluster for the tests that harm nothing."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    made = _strangers(tmp_path_factory.mktemp("strangers"))
    hidden = made.front / "first.npy"
    np.save(hidden, np.arange(9.0))
    with made.cluster() as cluster:
        # Afterwards the runners are there, those of filters, too, and what answers the agents.
        with cluster.stream(abs, reduce=operator.add) as stream:
            stream.broadcast(-1).result(LIMIT)
        cluster.run(made.program("Combined"), hidden).result(LIMIT)
        yield made, cluster


@pytest.fixture
def standing(nodes: tuple[Strangers, sapwood.Cluster]) -> tuple[Strangers, sapwood.Cluster]:
    """The cluster of the module."""
    return nodes


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.005)


def first_and_sum(array: Any, number: int) -> tuple[float, float, bool]:
    return float(array[number]), float(array.sum()), bool(array.flags.writeable)


# --- what reaches them ---------------------------------------------------------------------------


def test_the_agents_do_not_see_the_client(
    standing: tuple[Strangers, sapwood.Cluster],
) -> None:
    made, cluster = standing
    made.program()
    exists = cluster.submit(os.path.exists, str(made.front / "program" / "sums.py"))
    assert exists.result(LIMIT) is False
    assert not cluster.session.shares_machine(1)


def test_native_code_and_data_in_memory(standing: tuple[Strangers, sapwood.Cluster]) -> None:
    made, cluster = standing
    x = np.random.default_rng(0).random(100_003)
    assert cluster.run(made.program(rounds=3), x).result(LIMIT) == pytest.approx(x.sum())
    assert len(embedded(cluster.session).content) <= 2  # libraries of tasks stay offered


def test_native_reducers_at_junctions_and_root(
    standing: tuple[Strangers, sapwood.Cluster],
) -> None:
    made, cluster = standing
    x = np.random.default_rng(1).random(50_001)
    assert cluster.run(made.program("Combined"), x).result(LIMIT) == pytest.approx(x.sum())


def test_native_functions_as_tasks_and_in_streams(
    standing: tuple[Strangers, sapwood.Cluster],
) -> None:
    made, cluster = standing
    program = made.program()
    x = np.arange(1000.0)
    assert cluster.submit(program["total"], x, len(x)).result(LIMIT) == x.sum()
    with cluster.stream(program["total"], reduce="sum") as stream:
        assert stream.broadcast({"x": x, "n": len(x)}).result(LIMIT).total == AGENTS * x.sum()
    with cluster.stream("echo", reduce=program["combine"]) as stream:
        np.testing.assert_array_equal(stream.broadcast(x).result(LIMIT).total, AGENTS * x)


@pytest.mark.row("A-DATA-2")
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", ">i4"])
def test_files_of_either_byte_order(
    standing: tuple[Strangers, sapwood.Cluster], dtype: str
) -> None:
    made, cluster = standing
    path = made.front / f"numbers-{ord(dtype[0])}-{dtype[1:]}.npy"
    x = np.arange(10_007).astype(dtype)
    np.save(path, x)
    assert cluster.run(made.program(), path).result(LIMIT) == x.astype("f8").sum()


def test_a_file_that_agents_see_is_not_sent(
    standing: tuple[Strangers, sapwood.Cluster], tmp_path: Path
) -> None:
    made, cluster = standing
    x = np.arange(20_000.0)
    np.save(tmp_path / "seen.npy", x)
    np.save(made.front / "hidden.npy", x + 1)
    sent = embedded(cluster.session).content.sent
    program = made.program()
    assert cluster.run(program, x[:9]).result(LIMIT) == x[:9].sum()  # its libraries are there
    before = sent.total()
    assert cluster.run(program, tmp_path / "seen.npy").result(LIMIT) == x.sum()
    assert sent.total() == before
    assert cluster.run(program, made.front / "hidden.npy").result(LIMIT) == (x + 1).sum()
    assert sent.total() == before + x.nbytes


def test_joblib_sends_a_large_array_to_a_machine_once(
    standing: tuple[Strangers, sapwood.Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, cluster = standing
    monkeypatch.setattr(shared_files, "_MEMORY", made.front)
    array = np.random.default_rng(11).random(700_001)
    sent = embedded(cluster.session).content.sent.total()
    with joblib.parallel_config("sapwood", cluster=cluster):
        calls = (joblib.delayed(first_and_sum)(array, number) for number in range(20))
        found = joblib.Parallel(batch_size=1)(calls)
    assert found == [(array[number], array.sum(), False) for number in range(20)]
    assert embedded(cluster.session).content.sent.total() == sent + array.nbytes
    assert not list(made.front.glob("sapwood-shared-*"))


def test_csv(standing: tuple[Strangers, sapwood.Cluster]) -> None:
    made, cluster = standing
    path = made.front / "table.csv"
    path.write_text("x\n" + "".join(f"{i}.5\n" for i in range(500)))
    assert cluster.run(made.program(), path).result(LIMIT) == sum(i + 0.5 for i in range(500))


def test_sparse_matrices(standing: tuple[Strangers, sapwood.Cluster]) -> None:
    made, cluster = standing
    matrix = scipy.sparse.random(500, 40, 0.05, "csr", random_state=3)
    script = made.front / "rows.py"
    script.write_text(
        "import sapwood\n"
        "class Rows(sapwood.Program):\n"
        "    inputs = ('data', 'indices', 'indptr')\n"
        "    reduce = {'rows': 'concat'}\n"
        "    def init(self, data):\n        return {}\n"
        "    def map(self, part, state):\n"
        "        import numpy as np\n"
        "        ends = part.indptr\n"
        "        return {'rows': np.array([part.data[a:b].sum()"
        " for a, b in zip(ends[:-1], ends[1:])])}\n"
        "    def update(self, state, total):\n        return total\n"
        "    def done(self, state):\n        return True\n"
        "    def result(self, state):\n        return state['rows']\n"
    )
    found = cluster.run(str(script), matrix).result(LIMIT)
    np.testing.assert_allclose(found, np.asarray(matrix.sum(axis=1)).ravel())


def test_images_and_the_example_quantize(standing: tuple[Strangers, sapwood.Cluster]) -> None:
    made, cluster = standing
    noise = np.random.default_rng(5).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    Image.fromarray(noise).save(made.front / "noise.png")
    program = made.example("quantize", colours=4, max_iterations=3)
    found = cluster.run(program, made.front / "noise.png").result(LIMIT)
    with sapwood.local(agents=AGENTS) as near:
        expected = near.run(program, made.front / "noise.png").result(LIMIT)
    assert found.keys() == expected.keys()
    np.testing.assert_array_equal(found["centres"], expected["centres"])


def test_the_example_pi(standing: tuple[Strangers, sapwood.Cluster]) -> None:
    made, cluster = standing
    result = cluster.run(made.example("pi", samples=100_003)).result(LIMIT)
    with sapwood.local(agents=1) as near:
        assert result == near.run(made.example("pi", samples=100_003)).result(LIMIT)


def test_the_example_logistic(standing: tuple[Strangers, sapwood.Cluster]) -> None:
    made, cluster = standing
    result = cluster.run(made.example("logistic", penalty=0.1)).result(LIMIT)
    assert result["converged"]
    assert result["accuracy"] > 0.95


def test_the_example_column_sums_of_lizard(
    standing: tuple[Strangers, sapwood.Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, cluster = standing
    monkeypatch.setenv("SAPWOOD_CUDA", "cpu")
    monkeypatch.setenv("CXXFLAGS", "-O0")
    folder = made.front / "lizard"
    shutil.copytree(EXAMPLES / "lizard" / "column_sums", folder)
    points = np.random.default_rng(5).normal(size=(301, 3)).astype(np.float32)
    np.savetxt(made.front / "points.csv", points, delimiter=",", fmt="%.6f")
    program = check(read_directory(folder), origin=str(folder))
    runner = RunnerModule(
        folder / "runner.py", python=folder / program.program.definition.python.name
    )
    settings = {"dims": 3, "max_iterations": 2, "input_file": made.front / "points.csv"}
    found = run_with_runner(cluster, program, runner, settings)
    assert (found.iterations, found.points, found.agents) == (2, 301, AGENTS)


def test_further_trees(standing: tuple[Strangers, sapwood.Cluster]) -> None:
    made, cluster = standing
    x = np.arange(5000.0)
    with cluster.topology(fanout=2) as tree:
        assert tree.run(made.program(), x).result(LIMIT) == x.sum()


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_crash_names_the_line_of_the_source(strangers: Strangers) -> None:
    with (
        strangers.cluster(agents=1, fanout=0) as cluster,
        pytest.raises(RunnerCrashError) as caught,
    ):
        cluster.submit(strangers.program()["crash"], 1.0).result(LIMIT)
    assert "sums.c:9" in str(caught.value)


def test_a_replaced_agent_finds_its_slice_in_the_cache(strangers: Strangers) -> None:
    x = np.random.default_rng(7).random(300_000)
    program = strangers.program(rounds=1_000_000)
    with strangers.cluster() as cluster:
        sent = embedded(cluster.session).content.sent
        run = cluster.run(program, x)
        until(lambda: run.progress.iteration > 3)
        before = sent.total()
        shutil.rmtree(strangers.front / "cache")
        os.kill(cluster.agents[1].pid, signal.SIGKILL)
        seen = run.progress.iteration
        until(lambda: cluster.agents[1].incarnation == 2 and run.progress.iteration > seen + 3)
        assert sent.total() == before
        run.cancel()
        run.wait(LIMIT)


def test_an_agent_that_dies_while_it_fetches(
    strangers: Strangers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory reserved for it is free again, and its successor fetches the rest."""
    monkeypatch.setattr(serving, "MAX_IN_FLIGHT", 4 * 2**20)
    x = np.random.default_rng(8).random(8 * 2**20)
    with strangers.cluster(agents=2, fanout=0) as cluster:
        sent = embedded(cluster.session).content.sent
        run = cluster.run(strangers.program(), x)
        until(lambda: sent.total() > 8 * 2**20)
        assert sent.total() < x.nbytes
        os.kill(cluster.agents[0].pid, signal.SIGKILL)
        assert run.result(LIMIT) == pytest.approx(x.sum())
        assert run.statistics.replaced_agents == 1


def test_an_agent_that_stops_reading_delays_no_other_agent(strangers: Strangers) -> None:
    x = np.random.default_rng(9).random(9 * 2**20)
    with strangers.cluster(agents=3, fanout=0) as cluster:
        program = strangers.program()
        assert cluster.run(program, x[:9]).result(LIMIT) == pytest.approx(x[:9].sum())
        sent = embedded(cluster.session).content.sent
        stopped = cluster.agents[0].pid
        os.kill(stopped, signal.SIGSTOP)
        try:
            run = cluster.run(program, x)
            until(lambda: sent.total() >= 2 * x.nbytes // 3)  # what the others need
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert run.result(LIMIT) == pytest.approx(x.sum())


def test_a_node_fetches_the_same_content_once(strangers: Strangers) -> None:
    """All agents need the same libraries; the client sends each of them once."""
    program = strangers.program()
    with strangers.cluster(agents=6, fanout=0) as cluster:
        x = np.arange(6000.0)
        assert cluster.run(program, x).result(LIMIT) == x.sum()
        sent = embedded(cluster.session).content.sent
        whole = {path.name: path.stat().st_size for path in strangers.content.glob("?" * 64)}
        assert dict(sent) == whole
        assert len(whole) == 6 + 2  # slices, the library, the crash handler
    with strangers.cluster(agents=6, fanout=0) as cluster:  # another session finds it all
        assert cluster.run(program, x).result(LIMIT) == x.sum()
        assert not embedded(cluster.session).content.sent


def test_a_cache_with_too_little_room(strangers: Strangers) -> None:
    x = np.arange(100_000.0)
    with strangers.cluster(content_cache=500_000) as cluster:
        with pytest.raises(ResourceError, match="content cache has no room") as caught:
            cluster.run(strangers.program(), x).result(LIMIT)
        assert "cluster.content_cache" in caught.value.hint
        small = x[:1000]
        assert cluster.run(strangers.program(), small).result(LIMIT) == small.sum()
    held = sum(path.stat().st_size for path in strangers.content.iterdir())
    assert held <= 500_000


def test_old_content_goes_when_new_comes(strangers: Strangers) -> None:
    with strangers.cluster(content_cache=2_000_000) as cluster:
        for begin in range(6):
            x = np.arange(begin, begin + 100_000.0)
            assert cluster.run(strangers.program(), x).result(LIMIT) == x.sum()
            held = sum(path.stat().st_size for path in strangers.content.iterdir())
            assert held <= 2_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this machine lets us mount no file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(strangers: Strangers, small_disk: Path) -> None:
    with strangers.cluster(content_folder=str(small_disk)) as cluster:
        with pytest.raises(ResourceError, match="disk of the content cache is full"):
            cluster.run(strangers.program(), np.arange(200_000.0)).result(LIMIT)
        small = np.arange(1000.0)
        assert cluster.run(strangers.program(), small).result(LIMIT) == small.sum()


def test_damaged_content_of_the_cache_is_fetched_again(strangers: Strangers) -> None:
    x = np.arange(30_000.0)
    program = strangers.program()
    with strangers.cluster() as cluster:
        assert cluster.run(program, x).result(LIMIT) == x.sum()
        for path in strangers.content.glob("?" * 64):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.chmod(0o600)
            path.write_bytes(data)
        assert cluster.run(program, x).result(LIMIT) == x.sum()


def test_content_whose_bytes_are_not_its_hash(
    strangers: Strangers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "_hash_of", lambda *_args: "0" * 64)
    with strangers.cluster() as cluster:
        with pytest.raises(SapwoodError, match="content from the client is damaged") as caught:
            cluster.run(strangers.program(), np.arange(999.0)).result(LIMIT)
        assert "fetched 2 times" in caught.value.where


def test_two_hundred_megabytes_take_bounded_memory(strangers: Strangers) -> None:
    path = strangers.front / "large.npy"
    x = np.lib.format.open_memmap(path, "w+", "<f8", (25 * 2**20,))
    x[:] = np.arange(len(x))
    total = float(x.sum())
    del x

    def private(pid: int) -> int:
        """Private memory of a process now."""
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.partition("RssAnon:")[2].split()[0]) * 1024

    with strangers.cluster(agents=2, fanout=0) as cluster:
        warm = strangers.program()
        cluster.run(warm, np.arange(10.0)).result(LIMIT)
        pids = [os.getpid(), *(agent.pid for agent in cluster.agents)]
        before = {pid: private(pid) for pid in pids}
        most = dict(before)
        run = cluster.run(warm, path)
        while not run.wait(0.002):
            for pid in pids:
                with contextlib.suppress(FileNotFoundError):
                    most[pid] = max(most[pid], private(pid))
        assert run.result() == pytest.approx(total)
        assert embedded(cluster.session).content.sent.total() >= 200 * 2**20
    grown = {pid: most[pid] - before[pid] for pid in pids}
    assert max(grown.values()) < 64 * 2**20, grown


@pytest.mark.row("A-DATA-1")
@pytest.mark.parametrize("suffix", ["parquet", "feather", "csv"])
def test_rows_of_files_that_agents_do_not_see(
    standing: tuple[Strangers, sapwood.Cluster], suffix: str
) -> None:
    made, cluster = standing
    x = np.random.default_rng(2).random(30_000)
    folder = made.front / f"parts-{suffix}"
    folder.mkdir()
    for number, part in enumerate((x[:11_111], x[11_111:])):
        table = pa.table({"x": part, "other": np.random.default_rng(number).random(len(part))})
        if suffix == "parquet":
            parquet.write_table(table, folder / f"{number}.parquet", row_group_size=4000)
        elif suffix == "feather":
            feather.write_feather(table, str(folder / f"{number}.feather"), chunksize=4000)
        else:
            text = "x,other\n" + "".join(f"{value!r},0\n" for value in part.tolist())
            (folder / f"{number}.csv").write_text(text)
    program = made.program()
    cluster.run(program, x[:9]).result(LIMIT)  # its libraries are there
    sent = embedded(cluster.session).content.sent
    before = sent.total()
    assert cluster.run(program, folder).result(LIMIT) == pytest.approx(x.sum())
    size = sum(file.stat().st_size for file in folder.iterdir())
    if suffix == "parquet":  # of which only the row groups and columns that are wanted travel
        assert sent.total() - before < 0.75 * size
