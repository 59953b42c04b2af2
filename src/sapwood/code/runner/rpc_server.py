"""Runner RPC, the agent's side: it serves the requests of user code while a job runs.

A runner that calls :func:`sapwood.here` sends :data:`rpc_messages.WANTED` and gets a socket. Each
request over it becomes an :class:`RpcCall` for the handler of its name. A handler may answer as
late as it likes. When the runner ends, the server cancels its open calls.
"""

import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from sapwood.code.runner import rpc_messages
from sapwood.code.runner.calls import MAX_DATAGRAM, Bulk
from sapwood.comm import plain
from sapwood.comm.loop import Loop
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import AdoptedBlock, SharedBlock
from sapwood.core import typed
from sapwood.core.errors import ProtocolError, SapwoodError

_number = typed.unpacker(int)


class RpcCall:
    """A request of the runner; its handler answers it once.

    A request may contain anything, because user code can write to the socket: handlers decode it as
    the expected type, and their ``msgspec.DecodeError``, if it is another, ends the runner.

    Attributes:
        body: Encoded value.
        payload: Its arrays; its owner, if it has one, is closed by its last user.
        on_cancel: Called when the answer is not wanted any more; returns whether that was in time.
    """

    __slots__ = ("_number", "_server", "body", "on_cancel", "payload")

    def __init__(
        self, server: "RunnerRpcServer", number: int, body: bytes, payload: Payload | None
    ) -> None:
        self._server = server
        self._number = number
        self.body = body
        self.payload = payload
        self.on_cancel: Callable[[], bool] = _too_late

    def answer(self, body: bytes, payload: Payload | None = None) -> None:
        """Answer with an encoded value; the server closes the payload's owner in time."""
        self._server.answer(self._number, body, payload)

    def fail(self, error: SapwoodError) -> None:
        """Answer with an error."""
        self._server.fail(self._number, error)

    def progress(self, arrived: int, total: int) -> None:
        """Say how many bytes of a large answer are here."""
        self._server.say(rpc_messages.RpcResponse(self._number, arrived=arrived, total=total))


class RunnerRpcServer:
    """Serves the requests of one runner process.

    Args:
        loop: Event loop of the agent.
        welcome: The first message to the runner.
        handlers: Handlers of requests, by name.
    """

    def __init__(
        self,
        loop: Loop,
        welcome: rpc_messages.RpcWelcome,
        handlers: dict[str, Callable[[RpcCall], None]],
    ) -> None:
        self._loop = loop
        self._welcome = welcome
        self._handlers = handlers
        self._socket: socket.socket | None = None
        self._open: dict[int, RpcCall] = {}
        self._on_foreign: Callable[[], None] = _ignored
        self._unsent: deque[bytes] = deque()
        self._untaken: dict[int, list[SharedBlock | AdoptedBlock]] = {}

    def open(self, control: socket.socket, on_foreign: Callable[[], None]) -> None:
        """Give the runner its end, over the connection for its jobs.

        Args:
            control: That connection.
            on_foreign: Called when data comes that is not a request.
        """
        self.close()
        self._on_foreign = on_foreign
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.suppress(OSError):  # a runner that has ended is noticed elsewhere
            socket.send_fds(control, [rpc_messages.encode(self._welcome)], [theirs.fileno()])
        ours.settimeout(0)
        self._socket = ours
        self._loop.add_reader(ours.fileno(), self._readable)

    def close(self) -> None:
        """The runner is gone: take back what it asked."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            if self._unsent:
                self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._unsent.clear()
        open_calls, self._open = self._open, {}
        for call in open_calls.values():
            call.on_cancel()
        untaken, self._untaken = self._untaken, {}
        for block in itertools.chain.from_iterable(untaken.values()):
            block.close()

    def answer(self, number: int, body: bytes, payload: Payload | None) -> None:
        """Answer a request."""
        if self._open.pop(number, None) is None:
            close_owner(payload)
            return
        held: list[SharedBlock | AdoptedBlock] = []
        if payload is not None and payload.ref is not None and payload.owner is not None:
            held.append(payload.owner)
        try:
            answer = rpc_messages.RpcResponse(
                number, Bulk.pack(body, held.append), Bulk.pack_payload(payload, held.append)
            )
        except SapwoodError as error:
            answer = rpc_messages.RpcResponse(number, error=error.to_record())
        if held:
            self._untaken[number] = held
        self.say(answer)

    def fail(self, number: int, error: SapwoodError) -> None:
        """Answer a request with an error."""
        if self._open.pop(number, None) is not None:
            self.say(rpc_messages.RpcResponse(number, error=error.to_record()))

    def say(self, answer: rpc_messages.RpcResponse) -> None:
        """Send to the runner; what it does not read yet waits."""
        if self._socket is None:
            return
        data = rpc_messages.encode(answer)
        if not self._unsent:
            try:
                self._socket.send(data)
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._writable)
            except OSError:
                return
            else:
                return
        self._unsent.append(data)

    def _writable(self) -> None:
        assert self._socket is not None  # noqa: S101 - close() stops this
        while self._unsent:
            try:
                self._socket.send(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                break
            self._unsent.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        assert self._socket is not None  # noqa: S101 - close() stops this
        try:
            data = self._socket.recv(MAX_DATAGRAM)
        except (BlockingIOError, ConnectionResetError):
            return
        if not data:
            self.close()
            return
        try:
            self._requested(rpc_messages.decode_request(data))
        except msgspec.DecodeError:  # user code wrote to a descriptor that is not its own
            self.close()
            self._on_foreign()

    def _requested(self, request: rpc_messages.RpcRequest) -> None:
        if not request.name:
            for block in self._untaken.pop(request.number, ()):
                block.close()
            return
        try:
            call = RpcCall(
                self, request.number, bytes(request.body.unpack()), _adopted(request.payload)
            )
            self._open[request.number] = call
            if request.name == rpc_messages.CANCEL:
                self._cancel(call)
                return
            handler = self._handlers.get(request.name)
            if handler is None:
                raise ProtocolError(f"agents know no question '{request.name}'")
            handler(call)
        except SapwoodError as error:
            self._open.pop(request.number, None)
            self.say(rpc_messages.RpcResponse(request.number, error=error.to_record()))

    def _cancel(self, call: RpcCall) -> None:
        number = _number(call.body)
        other = self._open.get(number)
        cancelled = other is not None and other.on_cancel()
        if cancelled:
            self._open.pop(number)
        call.answer(plain.encode(cancelled))


def close_owner(payload: Payload | None) -> None:
    """Close what holds the memory of a payload, if anything does."""
    if payload is not None and payload.owner is not None:
        payload.owner.close()
        payload.owner = None


def _adopted(bulk: Bulk) -> Payload | None:
    if bulk.shared is None:
        return Payload(bulk.inline) if bulk.inline else None
    return Payload.adopted(bulk.shared)


def _ignored() -> None:
    """Do nothing: the server was never open."""


def _too_late() -> bool:
    return False
