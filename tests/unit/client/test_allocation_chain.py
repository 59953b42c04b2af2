"""Machines that one run has one after the other."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sapwood.client.allocation_chain import AllocationChain
from sapwood.client.cluster import Cluster
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.core.errors import ResourceError
from sapwood.environment.settings import NodeSettings


class Machines:
    """A cluster on them."""

    class allocation:  # noqa: N801 - the attribute of the cluster
        may_be_followed = True

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.closed = False

    def __exit__(self, *_problem: object) -> None:
        self.close()
        if self.fails:
            raise ResourceError("the disk is full")

    def close(self) -> None:
        self.closed = True


def test_the_next_machines_are_given_back_also_where_the_first_ones_end_badly() -> None:
    begun: list[Machines] = []

    def begin(_waits: WaitCallback) -> Cluster:
        begun.append(Machines(fails=not begun))
        return cast("Cluster", begun[-1])

    chain = AllocationChain(begin, NodeSettings(**cast("Any", {"allocations": 2})))
    with pytest.raises(ResourceError, match="disk"), chain:
        chain._ask()
    assert [one.closed for one in begun] == [True, True]
