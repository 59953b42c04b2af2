from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.check import check_program
from sapwood.code.languages import compiled
from sapwood.code.program import Program
from sapwood.core.errors import (
    BuildError,
    CompilerMissingError,
    FunctionMissingError,
    ProgramError,
    ResourceError,
)

SOURCE = '#include "size.h"\nint twice(int x) { return SIZE * x; }\n'
FILES = {"a.c": SOURCE, "size.h": "#define SIZE 2\n"}


@pytest.mark.row("A-CODE-1")
def test_an_unchanged_program_is_built_once(cache: BuildCache, program_of: Any) -> None:
    first = build(program_of(FILES), cache=cache)
    second = build(program_of(FILES), cache=cache)
    assert (first.cached, second.cached) == (False, True)
    assert (cache.counters.builds, cache.counters.hits) == (1, 1)


@pytest.mark.row("A-CODE-1")
def test_a_finished_build_starts_no_compiler(
    cache: BuildCache, program_of: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec /usr/bin/cc "$@"\n')
    compiler.chmod(0o755)
    environment = {"PATH": f"{compiler.parent}:{os.environ['PATH']}"}
    build(program_of(FILES), cache=cache, environment=environment)
    assert "-O3" in log.read_text()
    log.unlink()
    assert build(program_of(FILES), cache=cache, environment=environment).cached
    assert not log.exists()


@pytest.mark.parametrize("change", ["source", "header", "flags", "python"])
def test_only_what_decides_the_library_builds_it_again(
    cache: BuildCache, program_of: Any, change: str
) -> None:
    build(program_of(FILES), cache=cache)
    environment = dict(os.environ)
    files = dict(FILES)
    attributes = {}
    if change == "source":
        files["a.c"] += "\n"
    elif change == "header":
        files["size.h"] = "#define SIZE 3\n"
    elif change == "flags":
        environment["CFLAGS"] = "-DUNUSED"
    else:
        attributes["k"] = "parameter(3)"
    program = program_of(files, **attributes)
    assert build(program, cache=cache, environment=environment).cached == (change == "python")


def test_the_user_s_flags_come_last(cache: BuildCache, program_of: Any) -> None:
    program = program_of(
        {"a.c": "#ifdef __OPTIMIZE__\n#error optimised\n#endif\nint f(void){return 0;}"}
    )
    build(program, cache=cache, environment={**os.environ, "CFLAGS": "-O0"})
    with pytest.raises(BuildError, match="does not compile"):
        build(program, cache=cache)


def test_a_compiler_error_reaches_the_user_whole(cache: BuildCache, program_of: Any) -> None:
    program = program_of({"a.c": "int f(int x) {\n  return y;\n}\nint g(void) { return zz(1, }\n"})
    with pytest.raises(BuildError) as caught:
        build(program, cache=cache)
    assert caught.value.where == "a.c:2"
    output = caught.value.details["compiler output"]
    assert "a.c:2:10: error" in output
    assert "a.c:4" in output
    assert str(cache.folder) not in output


def test_a_function_that_no_source_defines_is_a_link_error(
    cache: BuildCache, program_of: Any
) -> None:
    with pytest.raises(BuildError) as caught:
        build(program_of({"a.c": "int g(int);\nint f(int x) { return g(x); }\n"}), cache=cache)
    assert "undefined reference to `g'" in caught.value.details["compiler output"]
    assert "no source defines it" in caught.value.hint
    assert caught.value.where == "a.c:2"


def test_a_compiler_that_takes_too_long_is_killed_with_its_children(
    cache: BuildCache, program_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && exec echo slow\nsleep 60 &\nwait\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 0.2)
    with pytest.raises(BuildError, match="took more than"):  # and leaves no process behind
        build(program_of(FILES), cache=cache, environment={**os.environ, "CC": str(compiler)})


@pytest.mark.parametrize(("source", "package"), [("a.c", "gcc"), ("a.cpp", "g++")])
def test_without_a_compiler_the_error_names_the_package(
    cache: BuildCache, program_of: Any, tmp_path: Path, source: str, package: str
) -> None:
    without = {"PATH": str(tmp_path), "ZIG": "none"}
    with pytest.raises(CompilerMissingError) as caught:
        build(program_of({source: ""}), cache=cache, environment=without)
    assert package in caught.value.hint


def test_a_source_of_no_language_is_an_error(cache: BuildCache, program_of: Any) -> None:
    with pytest.raises(ProgramError, match=r"no language for source a\.f90"):
        build(program_of({"a.f90": ""}), cache=cache)


def test_sources_in_other_folders_build(cache: BuildCache, program_of: Any, tmp_path: Path) -> None:
    (tmp_path / "shared.h").write_text("#define SHARED 5\n")
    program = program_of({"sub/a.c": '#include "../../shared.h"\nint f(void) { return SHARED; }\n'})
    assert [f.where for f in build(program, cache=cache).interface.functions] == ["sub/a.c:2"]


def test_the_library_is_stripped_and_its_debug_information_kept(
    cache: BuildCache, program_of: Any
) -> None:
    built = build(program_of(FILES), cache=cache)
    image = built.libraries[0].image
    assert b".debug_info" not in Path(image.path).read_bytes()
    assert b".debug_info" in Path(image.debug).read_bytes()
    assert built.debug_files == dict.fromkeys((image.path, image.sha256), Path(image.debug))


def test_without_objcopy_the_library_keeps_its_debug_information(
    cache: BuildCache, program_of: Any, tmp_path: Path
) -> None:
    for tool in ("cc", "as", "ld"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    image = (
        build(program_of(FILES), cache=cache, environment={"PATH": str(tmp_path)})
        .libraries[0]
        .image
    )
    assert image.debug == image.path
    assert [function.name for function in image.interface.functions] == ["twice"]


def test_without_debug_information_the_error_says_why(cache: BuildCache, program_of: Any) -> None:
    with pytest.raises(BuildError, match="no debug information"):
        build(program_of(FILES), cache=cache, environment={**os.environ, "CFLAGS": "-g0"})


def test_a_full_disk_is_said_so(cache: BuildCache, program_of: Any, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exit\n"
        "echo 'fatal error: a.o: No space left on device'\nexit 1\n"
    )
    compiler.chmod(0o755)
    with pytest.raises(ResourceError, match="full"):
        build(program_of(FILES), cache=cache, environment={**os.environ, "CC": str(compiler)})


def named(program: Program, cache: BuildCache) -> None:
    check_program(program, build(program, cache=cache))


def test_a_missing_function_names_the_nearest(cache: BuildCache, program_of: Any) -> None:
    with pytest.raises(FunctionMissingError) as caught:
        named(program_of(FILES, helper='native("twic")'), cache)
    assert "did you mean twice" in caught.value.hint


def test_a_function_that_cannot_be_called_says_why(cache: BuildCache, program_of: Any) -> None:
    files = {"a.cpp": "int f(int x) { return x; }\n"}
    with pytest.raises(ProgramError, match='it is not extern "C"') as caught:
        named(program_of(files, helper='native("f")'), cache)
    assert caught.value.where == "a.cpp:1"
