"""What a process closes when it is forked, and imports that end when nobody wants them any more."""

import importlib
import socket
import sys
from pathlib import Path

import pytest

from sapwood.contexts import orders
from sapwood.contexts.plan import Assembled
from sapwood.contexts.zygote import (
    FIRST_FD,
    LAST_FD,
    Draft,
    ForkedTree,
    UnwantedError,
    import_while_wanted,
)


class File:
    """Something that was opened."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.closed = False

    def fileno(self) -> int:
        return self._fd

    def abort(self) -> None:
        self.closed = True


def draft(theirs: socket.socket, *opened: File) -> Draft:
    ours, control = socket.socketpair()
    spec = orders.ProcessSpec("", 1, 1)
    with ours, control:
        return Draft(ForkedTree(control), spec, ours, theirs, Assembled(lambda: None, opened))


def is_strange(made: Draft, fd: int) -> bool:
    return any(first <= fd < last for first, last in made.strange)


@pytest.mark.parametrize("beside", [-1, 1, 2, 300])
def test_a_process_closes_all_but_its_own(beside: int) -> None:
    other, theirs = socket.socketpair()
    with other, theirs:
        own = {theirs.fileno(), theirs.fileno() + beside}
        made = draft(theirs, File(theirs.fileno() + beside))
        closed = {fd for fd in range(1000) if is_strange(made, fd)}
        assert closed == set(range(FIRST_FD, 1000)) - own
        assert is_strange(made, LAST_FD - 1)


def test_the_zygote_closes_what_its_process_has() -> None:
    other, theirs = socket.socketpair()
    file = File(200)
    with other:
        draft(theirs, file).close()
        assert theirs.fileno() == -1
        assert other.recv(1) == b""
    assert file.closed


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
