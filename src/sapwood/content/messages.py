"""The requests for content: of the places of a session, and of a head to its nodes.

A chunk of content is always requested by ``[SHA-256, size of the content, offset, bytes]``: from
the root of a session, from a junction, and from another node.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from sapwood.core.typed import Natural

GET: Final = "content.get"
"""Request to the root or a junction of a session: a chunk, of at most 1 MiB. A chunk of no bytes
asks the root whether it offers the content."""

NAME: Final = "content.name"
"""Request to the root: the SHA-256 of a part of a file: ``[file, offset, number of bytes]``."""

LOOK = "stage.look"
"""Request to a node: what of a tree of files is not there? A ``FileTree``; answer: a
:class:`MissingContent`. There is room for it then."""

WRITE = "stage.write"
"""Request to a node: take content: :class:`StagePieces`. Answer: none, when it is on its disk."""

FETCH = "stage.fetch"
"""Request to a node: fetch content from another one: a :class:`FetchContent`. Answer:
:class:`ContentFetched`, when all of it is there."""

KEEP = "stage.keep"
"""Request to a node: have a tree of files at its name, and keep it: a ``FileTree``. Answer: a
:class:`StagedName`."""

SERVE = "stage.serve"
"""Request to a node: let other nodes fetch content; the value is where it is to listen,
``host:port``. Answer: where it listens, a list of the same."""

LIST = "stage.list"
"""Request to a node: what is staged? Answer: :class:`StageFacts`."""

REMOVE = "stage.remove"
"""Request to a node: have nothing at a name any more. Answer: whether there was something."""

FIND = "stage.find"
"""Request to a node: what is at a path? :class:`FindFiles`. Answer: a ``FileTree``."""

READ = "stage.read"
"""Request to a node: bytes of a file: :class:`ReadPiece`. Answer: the bytes."""


MAX_SOURCES: Final = 8
"""Nodes that a node asks for the same content."""

StagedKind = Literal["file", "folder", "environment"]
"""The kinds of staged content: a file, a folder, or packages that Python imports."""


class StagePiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of content.

    Attributes:
        sha256: Of the whole content.
        nbytes: Size of the whole content.
        offset: Where the piece begins.
        data: Its bytes.
    """

    sha256: str
    nbytes: Natural
    offset: Natural
    data: bytes


class StagePieces(msgspec.Struct, frozen=True):
    """Pieces of content, in this order."""

    pieces: list[StagePiece]


class MissingPart(msgspec.Struct, frozen=True, array_like=True):
    """Content that a node has not, or not all of.

    Attributes:
        sha256: Which.
        nbytes: Its size.
        offset: From which byte on it is missing.
    """

    sha256: str
    nbytes: Natural
    offset: Natural = 0


class MissingContent(msgspec.Struct, frozen=True):
    """What a node has not of a tree."""

    parts: list[MissingPart]


class FetchContent(msgspec.Struct, frozen=True):
    """Fetch content from another node.

    Attributes:
        digest: Of the tree that it is for; a later request for the same ends this one.
        address: ``tls://NODE@host:port,host:port``.
        parts: What to fetch, in this order.
        others: The addresses of nodes to ask when that one has ended, in this order.
    """

    digest: str
    address: str
    parts: list[MissingPart]
    others: list[str] = []


class ContentFetched(msgspec.Struct, frozen=True):
    """Content was fetched.

    Attributes:
        nbytes: How many bytes came.
    """

    nbytes: Natural


class StagedName(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is staged on a node.

    Attributes:
        name: What it is called.
        digest: What equal ones have, too.
        nbytes: Its size.
        files: How many files it has.
        path: Where it is on that node.
        since: Since when, seconds since 1970.
        kind: What it is.
    """

    name: str
    digest: str
    nbytes: Natural
    files: Natural
    path: str
    since: float
    kind: StagedKind = "file"


class StageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The staged files of a node.

    Attributes:
        folder: Where it lies.
        limit: Bytes that it may have; 0: no limit.
        held: Bytes that it has, partial content and such without a name as well.
        names: Named entries.
    """

    folder: str
    limit: Natural
    held: Natural
    names: list[StagedName]


class FindFiles(msgspec.Struct, frozen=True):
    """A report about a path.

    Attributes:
        path: The path.
        user: The user who reads; empty for the daemon's. The head writes it.
    """

    path: str
    user: str = ""


class ReadPiece(msgspec.Struct, frozen=True):
    """Bytes of a file.

    Attributes:
        path: Of what was found.
        inner: The path of the file in its tree.
        offset: Where they begin.
        nbytes: How many.
        user: The user who reads; empty for the daemon's. The head writes it.
    """

    path: str
    inner: bytes
    offset: Natural
    nbytes: Natural
    user: str = ""
