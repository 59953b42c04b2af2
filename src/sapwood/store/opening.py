"""Which store an address is for: ``sqlite:///folder``, ``etcd://host:port/name``, or a plug-in.

A plug-in registers under the entry-point group ``sapwood.stores`` what takes an address and
returns a :class:`~sapwood.store.base.Store`; its name is the scheme.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sapwood.core.errors import ConfigurationError
from sapwood.core.suggest import suggest
from sapwood.store.base import Store

GROUP = "sapwood.stores"

NewStore = Callable[[str], Store]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def is_shared(address: str) -> bool:
    """Return whether several processes may have the store at an address open at once.

    Example:
        >>> is_shared("etcd://n1,n2/lab"), is_shared("/home/me/head")
        (True, False)
    """
    scheme = _SCHEME.match(address)
    return scheme is not None and scheme[1].lower() != "sqlite"


def open_store(address: str | Path, patience: float | None = None) -> Store:
    """Return the store at an address; whoever opened it closes it.

    Args:
        address: ``sqlite:///folder`` or the folder's path; ``etcd://host:port,host:port/name``,
            or ``etcds://…`` with TLS; or what a plug-in takes.
        patience: Seconds that one member of etcd gets to answer before the next is asked; by
            default what :data:`~sapwood.store.etcd_calls.MEMBER_TIME` says.

    Raises:
        ConfigurationError: No store has such an address.
        StoreError: The store cannot be opened.
    """
    if isinstance(address, Path):
        return _sqlite(address)
    scheme = _SCHEME.match(address)
    if scheme is None:
        if not address.strip():
            raise ConfigurationError(
                "the address of a store is empty", hint="name a folder, or etcd://host:port/name"
            )
        return _sqlite(Path(address))
    name = scheme[1].lower()
    known = _known()
    if name not in known:
        raise ConfigurationError(
            f"no store has the scheme '{scheme[1]}'",
            where=address,
            hint=suggest(name, known) + "; a folder whose name has a colon begins with ./",
        )
    if patience is not None and known[name] is _etcd:
        return _etcd(address, patience)
    return known[name](address)


def _known() -> dict[str, NewStore]:
    known: dict[str, NewStore] = {
        entry.name: lambda address, entry=entry: entry.load()(address)  # type: ignore[misc]
        for entry in entry_points(group=GROUP)
    }
    return known | {"sqlite": _sqlite_url, "etcd": _etcd, "etcds": _etcd}


def _sqlite_url(address: str) -> Store:
    parts = urlsplit(address)
    if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ConfigurationError(
            "the address of an SQLite store has a host, an option or no folder",
            where=address,
            hint="write sqlite:///home/me/head, with three slashes, or the folder alone",
        )
    return _sqlite(Path(unquote(parts.path)))


def _sqlite(folder: Path) -> Store:
    from sapwood.store.sqlite import SqliteStore  # noqa: PLC0415 - loads SQLite

    return SqliteStore(folder)


def _etcd(address: str, patience: float | None = None) -> Store:
    from sapwood.store.etcd import EtcdStore  # noqa: PLC0415 - loads OpenSSL
    from sapwood.store.etcd_calls import MEMBER_TIME, EtcdAddress  # noqa: PLC0415 - as above

    return EtcdStore(EtcdAddress.parse(address), MEMBER_TIME if patience is None else patience)
