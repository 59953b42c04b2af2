"""What people are told of staged files."""

from __future__ import annotations

import msgspec


class StagedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is staged, and where.

    Attributes:
        name: What it is called.
        digest: What equal ones have, too.
        nbytes: Its size.
        files: How many files it has.
        nodes: The nodes that have it.
        path: Where it is on the first of them.
        since: Since when it is there, seconds since 1970.
    """

    name: str
    digest: str
    nbytes: int
    files: int
    nodes: list[str]
    path: str
    since: float


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was staged.

    Attributes:
        name: What it is called.
        digest: What equal ones have, too.
        nbytes: Its size.
        files: How many files it has.
        nodes: Where it is now.
        sent: Bytes that were sent from here, to all nodes together.
        passed_on: Bytes that nodes got from other nodes.
    """

    name: str
    digest: str
    nbytes: int
    files: int
    nodes: list[str]
    sent: int
    passed_on: int


class CollectReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected.

    Attributes:
        path: Where it is now.
        nodes: Where it comes from.
        nbytes: Its size.
    """

    path: str
    nodes: list[str]
    nbytes: int
