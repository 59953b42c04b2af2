"""Faults of a program are reported when it is registered."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.code.cache import BuildCache
from sapwood.core.errors import (
    BuildError,
    FunctionMissingError,
    ProgramError,
    SapwoodError,
)
from sapwood.environment.settings import CacheSettings
from sapwood_lizard.launch import Checked
from sapwood_lizard.native_library import ProgramLibrary

CopyFunction = Callable[..., Path]
CheckFunction = Callable[[Path], Checked]
Changes = dict[str, list[tuple[str, str]]]

RegistrationCase = tuple[Changes, type[SapwoodError], str, str]

AT_REGISTRATION: dict[str, RegistrationCase] = {
    "a source that does not compile": (
        {"kernel.cu": [("int grid = (", "int grid = (nothing + ")]},
        BuildError,
        "does not compile",
        "kernel.cu:21",
    ),
    "a header that does not compile": (
        {"program.h": [("    float *points;", "    floot *points;")]},
        BuildError,
        "does not compile",
        "program.h:12",
    ),
    "what a CPU cannot do": (
        {
            "kernel.cu": [
                (
                    "    int i = blockIdx.x",
                    '    asm volatile("wgmma.fence.sync.aligned;");\n    int i = blockIdx.x',
                )
            ]
        },
        BuildError,
        "inline PTX",
        "kernel.cu:14",
    ),
    "Python that does not parse": (
        {"python_funcs.py": [("def aggregate(", "def aggregate((")]},
        BuildError,
        "not valid Python",
        "python_funcs.py:",
    ),
    "Python that raises": (
        {"python_funcs.py": [("import ctypes\n", "import ctypes\n\n1 / 0\n")]},
        ProgramError,
        "ZeroDivisionError",
        "python_funcs.py:3",
    ),
    "no aggregate": (
        {"python_funcs.py": [("def aggregate(", "def agregate(")]},
        FunctionMissingError,
        "no function aggregate.*agregate",
        "python_funcs.py",
    ),
    "no class": (
        {"python_funcs.py": [("class Dataset(", "class DataSet(")]},
        FunctionMissingError,
        "no class Dataset",
        "python_funcs.py",
    ),
    "a function with other parameters": (
        {
            "python_funcs.py": [
                ("full_dataset, start_idx, size, dataset=None", "full_dataset, start")
            ]
        },
        ProgramError,
        "get_dataset_slice.* cannot be called",
        "python_funcs.py:",
    ),
    "no length": (
        {"python_funcs.py": [("def __len__", "def length")]},
        ProgramError,
        "__len__",
        "python_funcs.py",
    ),
    "no field done": (
        {"python_funcs.py": [('("done", ctypes.c_int)', '("ready", ctypes.c_int)')]},
        ProgramError,
        "no field done",
        "python_funcs.py",
    ),
    "a pointer that is not named": (
        {"python_funcs.py": [('    aux_field_names = ("points",)\n', "")]},
        ProgramError,
        "Dataset.points is a pointer",
        "python_funcs.py",
    ),
    "a structure that is larger in C": (
        {"python_funcs.py": [(', ("max_iterations", ctypes.c_int)]', "]")]},
        ProgramError,
        "class GlobalParams is not laid out as global_params_t.*no field for int max_iterations",
        "program.h:",
    ),
    "a structure that is larger in Python": (
        {
            "python_funcs.py": [
                ('("dims", ctypes.c_int)', '("n", ctypes.c_int), ("dims", ctypes.c_int)')
            ]
        },
        ProgramError,
        "class GlobalParams is not laid out",
        "program.h:",
    ),
    "fields in another order": (
        {
            "python_funcs.py": [
                ('        ("done", ctypes.c_int),\n        ("iteration", ctypes.c_int),\n', ""),
                (
                    '        ("sums", ctypes.POINTER(ctypes.c_double)),\n',
                    (
                        '        ("sums", ctypes.POINTER(ctypes.c_double)),\n'
                        '        ("done", ctypes.c_int),\n        ("iteration", ctypes.c_int),\n'
                    ),
                ),
            ]
        },
        ProgramError,
        r"class GlobalState is not laid out.*int done where Python has POINTER\(c_double\) sums",
        "program.h:",
    ),
    "a field of another type": (
        {"python_funcs.py": [('("dims", ctypes.c_int)', '("dims", ctypes.c_float)')]},
        ProgramError,
        "C has int dims where Python has c_float dims",
        "program.h:",
    ),
    "a pointer to another type": (
        {
            "python_funcs.py": [
                ("ctypes.POINTER(ctypes.c_float)", "ctypes.POINTER(ctypes.c_double)")
            ]
        },
        ProgramError,
        r"C has float \* points where Python has POINTER\(c_double\)",
        "program.h:",
    ),
    "a pointer in a structure that is not named": (
        {
            "python_funcs.py": [
                (
                    "class GlobalParams(",
                    (
                        "class Cell(ctypes.Structure):\n"
                        '    _fields_ = [("at", ctypes.POINTER(ctypes.c_int))]\n\n\n'
                        "class GlobalParams("
                    ),
                ),
                ('("iteration", ctypes.c_int),', '("iteration", ctypes.c_int), ("c", Cell * 2),'),
            ]
        },
        ProgramError,
        "GlobalState.c holds a pointer that aux_field_names does not name",
        "python_funcs.py",
    ),
    "a structure of another size": (
        {
            "python_funcs.py": [
                (
                    "class GlobalParams(",
                    (
                        "class Two(ctypes.Structure):\n"
                        '    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_int)]\n\n\n'
                        "class GlobalParams("
                    ),
                ),
                ('("dims", ctypes.c_int)', '("dims", Two)'),
            ],
        },
        ProgramError,
        r"where Python has Two dims \(4 and 8 bytes\)",
        "program.h:",
    ),
    "Python that exits": (
        {"python_funcs.py": [("import ctypes\n", "import ctypes\n\nraise SystemExit('no')\n")]},
        ProgramError,
        "SystemExit: no",
        "python_funcs.py:3",
    ),
    "a kind that is none": (
        {"config.yaml": [("py_c_extention: false", "py_c_extention: ctypes")]},
        ProgramError,
        "py_c_extention must be true or false, not 'ctypes'",
        "config.yaml",
    ),
    "a configuration that holds itself": (
        {"config.yaml": [("code: {}", "code: {}\nmore: &a [*a]")]},
        ProgramError,
        "cannot be written as JSON",
        "config.yaml",
    ),
    "two configurations": (
        {"config.yaml": [("code: {}", "code: {}\n---\ninfo: {}")]},
        ProgramError,
        "another document.*leave one",
        "config.yaml:",
    ),
    "a file that is not there": (
        {"config.yaml": [("kernel.cu", "kernal.cu")]},
        ProgramError,
        "cannot read kernal.cu.*kernel.cu",
        "config.yaml",
    ),
    "a file outside of the folder": (
        {"config.yaml": [("kernel.cu", "../../kernel.cu")]},
        ProgramError,
        "cannot name a file of a program",
        "config.yaml",
    ),
    "no sources": (
        {"config.yaml": [("sources:", "Sources:")]},
        ProgramError,
        "names no sources.*there is info, Sources, code",
        "config.yaml",
    ),
    "no cuda source": (
        {"config.yaml": [("cuda:", "kuda:")]},
        ProgramError,
        "names no cuda source",
        "",
    ),
    "tabs in YAML": (
        {"config.yaml": [("  cuda:", "\tcuda:")]},
        ProgramError,
        "not YAML.*tabs",
        "config.yaml:",
    ),
    "a C extension without a wrapper": (
        {"config.yaml": [("py_c_extention: false", "py_c_extention: true")]},
        ProgramError,
        "names no cpp source",
        "",
    ),
}


@pytest.mark.row("B-PROG-1")
@pytest.mark.row("B-PROG-3")
@pytest.mark.parametrize("case", AT_REGISTRATION.values(), ids=list(AT_REGISTRATION))
def test_mistakes_are_told_at_registration(
    copy_of: CopyFunction, checked: CheckFunction, case: RegistrationCase
) -> None:
    changes, kind, message, where = case
    folder = copy_of("column_sums", changes)
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        checked(folder)
    assert where in caught.value.where
    if kind is BuildError and "compile" in message:
        assert "error:" in caught.value.details["compiler output"]


BARE = """
#include "program.h"
extern "C" void run_iteration(int, global_params_t *, dataset_t *, global_state_t *, agg_res_t *) {}
extern "C" void setup_dataset(dataset_t *, global_params_t *) {}
extern "C" void free_dataset(dataset_t *, global_params_t *) {}
extern "C" void setup_global_state(global_state_t *, global_params_t *) {}
extern "C" void free_global_state(global_state_t *, global_params_t *) {}
extern "C" void setup_aggregation_result(agg_res_t *, global_params_t *) {}
extern "C" void free_aggregation_result(agg_res_t *, global_params_t *) {}
"""
"""All that a program must define, soon compiled."""


@pytest.fixture
def bare(copy_of: CopyFunction) -> Callable[[str], Path]:
    """Make a program of the column sums' Python and of a source without a kernel."""

    def make(source: str) -> Path:
        folder = copy_of("column_sums")
        header = folder / "program.h"
        header.write_text(header.read_text().partition('extern "C"')[0] + "#endif\n")
        (folder / "kernel.cu").write_text(source)
        return folder

    return make


@pytest.mark.row("B-PROG-1")
@pytest.mark.row("B-PROG-3")
@pytest.mark.parametrize(
    ("old", "new", "message", "where"),
    [
        (
            "void free_global_state",
            "void release_global_state",
            "no source defines free_global_state",
            "kernel.cu",
        ),
        (
            'extern "C" void setup_dataset',
            "void setup_dataset",
            'no source defines setup_dataset.*extern "C"',
            "kernel.cu",
        ),
        (
            "free_global_state(global_state_t *, global_params_t *)",
            "free_global_state(global_state_t *)",
            "free_global_state takes",
            "kernel.cu:7",
        ),
    ],
    ids=["missing", "of C++", "with other parameters"],
)
def test_functions_of_c_that_do_not_fit(
    bare: Callable[[str], Path],
    checked: CheckFunction,
    old: str,
    new: str,
    message: str,
    where: str,
) -> None:
    assert old in BARE
    with pytest.raises(ProgramError, match=f"(?s){message}") as caught:
        checked(bare(BARE.replace(old, new)))
    assert where in caught.value.where


@pytest.mark.row("B-PROG-1")
def test_a_damaged_library_in_the_cache_is_built_again(
    bare: Callable[[str], Path], checked: CheckFunction, tmp_path: Path
) -> None:
    folder = bare(f"// {tmp_path}\n{BARE}")  # no other test looks for it in the cache
    first = checked(folder)
    library = Path(first.built.libraries[0].image.path)
    del first
    library.chmod(0o644)
    library.write_bytes(library.read_bytes()[:-1] + b"?")
    again = checked(folder)
    assert again.built.cached is False
    assert BuildCache(CacheSettings().path()).entries()


@pytest.mark.row("B-PROG-1")
def test_a_library_for_another_machine_is_told(
    copy_of: CopyFunction, checked: CheckFunction, tmp_path: Path
) -> None:
    library = Path(checked(copy_of("column_sums")).built.libraries[0].image.path)
    data = bytearray(library.read_bytes())
    data[18:20] = b"\xb7\x00" if data[18] != 0xB7 else b"\x3e\x00"  # the machine, in ELF
    (tmp_path / "other.so").write_bytes(data)
    with pytest.raises(ProgramError, match=r"cannot be loaded.*another machine"):
        ProgramLibrary(str(tmp_path / "other.so"))
