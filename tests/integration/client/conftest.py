"""Functions of these tests travel to the agents."""

from collections.abc import Iterator

import cloudpickle
import pytest


@pytest.fixture(autouse=True)
def pickled_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send the functions of a test's file as code: runners cannot import a test."""
    module = request.module
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)
