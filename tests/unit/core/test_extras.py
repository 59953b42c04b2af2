"""Packages that are not installed: their users can be imported, and say what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.core import extras
from sapwood.core.errors import ConfigurationError
from sapwood.core.extras import LazyModule, check_installed


def test_a_module_is_imported_when_a_name_of_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy_of_test.py").write_text("value = [1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    lazy = LazyModule("lazy_of_test", "cluster")
    assert "lazy_of_test" not in sys.modules
    assert lazy.value == [1]
    assert lazy.value is sys.modules.pop("lazy_of_test").value


def test_a_name_that_the_module_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = LazyModule("json", "cluster").no_such_name


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.inner.most"])
def test_a_package_that_is_missing_is_named_with_its_extra(module: str) -> None:
    with pytest.raises(
        ConfigurationError, match="several nodes needs the package no_such_pack"
    ) as caught:
        _ = LazyModule(module, "cluster").anything
    assert caught.value.hint == "pip install 'sapwood[cluster]'"


def test_what_a_package_itself_lacks_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_of_test.py").write_text("import what_it_lacks\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_lacks"):
        _ = LazyModule("broken_of_test", "cluster").anything


def test_packages_are_looked_for_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    check_installed("server", "json")
    with pytest.raises(
        ConfigurationError, match="the HTTP server with the dashboard needs"
    ) as caught:
        check_installed("server", "json", "uvicorn")
    assert caught.value.hint == "pip install 'sapwood[server]'"


def test_every_use_is_of_an_extra() -> None:
    for extra in extras._USES:
        assert extras.missing(extra, "some").hint == extras.install(extra)
