"""Replay: a place learns of messages that the C library exchanged for it, from their bytes.

A shortcut (``sapwood.fastpath``) exchanges frames in the place's stead and keeps a journal.
Afterwards the same bytes go through the place as if they came now; what the place then wants to
send must be, byte for byte, what was sent. So there is one protocol and one description of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from sapwood.comm.framing import Buffers
from sapwood.core.errors import SapwoodError


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A message that was sent, as a whole or in part.

    Attributes:
        data: All of it.
        done: How many bytes of it the connection took.
    """

    data: bytes
    done: int


class Expectation:
    """What will be written again, in order, and is not to be sent again.

    Args:
        sent: The sent messages.
        write: Sends what was not.
    """

    __slots__ = ("_sent", "_write")

    def __init__(self, sent: Iterable[Sent], write: Callable[[Buffers], None]) -> None:
        self._sent = deque(sent)
        self._write = write

    def write(self, buffers: Buffers) -> None:
        """Compare what is written with what was; send what was not sent.

        Raises:
            SapwoodError: It is in the middle of another message.
        """
        sent, data = self._sent, b"".join(buffers)
        if sent and sent[0].data == data:
            done = sent.popleft().done
            if done < len(data):
                self._write([data[done:]])
        elif sent and sent[0].done < len(sent[0].data):
            raise SapwoodError("a message was sent by a shortcut that should have been another")
        else:
            self._write(buffers)

    def check(self) -> None:
        """Check that all that was sent was written again.

        Raises:
            SapwoodError: It was not.
        """
        if self._sent:
            count = len(self._sent)
            raise SapwoodError(
                f"{count} messages were sent by a shortcut that should not have been"
            )
