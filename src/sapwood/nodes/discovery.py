"""Clusters on the local network: a head announces itself, and machines find it.

This is DNS-based service discovery over multicast DNS (RFC 6763, RFC 6762), as printers use it:
any browser of such services shows a head as a ``_sapwood._tcp``. An announcement has no secret.
Announcements are not authenticated: any machine on the network can make some. So they only say
where to look. The pin in a machine's join token decides whether what answers there is the right
head.
"""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.core.errors import CommunicationError, ConfigurationError
from sapwood.core.failures import new_thread
from sapwood.nodes.port import own_addresses

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, Zeroconf

SERVICE = "_sapwood._tcp.local."
"""What a head is called among the services of a network."""

FIND_TIME = 3.0
"""Seconds in which the heads of a network answer: the question is repeated once in that time."""

MAX_CLUSTERS = 256
"""Most announcements that are read, because any machine may make some."""

MAX_ADDRESSES = 32
"""Addresses of one announcement that are read."""

ASK_TIME = 1.0
"""Seconds in which a head that was named says where it is."""

_VERSION = "1"
_CLUSTER = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_PIN = re.compile(r"[0-9a-f]{64}")


class AnnouncedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """What a head says of its cluster on the local network.

    Attributes:
        name: What its user calls it; several may have the same name.
        cluster: Its id, which no other has.
        pin: Of its authority, 64 hexadecimal digits.
        addresses: Where it is reached, ``host:port`` each.
    """

    name: str
    cluster: str
    pin: str
    addresses: list[str] = msgspec.field(name="places")


class Announcement:
    """Announces a cluster until it is closed.

    Args:
        cluster: The cluster; which of its addresses is on this machine only is left out.
        addresses: The addresses of this machine through which it is announced; by default those
            of its addresses.

    Raises:
        ConfigurationError: It is on this machine only, or the library is missing.
    """

    def __init__(self, cluster: AnnouncedCluster, addresses: Sequence[str] = ()) -> None:
        load_library()
        self._cluster = cluster
        self._addresses = list(addresses) or _reachable(cluster.addresses)
        if not self._addresses:
            raise ConfigurationError(
                "there is nothing to announce: the head listens on this machine only",
                where=", ".join(cluster.addresses),
                hint="give --listen 0.0.0.0:7700, or an address that other machines reach",
            )
        self._responder: Zeroconf | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()
        self.error: Exception | None = None
        self.made = threading.Event()
        """Set when the network knows of it."""

    def start(self) -> None:
        """Announce it; that takes about a second, and this does not wait for it."""
        self._thread = new_thread("sapwood-announce", self._work)
        self._thread.start()

    def close(self) -> None:
        """Take it back: the others on the network hear of that at once."""
        with self._lock:
            self._closed = True
            responder, self._responder = self._responder, None
        if responder is not None:
            _close(responder)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            responder = _open(self._addresses)
            with self._lock:
                kept = not self._closed
                if kept:
                    self._responder = responder
            if not kept:
                _close(responder)
                return
            responder.register_service(_service(self._cluster, self._addresses))
            self.made.set()
        except Exception as error:  # noqa: BLE001 - the reader gets it
            if not self._closed:
                self.error = error


def find_clusters(
    seconds: float = FIND_TIME,
    enough: Callable[[AnnouncedCluster], bool] = lambda _one: False,
    addresses: Sequence[str] = (),
) -> list[AnnouncedCluster]:
    """Return the clusters that are announced on the local network.

    Args:
        seconds: How long to wait for answers.
        enough: Says of a cluster whether no others need be waited for.
        addresses: The addresses of this machine whose networks are asked; by default all that
            others can reach.

    Raises:
        ConfigurationError: The library is missing.
        CommunicationError: This machine has no network.
    """
    load_library()
    from zeroconf import ServiceBrowser, ServiceStateChange  # noqa: PLC0415 - it is optional

    names: queue.SimpleQueue[str] = queue.SimpleQueue()
    end = time.monotonic() + seconds

    def changed(name: str, state_change: ServiceStateChange, **_: Any) -> None:
        if state_change is not ServiceStateChange.Removed:
            names.put(name)

    found: dict[str, AnnouncedCluster] = {}
    browser = _open(addresses or _reachable([f"{one}:1" for one in map(_quoted, own_addresses())]))
    asking = ServiceBrowser(browser, SERVICE, handlers=[changed])
    try:
        while (left := end - time.monotonic()) > 0 and len(found) < MAX_CLUSTERS:
            try:
                name = names.get(timeout=left)
            except queue.Empty:
                break
            info = browser.get_service_info(SERVICE, name, round(1000 * min(left, ASK_TIME)))
            one = None if info is None else read_announcement(info)
            if one is not None:
                found[name] = one
                if enough(one):
                    break
    finally:
        asking.cancel()
        _close(browser)
    return sorted(found.values(), key=lambda one: (one.name, one.cluster))


def read_announcement(info: ServiceInfo) -> AnnouncedCluster | None:
    """Return what an announcement says; None if it is not one that a head makes."""
    said = {
        key.decode(errors="replace"): (value or b"").decode(errors="replace")
        for key, value in info.properties.items()
    }
    name, cluster, pin = said.get("name", ""), said.get("cluster", ""), said.get("pin", "")
    port = info.port or 0
    if (
        said.get("v") != _VERSION
        or not _NAME.fullmatch(name)
        or not _CLUSTER.fullmatch(cluster)
        or not _PIN.fullmatch(pin)
        or not 0 < port < 1 << 16
    ):
        return None
    hosts = info.parsed_scoped_addresses()[:MAX_ADDRESSES]
    addresses = [f"{_quoted(host)}:{port}" for host in hosts]
    return (
        AnnouncedCluster(name=name, cluster=cluster, pin=pin, addresses=addresses)
        if addresses
        else None
    )


def load_library() -> None:
    """See whether the library that speaks multicast DNS is there.

    Raises:
        ConfigurationError: It is not.
    """
    try:
        import zeroconf  # noqa: F401, PLC0415 - it is optional
    except ImportError as error:
        raise ConfigurationError(
            "finding clusters on the local network needs the library zeroconf",
            hint="pip install 'sapwood[lan]'",
        ) from error


def _service(cluster: AnnouncedCluster, addresses: Sequence[str]) -> ServiceInfo:
    from zeroconf import ServiceInfo  # noqa: PLC0415 - it is optional

    return ServiceInfo(
        SERVICE,
        f"{cluster.cluster}.{SERVICE}",
        addresses=[ipaddress.ip_address(one).packed for one in addresses],
        port=int(cluster.addresses[0].rpartition(":")[2]),
        properties={
            "v": _VERSION,
            "name": cluster.name,
            "cluster": cluster.cluster,
            "pin": cluster.pin,
        },
        server=f"{cluster.cluster}.local.",
    )


def _open(addresses: Sequence[str]) -> Zeroconf:
    """Return what speaks multicast DNS through some addresses of this machine.

    Raises:
        CommunicationError: It cannot.
    """
    from zeroconf import IPVersion, Zeroconf  # noqa: PLC0415 - it is optional

    old = [one for one in addresses if ":" not in one]
    if not addresses:
        raise CommunicationError(
            "this machine has no address on a network", hint="see `ip address`"
        )
    try:
        # Networks with IPv6 alone are rare; where there is IPv4, all machines are heard by it.
        if old:
            return Zeroconf(interfaces=old, ip_version=IPVersion.V4Only)
        return Zeroconf(interfaces=list(addresses), ip_version=IPVersion.V6Only)
    except OSError as error:
        raise CommunicationError(
            f"multicast DNS cannot be spoken: {error.strerror or error}",
            where=", ".join(addresses),
        ) from error


def _close(opened: Zeroconf) -> None:
    from zeroconf import Error  # noqa: PLC0415 - it is optional

    with contextlib.suppress(OSError, RuntimeError, Error):
        opened.close()


def _reachable(addresses: Sequence[str]) -> list[str]:
    """Return the addresses that other machines may reach."""
    found: dict[str, None] = {}
    for one in addresses:
        host = one.rpartition(":")[0].strip("[]")
        with contextlib.suppress(OSError):
            for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                text = str(address[0]).partition("%")[0]
                if not ipaddress.ip_address(text).is_loopback:
                    found[text] = None
    return list(found)


def _quoted(host: str) -> str:
    return f"[{host}]" if ":" in host else host
