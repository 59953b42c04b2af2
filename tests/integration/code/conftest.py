"""Programs of native sources in a folder, built and opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sapwood.code.build import Built, build
from sapwood.code.cache import BuildCache
from sapwood.code.image import OpenProgram, make_image, open_image
from sapwood.code.program import Program

MakeProgram = Callable[..., Program]
OpenSources = Callable[..., OpenProgram]


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


@pytest.fixture
def program_of(tmp_path: Path) -> MakeProgram:
    """Return a function that makes a program of sources given as text."""

    def make(sources: Mapping[str, str], **attributes: Any) -> Program:
        folder = tmp_path / "program"
        for name, text in sources.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        names = tuple(name for name in sources if not name.endswith((".h", ".hpp")))
        lines = ["from sapwood.code.program import Program, native, parameter", "class P(Program):"]
        lines.append(f"    sources = {names!r}")
        lines += [f"    {name} = {value}" for name, value in attributes.items()]
        (folder / "p.py").write_text("\n".join(lines) + "\n")
        from sapwood.code import load_program  # noqa: PLC0415 - only here

        return load_program(folder / "p.py")

    return make


@pytest.fixture
def opened(cache: BuildCache, program_of: MakeProgram) -> Iterator[OpenSources]:
    """Return a function that builds sources and opens the program in this process."""
    open_programs: list[OpenProgram] = []
    kept: list[Built] = []

    def open_sources(sources: Mapping[str, str] | str, **attributes: Any) -> OpenProgram:
        files = {"a.c": sources} if isinstance(sources, str) else sources
        program = program_of(files, **attributes)
        kept.append(build(program, cache=cache))
        open_programs.append(open_image(make_image(program, kept[-1])))
        return open_programs[-1]

    yield open_sources
    for program in open_programs:
        program.close()
