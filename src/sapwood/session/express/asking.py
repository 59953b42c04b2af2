"""Requests that the thread which waits for their answers sends and takes in by itself.

As with waves (``express.py``): while the event loop sleeps, the library has the connection on the
way to an agent that was asked last, and whoever asks it again sends the request at once. The
answer is taken by who waits for it, and by the event loop if nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

from sapwood.comm import frames, messages
from sapwood.comm.letters import events as le
from sapwood.comm.letters.active import ACTIVE, MAX_REQUESTS, REPLY, REQUEST, Active
from sapwood.comm.letters.exchange import Outlook
from sapwood.comm.letters.ordering import EPOCH_SHIFT
from sapwood.comm.letters.parcel import Parcel
from sapwood.comm.lines import Line
from sapwood.comm.messages.letters import Letter
from sapwood.comm.payload import Payload
from sapwood.comm.place import Place
from sapwood.core.errors import SapwoodError
from sapwood.core.topology import ROOT
from sapwood.session.express.armed import FLOWING, PATIENCE, Armed, lines_to
from sapwood.session.express.library import READY, ExpressLibrary, milliseconds
from sapwood.session.question import Question
from sapwood.session.shared_reactor import SharedReactor

_NOTHING = Letter(ROOT, ROOT, ACTIVE, 0, 0, 0, 0, 0, 0)
_BEHIND_EPOCH = -len(messages.encode(_NOTHING)) + 6
"""Where a letter goes on behind its epoch, from its end: one that is empty from there on."""


class ArmedRequests(Armed):
    """Requests to one agent may be exchanged.

    Args:
        lines: The connection on the way to it.
        ticket: What the library knows this by.
        rank: The agent.
        outlook: What is written next between here and there.
        asking: Who asks.
    """

    __slots__ = ("asking", "head", "outlook", "rank")

    def __init__(
        self, lines: tuple[Line, ...], ticket: int, rank: int, outlook: Outlook, asking: Asking
    ) -> None:
        super().__init__(lines, ticket)
        self.rank = rank
        self.outlook = outlook
        self.asking = asking
        first = Letter(rank, ROOT, ACTIVE, outlook.epoch_there, 0, 0, 0, 0, 0)
        self.head = messages.encode(first)[:_BEHIND_EPOCH]

    def frame(self, waves: int, question: Question) -> bytes:
        """Return what is sent for a question after so many others."""
        outlook, arrays = self.outlook, question.arrays
        letter = Letter(
            ROOT,
            self.rank,
            ACTIVE,
            outlook.epoch,
            outlook.peer,
            outlook.number + waves,
            0,
            REQUEST,
            question.number,
            question.handler,
            question.body,
        )
        payload = Payload(arrays.payload()) if arrays.nbytes else None
        return b"".join(frames.encode(letter, payload, share=False))

    def answer(self, frame: frames.Frame, waves: int, number: int) -> Letter | None:
        """Return a letter whose beginning was compared, if it is the answer to a request.

        Args:
            frame: Where it is.
            waves: Requests before that one.
            number: Of the request.
        """
        letter = frame.message
        if not isinstance(letter, Letter) or frame.shared is not None:
            return None
        fits = (
            (letter.kind, letter.tag) == (REPLY, number)
            and letter.number == self.outlook.number_there + waves
            and letter.peer in {0, self.outlook.epoch >> EPOCH_SHIFT}
            and not letter.large
        )
        return letter if fits else None

    def passed(self, place: Place, sent: Sequence[bytes]) -> None:
        """Count requests that were answered."""
        parcels: list[Parcel] = []
        for frame in sent:
            (found,) = frames.FrameDecoder().feed(frame)
            letter, payload = found.message, found.payload
            assert isinstance(letter, Letter)  # noqa: S101 - frame() made it
            parcels.append(
                Parcel(
                    REQUEST,
                    letter.tag,
                    label=letter.label,
                    body=letter.body,
                    payload=Payload(payload) if payload is not None else None,
                    handle=letter.tag,
                )
            )
        place.node.letters.exchange.count(monotonic(), ACTIVE, self.rank, parcels)

    def go_on(self, owner: int, frame: bytes) -> None:
        """Ask what somebody else has begun to ask."""
        del frame
        self.asking.go_on(owner)

    def settle(self, place: Place) -> None:
        """Send the agent the receipt that it may wait for."""
        self.asking.forget()
        place.post(le.Acknowledge(ACTIVE, self.rank))


class Asking:
    """Exchanges requests to one agent at a time, and their answers.

    Args:
        loop: The session's event loop.
        inline_limit: Bytes up to which arrays travel in the message.

    Attributes:
        armed: What may be exchanged at present.
        passed: Requests that were exchanged so far, as far as the event loop has heard.
        send: Sends a question on the common way.
        in_a_row: Requests to one agent that somebody waited for, and that went the common way.
    """

    def __init__(self, loop: SharedReactor, inline_limit: int) -> None:
        self.armed: ArmedRequests | None = None
        self.passed = 0
        self._loop = loop
        self._inline_limit = inline_limit
        self.send: Callable[[Question], None] = _nobody
        self._library: ExpressLibrary | None = None
        self._begun: dict[int, Question] = {}
        self._rank = -1
        self.in_a_row = 0
        self._in_vain = 0

    # --- any thread ------------------------------------------------------------------------------

    def begin(self, question: Question) -> bool:
        """Send a question, if that can be now; its future says who takes the answer."""
        armed, library = self.armed, self._library
        if armed is None or library is None or armed.rank != question.rank:
            return False
        if question.arrays.nbytes > self._inline_limit:
            return False
        memory, number = library.memory, question.number
        waves = memory.waves
        # What this thread gave the event loop before comes first.
        if memory.state != READY or self._loop.has_to_do or waves >= armed.outlook.room:
            return False
        if waves >= Active.prompt:  # the agent waits for its receipt before long
            return False
        frame = armed.frame(waves, question)
        self._begun[number] = question
        begun = library.begin(number, armed.ticket, waves, frame, armed.head, certain=False)
        if begun > 0:
            question.future.taken_by(partial(self._take, armed, waves, question))
        elif not begun:
            self._begun.pop(number, None)
        return bool(begun)

    def _take(
        self, armed: ArmedRequests, waves: int, question: Question, timeout: float | None
    ) -> None:
        """Wait for the answer to a question that was begun, unless the event loop has it."""
        library, number = self._library, question.number
        assert library is not None  # noqa: S101 - it was begun
        try:
            came = 0
            while not came:
                came = library.wait(number, milliseconds(timeout))
            if came < 0:
                return
            arrived = library.answer(0)
            if library.memory.owner != number:
                return  # the event loop has it, and this may be what another one is answered
            (found,) = frames.FrameDecoder().feed(arrived)
            letter = armed.answer(found, waves, number)
            if letter is None:
                library.abandon(number)
                return
            # First told, then done: an interrupt in between leaves the rest to the event loop.
            question.answered(letter.body, found.payload, letter.error)()
            library.commit(number)
        except SapwoodError:
            library.abandon(number)  # the event loop says what is wrong with it
        except BaseException:
            library.abandon(number)
            raise

    # --- the event loop --------------------------------------------------------------------------

    def start(self, library: ExpressLibrary) -> None:
        """Exchange requests from now on."""
        self._library = library

    def wanted(self, rank: int) -> None:
        """Note that somebody waits for what an agent answers to a request of the common way."""
        if rank == self._rank:
            self.in_a_row += 1
        else:
            self._rank, self.in_a_row, self._in_vain = rank, 1, 0

    def arm(self, place: Place) -> ArmedRequests | None:
        """Tell the library how things stand; None where requests are to go the common way."""
        rank, library, node = self._rank, self._library, place.node
        if self.in_a_row < FLOWING or library is None or len(node.requests) >= MAX_REQUESTS:
            return None
        outlook = node.letters.exchange.outlook(ACTIVE, rank)
        if outlook is None:
            return None
        lines, descriptors = lines_to(place, [node.router.next_hop(rank)])
        if not lines:
            return None
        channel = lines[0].channel
        budget = channel.credit_at - channel.unpaid
        ticket = library.arm(descriptors, channel.room, budget)
        self.armed = ArmedRequests(lines, ticket, rank, outlook, self)
        return self.armed

    def taken_back(self, waves: int) -> None:
        """Note how many requests were exchanged while that was possible."""
        self.armed = None
        self.passed += waves
        self._in_vain = 0 if waves else self._in_vain + 1
        if self._in_vain > PATIENCE:
            self._rank, self.in_a_row = -1, 0

    def go_on(self, number: int) -> None:
        """Send a question that was begun; what is sent must be what was."""
        self.send(self._begun[number])

    def forget(self) -> None:
        """Drop what was begun: it is answered, or the event loop has it."""
        self._begun.clear()


def _nobody(_question: Question) -> None:
    pass
