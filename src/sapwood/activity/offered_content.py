"""What work needs that is in files and memory of this machine, offered to places that are not."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import msgspec

from sapwood.code.image import ProgramImage
from sapwood.code.library import LibraryImage
from sapwood.content.refs import ContentRef, FileStamp
from sapwood.core.errors import ProgramError
from sapwood.data.slice import ContentPlace, FieldRef, FilePlace, MemoryPlace, SliceRef
from sapwood.session.interface import SessionInterface


class OfferedContent:
    """What some work offers to the places of a tree, until it is closed.

    Where all places share the root's machine nothing is offered, read or hashed.

    Args:
        session: The tree.
    """

    def __init__(self, session: SessionInterface) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._refs: list[ContentRef] = []

    def code(
        self, image: ProgramImage, crash_handlers: Sequence[ContentRef]
    ) -> tuple[ContentRef, ...]:
        """Offer the libraries of a program, and its Python part if that is in a file.

        Raises:
            ProgramError: A library is gone.
        """
        if self._session.shares_machine():
            return ()
        content = self._session.content
        found = [*map(_library, image.libraries), *crash_handlers]
        if image.stored is not None:
            found.append(image.stored)
        return tuple(
            self._noted(content.offer_file(one.file, 0, one.nbytes, one.sha256))
            for one in found
            if one.file is not None
        )

    def slice(self, ref: SliceRef, rank: int) -> tuple[SliceRef, tuple[ContentRef, ...]]:
        """Offer a slice to an agent; return it as that agent gets it, and what it needs.

        Raises:
            DataMissingError: A file is gone, or has changed.
        """
        if self._session.shares_machine(rank):
            return ref, ()
        needed: list[ContentRef] = []
        fields = tuple(self._field(field, needed) for field in ref.fields)
        for file, offset, nbytes in ref.rows.needed() if ref.rows is not None else ():
            stamp = FileStamp(os.fsencode(file.path), file.size, file.mtime_ns)
            needed.append(self._noted(self._session.content.offer_file(stamp, offset, nbytes)))
        return msgspec.structs.replace(ref, fields=fields), tuple(needed)

    def close(self) -> None:
        """Withdraw everything."""
        with self._lock:
            refs, self._refs = self._refs, []
        for ref in refs:
            self._session.content.withdraw(ref)

    def _field(self, field: FieldRef, needed: list[ContentRef]) -> FieldRef:
        place, content = field.place, self._session.content
        if isinstance(place, MemoryPlace) and place.memory.nbytes:
            ref = self._noted(content.offer_memory(place.memory))
            needed.append(ref)
            place = ContentPlace(ref.sha256, 0, ref.nbytes)
            return msgspec.structs.replace(field, place=place)
        if isinstance(place, FilePlace) and place.nbytes:
            stamp = FileStamp(os.fsencode(place.path), place.size, place.mtime_ns)
            needed.append(self._noted(content.offer_file(stamp, place.offset, place.nbytes)))
        return field

    def _noted(self, ref: ContentRef) -> ContentRef:
        with self._lock:
            self._refs.append(ref)
        return ref


def _library(library: LibraryImage) -> ContentRef:
    try:
        stamp = FileStamp.of(library.file)
    except OSError as error:
        raise ProgramError(
            f"the built library cannot be read: {error.strerror}",
            where=library.path,
            hint="run again: it is built again",
        ) from error
    return ContentRef(library.sha256, stamp.size, stamp)
