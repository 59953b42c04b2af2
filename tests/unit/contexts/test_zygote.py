"""Imports of a zygote that end when no process needs them any more."""

import importlib
import sys
from pathlib import Path

import pytest

from sapwood.contexts.zygote import UnwantedError, import_while_wanted


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three modules, each of which imports the next one and knows how to deal with exceptions."""
    for name, after in (("one_import", "two_imports"), ("two_imports", "three_imports")):
        text = f"try:\n    import {after}\nexcept Exception:\n    pass\n"
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "three_imports.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("one_import", "two_imports", "three_imports"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()


@pytest.mark.usefixtures("modules")
def test_what_is_wanted_is_imported() -> None:
    finders = list(sys.meta_path)
    import_while_wanted("one_import", lambda: False)
    assert "three_imports" in sys.modules
    assert sys.meta_path == finders


@pytest.mark.usefixtures("modules")
def test_what_is_there_is_there() -> None:
    import_while_wanted("sys", lambda: True)


@pytest.mark.usefixtures("modules")
def test_it_ends_before_the_next_module() -> None:
    asked: list[bool] = []
    finders = list(sys.meta_path)

    def unwanted() -> bool:
        asked.append("two_imports" in sys.modules)
        return asked[-1]

    with pytest.raises(UnwantedError):
        import_while_wanted("one_import", unwanted)
    assert asked == [False, False, True]
    assert "three_imports" not in sys.modules
    assert sys.meta_path == finders
