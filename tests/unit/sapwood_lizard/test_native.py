import sysconfig
from pathlib import Path

import pytest

from sapwood.core.errors import CompilerMissingError
from sapwood_lizard.native import DEVICE, build_environment, native_bundle
from sapwood_lizard.registration import LizardDefinition, SourceFile


def definition(*files: tuple[str, str, str], extension: bool = False) -> LizardDefinition:
    found = tuple(SourceFile(*each) for each in files)
    return LizardDefinition(name="p", extension=extension, files=found)


def built(
    *files: tuple[str, str, str], extension: bool = False
) -> tuple[list[str], dict[str, str]]:
    bundle = native_bundle(definition(*files, extension=extension), origin="", pickled=b"")
    texts = {name: data.decode() for name, data in bundle.files.items() if name != DEVICE}
    return [name for name in bundle.sources if name != DEVICE], texts


def test_the_header_is_there_under_both_names() -> None:
    sources, files = built(
        ("cuda", "src/k.cu", '#include "program.h"'),
        ("header", "inc/own.h", "struct s;"),
        ("python", "p.py", ""),
    )
    assert sources == ["src/k.cu"]
    assert files["src/program.h"] == files["src/own.h"] == '#include "../inc/own.h"\n'


def test_a_header_called_program_h_stays() -> None:
    _, files = built(("cuda", "k.cu", ""), ("header", "program.h", "struct s;"))
    assert files == {"k.cu": "", "program.h": "struct s;"}


@pytest.mark.parametrize(
    ("file", "is_source"),
    [
        (("more", "b.cu", ""), True),
        (("more", "b.cpp", ""), True),
        (("more", "b.h", ""), False),
        (("", "b.cu", ""), False),  # found by an include
        (("cpp", "w.cpp", "#include <Python.h>"), False),  # the wrapper of a C extension
        (("cpp", "w.cpp", "int w;"), True),
        (("more", "used.cu", ""), False),
    ],
)
def test_which_files_are_sources(file: tuple[str, str, str], is_source: bool) -> None:
    sources, _ = built(("cuda", "k.cu", '#include "used.cu"\n'), file)
    assert (file[1] in sources) is is_source


def test_a_source_without_the_usual_suffix_is_cuda_all_the_same() -> None:
    assert built(("cuda", "kernel.c", "int k;"))[0] == ["kernel.c.cu"]


def test_an_extension_is_built_for_one_python() -> None:
    sources, files = built(
        ("cuda", "k.cu", ""), ("cpp", "wrapper", "#include <Python.h>"), extension=True
    )
    assert sources == ["k.cu", "wrapper.cpp"]
    assert str(sysconfig.get_config_var("SOABI")) in files["wrapper.cpp"]


@pytest.mark.row("B-EXT-1")
def test_an_extension_needs_the_headers_of_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    extension = definition(("cuda", "k.cu", ""), ("cpp", "w.cpp", ""), extension=True)
    found = build_environment(extension, {"CXXFLAGS": "-DX"})
    assert found["CXXFLAGS"].startswith("-DX -I")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
    with pytest.raises(CompilerMissingError, match="Python's headers"):
        build_environment(extension, {})
    assert build_environment(definition(("cuda", "k.cu", "")), {"A": "b"}) == {"A": "b"}
