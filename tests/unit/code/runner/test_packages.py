"""Whether a process imports from the environment that its node has named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.code.runner.packages import VARIABLE, import_staged_packages, packages_variables


def test_a_folder_comes_before_all_others_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["/own"])
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    import_staged_packages()
    import_staged_packages()
    assert sys.path == [str(tmp_path), "/own"]


@pytest.mark.parametrize("value", ["", "grove"])
def test_a_name_that_no_node_has_replaced_means_nothing(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["/own"])
    monkeypatch.setenv(VARIABLE, value)
    import_staged_packages()
    assert sys.path == ["/own"]


def test_the_client_names_it_by_a_variable() -> None:
    assert packages_variables("grove") == {VARIABLE: "grove"}
    assert packages_variables("") == {}
