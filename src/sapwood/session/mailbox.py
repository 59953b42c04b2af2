"""The client's tagged messages: what its threads send and wait for."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.driver import FailureHandlers
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.envelope import check_tag, to_ranks
from sapwood.comm.messaging.point_to_point import TAGGED
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedBlock, private_view
from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.failures import as_error
from sapwood.core.request import Message, Request
from sapwood.session.back_pressure import LARGEST, check_size
from sapwood.session.loop_thread import LoopThread

MAX_SENDS = 1024
"""Messages that may be on their way at a time; more wait, and with them their sender."""


class PendingSend:
    """A message to one place or several."""

    __slots__ = ("block", "error", "missing", "request")

    def __init__(self, request: Request, destinations: tuple[int, ...]) -> None:
        self.request = request
        self.missing = set(destinations)
        self.block: SharedBlock | None = None
        self.error: SapwoodError | None = None


class Mailbox:
    """The tagged messages of a client; its methods may be called from any thread.

    Args:
        thread: The loop's thread.
        post: Gives the client's node an event; to be called on the loop's thread.
        inline_limit: Bytes up to which arrays travel in the message.
        cancel: Takes a receive of that node back; returns whether that was in time.

    Attributes:
        largest: Bytes of the largest message.
    """

    def __init__(
        self,
        thread: LoopThread,
        post: Callable[[ev.Event], None],
        inline_limit: int,
        cancel: Callable[[int], bool],
    ) -> None:
        self.largest = LARGEST
        self._thread = thread
        self._post = post
        self._inline_limit = inline_limit
        self._cancel_receive = cancel
        self._sends: dict[int, PendingSend] = {}
        self._receives: dict[int, Request] = {}
        self._room = threading.BoundedSemaphore(MAX_SENDS)
        self._lock = threading.Lock()
        self._next = 1
        self._closed: SapwoodError | None = None

    def handlers(self) -> Mapping[type[ev.Effect], Callable[[Any], None]]:
        """Return what to do with effects."""
        return {
            mev.TaggedArrived: self._arrived,
            mev.ReceiveFailed: self._failed,
            mev.SendEnded: self._ended,
            mev.Progressed: self._progressed,
        }

    def failure_handlers(self) -> FailureHandlers:
        """Return what fails when an effect that concerns a message cannot be performed."""
        return {
            mev.TaggedArrived: self._receive_failed,
            mev.ReceiveFailed: self._receive_failed,
            mev.SendEnded: self._send_failed,
        }

    def send(self, destination: int | Iterable[int], value: Any, tag: int) -> Request:
        """Send a message; where too many are on their way, wait for room first.

        Raises:
            DataValueError: The value cannot travel.
            ConfigurationError: The destination or the tag is none.
            ClosedError: The cluster is closed.
        """
        destinations = to_ranks(destination)
        check_tag(tag)
        encoded = values.encode(value).owned()
        check_size(encoded.nbytes, self.largest)
        number = self.new_number()
        request = Request(lambda _: self._withdraw(number, destinations))
        sending = PendingSend(request, destinations)
        if self._thread.is_current:
            if not self._room.acquire(blocking=False):
                raise SapwoodError(
                    "too many messages are on their way", hint="wait for some of them first"
                )
        else:
            self._room.acquire()
        try:
            self._thread.post(self._send, number, sending, tag, encoded)
        except ClosedError:
            self._room.release()
            raise
        return request

    def receive(self, source: int, tag: int) -> Request:
        """Wait for a message; the request's result is the message.

        Raises:
            ClosedError: The cluster is closed.
        """
        number = self.new_number()
        request = Request(lambda _: self._cancel(number))
        self._thread.post(self._receive, number, request, source, tag)
        return request

    def abandon(self, reason: SapwoodError) -> None:
        """End what is open, and all that comes, with an error; on the loop's thread."""
        self._closed = reason
        sends, self._sends = self._sends, {}
        for sending in sends.values():
            self._finish(sending, reason)
        receives, self._receives = self._receives, {}
        for request in receives.values():
            if request.set_running_or_notify_cancel():
                request.set_exception(reason)

    # --- on the loop's thread ------------------------------------------------------------------

    def _send(self, number: int, sending: PendingSend, tag: int, encoded: values.Encoded) -> None:
        try:
            if self._closed is not None:
                raise ClosedError(self._closed.what)
            payload = self._place(sending, encoded)
            self._sends[number] = sending
            destinations = tuple(sorted(sending.missing))
            self._post(mev.SendTagged(number, destinations, tag, encoded.body, payload))
        except Exception as exception:  # noqa: BLE001 - it is about this message only
            self._sends.pop(number, None)
            self._finish(sending, as_error(exception, "sending a message"))

    def _place(self, sending: PendingSend, encoded: values.Encoded) -> Payload | None:
        """Put arrays where the receiver can have them for itself: it is not used again."""
        if encoded.nbytes <= self._inline_limit:
            return Payload(bytes(encoded.payload())) if encoded.nbytes else None
        block = sending.block = SharedBlock(encoded.nbytes, encoded.parts())
        return Payload(block.view[: encoded.nbytes], block.ref(0, encoded.nbytes))

    def _receive(self, number: int, request: Request, source: int, tag: int) -> None:
        if self._closed is not None:
            request.set_exception(ClosedError(self._closed.what))
            return
        self._receives[number] = request
        try:
            self._post(mev.PostReceive(number, source, tag))
        except Exception as exception:  # noqa: BLE001 - it is about this request only
            self._receives.pop(number, None)
            request.set_exception(as_error(exception, "waiting for a message"))

    def _arrived(self, effect: mev.TaggedArrived) -> None:
        request = self._receives.pop(effect.number, None)
        if request is None or not request.set_running_or_notify_cancel():
            return
        try:
            value = values.decode(effect.body, _own(effect.payload))
        except Exception as exception:  # noqa: BLE001 - it is about this message only
            request.set_exception(as_error(exception, f"a message of rank {effect.source}"))
            return
        request.set_result(Message(value, effect.source, effect.tag))

    def _failed(self, effect: mev.ReceiveFailed) -> None:
        request = self._receives.pop(effect.number, None)
        if request is not None and request.set_running_or_notify_cancel():
            request.set_exception(SapwoodError.from_record(effect.error))

    def _receive_failed(
        self, effect: mev.TaggedArrived | mev.ReceiveFailed, error: SapwoodError
    ) -> None:
        request = self._receives.pop(effect.number, None)
        if request is not None and request.set_running_or_notify_cancel():
            request.set_exception(error)

    def _send_failed(self, effect: mev.SendEnded, error: SapwoodError) -> None:
        sending = self._sends.pop(effect.number, None)
        if sending is not None:
            self._finish(sending, error)

    def _ended(self, effect: mev.SendEnded) -> None:
        sending = self._sends.get(effect.number)
        if sending is None:
            return
        sending.missing.discard(effect.destination)
        if effect.error is not None:
            sending.error = SapwoodError.from_record(effect.error)
        if not sending.missing:
            del self._sends[effect.number]
            self._finish(sending, sending.error)

    def _finish(self, sending: PendingSend, error: SapwoodError | None) -> None:
        if sending.block is not None:
            sending.block.close()
        self._room.release()
        if not sending.request.set_running_or_notify_cancel():
            return
        if error is not None:
            sending.request.set_exception(error)
        else:
            sending.request.set_result(None)

    def _progressed(self, effect: mev.Progressed) -> None:
        if effect.channel != TAGGED:
            return
        if effect.outgoing:
            sending = self._sends.get(effect.number)
            request = sending.request if sending is not None else None
        else:
            request = self._receives.get(effect.number)
        if request is not None:
            request.moved(effect.done, effect.total)

    # --- taking back -----------------------------------------------------------------------------

    def _cancel(self, number: int) -> bool:
        if not self._cancel_receive(number):
            return False
        self._receives.pop(number, None)
        return True

    def _withdraw(self, number: int, destinations: tuple[int, ...]) -> bool:
        """Take a message back; its request ends with CancelledError where that was in time."""
        for destination in destinations:
            self._thread.post(self._post, mev.CancelSend(number, destination))
        return False

    def new_number(self) -> int:
        """Return a number that no other message has."""
        with self._lock:
            number = self._next
            self._next += 1
        return number


def _own(payload: Payload | None) -> bytearray | memoryview:
    """Return the bytes of a payload as the receiver's own; large ones are not copied."""
    if payload is None:
        return bytearray()
    return private_view(payload.ref) if payload.ref is not None else bytearray(payload.view)
