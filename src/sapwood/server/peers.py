"""Find out which address, and on this machine which system user, has the other end."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Final

Address = tuple[str, int]

_TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9  # columns of these tables
_CLOSED: Final = "0"  # the inode of a connection that its process has closed


def is_loopback(host: str) -> bool:
    """Return whether a name or an address belongs to the loopback interface.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.9"), is_loopback("example.org")
        (True, True, False)
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(unmapped(host)).is_loopback
    except ValueError:
        return False


def unmapped(host: str) -> str:
    """Return an address as IPv4 where it is one that a socket of IPv6 shows.

    Example:
        >>> unmapped("::ffff:127.0.0.1"), unmapped("::1"), unmapped("n1")
        ('127.0.0.1', '::1', 'n1')
    """
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def user_of(client: Address | None, server: Address | None) -> int | None:
    """Return the user whose process is at the other end of a connection within this machine.

    The kernel's table of connections has the answer.

    Args:
        client: The address of that end.
        server: The address of this end.

    Returns:
        The number of the user; None if the table does not have it. That is so for a process that
        has closed its end: the table shows such a connection as one of root.
    """
    if client is None or server is None:
        return None
    ends = client, server
    plain = tuple((unmapped(host), port) for host, port in ends)
    wanted = {tuple(_as_kernel(*end) for end in some) for some in (ends, plain)}
    for name in _TABLES:
        try:
            text = Path(name).read_text("ascii")
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            words = line.split()
            if (words[_LOCAL], words[_REMOTE]) in wanted and words[_INODE] != _CLOSED:
                return int(words[_USER])
    return None


def _as_kernel(host: str, port: int) -> str:
    """Return an address as the tables have it: words of four bytes in the machine's order.

    Example:
        >>> _as_kernel("127.0.0.1", 5000)
        '0100007F:1388'
    """
    packed = ipaddress.ip_address(host).packed
    words = (packed[first : first + 4][::-1].hex() for first in range(0, len(packed), 4))
    return f"{''.join(words)}:{port:04x}".upper()
