"""Python files of a bundle are read without being run."""

import ast
import gc
import inspect
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

from sapwood.code import python_module
from sapwood.code.bundle import Bundle
from sapwood.code.python_module import BundleImports, import_main, syntax_tree
from sapwood.core.errors import BuildError, ProgramError


@pytest.fixture
def busy_interpreter() -> Iterator[None]:
    """Threads take turns in the middle of building a syntax tree, at every garbage collection."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()

    def collected(_phase: str, _info: dict[str, int]) -> None:
        sum(range(50))

    sys.setswitchinterval(1e-6)
    gc.set_threshold(20, 5, 5)
    gc.callbacks.append(collected)
    yield
    gc.callbacks.remove(collected)
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("busy_interpreter")
@pytest.mark.slow
def test_syntax_trees_are_built_in_any_number_of_threads() -> None:
    # CPython 3.11 raises "AST constructor recursion depth mismatch" without a lock around it.
    data = inspect.getsource(python_module).encode()
    trees: list[ast.Module] = []

    def work() -> None:
        trees.extend(syntax_tree(data, "module.py") for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trees) == 40


def test_what_is_not_python_is_an_error_with_its_line() -> None:
    with pytest.raises(BuildError, match="not valid Python") as caught:
        syntax_tree(b"x = 1\ny = (\n", "program.py")
    assert caught.value.where == "program.py:2"


HELPERS = {
    "main.py": b"""
def later():
    import pieces.deep
    from pieces import own
    from pieces.deep import value
    return pieces.deep.value, own, value

def json_text():
    import json
    return json.dumps(1)
""",
    "pieces/__init__.py": b"from . import own\n",
    "pieces/own.py": b"number = NUMBER\n",
    "pieces/deep.py": b"from .own import number\n\ndef value():\n"
    b"    from . import own\n    own.number += 1\n    return number, own.number\n",
}


def _bundle(number: int) -> Bundle:
    files = {name: data.replace(b"NUMBER", b"%d" % number) for name, data in HELPERS.items()}
    return Bundle(origin=f"/somewhere/{number}", main="main.py", files=files)


class _Importing(set[str]):
    """Names of a bundle; while one is looked up, another thread imports something."""

    def __contains__(self, name: object) -> bool:
        sys.modules[f"imported_meanwhile_{len(sys.modules)}"] = ModuleType("other")
        return super().__contains__(name)


def test_another_thread_imports_while_a_program_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    imports = BundleImports(_bundle(1), lambda _data, _name, _globals: None)
    monkeypatch.setattr(imports, "_tops", _Importing({"pieces"}))
    own = sys.modules["pieces"] = ModuleType("pieces")
    assert imports._take() == {"pieces": own}


def test_what_functions_import_is_found_when_they_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = ModuleType("pieces")
    monkeypatch.setitem(sys.modules, "pieces", other)
    first, second = (import_main(_bundle(number), "main.py") for number in (1, 7))
    for module, number in ((first, 1), (second, 7)):
        value, own, same = module.later()
        assert value() == (number, number + 1)
        assert own.number == number + 1
        # A second call finds the modules of the first one, and what these hold.
        again, _, _ = module.later()
        assert again is value is same
        assert again() == (number, number + 2)
        assert module.json_text() == "1"
    assert sys.modules["pieces"] is other
    assert "pieces.deep" not in sys.modules


def test_what_is_not_there_is_missing_when_it_is_imported() -> None:
    files = {"main.py": b"def later():\n    import pieces.more\n", "pieces/__init__.py": b""}
    module = import_main(Bundle(origin="/x", main="main.py", files=files), "main.py")
    with pytest.raises(ModuleNotFoundError, match=r"pieces\.more"):
        module.later()
    assert "pieces" not in sys.modules


def test_a_module_that_exits_is_an_error() -> None:
    bundle = Bundle(origin="/x", main="main.py", files={"main.py": b"import sys\nsys.exit('no')\n"})
    with pytest.raises(ProgramError, match="SystemExit: no") as caught:
        import_main(bundle, "main.py")
    assert caught.value.where == "/x/main.py:2"
