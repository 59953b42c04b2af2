"""Python files of a bundle: what is read of them without running them."""

import ast
import gc
import inspect
import sys
import threading
from collections.abc import Iterator

import pytest

from sapwood.code import python_module
from sapwood.code.python_module import syntax_tree
from sapwood.core.errors import BuildError


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
