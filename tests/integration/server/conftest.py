"""A head with its HTTP server: both are real, and the server is a separate process."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sapwood.environment.configuration import load_configuration
from sapwood.head import calls
from sapwood.head.folder import head_folder
from sapwood.head.front import SLOW_CALLS
from sapwood.head.head import Head
from sapwood.head.ledger import EventQuery, LedgerEvent
from sapwood.head.web import HttpListen
from sapwood.security.rights import ALL_RIGHTS
from sapwood.session_server.making import session_options, site_variables

PATIENCE = 60.0


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        threading.Event().wait(0.02)


class WebHead:
    """A head in this process, without nodes, and its HTTP server.

    Attributes:
        head: The head.
        url: Where the server listens without TLS; empty if it does not.
        secure: Where the head's port is.
    """

    def __init__(
        self,
        folder: Path,
        listen: str = "127.0.0.1:0",
        *,
        no_token: bool = False,
        wait: bool = True,
    ) -> None:
        configuration = load_configuration({"nodes.listen": "127.0.0.1:0"}, folder=folder)
        settings = configuration.settings
        self.head = Head(
            "default",
            head_folder("default"),
            session_options(settings, site_variables(settings)),
            settings.nodes,
            None,
            configuration,
            http=HttpListen(address=listen, no_token=no_token),
        )
        self.head.start()
        everybody = threading.Barrier(SLOW_CALLS)  # its threads are there from now on
        for _ in range(SLOW_CALLS):
            self.head.front.pool.submit(everybody.wait, PATIENCE)
        (address,) = self.head.control.addresses
        self.secure = f"https://{address}"
        self.url = ""
        if listen and wait:
            self.listening()

    def listening(self) -> None:
        """Wait until the server listens, and note where."""
        until(lambda: self.head.front.http.listens)
        self.url = f"http://{self.head.front.http.listens[0]}"

    def issue(self, *rights: str, **more: Any) -> str:
        """Return the text of a new credential."""
        wanted = calls.IssueCredential(rights=list(rights), **more)
        return self.head.credentials.issue(wanted, ALL_RIGHTS, [], 1e9).text

    def ticket(self) -> str:
        """Return a ticket, as `sapwood dashboard` gets one."""
        return self.head.front.http.new_ticket(self.issue("connect", "observe", "admin"))[0]

    @contextlib.contextmanager
    def client(
        self, *rights: str, secure: bool = False, subject: str = "", **more: Any
    ) -> Iterator[httpx.Client]:
        """A client with a credential of these rights; without any, it shows none."""
        shown = self.issue(*rights, subject=subject) if rights else ""
        headers = {"authorization": f"Bearer {shown}"} if rights else {}
        verify: ssl.SSLContext | bool = False
        if secure:
            verify = ssl.create_default_context(
                cadata=self.head.control.authority.certificate.decode()
            )
        url = self.secure if secure else self.url
        with httpx.Client(
            base_url=url, headers=headers, verify=verify, timeout=PATIENCE, trust_env=False, **more
        ) as made:
            yield made

    def events(self, kind: str) -> list[LedgerEvent]:
        return self.head.ledger.find(EventQuery(kinds=[kind]))

    def close(self) -> None:
        self.head.close()


@contextlib.contextmanager
def web_head(
    folder: Path, listen: str = "127.0.0.1:0", *, no_token: bool = False, wait: bool = True
) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        made = WebHead(folder, listen, no_token=no_token, wait=wait)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def web(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebHead]:
    del nothing_is_left_behind_by_all  # it looks when the head has ended
    with web_head(tmp_path_factory.mktemp("web")) as made:
        yield made
