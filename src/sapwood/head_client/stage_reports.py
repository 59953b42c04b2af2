"""Reports of staged files for people."""

from __future__ import annotations

import msgspec

from sapwood.content.messages import StagedKind


class StagedFilesInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is staged, and where.

    Attributes:
        name: What it is called.
        digest: What equal ones have, too.
        nbytes: Its size.
        files: How many files it has.
        nodes: The nodes that have it.
        path: Where it is on the first of them.
        since: Since when it is there, seconds since 1970.
        kind: ``file``, ``folder`` or ``environment``.
    """

    name: str
    digest: str
    nbytes: int
    files: int
    nodes: list[str]
    path: str
    since: float
    kind: StagedKind = "file"


class StageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A report of staged files.

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


class EnvironmentInfo(StageInfo, frozen=True, kw_only=True):
    """An environment that was staged, for nodes of one kind; the rest as in :class:`StageInfo`.

    Attributes:
        platform: What uv calls these nodes.
        python: Version of their Python, for example ``3.11``.
        installed: Whether uv has installed it now; else it was kept from before.
    """

    platform: str
    python: str
    installed: bool


class CollectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A report of collected files.

    Attributes:
        path: Where it is now.
        nodes: Where it comes from.
        nbytes: Its size.
    """

    path: str
    nodes: list[str]
    nbytes: int
