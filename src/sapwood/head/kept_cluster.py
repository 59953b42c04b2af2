"""What a head keeps of its cluster, so that the next head is a head of the same cluster."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from sapwood.comm.machine import machine_id
from sapwood.core import typed
from sapwood.core.errors import SecurityError, StoreError
from sapwood.environment.settings import NodeSettings
from sapwood.nodes.port import listen_address
from sapwood.security.authority import Authority, new_cluster_id
from sapwood.security.invitations import NODES, InvitationRecord, InvitationStore
from sapwood.store.base import Store

DENIED_FOR: Final = 30 * 24 * 3600.0
"""Seconds for which a node that was removed may not come again, or longer, as its certificate."""

_AUTHORITY = "authority"
_TOKENS = "tokens/"
_GENERATION = "generation"
_DENIED = "denied/"
_PORT = "port/"


class _KeptAuthority(msgspec.Struct, frozen=True):
    """An authority in the store."""

    key: bytes
    certificate: bytes


class KeptCluster:
    """What a head keeps of its cluster.

    Args:
        store: Returns the store.
        folder: Folder of the head, for hints.
        life: Seconds that certificates of nodes live.

    Attributes:
        authority: The authority of the cluster, which the first head makes.
        tokens: Its join tokens.
        generation: Counts the heads that the cluster had.

    Raises:
        StoreError: The store fails, or has entries that no head has written.
    """

    def __init__(self, store: Callable[[], Store], folder: Path, life: float) -> None:
        self._store = store
        self._folder = folder
        self._life = life
        self.authority = self._kept_authority()
        self.tokens = self._kept_tokens()
        self.generation = self._next_generation()
        self._denied = {one.key.removeprefix(_DENIED) for one in store().entries(_DENIED)}

    def _kept_authority(self) -> Authority:
        entry = self._store().get(_AUTHORITY)
        if entry is None:
            authority = Authority.create(new_cluster_id())
            kept = _KeptAuthority(authority.key, authority.certificate)
            self._store().compare_and_set(_AUTHORITY, msgspec.msgpack.encode(kept), 0)
            return authority
        with self.reading(_AUTHORITY):
            found = typed.unpacker(_KeptAuthority)(entry.value)
            return Authority.load(found.key, found.certificate)

    def _kept_tokens(self) -> InvitationStore:
        read = typed.unpacker(InvitationRecord)
        with self.reading(_TOKENS):
            records = [read(one.value) for one in self._store().entries(_TOKENS)]
        # Those with a slot were for daemons that the former head had started.
        usable = [one for one in records if not one.slot]
        return InvitationStore(NODES, self.authority.pin, time.time, self._keep_token, usable)

    def _keep_token(self, token: str, record: InvitationRecord | None) -> None:
        if record is None:
            self._store().delete(_TOKENS + token)
        else:
            self._store().put(_TOKENS + token, msgspec.msgpack.encode(record))

    def _next_generation(self) -> int:
        entry = self._store().get(_GENERATION)
        with self.reading(_GENERATION):
            number = 1 if entry is None else int(entry.value) + 1
        self._store().put(_GENERATION, str(number).encode())
        return number

    @contextlib.contextmanager
    def reading(self, key: str) -> Iterator[None]:
        """Say what to do about an entry that no head has written."""
        try:
            yield
        except (msgspec.MsgspecError, ValueError, SecurityError) as error:
            raise StoreError(
                f"the cluster's entry '{key}' cannot be read: {error}",
                where=self._store().url,
                hint=f"move {self._folder} away: the cluster is a new one then, and machines join "
                "it anew",
            ) from error

    # --- the port of the head --------------------------------------------------------------------

    def with_former_port(self, settings: NodeSettings) -> NodeSettings:
        """Return settings with the port of the head before this one, where any free one will do.

        Nodes and sessions that outlived it look for the next head there.
        """
        host, _, port = listen_address(settings.listen).rpartition(":")
        entry = self._store().get(_PORT + machine_id()) if port == "0" else None
        if entry is None:
            return settings
        former = f"{host}:{entry.value.decode()}"
        with contextlib.suppress(OSError, ValueError):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host.strip("[]"), int(entry.value)))
            return msgspec.structs.replace(settings, listen=former)
        return settings

    def note_port(self, addresses: list[str]) -> None:
        """Note where this head listens, for the next one.

        Args:
            addresses: ``host:port`` each.
        """
        for address in addresses[:1]:
            port = address.rpartition(":")[2].encode()
            self._store().put(_PORT + machine_id(), port)

    # --- nodes that were removed -----------------------------------------------------------------

    def is_denied(self, node: str) -> bool:
        """Whether a node was removed, and its certificate may be valid still."""
        return node in self._denied

    def deny(self, node: str) -> None:
        """Deny a node; forget denied nodes whose certificates have expired."""
        now = time.time()
        self._store().put(_DENIED + node, str(now + max(self._life, DENIED_FOR)).encode())
        self._denied.add(node)
        for entry in list(self._store().entries(_DENIED)):
            with contextlib.suppress(ValueError):
                if float(entry.value) < now:
                    self._store().delete(entry.key)
                    self._denied.discard(entry.key.removeprefix(_DENIED))
