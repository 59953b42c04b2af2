"""The agent's side of what user code asks while its job runs.

A runner that calls :func:`sapwood.here` sends :data:`asks.WANTED` and gets a socket; each
question that comes over it becomes a :class:`Visit` for the handler of its name. An answer may
take as long as it likes. When the runner ends, what it had asked is taken back.
"""

import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from sapwood.code.runner import asks
from sapwood.code.runner.calls import INLINE, MAX_DATAGRAM, Bulk
from sapwood.comm import plain
from sapwood.comm.loop import Loop
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import AdoptedBlock, SharedBlock, private_view
from sapwood.core import typed
from sapwood.core.errors import ProtocolError, SapwoodError

_number = typed.unpacker(int)


class Visit:
    """A question of the runner, to be answered once.

    What is asked may be anything, as user code can write to the socket: handlers read it as what
    it must be, and what they raise when it is not, ``msgspec.DecodeError``, ends the runner.

    Attributes:
        body: Encoded value.
        payload: Its arrays; its owner, if it has one, is to be closed by whoever is done with it.
        on_cancel: Called when nobody wants the answer any more; says whether that was in time.
    """

    __slots__ = ("_door", "_number", "body", "on_cancel", "payload")

    def __init__(self, door: "Door", number: int, body: bytes, payload: Payload | None) -> None:
        self._door = door
        self._number = number
        self.body = body
        self.payload = payload
        self.on_cancel: Callable[[], bool] = _too_late

    def answer(self, body: bytes, payload: Payload | None = None) -> None:
        """Answer with an encoded value; the door closes the payload's owner in time."""
        self._door.answer(self._number, body, payload)

    def fail(self, error: SapwoodError) -> None:
        """Answer with an error."""
        self._door.fail(self._number, error)

    def progress(self, arrived: int, total: int) -> None:
        """Say how many bytes of a large answer are here."""
        self._door.say(asks.Answer(self._number, arrived=arrived, total=total))


class Door:
    """The questions of one runner process.

    Args:
        loop: Event loop of the agent.
        welcome: What the runner is told first.
        handlers: Whom each question is for, by name.
    """

    def __init__(
        self, loop: Loop, welcome: asks.Welcome, handlers: dict[str, Callable[[Visit], None]]
    ) -> None:
        self._loop = loop
        self._welcome = welcome
        self._handlers = handlers
        self._socket: socket.socket | None = None
        self._open: dict[int, Visit] = {}
        self._on_foreign: Callable[[], None] = _ignored
        self._unsent: deque[bytes] = deque()
        self._untaken: dict[int, list[SharedBlock | AdoptedBlock]] = {}

    def open(self, control: socket.socket, on_foreign: Callable[[], None]) -> None:
        """Give the runner its end, over the connection for its jobs.

        Args:
            control: That connection.
            on_foreign: Called when something comes that is no question.
        """
        self.close()
        self._on_foreign = on_foreign
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.suppress(OSError):  # a runner that has ended is noticed elsewhere
            socket.send_fds(control, [asks.encode(self._welcome)], [theirs.fileno()])
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
        visits, self._open = self._open, {}
        for visit in visits.values():
            visit.on_cancel()
        untaken, self._untaken = self._untaken, {}
        for block in itertools.chain.from_iterable(untaken.values()):
            block.close()

    def answer(self, number: int, body: bytes, payload: Payload | None) -> None:
        """Answer a question."""
        if self._open.pop(number, None) is None:
            close_owner(payload)
            return
        held: list[SharedBlock | AdoptedBlock] = []
        try:
            answer = asks.Answer(number, _spilled(body, held), _lent(payload, held))
        except SapwoodError as error:
            answer = asks.Answer(number, error=error.to_record())
        if held:
            self._untaken[number] = held
        self.say(answer)

    def fail(self, number: int, error: SapwoodError) -> None:
        """Answer a question with an error."""
        if self._open.pop(number, None) is not None:
            self.say(asks.Answer(number, error=error.to_record()))

    def say(self, answer: asks.Answer) -> None:
        """Send to the runner; what it does not read yet waits."""
        if self._socket is None:
            return
        data = asks.encode(answer)
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
            self._asked(asks.decode_ask(data))
        except msgspec.DecodeError:  # user code wrote to a descriptor that is not its own
            self.close()
            self._on_foreign()

    def _asked(self, ask: asks.Ask) -> None:
        if not ask.name:
            for block in self._untaken.pop(ask.number, ()):
                block.close()
            return
        try:
            visit = Visit(self, ask.number, _bytes(ask.body), _adopted(ask.payload))
            self._open[ask.number] = visit
            if ask.name == asks.CANCEL:
                self._cancel(visit)
                return
            handler = self._handlers.get(ask.name)
            if handler is None:
                raise ProtocolError(f"agents know no question '{ask.name}'")
            handler(visit)
        except SapwoodError as error:
            self._open.pop(ask.number, None)
            self.say(asks.Answer(ask.number, error=error.to_record()))

    def _cancel(self, visit: Visit) -> None:
        number = _number(visit.body)
        other = self._open.get(number)
        cancelled = other is not None and other.on_cancel()
        if cancelled:
            self._open.pop(number)
        visit.answer(plain.encode(cancelled))


def _spilled(data: bytes | memoryview, held: list[SharedBlock | AdoptedBlock]) -> Bulk:
    """Return where the runner finds bytes; note what must be kept until it has them."""
    if len(data) <= INLINE:
        return Bulk(bytes(data))
    block = SharedBlock(len(data), [(0, data)])
    held.append(block)
    return Bulk(shared=block.ref(0, len(data)))


def _lent(payload: Payload | None, held: list[SharedBlock | AdoptedBlock]) -> Bulk:
    if payload is None:
        return Bulk()
    if payload.ref is None:
        return _spilled(payload.view, held)
    if payload.owner is not None:
        held.append(payload.owner)
    return Bulk(shared=payload.ref)


def close_owner(payload: Payload | None) -> None:
    """Close what holds the memory of a payload, if anything does."""
    if payload is not None and payload.owner is not None:
        payload.owner.close()
        payload.owner = None


def _bytes(bulk: Bulk) -> bytes:
    return bulk.inline if bulk.shared is None else bytes(private_view(bulk.shared))


def _adopted(bulk: Bulk) -> Payload | None:
    if bulk.shared is None:
        return Payload(bulk.inline) if bulk.inline else None
    return Payload.adopted(bulk.shared)


def _ignored() -> None:
    """Do nothing: the door was never open."""


def _too_late() -> bool:
    return False
