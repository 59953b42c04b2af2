"""What ``make check`` takes from the report of pyright."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "verify_types.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_types", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def symbol(name: str, *messages: str) -> dict[str, Any]:
    return {"name": name, "diagnostics": [{"message": one} for one in messages]}


def test_public_are_the_names_and_the_bases_of_the_classes(script: ModuleType) -> None:
    public = script.public_names()
    assert {
        "sapwood.client.cluster.Cluster",
        "sapwood.client.tree_work.TreeWork",  # a base of it
        "sapwood.core.errors.BuildError",
        "sapwood.types.ANY",
        "sapwood.client.hosts.start",
    } <= public
    assert not any(name.startswith("sapwood.nodes.") for name in public)


def test_only_what_is_public_and_not_declared_is_reported(script: ModuleType) -> None:
    found = script.incomplete(
        {
            "typeCompleteness": {
                "symbols": [
                    symbol("sapwood.a.Public", "Type of base class is partially unknown"),
                    symbol("sapwood.a.Public.size", "Type is missing type annotation"),
                    symbol("sapwood.a.Public.size", "Type is missing type annotation"),
                    symbol("sapwood.a.Public.name"),
                    symbol("sapwood.a.Internal.size", "Type is missing type annotation"),
                    symbol("sapwood.a.function", "Return type is unknown"),
                ]
            }
        },
        {"sapwood.a.Public", "sapwood.a.function"},
    )
    assert found == [
        "sapwood.a.Public.size: Type is missing type annotation",
        "sapwood.a.function: Return type is unknown",
    ]
