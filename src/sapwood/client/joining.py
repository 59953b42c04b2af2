"""``sapwood.join_as_agent``: this process becomes an agent of a session."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def join_as_agent(line: str, *, on_join: Callable[[int, str], None] | None = None) -> str:
    """Let this process be an agent of a session, until it is over.

    The session ends it, or removes it, or it is lost. In the main thread, SIGTERM and SIGINT have
    it leave: what it was asked for is done first; the same signal once more ends it at once.

    Args:
        line: An invitation, as :meth:`Cluster.invite` returns it.
        on_join: Told when the session knows the agent: its rank, and the session's name.

    Returns:
        Why it ended, if the session or this process wanted that.

    Raises:
        SecurityError: The session refuses the invitation, or did not make it.
        CommunicationError: The session cannot be reached, or not any more.
        ResourceError: Runners cannot be started.

    Example:
        ::

            sapwood.join_as_agent(os.environ["SAPWOOD_INVITATION"])
    """
    from sapwood.activity.joined_agent import (  # noqa: PLC0415 - others need no agents here
        JoinedAgentProcess,
    )
    from sapwood.nodes.joining import join_session  # noqa: PLC0415 - nor cryptography
    from sapwood.security.invitations import AgentInvitation  # noqa: PLC0415 - as above

    invitation = AgentInvitation.parse(line)
    process = JoinedAgentProcess(invitation, join_session(invitation))
    if on_join is not None:
        process.when_ready(lambda: on_join(process.rank, process.session))
    with _signals(process.leave):
        return process.run()


@contextmanager
def _signals(leave: Callable[[], None]) -> Iterator[None]:
    """Have the signals that end programs call a function, where they can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: leave()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
