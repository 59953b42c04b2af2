"""Who may use lizard-slayer's API: whoever shows the token; without one, this user on loopback.

A browser on this machine could be made to send requests by any page that it shows. So requests
that come from another site are refused, and so are names of hosts that are not this machine's.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.core.shown import shown

FEWEST_CHARACTERS: Final = 32
"""Characters of a token: so many hexadecimal digits cannot be guessed."""

MAX_TOKEN_BYTES: Final = 4096

_TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9  # columns of these tables
_NOBODY: Final = "0"  # the inode of a connection that its process has closed

Address = tuple[str, int]


class ApiGate:
    """Decides about requests.

    Args:
        token: What must be shown; empty where connections come from this machine only.
    """

    def __init__(self, token: str = "") -> None:
        self._token = token.encode()

    def check(
        self, headers: Mapping[str, str], client: Address | None, server: Address | None
    ) -> None:
        """Let a request in.

        Args:
            headers: Of the request, by name in small letters.
            client: Where the connection comes from.
            server: Where it came to.

        Raises:
            SecurityError: It may not.
        """
        _check_site(headers)
        if self._token:
            if not hmac.compare_digest(_shown(headers.get("authorization", "")), self._token):
                raise SecurityError(
                    "this server wants its token",
                    hint="send it as `Authorization: Bearer TOKEN`, or as the password of the "
                    "address: https://lizard:TOKEN@HOST:PORT",
                )
            return
        host = _parts(f"//{headers.get('host', '')}").hostname or ""
        if not is_loopback(host):
            raise SecurityError(
                f"{shown(host)} is not this machine", hint="use http://localhost:PORT"
            )
        user = user_of(client, server)
        if user not in {os.getuid(), 0}:
            raise SecurityError(
                "only the user who started this server may use it without a token",
                hint="start it with --token FILE",
            )


def is_loopback(host: str) -> bool:
    """Say whether a name or an address is that of this machine for itself.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.9"), is_loopback("example.org")
        (True, True, False)
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        ConfigurationError: The file cannot be read, others may read it, or it holds no token.
    """
    hint = f"write one: (umask 077; openssl rand -hex 32 > {path})"
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
    except OSError as error:
        raise ConfigurationError(
            f"the token cannot be read: {error.strerror}", where=str(path), hint=hint
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError("this is no token", where=str(path), hint=hint) from error
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            "other users may read the token", where=str(path), hint=f"chmod 600 {path}"
        )
    if len(text) < FEWEST_CHARACTERS or not text.isprintable() or " " in text:
        raise ConfigurationError(
            f"a token has at least {FEWEST_CHARACTERS} characters, and no blanks",
            where=str(path),
            hint=hint,
        )
    return text


def user_of(client: Address | None, server: Address | None) -> int | None:
    """Return whose process is at the other end of a connection over loopback, by the kernel.

    Args:
        client: That end.
        server: This end.

    Returns:
        The number of the user; None if the kernel does not say. It does not of a process that has
        closed that end: the tables show such a connection as one of root.
    """
    if client is None or server is None:
        return None
    wanted = {(_as_kernel(*client), _as_kernel(*server))}
    for name in _TABLES:
        try:
            text = Path(name).read_text("ascii")
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            words = line.split()
            if (words[_LOCAL], words[_REMOTE]) in wanted and words[_INODE] != _NOBODY:
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


def _shown(authorization: str) -> bytes:
    """Return the token that a request shows."""
    kind, _, rest = authorization.partition(" ")
    if kind.lower() == "bearer":
        return rest.strip().encode()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except ValueError:  # binascii.Error is one
            return b""
    return b""


def _check_site(headers: Mapping[str, str]) -> None:
    site = headers.get("sec-fetch-site", "none")
    origin = headers.get("origin", "")
    if site not in {"none", "same-origin"} or (
        origin and _parts(origin).netloc != headers.get("host", "")
    ):
        raise SecurityError("requests from pages of another site are refused")


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")
