"""Every public method with hostile arguments: it succeeds or raises a documented error."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import sapwood
from sapwood.core.errors import InputError

from .conftest import NewCluster
from .recipes import ARGUMENTS, TABLE, subject

MAX_TEXT = 128 * 1024
"""Characters of an error, with the traceback of a function on an agent."""

STEPS = [
    pytest.param(kind, method, argument, id=f"{kind.__name__}.{method}-{argument}")
    for kind, rows in TABLE.items()
    for method, row in rows.items()
    for argument in row.arguments
]


def error_of(step: Callable[[], object], errors: tuple[type[BaseException], ...]) -> str:
    """Return the text of the error that a step raises, if the error is its own; "" for none."""
    try:
        step()
    except InputError as error:
        return str(error)
    except errors as error:
        return str(error)
    return ""


def public_methods(kind: type) -> set[str]:
    return {
        name
        for name in dir(kind)
        if not name.startswith("_") and inspect.isroutine(inspect.getattr_static(kind, name))
    }


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: str(kind.__name__))
def test_every_public_method_has_a_recipe(kind: type) -> None:
    assert public_methods(kind) == set(TABLE[kind])


@pytest.mark.filterwarnings("ignore:.* works until version:DeprecationWarning")
@pytest.mark.parametrize(("kind", "method", "argument"), STEPS)
def test_a_method_has_its_own_errors(
    cluster: sapwood.Cluster, new_cluster: NewCluster, kind: type, method: str, argument: str
) -> None:
    row = TABLE[kind][method]
    with subject(cluster, new_cluster, kind, method) as made:
        assert len(error_of(lambda: row.call(made, ARGUMENTS[argument]()), row.errors)) < MAX_TEXT
