"""Languages beside each other, and one from elsewhere."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from sapwood.code.languages import registry
from sapwood.code.languages.python import Python
from sapwood.core.errors import BuildError, ProgramError


def test_c_and_cpp_share_a_library(opened: Any) -> None:
    program = opened(
        {
            "a.c": "int twice(int x);\nint four(int x) { return twice(twice(x)); }\n",
            "b.cpp": 'extern "C" int twice(int x) { return 2 * x; }\n',
        }
    )
    assert program.call("four", [3], {}) == 12
    assert len(program.image.libraries) == 1


def test_c_is_compiled_as_c(opened: Any) -> None:
    program = opened(
        {
            "a.c": "int f(int class) { return class; }\n",
            "b.cc": 'extern "C" int g() { return 1; }\n',
        }
    )
    assert program.call("f", [3], {}) == 3


def test_python_sources_are_called_by_name(opened: Any) -> None:
    program = opened(
        {
            "a.c": "int f(int x) { return x; }\n",
            "more.py": 'def g(x, y=1):\n    """Adds."""\n    return x + y\n\ndef _h():\n    pass\n',
        }
    )
    assert program.call("g", [2], {"y": 3}) == 5
    assert program.call("f", [2], {}) == 2
    interface = program.image.libraries[1].interface
    assert [(each.name, each.doc, each.line) for each in interface.functions] == [("g", "Adds.", 1)]


def test_a_python_source_that_is_not_python_is_a_build_error(opened: Any) -> None:
    with pytest.raises(BuildError) as caught:
        opened({"more.py": "x = 1\ndef f(:\n"})
    assert caught.value.where == "more.py:2"


class Upper(Python):
    """A language of another package."""

    name = "upper"
    suffixes = (".up",)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(kind: Any) -> None:
        class Point(EntryPoint):
            def load(self) -> Any:
                if isinstance(kind, Exception):
                    raise kind
                return kind

        found = [Point(name="upper", value="upper:Upper", group="sapwood.languages")]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: found)
        registry.languages.cache_clear()

    yield install
    registry.languages.cache_clear()


def test_a_plugin_brings_a_language(plugin: Any, opened: Any) -> None:
    plugin(Upper)
    program = opened({"f.up": "def f(x):\n    return -x\n"})
    assert program.call("f", [2], {}) == -2


def test_a_process_that_is_told_where_a_language_is_looks_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert registry.place_of("c") == ""
    registry.languages()
    place = registry.place_of("cuda")
    monkeypatch.setattr(registry, "_places", {})  # as in a new process
    monkeypatch.setattr(registry, "languages", lambda: pytest.fail("it looks for plug-ins"))
    registry.language_at.cache_clear()
    assert registry.language_at("cuda", place).suffixes == (".cu",)
    assert registry.language_at("c", "").name == "c"
    with pytest.raises(ProgramError, match="plug-in gone cannot be imported"):
        registry.language_at("gone", "no_such_module:Gone")


def test_a_plugin_that_fails_or_clashes_is_named(plugin: Any) -> None:
    plugin(ImportError("no upper"))
    with pytest.raises(ProgramError, match="no upper"):
        registry.languages()
    plugin(Python)
    with pytest.raises(ProgramError, match="two languages are called python"):
        registry.languages()


def test_closing_unloads_the_library(opened: Any) -> None:
    program = opened("int unloaded_on_close(void) { return 1; }\n")
    path = program.image.libraries[0].path
    assert program.call("unloaded_on_close", [], {}) == 1
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123 - not a regular file
        assert path in maps.read()
    program.close()
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123 - not a regular file
        assert path not in maps.read()


def test_a_changed_library_is_refused(opened: Any) -> None:
    from pathlib import Path  # noqa: PLC0415 - only here

    from sapwood.code.image import open_image  # noqa: PLC0415 - only here

    program = opened("int f(void) { return 1; }\n")
    path = Path(program.image.libraries[0].path)
    data = path.read_bytes()
    path.unlink()  # the loaded one stays mapped
    path.write_bytes(data + b"x")
    with pytest.raises(ProgramError, match="damaged"):
        open_image(program.image)
    path.unlink()
    with pytest.raises(ProgramError, match="cannot be read"):
        open_image(program.image)
