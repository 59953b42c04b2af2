"""What is wrong with a program is said when it is registered."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.code.cache import BuildCache
from sapwood.compat.lizard.launch import Checked
from sapwood.compat.lizard.native_library import ProgramLibrary
from sapwood.core.errors import (
    BuildError,
    FunctionMissingError,
    ProgramError,
    SapwoodError,
)
from sapwood.environment.settings import CacheSettings

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
    "a missing function of C": (
        {
            "kernel.cu": [("void free_global_state", "void release_global_state")],
            "program.h": [("void free_global_state", "void release_global_state")],
        },
        ProgramError,
        "no source defines free_global_state",
        "kernel.cu",
    ),
    "a function of C++": (
        {
            "kernel.cu": [('extern "C" void setup_dataset', "void setup_dataset")],
            "program.h": [("void setup_dataset(dataset_t *dataset, global_params_t *params);", "")],
        },
        ProgramError,
        'no source defines setup_dataset.*extern "C"',
        "kernel.cu",
    ),
    "a function of C with other parameters": (
        {
            "kernel.cu": [
                (
                    "free_global_state(global_state_t *state, global_params_t *params)",
                    "free_global_state(global_state_t *state)",
                )
            ],
            "program.h": [
                (
                    "free_global_state(global_state_t *state, global_params_t *params)",
                    "free_global_state(global_state_t *state)",
                )
            ],
        },
        ProgramError,
        "free_global_state takes",
        "kernel.cu:",
    ),
    "a structure that is larger in C": (
        {"program.h": [("    float *points;", "    float *points;\n    int more;")]},
        ProgramError,
        "class Dataset is not laid out as dataset_t.*no field for int more",
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
            "program.h": [
                (
                    "    int done;\n    int iteration;\n    double *sums;",
                    "    double *sums;\n    int done;\n    int iteration;",
                )
            ]
        },
        ProgramError,
        "class GlobalState is not laid out.*double . sums where Python has c_int done",
        "program.h:",
    ),
    "a field of another type": (
        {"program.h": [("    int dims;", "    float dims;")]},
        ProgramError,
        "C has float dims where Python has c_int dims",
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
            "program.h": [("    int dims;", "    struct { int a[2]; } dims;")],
            "python_funcs.py": [
                (
                    "class GlobalParams(",
                    (
                        "class Two(ctypes.Union):\n"
                        '    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_int)]\n\n\n'
                        "class GlobalParams("
                    ),
                ),
                ('("dims", ctypes.c_int)', '("dims", Two)'),
            ],
            "kernel.cu": [("params->dims", "params->dims.a[0]")],
        },
        ProgramError,
        r"where Python has Two dims \(8 and 4 bytes\)",
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


@pytest.mark.row("B-PROG-1")
def test_a_damaged_library_in_the_cache_is_built_again(
    copy_of: CopyFunction, checked: CheckFunction, tmp_path: Path
) -> None:
    # A library that no other test looks for in the cache.
    folder = copy_of("column_sums", {"kernel.cu": [('#include "', f'// {tmp_path}\n#include "')]})
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
