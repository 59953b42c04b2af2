from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sapwood.activity import crash_site
from sapwood.activity.crash_site import name_crash_site
from sapwood.core.errors import RunnerCrashError

SOURCE = """int inner(int x) { return x / 0; }
int outer(int x) { return inner(x) + 1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("crash")
    (folder / "a.c").write_text(SOURCE)
    command = ["cc", "-g", "-O0", "-w", "-shared", "-fPIC", "a.c", "-o", "a.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "a.so"


def named(library: Path, *lines: str, where: str = "a.c:2, outer") -> RunnerCrashError:
    error = RunnerCrashError("crash", where=where, details={"backtrace": "\n".join(lines)})
    name_crash_site(error, {str(library): library})
    return error


def test_frames_below_the_call_from_python_are_left_out(library: Path) -> None:
    error = named(library, f"{library}(inner+0xb)[0x1]", "/usr/lib/libffi.so.8(+0x7)[0x2]", "main")
    assert error.details["backtrace"] == "inner (a.c:1)"
    assert error.where == "a.c:1, a.c:2, outer"


def test_a_thread_has_no_such_frame(library: Path) -> None:
    error = named(library, f"{library}(inner+0xb)[0x1]", "libc.so(+0x7)[0x2]", "Fatal Python error")
    assert error.details["backtrace"] == "inner (a.c:1)\nlibc.so(+0x7)[0x2]"


def test_a_recursion_is_counted(library: Path) -> None:
    frame = f"{library}(outer+0x13)[0x1]"
    lines = named(library, *[frame] * 40, "Fatal Python error: x").details["backtrace"]
    assert lines.endswith("outer (a.c:2), 40 times")


def test_a_place_is_named_once(library: Path) -> None:
    error = named(library, f"{library}(inner+0xb)[0x1]", "Fatal Python error", where="a.c:1, inner")
    assert error.where == "a.c:1, inner"


@pytest.mark.parametrize("problem", [KeyError("DW_AT_name"), IndexError(), RecursionError()])
def test_damaged_debug_information_leaves_the_error_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Exception
) -> None:
    def fail(*_arguments: object) -> str:
        raise problem

    monkeypatch.setattr(crash_site, "symbolise", fail)
    backtrace = "/x/user.so(f+0x10) [0x1]\nlibffi.so.8(+0x7a4a) [0x2]"
    error = RunnerCrashError("killed by SIGSEGV", details={"backtrace": backtrace})
    name_crash_site(error, {"/x/user.so": tmp_path / "user.debug"})
    assert error.details == {"backtrace": backtrace}
