"""Languages of packages that are not installed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import pytest

from sapwood.code.languages import registry
from sapwood.core.errors import ProgramError


@pytest.fixture(autouse=True)
def no_plug_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    registry.languages.cache_clear()
    yield
    registry.languages.cache_clear()


def test_a_source_of_an_extra_says_what_installs_it() -> None:
    with pytest.raises(ProgramError) as caught:
        registry.group_sources(["a.c", "b/kernel.cu"], where="here")
    assert caught.value.what == (
        "source b/kernel.cu needs the package sapwood-cuda-cpu, which is not installed"
    )
    assert (caught.value.where, caught.value.hint) == ("here", "pip install 'sapwood[cuda-cpu]'")


def test_so_does_the_language_itself() -> None:
    with pytest.raises(ProgramError, match="unknown language cuda") as caught:
        registry.language("cuda")
    assert caught.value.hint == "pip install 'sapwood[cuda-cpu]'"


def test_an_unknown_source_has_another_hint() -> None:
    with pytest.raises(ProgramError, match="no language for source") as caught:
        registry.group_sources(["a.f90"], where="here")
    assert "pip" not in caught.value.hint
