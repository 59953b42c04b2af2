"""References to modules whose files change."""

import importlib
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sapwood.code import user_modules
from sapwood.code.pickling import pickle_of
from sapwood.core.errors import ProcessSpentError

Write = Callable[..., ModuleType]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module of the user's, and import it or load it again."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(user_modules, "_seen", {})
    names: list[str] = []
    changes = iter(range(1, 1000))

    def written(name: str, text: str) -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        os.utime(file, ns=(next(changes) * 10**9,) * 2)
        importlib.invalidate_caches()
        names.append(name)
        if name in sys.modules:
            return importlib.reload(sys.modules[name])
        return importlib.import_module(name)

    yield written
    for name in names:
        sys.modules.pop(name, None)


def opened(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - made by this test


def test_a_pickle_differs_after_an_edit(write: Write) -> None:
    module = write("grove_a", "def f(): return 1\nclass Tree: pass\n")
    before = [pickle_of(one) for one in (module, module.f, module.Tree)]
    assert before == [pickle_of(one) for one in (module, module.f, module.Tree)]
    assert [opened(data) for data in before] == [module, module.f, module.Tree]
    module = write("grove_a", "def f(): return 2\nclass Tree: pass\n")
    after = [pickle_of(one) for one in (module, module.f, module.Tree)]
    assert not set(before) & set(after)
    assert opened(after[1])() == 2


def test_a_pickle_differs_after_an_edit_of_what_the_module_imports(write: Write) -> None:
    write("grove_leaf", "SIZE = 1\n")
    module = write("grove_b", "import grove_leaf\ndef f(): return grove_leaf.SIZE\n")
    before = pickle_of(module.f)
    write("grove_leaf", "SIZE = 2\n")
    assert pickle_of(module.f) != before


def test_a_runner_refuses_a_module_that_has_changed_since_it_was_imported(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = write("grove_c", "def f(): return 1\n")
    before = pickle_of(module.f)
    opened(before)  # as a runner does the first time
    module = write("grove_c", "def f(): return 2\n")
    after = pickle_of(module.f)
    monkeypatch.setattr(user_modules, "_is_runner", True)
    with pytest.raises(ProcessSpentError, match="'grove_c' has changed"):
        opened(after)
    monkeypatch.setattr(user_modules, "_seen", {})  # a new process
    assert opened(after)() == 2
    # Another client has other files on its machine; the files of this machine are unchanged.
    assert opened(before)() == 2


def test_a_folder_that_the_client_has_added_later_is_searched(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = write("grove_d", "def f(): return 1\n")
    data = pickle_of(module.f)
    del sys.modules["grove_d"]
    sys.path.remove(str(tmp_path))
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert opened(data)() == 1
    assert sys.path[-1] == str(tmp_path)


def test_a_module_that_does_not_exist_is_an_import_error(write: Write, tmp_path: Path) -> None:
    module = write("grove_e", "def f(): return 1\n")
    data = pickle_of(module.f)
    del sys.modules["grove_e"]
    (tmp_path / "grove_e.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="grove_e"):
        opened(data)


def test_what_was_made_at_run_time_travels_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("conjured")
    exec("def f(x): return x + 1\nclass Box: size = 3\n", module.__dict__)  # noqa: S102 - see name
    monkeypatch.setitem(sys.modules, "conjured", module)
    data = [pickle_of(module.f), pickle_of(module.Box)]
    monkeypatch.delitem(sys.modules, "conjured")
    assert opened(data[0])(1) == 2
    assert opened(data[1]).size == 3


@pytest.mark.parametrize("value", [np, np.sum, np.ndarray, os.path.join, pickle_of, Path, len])
def test_what_is_installed_is_referred_to_as_ever(value: Any) -> None:
    assert b"imported" not in pickle_of(value)
    assert opened(pickle_of(value)) is value
