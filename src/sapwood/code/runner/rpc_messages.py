"""Runner RPC: the messages of user code in a runner to its agent and back, one a datagram.

While a job runs, the runner (``rpc_client.py``) sends requests, and the agent (``rpc_server.py``)
answers them in any order. They have a separate socket, which a runner gets when it first wants
one; the protocol of jobs (``calls.py``) does not notice.
"""

from collections.abc import Callable

import msgspec

from sapwood.code.runner.calls import Bulk
from sapwood.core import typed
from sapwood.core.errors import ErrorRecord
from sapwood.core.rankset import Ranges

WANTED = b"here"
"""What a runner sends its agent to get the socket; the answer is :class:`RpcWelcome` with it."""

NOBODY = b"nobody"
"""The answer, without a socket, of a place that serves no requests: filters run there."""

CANCEL = "cancel"
"""Name of the request that cancels another one; its value is that one's number."""

SEND, RECEIVE = "message.send", "message.receive"
"""Names of the requests that send and receive tagged messages."""

MAX_OPEN = 4096
"""Requests of one runner that may be open at a time."""


class RpcWelcome(msgspec.Struct, frozen=True, array_like=True):
    """Comes with the socket.

    Attributes:
        rank: The agent's place in the tree.
        agents: The agents that there were when this one began.
    """

    rank: int
    agents: Ranges


class RpcRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request; where the name is empty, its number names a response that was taken.

    Attributes:
        number: Counts the requests.
        name: The handler at the agent.
        body: Encoded value.
        payload: Its arrays.
    """

    number: int
    name: str
    body: Bulk = Bulk()
    payload: Bulk = Bulk()


class RpcResponse(msgspec.Struct, frozen=True, array_like=True):
    """A result, an error, or, where ``total`` is set, how far a large result has come."""

    number: int
    body: Bulk = Bulk()
    payload: Bulk = Bulk()
    error: ErrorRecord | None = None
    arrived: int = 0
    total: int = 0


encode = msgspec.msgpack.Encoder().encode
decode_welcome: Callable[[bytes], RpcWelcome] = typed.unpacker(RpcWelcome)
decode_request: Callable[[bytes], RpcRequest] = typed.unpacker(RpcRequest)
decode_response: Callable[[bytes], RpcResponse] = typed.unpacker(RpcResponse)
