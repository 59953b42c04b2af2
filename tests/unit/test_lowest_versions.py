"""The constraints of ``make lowest``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "lowest_versions.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lowest_versions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_requirement_has_a_lowest_version(script: ModuleType) -> None:
    held = {one.partition("==")[0] for one in script.constraints()}
    named = {one.partition(">=")[0] for one in script.requirements()}
    assert {one for one in named - held if not one.startswith("sapwood")} == set()
    assert {"numpy", "cryptography", "uvicorn", "watchfiles", "PyYAML"} <= held
    assert len(script.constraints()) == len(held)
