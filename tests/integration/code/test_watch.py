"""Sources that are edited while they are watched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sapwood.code.cache import BuildCache
from sapwood.code.image import make_image, open_image
from sapwood.code.target import Target, host_target
from sapwood.code.watch import VersionInfo, Watch
from sapwood.core.errors import BuildError, ProgramError

PATIENCE = 60.0
Edit = Callable[[Path, str], None]


def source(number: int) -> str:
    return f'#include "extra.h"\nint answer(void) {{ return {number} + EXTRA; }}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "program"
    place.mkdir()
    (place / "a.c").write_text(source(1))
    (place / "extra.h").write_text("#define EXTRA 0\n")
    (place / "p.py").write_text(
        "from sapwood.code.program import Program\nclass P(Program):\n    sources = ['a.c']\n"
    )
    return place


@pytest.fixture
def watch(folder: Path, cache: BuildCache) -> Iterator[Watch]:
    with Watch(folder / "p.py", cache=cache) as made:
        yield made


def answer(version: VersionInfo) -> int:
    assert version.program is not None
    assert version.error is None, version.error
    opened = open_image(make_image(version.program, version.builds[0]))
    try:
        return int(opened.call("answer", [], {}))
    finally:
        opened.close()


@pytest.mark.row("A-CODE-2")
def test_an_edit_builds_the_new_version_in_the_background(
    watch: Watch, folder: Path, edit: Edit
) -> None:
    first = watch.wait(1, PATIENCE)
    assert answer(first) == 1
    edit(folder / "a.c", source(2))
    second = watch.wait(2, PATIENCE)
    assert answer(second) == 2
    assert first.hash != second.hash
    assert answer(first) == 1  # a holder of the old version keeps it


@pytest.mark.row("A-CODE-2")
@pytest.mark.parametrize("way", ["replace", "in place", "header", "touch then edit", "new header"])
def test_every_way_of_editing_is_seen(watch: Watch, folder: Path, edit: Edit, way: str) -> None:
    assert answer(watch.wait(1, PATIENCE)) == 1
    if way == "replace":  # as editors do that must not lose a file
        edit(folder / "a.c", source(2))
    elif way == "in place":
        with (folder / "a.c").open("r+") as file:  # as long as before: no reader sees a half of it
            file.write(source(2))
    elif way == "header":
        edit(folder / "extra.h", "#define EXTRA 1\n")
    elif way == "new header":
        elsewhere = folder.parent / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "more.h").write_text("#define EXTRA 7\n")
        edit(folder / "a.c", source(1).replace("extra.h", "../elsewhere/more.h"))
        assert answer(watch.wait(2, PATIENCE)) == 8
        edit(elsewhere / "more.h", "#define EXTRA 8\n")
        assert answer(watch.wait(3, PATIENCE)) == 9
        return
    else:
        (folder / "a.c").touch()
        (folder / "unrelated").touch()
        edit(folder / "a.c", source(2))
    assert answer(watch.wait(2, PATIENCE)) == 2


@pytest.mark.row("A-CODE-2")
def test_errors_of_the_compiler_are_reported_and_the_next_edit_is_built(
    watch: Watch, folder: Path, edit: Edit
) -> None:
    watch.wait(1, PATIENCE)
    edit(folder / "a.c", "int answer(void) { return y; }\n")
    broken = watch.wait(2, PATIENCE)
    assert isinstance(broken.error, BuildError)
    assert "a.c:1:27: error" in broken.error.details["compiler output"]
    edit(folder / "a.c", source(3))
    assert answer(watch.wait(3, PATIENCE)) == 3


def test_a_program_that_cannot_be_read_is_reported_and_watched_on(
    watch: Watch, folder: Path, edit: Edit
) -> None:
    watch.wait(1, PATIENCE)
    text = (folder / "p.py").read_text()
    edit(folder / "p.py", "class P(:\n")
    broken = watch.wait(2, PATIENCE)
    assert broken.program is None
    assert isinstance(broken.error, BuildError)
    (folder / "p.py").unlink()
    assert isinstance(watch.wait(3, PATIENCE).error, ProgramError)
    edit(folder / "p.py", text)
    assert answer(watch.wait(4, PATIENCE)) == 1


def test_every_target_in_use_is_built_and_each_version_is_told(
    folder: Path, cache: BuildCache, edit: Edit
) -> None:
    told: list[VersionInfo] = []
    came = threading.Event()

    def tell(version: VersionInfo) -> None:
        told.append(version)
        came.set()

    targets: list[Target] = [host_target()]
    with Watch(folder / "p.py", cache=cache, targets=lambda: targets, on_version=tell) as watch:
        assert len(watch.wait(1, PATIENCE).builds) == 1
        assert came.wait(PATIENCE)
        portable = Target(
            architecture=host_target().architecture, libc=host_target().libc, features="generic"
        )
        targets.append(portable)
        edit(folder / "a.c", source(2))
        second = watch.wait(2, PATIENCE)
        assert [built.target for built in second.builds] == targets
    assert [version.number for version in told][:2] == list(range(1, len(told) + 1))


def test_a_second_build_of_the_new_version_finds_it(
    watch: Watch, folder: Path, cache: BuildCache, edit: Edit
) -> None:
    from sapwood.code import load_program  # noqa: PLC0415 - only here
    from sapwood.code.build import build  # noqa: PLC0415 - only here

    watch.wait(1, PATIENCE)
    edit(folder / "a.c", source(5))
    watch.wait(2, PATIENCE)
    assert build(load_program(folder / "p.py"), cache=cache).cached


def test_waiting_ends_when_the_watch_is_closed(folder: Path, cache: BuildCache) -> None:
    watch = Watch(folder / "p.py", cache=cache)
    watch.wait(1, PATIENCE)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            watch.wait(2)
        except TimeoutError as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    watch.close()
    thread.join(PATIENCE)
    assert len(ended) == 1
    with pytest.raises(TimeoutError):
        watch.wait(2, 0.01)
