"""Requests to a server that speaks lizard-slayer's API."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from sapwood.errors import (
    CommunicationError,
    ConfigurationError,
    ExecutionError,
    InputError,
    NodeLostError,
    SecurityError,
)
from sapwood.plugins.peers import is_loopback
from sapwood_lizard.events import FINAL
from sapwood_lizard.gate import read_token

MAX_ANSWER: Final = 2**30
"""Bytes of an answer."""

ANSWER_TIMEOUT: Final = 60.0
"""Seconds in which a server must answer: it only takes note of what takes long."""

POLL: Final = (0.05, 1.0)
"""Seconds between two looks at an event: at first, and at last."""

TOKEN_VARIABLE: Final = "SAPWOOD_LIZARD_TOKEN"  # noqa: S105 - the name of a variable
"""Names the file with the token of the server, where its address has none."""

CERTIFICATE_VARIABLE: Final = "SAPWOOD_LIZARD_CERTIFICATE"
"""Names the file with the certificate that the server's is signed by."""


class RemoteServer:
    """A server.

    Args:
        url: Its address, for example ``http://localhost:5000``; it may have a user and the token.
        token: The token for the server; by default the one in the address, or the one in the
            file that ``SAPWOOD_LIZARD_TOKEN`` names.
        certificate: The file with the certificate that the server's is signed by; by default what
            ``SAPWOOD_LIZARD_CERTIFICATE`` names, or what the system trusts.

    Raises:
        ConfigurationError: This is not an address, or a file cannot be read.
    """

    def __init__(self, url: str, *, token: str = "", certificate: str = "") -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        if parts.scheme not in {"http", "https"} or not host:
            raise ConfigurationError(
                "not the address of a server", where=url[:200], hint="write http://HOST:PORT"
            )
        file = os.environ.get(TOKEN_VARIABLE, "")
        self._token = token or unquote(parts.password or "")
        if not self._token and file:
            self._token = read_token(Path(file))
        named = f"[{host}]" if ":" in host else host
        place = named if port is None else f"{named}:{port}"
        self.host = host
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.url = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._context = trusting(certificate or os.environ.get(CERTIFICATE_VARIABLE, ""))
        elif self._token and not is_this_machine(host):
            raise SecurityError(
                "a token is not sent without TLS", where=self.url, hint="use https://"
            )

    def ask(self, method: str, path: str, data: Mapping[str, Any] | None = None) -> Any:
        """Send a request; return what the answer's JSON says, or its text.

        Raises:
            NodeLostError: No server answers there.
            InputError: The server refuses this request.
            SecurityError: The server refuses this user, or is another one.
            CommunicationError: The server cannot do it.
        """
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = (
                f"Basic {b64encode(f'lizard:{self._token}'.encode()).decode()}"
            )
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(  # noqa: S310 - http and https only, see above
            f"{self.url}{path}", body, headers, method=method
        )
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.ProxyHandler({}),
            _NoRedirects(),
        ]
        if self._context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._context))
        try:
            with urllib.request.build_opener(*handlers).open(
                request, timeout=ANSWER_TIMEOUT
            ) as got:
                text = got.read(MAX_ANSWER)
                is_json = got.headers.get_content_type() == "application/json"
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error.code, error.read(4096).decode(errors="replace"))
        except ssl.SSLError as error:
            raise self._untrusted(error) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise self._untrusted(error.reason) from error
            raise NodeLostError(
                f"no server answers: {error.reason}",
                where=self.url,
                hint="start one: `sapwood lizard server`",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise NodeLostError(f"the server does not answer: {error}", where=self.url) from error
        try:
            return json.loads(text) if is_json else text.decode(errors="replace")
        except ValueError as error:
            raise CommunicationError("the answer is no JSON", where=self.url) from error

    def wait(self, event_id: str, timeout: float = 0.0, pause: float = 0.0) -> Any:
        """Ask for an event until it is final, or time is over; return it.

        Args:
            event_id: Which.
            timeout: Seconds; 0 for as long as it takes.
            pause: Seconds between two questions; 0 for few at first, and more later.
        """
        began = time.monotonic()
        between = pause or POLL[0]
        while True:
            found = self.ask("GET", f"/events/{event_id}")
            if found["status"] in FINAL:
                return found
            if timeout and time.monotonic() - began > timeout:
                return found
            time.sleep(between)
            if not pause:
                between = min(POLL[1], between * 1.5)

    def do(self, path: str, data: Mapping[str, Any]) -> Any:
        """Have an event done; return it when it has succeeded.

        Raises:
            ExecutionError: It has failed.
        """
        made = self.ask("POST", path, data)
        event = self.wait(made["event_id"])
        if event["status"] != "success":
            result = event["result"] or {}
            raise ExecutionError(str(result.get("error", "it failed")), where=self.url)
        return event

    def _refused(self, status: int, text: str) -> None:
        why = text.partition("\n")[2].strip() or text.strip() or str(status)
        if status in {401, 403}:
            raise SecurityError(
                f"the server refuses this: {why}",
                where=self.url,
                hint=f"give the token: {TOKEN_VARIABLE}=FILE",
            )
        kind = InputError if status < 500 else CommunicationError
        raise kind(f"the server answers {status}: {why}", where=self.url)

    def _untrusted(self, error: Exception) -> SecurityError:
        return SecurityError(
            f"the server's certificate is not trusted: {error}",
            where=self.url,
            hint=f"name the file with its certificate: {CERTIFICATE_VARIABLE}=FILE",
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would be sent to wherever it leads."""

    def redirect_request(self, *_args: object) -> None:
        """Have the answer reported as it is."""


def trusting(certificate: str) -> ssl.SSLContext:
    """Return what a client needs for TLS.

    Args:
        certificate: The file with the certificate that it trusts; empty for the system's.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=certificate or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the certificate cannot be read: {error}", where=certificate
        ) from error


def is_this_machine(host: str) -> bool:
    """Return whether an address of a server is a loopback address of this machine."""
    return host in {"", "0.0.0.0"} or is_loopback(host)  # noqa: S104 - as people write it
