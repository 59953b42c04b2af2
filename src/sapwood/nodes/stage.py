"""The component of a node that keeps staged files, and gives them to other nodes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sapwood.content import messages as sm
from sapwood.content.file_trees import FileTree, read_tree
from sapwood.content.refs import CHUNK
from sapwood.content.staged import StageStore
from sapwood.contexts.local_user import is_own_user
from sapwood.core.errors import (
    ClosedError,
    DataMissingError,
    InputError,
    ProtocolError,
    ResourceError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.futures import when_done
from sapwood.core.shown import shown
from sapwood.environment.component import ComponentContext, ComponentEvent
from sapwood.environment.folders import cache_folder, expand_user, home_folder, make_private
from sapwood.environment.lifecycle import State
from sapwood.environment.logs import logger
from sapwood.nodes import messages
from sapwood.nodes.control_link import ControlLink
from sapwood.security.authority import pin_of
from sapwood.session.agent import IncomingRequest

if TYPE_CHECKING:
    from sapwood.content.peers import StageFetch, StageServer
    from sapwood.nodes.port import NodePort

MAX_FOLDERS: Final = 1000
"""Most nodes of one name on one machine that have separate folders."""

_log = logger("stage")


class StageFolder:
    """The folder in which a node keeps staged files; no other daemon has it meanwhile.

    The successor of a killed daemon has the same folder, so it continues with its contents.
    Nodes of other clusters have others, and so have several nodes on one machine.

    Args:
        chosen: What the head's settings say; empty: in the user's cache folder.
        authority: The certificate of the cluster's authority, PEM.
        label: What the node calls itself.

    Attributes:
        path: Where it is.
    """

    def __init__(self, chosen: str, authority: bytes, label: str) -> None:
        folder = expand_user(chosen) if chosen else cache_folder() / "stage"
        name = "".join(one if one.isalnum() or one in "-_" else "_" for one in label) or "node"
        self._descriptor = -1
        for number in range(1, MAX_FOLDERS):
            self.path = folder / f"{name}-{pin_of(authority)[:12]}-{number}"
            try:
                make_private(self.path)
                self._descriptor = os.open(
                    self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another daemon has it
                self.close()
            except OSError:  # staging reports why it fails
                return
            else:
                return

    def close(self) -> None:
        """Release it for another daemon."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class NodeStage:
    """Staged files of this machine.

    A separate thread reads and writes, and answers one request after the other. Content that other
    nodes fetch here, and what this one fetches from others, have threads as well.

    Args:
        link: The link with the head.
        folder: Where the files lie; it is let go of at the end.
        limit: Bytes that they may have; 0: no limit.
        listen: Returns the port at which this node is reached by others, given where it is to be.
    """

    name = "stage"

    def __init__(
        self, link: ControlLink, folder: StageFolder, limit: int, listen: Callable[[str], NodePort]
    ) -> None:
        self._link = link
        self._folder = folder
        self._limit = limit
        self._listen = listen
        self._store = StageStore(folder.path, limit)
        self._worker: ThreadPoolExecutor | None = None
        self._server: StageServer | None = None
        self._end_serving: Callable[[], None] | None = None
        self._fetches: dict[str, StageFetch] = {}
        self._former: list[Callable[[], None]] = []  # wait for what ends
        self.requests: dict[str, Callable[[IncomingRequest], None]] = {
            sm.LOOK: partial(self._later, self._look),
            sm.WRITE: partial(self._later, self._write),
            sm.KEEP: partial(self._later, self._keep),
            sm.LIST: partial(self._later, self._list),
            sm.REMOVE: partial(self._later, self._remove),
            sm.FIND: partial(self._later, self._find),
            sm.READ: partial(self._later, self._read),
            sm.SERVE: self._serve,
            sm.FETCH: self._fetch,
        }

    @property
    def names(self) -> Path:
        """The folder in which staged files are found by their names."""
        return self._store.names

    def held(self) -> int:
        """Return how many bytes are staged."""
        return self._store.held

    # --- as a component ------------------------------------------------------------------------

    def start(self, _context: ComponentContext) -> None:
        """Answer requests; earlier staged files are kept."""
        self._store = StageStore(self._folder.path, self._limit)
        self._worker = ThreadPoolExecutor(1, "sapwood-stage")

    def check(self) -> State:
        """Return READY."""
        return State.READY

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing: each connection asks for the certificate of its time."""

    def stop(self) -> None:
        """Start to end active transfers, without waiting; partial content stays."""
        if self._end_serving is not None:
            self._end_serving()
        self._end_serving = None
        self._store.close()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=False, cancel_futures=True)
            self._former.append(worker.shutdown)
        fetches, self._fetches = list(self._fetches.values()), {}
        for fetch in fetches:
            fetch.cancel()
            self._former.append(fetch.wait_closed)
        if self._server is not None:
            self._server.close()
            self._former.append(self._server.wait_closed)
        self._server = None

    def wait_closed(self) -> None:
        """Wait until all has ended, after :meth:`stop`, and let another daemon have the folder."""
        while self._former:
            self._former.pop()()
        self._folder.close()

    # --- requests of the head, on the worker's thread ------------------------------------------

    def _look(self, value: Any) -> Any:
        tree = messages.from_value(value, FileTree)
        return messages.to_value(sm.MissingContent(self._store.look(tree)))

    def _write(self, value: Any) -> Any:
        for piece in messages.from_value(value, sm.StagePieces).pieces:
            self._store.write(piece)

    def _keep(self, value: Any) -> Any:
        made = self._store.keep(messages.from_value(value, FileTree))
        _log.info("staged", name=made.name, bytes=made.nbytes, files=made.files)
        return messages.to_value(made)

    def _list(self, _value: Any) -> Any:
        return messages.to_value(self._store.facts())

    def _remove(self, value: Any) -> Any:
        return self._store.remove(str(value))

    def _find(self, value: Any) -> Any:
        wanted = messages.from_value(value, sm.FindFiles)
        _refuse_others(wanted.user)
        found = read_tree(_path_of(wanted.path), lambda: self._worker is None)
        return messages.to_value(found)

    def _read(self, value: Any) -> Any:
        wanted = messages.from_value(value, sm.ReadPiece)
        _refuse_others(wanted.user)
        if not 0 <= wanted.nbytes <= CHUNK or wanted.offset < 0:
            raise ProtocolError(
                f"{wanted.nbytes} bytes from {wanted.offset} on are wanted, at most {CHUNK} are "
                "read at a time",
                where=wanted.path,
            )
        inside = [os.fsdecode(one) for one in wanted.inner.split(b"/")[1:]]
        path = _path_of("/".join([wanted.path, *inside]))
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise InputError("this is not a regular file", where=str(path))
                return os.pread(fd, wanted.nbytes, wanted.offset)
            finally:
                os.close(fd)
        except OSError as error:
            raise DataMissingError(
                f"this cannot be read: {error.strerror or error}", where=str(path)
            ) from error

    def _later(self, work: Callable[[Any], Any], request: IncomingRequest) -> None:
        """Have a request answered by the worker."""
        if self._worker is None:
            raise ClosedError("the stage of the node is being stopped")
        value = request.value()

        def done(answer: Future[Any]) -> None:
            with contextlib.suppress(ClosedError):  # the daemon ends
                self._link.loop.call_soon_threadsafe(_give, request, answer)

        when_done(self._worker.submit(work, value), done)

    # --- from node to node ---------------------------------------------------------------------

    def _serve(self, request: IncomingRequest) -> None:
        """Let other nodes fetch content."""
        from sapwood.content.peers import (  # noqa: PLC0415 - not on each node
            STAGE_PROTOCOL,
            StageServer,
        )

        port = self._listen(str(request.value()))
        if self._server is None:
            server = StageServer(self._store, lambda: self._link.credentials)
            self._end_serving = port.hand_over(STAGE_PROTOCOL, server.take)
            self._server = server
        request.reply(list(port.addresses))

    def _fetch(self, request: IncomingRequest) -> None:
        """Fetch content from another node; an earlier fetch of the same content is ended."""
        from sapwood.content.peers import StageFetch  # noqa: PLC0415 - not on each node

        wanted = messages.from_value(request.value(), sm.FetchContent)
        former = self._fetches.pop(wanted.digest, None)
        if former is not None:
            former.cancel()
        loop = self._link.loop

        def ended(nbytes: int, problem: SapwoodError | None) -> None:
            with contextlib.suppress(ClosedError):  # the daemon ends
                loop.call_soon_threadsafe(fetched, nbytes, problem)

        def fetched(nbytes: int, problem: SapwoodError | None) -> None:
            if self._fetches.get(wanted.digest) is fetch:
                del self._fetches[wanted.digest]
            if problem is not None:
                request.fail(problem)
            else:
                request.reply(messages.to_value(sm.ContentFetched(nbytes)))

        sources = [wanted.address, *wanted.others][: sm.MAX_SOURCES]
        fetch = StageFetch(self._store, sources, wanted.parts, self._link.credentials, ended)
        self._fetches[wanted.digest] = fetch


def _give(request: IncomingRequest, answer: Future[Any]) -> None:
    """Answer a request with what the worker made of it."""
    try:
        request.reply(answer.result())
    except CancelledError:
        request.fail(ClosedError("the stage of the node is being stopped"))
    except SapwoodError as error:
        request.fail(error)
    except Exception as error:  # noqa: BLE001 - the node must not end by it
        request.fail(ResourceError(f"the node cannot do this: {shown(error)}"))


def _refuse_others(user: str) -> None:
    """Refuse to read for a user other than the daemon's.

    Raises:
        SecurityError: It is another user.
    """
    if user and not is_own_user(user):
        raise SecurityError(
            f"this node reads files as the user of its daemon, and the credential is for {user}",
            where=f"its daemon runs as user {os.geteuid()}",
            hint=f"a command on the node reads them as {user}: `sapwood exec COMMAND`",
        )


def _path_of(text: str) -> Path:
    """Return a path of this node; it may begin with ``~`` or a variable, or in the home folder."""
    if "\0" in text:
        raise InputError("a path has no null characters", where=shown(text))
    path = expand_user(os.path.expandvars(text))
    if str(path).startswith("~"):
        raise InputError(
            f"this node has no user '{path.parts[0][1:]}'",
            where=text,
            hint="give an absolute path, or one below the home folder",
        )
    return (home_folder() or Path("/")) / path
