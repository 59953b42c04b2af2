"""The links of clients to nodes: their certificates, and connections that the head hands over."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sapwood.environment.folders import SOCKET_FOLDER
from sapwood.head.protocol.call import HeadPart, Reach, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.session_records import ClientCertificate
from sapwood.head.web import send_socket
from sapwood.security.rights import ALLOCATE, CONNECT

if TYPE_CHECKING:
    from sapwood.head.authorizer import Authorizer
    from sapwood.nodes.control import ControlTree


class Links(HeadPart):
    """The links of clients to nodes.

    Args:
        control: The tree of nodes, whose port hands connections over.
        authorizer: It knows how long a credential is valid.
        generation: Counts the heads of the cluster.
    """

    def __init__(self, control: ControlTree, authorizer: Authorizer, generation: int) -> None:
        self._control = control
        self._authorizer = authorizer
        self._generation = generation  # processes that a former head certified may still run
        self._numbers = itertools.count(1)
        self._delegated: dict[tuple[str, bool], tuple[int, Callable[[], None]]] = {}

    @call("certify", right=ALLOCATE)
    def certify(self, caller: ServiceCaller, request: bytes) -> ClientCertificate:
        """Certify a client, so that nodes accept its links.

        Args:
            caller: The certificate ends with its credential.
            request: Its request, PEM.
        """
        name = f"f{self._generation}-{caller.number}-{next(self._numbers)}"
        left = self._authorizer.seconds_left(caller.granted)
        made = self._control.issuer.certify(request, name, left)
        return ClientCertificate(made.node, made.certificate, made.authority)

    @call("delegate", right=ALLOCATE, reach=Reach.HEAD)
    def delegate(
        self, caller: ServiceCaller, tree: str, path: str, *, session: bool = False
    ) -> None:
        """Hand the connections of a tree, or of a session's clients, over to the caller.

        Args:
            caller: The caller; it may come again, with another path.
            tree: The tree, or the id of the session.
            path: The socket at which the caller takes connections.
            session: Whether it is a session.
        """
        key = (tree, session)
        self._end(key, caller.number)
        end = self._control.delegate(tree, partial(send_socket, path), session=session)
        forget = caller.when_gone(partial(self._abandon, key, Path(path), caller.number))

        def stop() -> None:
            forget()
            end()

        self._delegated[key] = (caller.number, stop)

    @call("undelegate", right=CONNECT, reach=Reach.CALLER)
    def undelegate(self, caller: ServiceCaller, tree: str) -> None:
        """Hand no more connections over to the caller.

        Args:
            caller: The caller.
            tree: The tree, or the id of the session.
        """
        for session in (False, True):
            self._end((tree, session), caller.number)

    def _abandon(self, key: tuple[str, bool], left: Path, caller: int) -> None:
        """A client is gone; one that was killed has left its socket, and the folder of that."""
        self._end(key, caller)
        if left.parent.name.startswith(SOCKET_FOLDER):
            with contextlib.suppress(OSError):
                if left.is_socket():
                    left.unlink()
                left.parent.rmdir()  # if nothing else is in it

    def _end(self, key: tuple[str, bool], caller: int) -> None:
        owner, end = self._delegated.get(key, (0, None))
        if owner == caller and end is not None:
            del self._delegated[key]
            end()
