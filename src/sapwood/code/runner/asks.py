"""What a runner and its agent say to each other while a job runs, one message a datagram.

The runner asks, the agent answers, in any order. All of it goes over a socket of its own, which
a runner gets when it first wants one; the protocol of jobs (``calls.py``) does not notice.
"""

from collections.abc import Callable

import msgspec

from sapwood.code.runner.calls import Bulk
from sapwood.core import typed
from sapwood.core.errors import ErrorRecord

WANTED = b"here"
"""What a runner sends its agent to get the socket; the answer is :class:`Welcome` with it."""

NOBODY = b"nobody"
"""The answer, without a socket, of a place that answers no questions: filters run there."""

CANCEL = "cancel"
"""Name of the question that takes another one back; its value is that one's number."""

SEND, RECEIVE = "message.send", "message.receive"
"""Names of the questions that send and receive tagged messages."""

MAX_OPEN = 4096
"""Questions of one runner that wait for an answer at a time."""


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """Comes with the socket.

    Attributes:
        rank: The agent's place in the tree.
        agents: How many agents there are.
    """

    rank: int
    agents: int


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """A question; where the name is empty, its number names an answer that was taken.

    Attributes:
        number: Counts the questions.
        name: Whom at the agent it is for.
        body: Encoded value.
        payload: Its arrays.
    """

    number: int
    name: str
    body: Bulk = Bulk()
    payload: Bulk = Bulk()


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """An answer, an error, or, where ``total`` is set, how far a large one has come."""

    number: int
    body: Bulk = Bulk()
    payload: Bulk = Bulk()
    error: ErrorRecord | None = None
    arrived: int = 0
    total: int = 0


encode = msgspec.msgpack.Encoder().encode
decode_welcome: Callable[[bytes], Welcome] = typed.unpacker(Welcome)
decode_ask: Callable[[bytes], Ask] = typed.unpacker(Ask)
decode_answer: Callable[[bytes], Answer] = typed.unpacker(Answer)
