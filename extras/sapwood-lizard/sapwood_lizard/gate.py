"""Access to lizard-slayer's API: for clients with the token; without one, this user on loopback.

A browser on this machine could be made to send requests by any page that it shows. So requests
that come from another site are refused; the server checks the host that they name.
"""

from __future__ import annotations

import base64
import hmac
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from sapwood.errors import ConfigurationError, SecurityError
from sapwood.plugins.peers import Address, user_of

FEWEST_CHARACTERS: Final = 32
"""Characters of a token: so many hexadecimal digits cannot be guessed."""

MAX_TOKEN_BYTES: Final = 4096


class ApiGate:
    """Decides about requests.

    Args:
        token: The required token; empty where connections come from this machine only.
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
        user = user_of(client, server)
        if user not in {os.getuid(), 0}:
            raise SecurityError(
                "only the user who started this server may use it without a token",
                hint="start it with --token FILE",
            )


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
        raise ConfigurationError("not a token", where=str(path), hint=hint) from error
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
