"""Every public method with hostile arguments: it succeeds or raises a documented error."""

from __future__ import annotations

import contextlib
import inspect

import pytest

import sapwood
from sapwood.core.errors import InputError

from .conftest import NewCluster
from .recipes import ARGUMENTS, TABLE, subject

STEPS = [
    pytest.param(kind, method, argument, id=f"{kind.__name__}.{method}-{argument}")
    for kind, rows in TABLE.items()
    for method, row in rows.items()
    for argument in row.arguments
]


def public_methods(kind: type) -> set[str]:
    return {
        name
        for name in dir(kind)
        if not name.startswith("_") and inspect.isroutine(inspect.getattr_static(kind, name))
    }


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: str(kind.__name__))
def test_every_public_method_has_a_recipe(kind: type) -> None:
    assert public_methods(kind) == set(TABLE[kind])


@pytest.mark.parametrize(("kind", "method", "argument"), STEPS)
def test_a_method_has_its_own_errors(
    cluster: sapwood.Cluster, new_cluster: NewCluster, kind: type, method: str, argument: str
) -> None:
    row = TABLE[kind][method]
    with (
        subject(cluster, new_cluster, kind, method) as made,
        contextlib.suppress(InputError, *row.errors),
    ):
        row.call(made, ARGUMENTS[argument]())
