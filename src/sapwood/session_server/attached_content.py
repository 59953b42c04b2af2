"""What a client of a session server offers to agents: content by its hash, and invitations."""

from __future__ import annotations

import contextlib
import hashlib
import os

import msgspec

from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.content.offers import hash_of_memory
from sapwood.content.refs import ContentRef, FileStamp
from sapwood.core import typed
from sapwood.core.errors import ClosedError
from sapwood.core.hints import command
from sapwood.session.back_pressure import check_size
from sapwood.session.interface import InvitationInfo
from sapwood.session_server import session_calls
from sapwood.session_server.server_link import CALL_TIMEOUT, ServerLink


class AttachedInvitations:
    """How processes that others start become agents of a session: its root does all of it.

    Attributes:
        listed_by: What shows the invitations, for hints.
        used: Whether this client has invited any.
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        at = link.address
        self.listed_by = command("agent", "list", at.name or at.session, cluster=at.cluster)
        self.used = False

    def create(self, count: int, lifetime: float, listen: str = "") -> list[str]:
        """Make invitations; return their lines, which are secrets."""
        self.used = True
        found = self._link.ask(session_calls.INVITE, [count, lifetime, listen])
        return typed.convert(found.result(CALL_TIMEOUT), list[str])

    def views(self) -> list[InvitationInfo]:
        """Return snapshots of all invitations."""
        found = self._link.ask(session_calls.INVITATIONS)
        return typed.convert(found.result(CALL_TIMEOUT), list[InvitationInfo])

    def revoke(self, invitation: str) -> bool:
        """Revoke an invitation; return whether it existed."""
        found = self._link.ask(session_calls.REVOKE_INVITATION, invitation)
        return typed.convert(found.result(CALL_TIMEOUT), bool)

    def close(self) -> None:
        """Do nothing: the agents belong to the root, which continues."""


class AttachedContent:
    """What a client offers to places, by its hash, through the server of its session.

    Nothing here waits for the server: it has an offer before what needs it, as both go one way.
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link

    def offer(self, data: bytes | bytearray | memoryview) -> ContentRef:
        """Offer bytes, of which a copy is made."""
        view = memoryview(data).cast("B")
        return self._offer(bytes(view), hashlib.sha256(view).hexdigest())

    def offer_memory(self, memory: SharedRef) -> ContentRef:
        """Offer shared memory of this process, which must not change meanwhile."""
        sha256 = hash_of_memory(memory)
        if self._link.sharing:
            wanted = [msgspec.to_builtins(memory), sha256]
            self._link.tell(session_calls.OFFER_MEMORY, wanted)
            return ContentRef(sha256, memory.nbytes)
        return self._offer(bytes(MappedBlocks().view(memory)), sha256)

    def offer_file(
        self, stamp: FileStamp, offset: int = 0, nbytes: int | None = None, sha256: str = ""
    ) -> ContentRef:
        """Offer a file, or a part of it; places that see the same file are to use that."""
        length = stamp.size - offset if nbytes is None else nbytes
        if self._link.sharing:
            ref = ContentRef(sha256, length, stamp, offset)
            self._link.tell(
                session_calls.OFFER_FILE, msgspec.to_builtins(ref, builtin_types=(bytes,))
            )
            return ref
        fd = os.open(stamp.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, length, offset)
        finally:
            os.close(fd)
        found = sha256 or hashlib.sha256(data).hexdigest()
        self._offer(data, found)
        return ContentRef(found, length, stamp, offset)

    def withdraw(self, ref: ContentRef) -> None:
        """Offer something once less; with the last time it is gone."""
        with contextlib.suppress(ClosedError):
            self._link.tell(
                session_calls.WITHDRAW, msgspec.to_builtins(ref, builtin_types=(bytes,))
            )

    def _offer(self, data: bytes, sha256: str) -> ContentRef:
        check_size(len(data), self._link.largest)
        self._link.tell(session_calls.OFFER, sha256, Payload(data))
        return ContentRef(sha256, len(data))
