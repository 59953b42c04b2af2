"""Pictures in notebooks, without a kernel; ``integration/client/test_notebook.py`` has one."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.activity import notebook
from sapwood.activity.notebook import PER_CELL, LivePicture, show, show_by_itself

PATIENCE = 20.0


class Growing:
    """An activity that lasts until the test ends it."""

    def __init__(self) -> None:
        self.looks = 0
        self.over = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        return self.over.wait(timeout)

    def done(self) -> bool:
        return self.over.is_set()

    def _repr_html_(self) -> str:
        self.looks += 1
        return "over" if self.done() else "active"


class Kernel:
    """What IPython says of itself in a notebook, and the messages that were published."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.execution_count = 1
        self.kernel = object()
        self.told: list[tuple[str, str, bool]] = []
        self.updated = threading.Event()
        display = SimpleNamespace(publish_display_data=self.publish)
        module = SimpleNamespace(get_ipython=lambda: self, display=display)
        monkeypatch.setitem(sys.modules, "IPython", module)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        monkeypatch.setattr(notebook, "INTERVAL", 0.001)

    def publish(self, data: dict[str, Any], *, transient: dict[str, str], update: bool) -> None:
        assert data["text/plain"].startswith("<")
        self.told.append((transient["display_id"], data["text/html"], update))
        if update:
            self.updated.set()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_a_picture_is_updated_in_place_and_ends_once(kernel: Kernel) -> None:
    growing = Growing()
    picture = LivePicture(growing)
    assert kernel.updated.wait(PATIENCE)
    growing.over.set()
    picture.end()
    picture.end()
    assert len({display for display, _, _ in kernel.told}) == 1
    assert [update for _, _, update in kernel.told][:2] == [False, True]
    assert [text for _, text, _ in kernel.told].count("over") == 1
    assert kernel.told[-1][1] == "over"


def test_what_is_over_is_shown_and_not_followed(kernel: Kernel) -> None:
    growing = Growing()
    growing.over.set()
    LivePicture(growing)
    assert [text for _, text, _ in kernel.told] == ["over", "over"]


def test_a_cell_that_ends_with_it_shows_it_once(kernel: Kernel) -> None:
    growing = Growing()
    growing.over.set()
    assert show_by_itself(growing) is not None
    assert show(growing) is None
    kernel.execution_count += 1
    assert show(growing) is not None


def test_below_one_cell_only_so_many_appear_by_themselves(kernel: Kernel) -> None:
    many = [Growing() for _ in range(PER_CELL + 2)]
    for one in many:
        one.over.set()
    shown = [show_by_itself(one) for one in many]
    assert [one is not None for one in shown] == [True] * PER_CELL + [False] * 2
    assert show(many[-1]) is not None  # it was asked for


def test_outside_of_notebooks_nothing_is_shown(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(kernel, "kernel")  # a terminal
    assert show_by_itself(Growing()) is None
    with pytest.raises(NotImplementedError):
        show(Growing())
    monkeypatch.delitem(sys.modules, "IPython")
    assert show_by_itself(Growing()) is None
    assert kernel.told == []
