"""Native code that is wrong or behaves badly: clear errors, the agents live, nothing is lost."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    ArgumentError,
    BuildError,
    MemoryLimitError,
    ProgramError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
)
from sapwood.environment.settings import LimitSettings, Settings

PATIENCE = 90.0
DATA = np.arange(1, 101, dtype=np.float64)
MAP = """
/** @array data[n]
 *  @array out[k] */
void work(const double *data, int64_t n, int64_t k, double *out) {{
    for (int64_t i = 0; i < n; i++) out[0] += data[i];
    {what}
}}
"""
HEADERS = "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
PROGRAM = """
from sapwood import Program, native, parameter

class Work(Program):
    sources = ["work.c"]
    reduce = {"out": "sum"}
    map = native("work")
    k: int = parameter(2)
"""

Work = Callable[..., Path]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Write a program whose map adds up, and then does something else."""

    def write(what: str, *, text: str = MAP) -> Path:
        (tmp_path / "work.c").write_text(HEADERS + text.format(what=what))
        (tmp_path / "p.py").write_text(PROGRAM)
        return tmp_path / "p.py"

    return write


@pytest.fixture(scope="module")
def cluster(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    """Two agents, the same for all tests."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    with sapwood.local(2) as cluster:
        cluster.group().call(abs, -1)[1].result(PATIENCE)  # every agent has a runner now
        yield cluster


@pytest.fixture(autouse=True)
def agents_live(cluster: sapwood.Cluster, work: Work) -> Iterator[None]:
    """After each test the same agents compute the right result."""
    yield
    assert {agent.incarnation for agent in cluster.agents} == {1}
    program = work("")
    assert cluster.run(program, DATA).result(PATIENCE)["out"][0] == DATA.sum()


def fails(cluster: sapwood.Cluster, program: Path, kind: type[SapwoodError], **how: Any) -> str:
    """Run a program that must fail and return the text of its error."""
    with pytest.raises(kind) as caught:
        cluster.run(program, DATA, **how).result(PATIENCE)
    return str(caught.value)


def test_a_syntax_error_is_told_with_its_line(cluster: sapwood.Cluster, work: Work) -> None:
    said = fails(cluster, work("int x = ;"), BuildError)
    assert "work.c:10" in said
    assert "error: expected expression" in said


def test_a_missing_symbol_is_told_by_name(cluster: sapwood.Cluster, work: Work) -> None:
    text = "int nowhere(int);" + MAP
    said = fails(cluster, work("out[1] = nowhere(3);", text=text), BuildError)
    assert "nowhere" in said
    assert "no source defines it" in said


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("void work(const float *data, int64_t n, int64_t k, double *out)", "float32"),
        ("void work(const double *data, int64_t n, int64_t k, double *total)", "out"),
        ("void work(const double *dat, int64_t n, int64_t k, double *out)", "dat"),
        ("void other(const double *data, int64_t n, int64_t k, double *out)", "other"),
        ("static void work(const double *data, int64_t n, int64_t k, double *out)", "work"),
    ],
)
def test_a_wrong_signature_is_told_before_anything_runs(
    cluster: sapwood.Cluster, work: Work, signature: str, said: str
) -> None:
    names = set(re.findall(r"\*(\w+)", signature))
    notes = "".join(f" * @array {n}[{'n' if n.startswith('d') else 'k'}]\n" for n in sorted(names))
    text = f"/**\n{notes} */\n{signature} {{{{ (void)n; }}}}\n"
    program = work("", text=text)
    assert said in fails(cluster, program, ProgramError)


def test_structures_of_another_size_are_refused(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    (tmp_path / "s.c").write_text(
        HEADERS + "struct pair { int32_t a; double b; };\n/** @array p[n] */\n"
        "double add(const struct pair *p, int64_t n) { return n ? p[0].b : 0; }\n"
    )
    (tmp_path / "q.py").write_text(
        "from sapwood import Program\nclass Q(Program):\n    sources = ['s.c']\n"
    )
    add = sapwood.load_program(tmp_path / "q.py")["add"]
    right = np.dtype([("a", "i4"), ("b", "f8")], align=True)
    one = np.array([(1, 2.5)], right)
    assert cluster.submit(add, one).result(PATIENCE) == 2.5
    packed = np.zeros(1, np.dtype([("a", "i4"), ("b", "f8")]))  # 12 bytes, not 16
    with pytest.raises(ArgumentError, match="struct pair"):
        cluster.submit(add, packed).result(PATIENCE)


def marked(mark: str) -> str:
    """Return the source of a map whose library has a text in it."""
    return f'const char mark[] __attribute__((used)) = "{mark}";' + MAP


def library_with(mark: str) -> Path:
    """Return the built library with a text: tests that run at the same time use the same cache."""
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "sapwood" / "entries"
    (found,) = [path for path in folder.glob("*/library.so") if mark.encode() in path.read_bytes()]
    return found


def damaged(library: bytes) -> Iterator[bytes]:
    """Yield a library with a wrong byte, cut off, of another architecture, and none at all."""
    middle = len(library) // 2
    yield library[:middle] + bytes([library[middle] ^ 0xFF]) + library[middle + 1 :]
    yield library[:middle]
    other = 62 if platform.machine() != "x86_64" else 183
    yield library[:18] + other.to_bytes(2, "little") + library[20:]
    yield b"no library"


def test_a_damaged_entry_of_the_cache_is_built_again(cluster: sapwood.Cluster, work: Work) -> None:
    program = work("out[1] += 1;", text=marked("to be damaged"))
    first = cluster.run(program, DATA).result(PATIENCE)
    built = library_with("to be damaged")
    for data in damaged(built.read_bytes()):
        built.unlink()  # the loaded one stays as it is
        built.write_bytes(data)
        run = cluster.run(program, DATA)
        np.testing.assert_array_equal(run.result(PATIENCE)["out"], first["out"])
        assert built.read_bytes() != data


def test_an_entry_of_the_cache_that_vanishes_is_built_again(
    cluster: sapwood.Cluster, work: Work
) -> None:
    program = work("out[1] += 77;", text=marked("to vanish"))
    cluster.run(program, DATA).result(PATIENCE)
    shutil.rmtree(library_with("to vanish").parent)
    assert cluster.run(program, DATA).result(PATIENCE)["out"][0] == DATA.sum()


def test_much_output_fills_no_memory(cluster: sapwood.Cluster, work: Work) -> None:
    lines = 2**28 // 1024 // 2
    what = f"""static char line[1024];
    for (int i = 0; i < 1024; i++) line[i] = i < 1023 ? 'x' : '\\n';
    for (long i = 0; i < {lines}; i++) fwrite(line, 1, 1024, stdout);"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program = work(what)
    result = cluster.run(program, DATA).result(PATIENCE)
    assert result["out"][0] == DATA.sum()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80 * 1024  # KiB


def test_a_map_that_forks_answers_once(cluster: sapwood.Cluster, work: Work) -> None:
    assert cluster.run(work("fork(); fork();"), DATA).result(PATIENCE)["out"][0] == DATA.sum()


def test_children_that_stay_do_not_hold_the_answer_back(
    cluster: sapwood.Cluster, work: Work
) -> None:
    program = work("if (fork() == 0) { for (;;) pause(); }")
    assert cluster.run(program, DATA).result(PATIENCE)["out"][0] == DATA.sum()


def test_a_map_that_never_returns_ends_at_its_time_limit(
    cluster: sapwood.Cluster, work: Work
) -> None:
    program = work("for (;;) pause();")
    assert "work ran longer than 0.2 s" in fails(cluster, program, TimeLimitError, time_limit=0.2)


@pytest.mark.row("A-CODE-5")
@pytest.mark.parametrize(
    ("what", "place"),
    [
        ("out[k] = 1;", "past its end, at item 2 (byte 16) of 2"),
        ("out[k + 3] = 0;", "past its end, at item 5 (byte 40) of 2"),
        ("out[2 * k] += 1;", "past its end, at item 4 (byte 32) of 2"),
        ("out[-1] = 5;", "before its begin, at item -1 (byte -1) of 2"),
        ("out[-100] = 5;", "before its begin, at item -100 (byte -793) of 2"),
    ],
)
def test_writing_beside_an_output_is_found(
    cluster: sapwood.Cluster, work: Work, what: str, place: str
) -> None:
    said = fails(cluster, work(what), ArgumentError)
    assert f"work: parameter out was written {place}: it has the extents [k]" in said
    assert "work.c:8" in said


@pytest.mark.row("A-CODE-5")
@pytest.mark.parametrize("k", [2, 100_000])
@pytest.mark.parametrize(
    ("what", "place"),
    [
        ("out[k + 500] = 1;", "past the end of parameter out: at item {past}"),
        ("out[k + 1000000] = 1;", "past the end of parameter out: at item {far}"),
        ("out[-1000000] = 1;", "before the begin of parameter out: at item -1000000"),
        ("for (long i = 0;; i++) out[i] = 1;", "past the end of parameter out: at item {first}"),
    ],
)
def test_writing_far_outside_an_output_is_a_crash_that_names_it(
    cluster: sapwood.Cluster, work: Work, what: str, place: str, k: int
) -> None:
    said = fails(cluster, work(what), RunnerCrashError, parameters={"k": k})
    first = -(-k // 8) * 8  # an array ends up to 56 bytes before its page does
    expected = place.format(past=k + 500, far=k + 1_000_000, first=first)
    assert "work wrote" in said
    assert expected in said
    assert "killed by SIGSEGV" in said
    assert "work.c:10" in said


def test_an_inout_copy_is_guarded_as_outputs_are(cluster: sapwood.Cluster, work: Work) -> None:
    text = (
        "/** @array data[n]\n *  @inout out[k] */\nvoid work(const double *data, int64_t n, "
        "int64_t k, double *out) {{ out[0] += data[0] * (n > 0); {what} }}\n"
    )
    head = "    def init(self, data): return {'out': np.zeros(self.k)}\nimport numpy as np\n"
    program = work("out[k] = 3;", text=text)
    program.write_text(PROGRAM + head)
    assert "item 2 (byte 16) of 2" in fails(cluster, program, ArgumentError)
    program = work("out[k + 5000] = 3;", text=text)
    program.write_text(PROGRAM + head)
    assert "past the end of parameter out: at item 5002" in fails(
        cluster, program, RunnerCrashError
    )


def test_all_arrays_can_be_checked(work: Work) -> None:
    limits = LimitSettings(check_memory=True)
    past, changed = "volatile double x = data[n + 600]; (void)x;", "((double *)data)[1] = 3;"
    with sapwood.local(2, settings=Settings(limits=limits)) as checked:
        assert checked.run(work(""), DATA).result(PATIENCE)["out"][0] == DATA.sum()
        said = fails(checked, work(past), RunnerCrashError)
        assert "work read past the end of parameter data" in said
        said = fails(checked, work(changed), RunnerCrashError)
        assert "work wrote to parameter data, which is read-only: at item 1" in said
        assert {agent.incarnation for agent in checked.agents} == {1}


def test_writing_far_away_is_a_crash_with_its_place(cluster: sapwood.Cluster, work: Work) -> None:
    said = fails(cluster, work("out[1L << 40] = 1;"), RunnerCrashError)
    assert "SIGSEGV" in said
    assert "work.c:10" in said


def test_writing_into_the_items_of_the_dataset_is_a_crash(
    cluster: sapwood.Cluster, work: Work
) -> None:
    """All agents and runs share items: they are mapped so that no process can change them."""
    data = DATA.copy()
    said = fails(cluster, work("((double *)data)[0] = -1;"), RunnerCrashError)
    assert "work wrote to parameter data, which is read-only: at item 0" in said
    np.testing.assert_array_equal(data, DATA)


@pytest.mark.parametrize(
    ("what", "signal"),
    [
        ("abort();", "SIGABRT"),
        ("*(volatile int *)0 = 1;", "SIGSEGV"),
        ("volatile int zero = 0; out[1] = 77 / zero;", "SIGFPE"),
        ("exit(3);", "ended its process with status 3"),
        ("double *volatile p = malloc(8); free(p); free(p);", "SIGABRT"),
    ],
)
@pytest.mark.row("A-CODE-5")
def test_a_crash_is_told_with_its_cause(
    cluster: sapwood.Cluster, work: Work, what: str, signal: str
) -> None:
    assert signal in fails(cluster, work(what), RunnerCrashError)


@pytest.mark.row("A-CODE-5")
def test_a_memory_bomb_ends_at_its_limit(work: Work) -> None:
    what = """for (;;) {
        char *p = malloc(1 << 24);
        if (!p) abort();
        for (int i = 0; i < 1 << 24; i += 4096) p[i] = 1;
    }"""
    limits = LimitSettings(memory=512 * 2**20)
    with sapwood.local(1, settings=Settings(limits=limits)) as small:
        with pytest.raises((RunnerCrashError, MemoryLimitError)):
            small.run(work(what), DATA).result(PATIENCE)
        assert small.agents[0].incarnation == 1
        assert small.run(work(""), DATA).result(PATIENCE)["out"][0] == DATA.sum()
