"""What is asked for on several machines is checked before any process is started."""

from __future__ import annotations

import platform
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sapwood.client.hosts import cluster_over
from sapwood.core.errors import ConfigurationError
from sapwood.environment.settings import Settings
from sapwood.nodes.joining import NodeFacts


def test_nodes_with_another_minor_version_of_python_are_refused() -> None:
    """The head's Python may be theirs, and that of the front end another one."""
    facts = msgspec.structs.replace(NodeFacts.here(), python="3.99.2")
    nodes = [SimpleNamespace(host=1, facts=None), SimpleNamespace(host=2, facts=facts)]
    pool: Any = SimpleNamespace(nodes=nodes)
    with pytest.raises(
        ConfigurationError, match=r"of the nodes is 3\.99\.2, and this one"
    ) as caught:
        cluster_over(pool, 2, settings=Settings())
    assert platform.python_version() in caught.value.what
    assert caught.value.hint == "run this by a Python 3.99"
