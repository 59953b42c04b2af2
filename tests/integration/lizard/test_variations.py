"""Programs that use the format in other ways than the examples do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood_lizard.directory import read_directory
from sapwood_lizard.execution import RunOutcome
from sapwood_lizard.structures import b64_json_dec

RunFunction = Callable[..., RunOutcome]
CopyFunction = Callable[..., Path]

SETTINGS = {"dims": 3, "max_iterations": 3, "input_file": "points.csv"}

TREE = (4, 2)


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Four agents under two junctions."""
    return standing


@pytest.fixture
def sums(
    cluster: sapwood.Cluster, outcome: RunFunction, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], list[float]]:
    """Run a variation of the column sums over its points."""

    def run(folder: Path, **settings: Any) -> list[float]:
        monkeypatch.chdir(folder)
        found = outcome(cluster, folder, SETTINGS | settings)
        result: list[float] = b64_json_dec(b64_json_dec(found.end_global_state)["dynamic"])
        return [round(value, 2) for value in result]

    return run


EXPECTED = [-25.17, -4.18, 40.29]


CONFIGURATIONS = {
    "no code": [("code: {}\n", "")],
    "empty code": [("code: {}", "code:")],
    "no name": [("  name: column_sums\n", "")],
    "no kind, no wrapper": [("  py_c_extention: false\n", "")],
    "other spelling": [("py_c_extention: false", "py_c_extension: no")],
    "text": [("py_c_extention: false", 'py_c_extention: "False"')],
    "a ctypes program with a wrapper that is not built": [
        ("  cuda: kernel.cu", "  cuda: kernel.cu\n  cpp: wrapper.cpp")
    ],
    "empty sources": [("  cuda: kernel.cu", "  cuda: kernel.cu\n  cpp:")],
    "no header named": [("  header: program.h\n", "")],
}


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize("changes", CONFIGURATIONS.values(), ids=list(CONFIGURATIONS))
def test_configurations(
    copy_of: CopyFunction, sums: Callable[[Path], list[float]], changes: list[tuple[str, str]]
) -> None:
    folder = copy_of("column_sums", {"config.yaml": changes})
    (folder / "wrapper.cpp").write_text("#include <Python.h>\n#error not for ctypes\n")
    assert sums(folder) == EXPECTED


PYTHON = {
    "a result that is made anew and not reset": [
        (
            "    if aggregation_result is None:\n        aggregation_result = AggregationResult()",
            "    if True:\n        aggregation_result = AggregationResult()",
        ),
    ],
    "an update that returns nothing": [
        ("max_iterations)\n    return global_state", "max_iterations)"),
    ],
    "an aggregate that returns nothing": [("    return running_aggregate", "    return None")],
    "lizard imported in a function": [
        (
            '        sums = self.get_ref("sums")\n        return user',
            (
                "        import lizard.user_prog_resources as user\n"
                '        sums = self.get_ref("sums")\n        return user'
            ),
        ),
        ("return user_prog_resources.b64_json_enc([sums", "return user.b64_json_enc([sums"),
    ],
    "names of parameters": [
        (
            "init_global_state(global_params, global_state=None):",
            "init_global_state(gp, state=None):",
        ),
        (
            "GlobalState()\n        global_state.init_aux_structures(global_params)",
            "GlobalState()\n        global_state.init_aux_structures(gp)",
        ),
        ("    if global_state is None:\n", "    if state is None:\n"),
    ],
    "a print at import": [("import ctypes\n", "import ctypes\n\nprint('imported')\n")],
    "an aggregate that makes another result": [
        (
            "    total, part = running_aggregate.get_ref",
            (
                "    result = init_aggregation_result(global_params)\n"
                "    total, part = running_aggregate.get_ref"
            ),
        ),
        ("        total[d] += part[d]", "        result.sums_aux[d] = total[d] + part[d]"),
        ("    return running_aggregate", "    return result"),
    ],
    "positional only": [
        (
            "def aggregate(global_params, running_aggregate, aggregation_result):",
            "def aggregate(global_params, running_aggregate, aggregation_result, /):",
        )
    ],
}


@pytest.mark.row("B-PROG-2")
@pytest.mark.parametrize("changes", PYTHON.values(), ids=list(PYTHON))
def test_python_modules(
    copy_of: CopyFunction, sums: Callable[[Path], list[float]], changes: list[tuple[str, str]]
) -> None:
    assert sums(copy_of("column_sums", {"python_funcs.py": changes})) == EXPECTED


SHARED_STATE = {
    "variables of the module": [
        ("import ctypes\n", "import ctypes\n\nparts = []\niteration = 0\n"),
        (
            "    total, part = running_aggregate.get_ref",
            "    parts.append(iteration)\n    total, part = running_aggregate.get_ref",
        ),
        (
            "    global_state.iteration += 1\n",
            (
                "    global iteration\n    assert parts == [iteration] * 4, parts\n"
                "    parts.clear()\n    iteration += 1\n    global_state.iteration = iteration\n"
            ),
        ),
    ],
    "attributes of the aggregate": [
        (
            "    total, part = running_aggregate.get_ref",
            (
                '    running_aggregate.parts = getattr(running_aggregate, "parts", 0) + 1\n'
                "    total, part = running_aggregate.get_ref"
            ),
        ),
        (
            "    global_state.iteration += 1\n",
            "    assert aggregation_result.parts == 4\n    global_state.iteration += 1\n",
        ),
    ],
}


@pytest.mark.parametrize("changes", SHARED_STATE.values(), ids=list(SHARED_STATE))
def test_what_functions_leave_for_each_other_is_there(
    cluster: sapwood.Cluster,
    copy_of: CopyFunction,
    sums: Callable[[Path], list[float]],
    changes: list[tuple[str, str]],
) -> None:
    assert len(cluster.agents) == 4  # that many parts
    assert sums(copy_of("column_sums", {"python_funcs.py": changes})) == EXPECTED


def test_what_python_imports_in_functions_is_part_of_the_program(
    copy_of: CopyFunction, sums: Callable[[Path], list[float]]
) -> None:
    changes = [
        (
            "    for d in range(global_params.dims):\n        total[d] += part[d]\n",
            "    from tools.adding import add\n\n    add(total, part, global_params.dims)\n",
        )
    ]
    folder = copy_of("column_sums", {"python_funcs.py": changes})
    (folder / "tools").mkdir()
    (folder / "tools" / "__init__.py").touch()
    (folder / "tools" / "adding.py").write_text(
        "def add(a, b, n):\n    for i in range(n):\n        a[i] += b[i]\n"
    )
    assert sums(folder) == EXPECTED


RUNNERS = {
    "no C_EXTENSION": [("C_EXTENSION = False\n", "")],
    "no quiet_print": [
        (", quiet_print=False):", "):"),
        ("    if not quiet_print:\n        print", "    print"),
    ],
    "part of a package": [
        ("    import python_funcs\nexcept", "    from . import python_funcs\nexcept")
    ],
    "imported in a function": [
        (
            "    dataset = python_funcs.Dataset()",
            "    import python_funcs as p\n\n    dataset = p.Dataset()",
        )
    ],
}


@pytest.mark.row("B-RUN-2")
@pytest.mark.parametrize("changes", RUNNERS.values(), ids=list(RUNNERS))
def test_runner_modules(
    copy_of: CopyFunction, sums: Callable[[Path], list[float]], changes: list[tuple[str, str]]
) -> None:
    assert sums(copy_of("column_sums", {"runner.py": changes})) == EXPECTED


def test_the_runner_gets_python_funcs_by_that_name_whatever_the_file_is_called(
    copy_of: CopyFunction, sums: Callable[[Path], list[float]]
) -> None:
    folder = copy_of(
        "column_sums", {"config.yaml": [("python: python_funcs.py", "python: own.py")]}
    )
    (folder / "python_funcs.py").rename(folder / "own.py")
    assert sums(folder) == EXPECTED


def test_a_python_file_may_have_another_encoding(
    copy_of: CopyFunction, sums: Callable[[Path], list[float]]
) -> None:
    folder = copy_of("column_sums")
    module = folder / "python_funcs.py"
    cookie = "# -*- coding: latin-1 -*-\nassert ord('ü') == 252\n"
    module.write_bytes((cookie + module.read_text()).encode("latin-1"))
    assert sums(folder) == EXPECTED


def test_vectors_of_cuda_are_numbers_in_python(
    copy_of: CopyFunction, sums: Callable[[Path], list[float]]
) -> None:
    changes = {
        "program.h": [
            ("    float *points;", "    float3 *points;"),
            ("    double *sums;\n} agg_res_t", "    double3 *sums;\n} agg_res_t"),
        ],
        "kernel.cu": [
            ("(dataset->points, result->sums", "((float *)dataset->points, &result->sums->x"),
        ],
    }
    assert sums(copy_of("column_sums", changes)) == EXPECTED


def test_not_a_number_travels(cluster: sapwood.Cluster, copy_of: CopyFunction, sums: Any) -> None:
    folder = copy_of("column_sums")
    lines = (folder / "points.csv").read_text().splitlines()
    (folder / "points.csv").write_text("\n".join(["nan,inf,0", *lines]))
    first, second, third = sums(folder)
    assert first != first  # noqa: PLR0124 - that is NaN
    assert (second, third) == (float("inf"), 40.29)


@pytest.mark.row("B-PROG-3")
def test_the_checksum_is_that_of_the_json_with_the_sources(tmp_path: Path) -> None:
    # By hand: what lizard-slayer makes of such a folder.
    (tmp_path / "config.yaml").write_text(
        "info: {name: x, py_c_extention: false}\nsources: {cuda: k.cu, python: p.py}\ncode: {}\n"
    )
    (tmp_path / "k.cu").write_text("// k\n")
    (tmp_path / "p.py").write_text("# p\n")
    found = read_directory(tmp_path)
    assert found.data == (
        '{"info": {"name": "x", "py_c_extention": false}, '
        '"sources": {"cuda": "k.cu", "python": "p.py"}, '
        '"code": {"cuda": "// k\\n", "python": "# p\\n"}}'
    )
    assert found.checksum == "c48dccca9b5905a7b7620f391b39015545375069"
