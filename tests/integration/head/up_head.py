"""A head in the process of the tests, to which they show credentials."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.environment.configuration import load_configuration
from sapwood.head import calls
from sapwood.head.folder import head_folder
from sapwood.head.front import SLOW_CALLS
from sapwood.head.head import Head
from sapwood.head.ledger import EventQuery, LedgerEvent
from sapwood.head.protocol import greeting
from sapwood.head_client.access import HeadAccess
from sapwood.nodes import messages
from sapwood.security.capabilities import Capability, HolderKey
from sapwood.security.rights import ALL_RIGHTS
from sapwood.session_server.making import session_options, site_variables

PATIENCE = 30.0


class UpHead:
    """A head in this process, with two nodes, and ways to it."""

    def __init__(self, folder: Path) -> None:
        configuration = load_configuration(
            {"nodes.listen": "127.0.0.1:0", "policy.limits.head_machine": "shared"}, folder=folder
        )
        self.settings = configuration.settings
        self.head = Head(
            "default",
            head_folder("default"),
            session_options(self.settings, site_variables(self.settings)),
            self.settings.nodes,
            LocalLauncher(2, ["n1", "n2"]),
            configuration,
        )
        self.head.start()
        (self.address,) = self.head.control.addresses
        self.url = f"sapwood://{self.address}"

    def warm_up(self) -> None:
        """Have the processes and threads there that begin when they are first needed."""
        everybody = threading.Barrier(SLOW_CALLS)
        for _ in range(SLOW_CALLS):
            self.head.front.pool.submit(everybody.wait, PATIENCE)
        with self.access(None, far=False) as head:
            for host in (1, 2):
                start = messages.StartCommand(command=host, arguments=[b"true"])
                head.ask(host, messages.COMMAND_START, messages.to_value(start)).result(PATIENCE)
            until(lambda: not self.head.commands.are_on(1) and not self.head.commands.are_on(2))

    def issue(self, *rights: str, **more: Any) -> Capability:
        wanted = calls.IssueCredential(rights=list(rights), **more)
        made = self.head.credentials.issue(wanted, ALL_RIGHTS, [], 1e9)
        return Capability.parse(made.text)

    @contextlib.contextmanager
    def access(
        self, credential: Capability | None, key: HolderKey | None = None, *, far: bool = True
    ) -> Iterator[HeadAccess]:
        made = HeadAccess(self.url if far else "default", credential, key, "127.0.0.1:0")
        try:
            yield made
        finally:
            made.close()

    def events(self, kind: str) -> list[LedgerEvent]:
        return self.head.ledger.find(EventQuery(kinds=[kind]))

    def raw(self, certificate: Path | None = None) -> ssl.SSLSocket:
        """A connection on which nothing was said yet, with a certificate or without."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        tls.set_alpn_protocols([greeting.SERVICE_PROTOCOL])
        if certificate is not None:
            tls.load_cert_chain(certificate)
        host, _, port = self.address.rpartition(":")
        made = tls.wrap_socket(socket.create_connection((host, int(port)), PATIENCE))
        made.settimeout(PATIENCE)
        return made


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        threading.Event().wait(0.01)
