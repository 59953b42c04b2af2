"""The joblib back-end: joblib's own tests, scikit-learn, and what large arrays cost."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import SVC

import sapwood
import sapwood.joblib
from sapwood.client import shared_files
from sapwood.core.errors import (
    ConfigurationError,
    DataMissingError,
    ResourceError,
    TimeLimitError,
    UserCodeError,
)

TREE = (3, 0)
LIMIT = 60.0
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]

JOBLIB_LEFT_OUT = {
    "nested_loop and multiprocessing": "a forked process has no cluster",
    "nested_loop and loky": "its processes do not import sapwood.joblib",
    "nested_loop and back_compat": "the name is not known in runners",
    "nested_loop and sapwood-sapwood": "as before: test_calls_within_calls has the import",
    "backend_nesting_level": "as before",
    "error_capture": "a KeyboardInterrupt in a call is an error of this call",
    "dispatch_multiprocessing": "the key of a multiprocessing.Manager stays in its process",
    "interactively_defined": "starts a Python that does not import sapwood.joblib",
    "unpicklable_functions_in_args": "as before",
    "auto_memmap": "arrays are read-only, but not of the class numpy.memmap",
    "memmapping_leaks": "looks for the files of joblib's own processes",
    "initializer": "runners exist before and after a call: they have no initializer",
}


def pid(_number: int) -> int:
    return os.getpid()


def facts(array: Any, number: int) -> tuple[float, bool]:
    return float(array[number]), array.flags.writeable


def put(array: Any, number: int) -> bool:
    array[number] = number
    return type(array) is np.memmap


def column(frame: Any, number: int) -> float:
    return float(frame.iloc[:, number].sum())


def fails(number: int) -> int:
    if number == 7:
        raise KeyError("seven")
    return number


def waits(number: int) -> int:
    if number:
        signal.pause()
    return number


def nested(number: int) -> int:
    import sapwood.joblib  # noqa: F401, PLC0415 - as a user's module would

    with joblib.parallel_config("sapwood"):
        within = joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(n, 2) for n in range(number))
    return int(sum(within))


@pytest.mark.row("D-12")
def test_calls_run_on_all_agents(standing: sapwood.Cluster) -> None:
    with joblib.parallel_config("sapwood"):
        parallel = joblib.Parallel(batch_size=1)
        assert parallel(joblib.delayed(pow)(n, 2) for n in range(50)) == [n**2 for n in range(50)]
        found = set(parallel(joblib.delayed(pid)(n) for n in range(60)))
    assert len(found) == 3
    assert os.getpid() not in found
    assert joblib.Parallel(n_jobs=1, backend="sapwood")([joblib.delayed(pid)(0)]) == [os.getpid()]
    assert standing.agents


def test_a_single_agent_makes_the_calls(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    with joblib.parallel_config("sapwood", cluster=cluster):
        found = set(joblib.Parallel()(joblib.delayed(pid)(n) for n in range(5)))
    assert len(found) == 1
    assert os.getpid() not in found


@pytest.mark.row("D-12")
def test_scikit_learn_finds_the_same_on_a_cluster(standing: sapwood.Cluster) -> None:
    x, y = load_digits(return_X_y=True)
    x, y = x[:500], y[:500]
    search = GridSearchCV(SVC(), {"C": [1, 10], "gamma": [0.001, 0.01]}, cv=3)
    expected = search.fit(x, y).cv_results_["mean_test_score"]
    with joblib.parallel_config("sapwood", cluster=standing):
        found = search.fit(x, y).cv_results_["mean_test_score"]
        scores = cross_val_score(SVC(), x, y, cv=3)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(scores, cross_val_score(SVC(), x, y, cv=3))


def test_a_large_array_is_written_once_and_read_only(
    standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_files, "_MEMORY", tmp_path)
    written: list[Path] = []
    as_before = Path.write_bytes

    def write(path: Path, data: Any) -> int:
        written.append(path)
        return as_before(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    array = np.arange(500_000.0)
    frame = pd.DataFrame(dict.fromkeys("ab", array))
    with joblib.parallel_config("sapwood", cluster=standing), joblib.Parallel() as parallel:
        found = parallel(joblib.delayed(facts)(array, n) for n in range(30))
        assert found == [(float(n), False) for n in range(30)]
        assert len(written) == 1
        assert parallel(joblib.delayed(column)(frame, n % 2) for n in range(10)) == (
            [array.sum()] * 10
        )
        assert written[0].exists()
        del array, found
        gc.collect()
        assert not written[0].exists()
    assert not any(tmp_path.iterdir())


def test_arrays_that_are_made_for_one_call_do_not_stay(
    standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, until: Until
) -> None:
    monkeypatch.setattr(shared_files, "_MEMORY", tmp_path)
    most = 0

    def arrays() -> Any:
        nonlocal most
        for number in range(40):
            most = max(most, sum(len(list(one.iterdir())) for one in tmp_path.iterdir()))
            yield joblib.delayed(facts)(np.full(200_000, float(number)), number)

    with joblib.parallel_config("sapwood", cluster=standing), joblib.Parallel() as parallel:
        assert [value for value, _ in parallel(arrays())] == [float(n) for n in range(40)]
        until(lambda: not any(any(one.iterdir()) for one in tmp_path.iterdir()))
    assert 0 < most < 30


def test_arrays_of_files_are_mapped_where_agents_see_the_files(
    standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_files, "_MEMORY", tmp_path / "none")
    path = tmp_path / "array"
    array = np.memmap(path, np.float64, "w+", shape=(2, 200_000))
    array[:] = 7
    with joblib.parallel_config("sapwood", cluster=standing):
        backwards = array[1, ::-2]
        assert all(joblib.Parallel()(joblib.delayed(put)(backwards, n) for n in range(9)))
        assert list(array[1, -1:-12:-2]) == [0, 1, 2, 3, 4, 5]
        assert list(array[1, -2:-12:-2]) == [7, 7, 7, 7, 7]
        array.flush()
        fixed = np.memmap(path, np.float64, "r", shape=(2, 200_000))
        assert joblib.Parallel()([joblib.delayed(facts)(fixed[1, ::-1], 2)]) == [(1, False)]
        copied = np.memmap(path, np.float64, "c", shape=(400_000,))
        copied[5] = -5
        assert joblib.Parallel()([joblib.delayed(facts)(copied, 5)]) == [(-5, False)]
        monkeypatch.setattr(standing._session, "shares_machine", lambda: False)
        # There, they are read-only: what a call wrote would be lost.
        with pytest.raises(UserCodeError, match="read-only"):
            joblib.Parallel()([joblib.delayed(put)(array[0], 1)])


def test_arrays_are_offered_once_agents_of_other_machines_join(
    standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_files.SharedBuffers(standing)
    raw = np.arange(1000.0).data
    taken = shared.take(raw)
    assert taken is not None
    assert not taken.ref.sha256
    monkeypatch.setattr(standing._session, "shares_machine", lambda: False)
    assert shared.take(raw) is taken
    content: Any = standing._session.content
    assert content.read(taken.ref) == raw.tobytes()
    shared.close()
    with pytest.raises(DataMissingError):
        content.read(taken.ref)
    assert shared.take(raw) is None, "a call that is submitted while joblib.Parallel ends"


def test_without_room_in_memory_arrays_are_stored_on_disk(
    standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(shared_files, "_MEMORY", memory)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    full = [memory]
    as_before = Path.write_bytes

    def write(path: Path, data: Any) -> int:
        if full[-1] in path.parents:
            as_before(path, data[:1000])
            raise OSError(errno.ENOSPC, "No space left on device")
        return as_before(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    array = np.arange(500_000.0)
    with joblib.parallel_config("sapwood", cluster=standing):
        calls = [joblib.delayed(facts)(array, n) for n in range(5)]
        assert joblib.Parallel()(calls) == [(float(n), False) for n in range(5)]
        full.append(tmp_path)
        with pytest.raises(ResourceError, match=r"cannot store an array of 3\.8 MiB") as caught:
            joblib.Parallel()(calls)
    assert str(disk) in str(caught.value)
    assert not any(memory.iterdir())
    assert not any(disk.iterdir())


def test_a_forked_process_leaves_the_files(
    standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_files, "_MEMORY", tmp_path)
    shared = shared_files.SharedBuffers(standing)
    raw = np.arange(1000.0).data
    taken = shared.take(raw)
    assert taken is not None
    pid = os.fork()
    if not pid:
        try:
            shared.release([taken, taken])
            shared.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert taken.path.read_bytes() == raw.tobytes()
    shared.close()
    assert not any(tmp_path.iterdir())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    script = """
    import os, pathlib, signal, sys
    from sapwood.client.shared_files import SharedFolder
    made = SharedFolder(pathlib.Path(sys.argv[1]))
    assert made.write("1", memoryview(b"abc"))
    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    used = shared_files.SharedFolder(tmp_path)
    assert left.exists(), "it may just be made"
    for folder in (left, used.path):
        os.utime(folder, (1, 1))
    another = shared_files.SharedFolder(tmp_path)
    assert set(tmp_path.iterdir()) == {used.path, another.path}
    assert another.path.stat().st_mode & 0o777 == 0o700
    used.close()
    another.close()
    assert not any(tmp_path.iterdir())


def test_the_options_of_a_cluster_count(standing: sapwood.Cluster) -> None:
    options = standing.options(retries=1).options(time_limit=0.5)
    with joblib.parallel_config("sapwood", cluster=options):
        assert joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(5)) == [0, 1, 4, 9, 16]
        with pytest.raises(TimeLimitError):
            joblib.Parallel()(joblib.delayed(waits)(n) for n in range(2))
    with pytest.raises(ConfigurationError, match="cluster is 'mine'"):
        joblib.parallel_config("sapwood", cluster="mine")


def test_an_exception_is_the_function_s(standing: sapwood.Cluster) -> None:
    with joblib.parallel_config("sapwood", cluster=standing):
        with pytest.raises(KeyError, match="seven") as caught:
            joblib.Parallel(batch_size=1)(joblib.delayed(fails)(n) for n in range(20))
        assert "fails, agent" in str(caught.value)
        assert joblib.Parallel()(joblib.delayed(fails)(n) for n in range(5)) == [0, 1, 2, 3, 4]


def test_what_takes_too_long_is_cancelled(standing: sapwood.Cluster) -> None:
    with joblib.parallel_config("sapwood", cluster=standing):
        with pytest.raises(multiprocessing.TimeoutError):
            joblib.Parallel(timeout=1, batch_size=1)(joblib.delayed(waits)(n) for n in range(9))
        # All agents are free again.
        assert joblib.Parallel()(joblib.delayed(fails)(n) for n in range(5)) == [0, 1, 2, 3, 4]


def test_calls_within_calls(standing: sapwood.Cluster) -> None:
    with joblib.parallel_config("sapwood", cluster=standing):
        found = joblib.Parallel()(joblib.delayed(nested)(n) for n in range(6))
    assert found == [0, 0, 1, 5, 14, 30]


def test_results_come_as_they_are_there(standing: sapwood.Cluster) -> None:
    with joblib.parallel_config("sapwood", cluster=standing):
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        assert sorted(parallel(joblib.delayed(pow)(n, 2) for n in range(9))) == [
            n**2 for n in range(9)
        ]


def test_without_a_cluster_it_says_how_to_start_one(
    standing: sapwood.Cluster, make_cluster: MakeCluster
) -> None:
    made = make_cluster(1)
    with pytest.raises(ConfigurationError, match="several clusters are open"):
        joblib.Parallel(backend="sapwood", n_jobs=2)([joblib.delayed(pid)(0)])
    made.close()
    assert joblib.Parallel(backend="sapwood", n_jobs=2)(
        joblib.delayed(fails)(n) for n in range(3)
    ) == [0, 1, 2]
    script = "import joblib, sapwood.joblib\njoblib.Parallel(backend='sapwood', n_jobs=2)([])\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "no cluster is open in this process" in done.stderr
    assert "with sapwood.local(agents=4)" in done.stderr
    assert not standing.closed


def test_several_threads_share_a_cluster(standing: sapwood.Cluster) -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        with joblib.parallel_config("sapwood", cluster=standing):
            found[number] = joblib.Parallel()(joblib.delayed(pow)(n, number) for n in range(20))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert found == {number: [n**number for n in range(20)] for number in range(1, 4)}


@pytest.mark.nightly
@pytest.mark.row("D-12")
@pytest.mark.timeout(400)
def test_joblib_s_own_tests_of_back_ends_pass(tmp_path: Path) -> None:
    source = Path(joblib.__file__).parent / "test"
    text = (source / "test_parallel.py").read_text()
    for before, after in (
        ('PROCESS_BACKENDS = ["multiprocessing", "loky"]', 'PROCESS_BACKENDS = ["sapwood"]'),
        ('PARALLEL_BACKENDS = PROCESS_BACKENDS + ["threading"]', 'PARALLEL_BACKENDS = ["sapwood"]'),
    ):
        assert before in text
        text = text.replace(before, after)
    (tmp_path / "test_parallel.py").write_text(text)
    (tmp_path / "with_cluster.py").write_text(
        textwrap.dedent("""
        import atexit

        import sapwood
        import sapwood.joblib

        cluster = sapwood.local(agents=4)
        atexit.register(cluster.close)
        """)
    )
    chosen = " and ".join(["sapwood", *(f"not ({left})" for left in JOBLIB_LEFT_OUT)])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "with_cluster",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "ignore",
            "-k",
            chosen,
            "test_parallel.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(done.stdout.split(" passed")[0].rpartition(" ")[2].rpartition("\n")[2]) > 80


def noted(folder: str, values: Any) -> float:
    """Return a sum, and note the call in a file of the folder's parent."""
    with Path(folder, "calls").open("a") as file:
        file.write("called\n")
    return float(np.sum(values))


@pytest.mark.row("D-21")
def test_results_are_cached_on_disk_by_function_and_arguments(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cached = joblib.Memory(tmp_path / "cache", verbose=0).cache(noted)
    calls, folder = tmp_path / "calls", str(tmp_path)
    values = [np.arange(1000.0), [1, 2], (3,)]
    wanted = [499500.0, 3.0, 3.0]
    cluster = make_cluster(2)
    assert list(cluster.map(cached, [folder] * 3, values)) == wanted
    assert list(cluster.map(cached, [folder] * 3, values)) == wanted
    assert calls.read_text().count("called") == 3
    other = make_cluster(1)
    assert other.submit(cached, folder, values[0]).result(LIMIT) == wanted[0]
    assert calls.read_text().count("called") == 3
    assert other.submit(cached, folder, np.arange(2.0)).result(LIMIT) == 1.0
    assert calls.read_text().count("called") == 4
