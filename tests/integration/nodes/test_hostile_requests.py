"""Bodies of requests between a head and its nodes that no handler expects."""

from __future__ import annotations

from concurrent.futures import wait

from sapwood.comm import values
from sapwood.content import messages as stage_messages
from sapwood.core.errors import SapwoodError
from sapwood.nodes import messages
from sapwood_simulation.hostile import HostilePeer
from sapwood_simulation.hostile_requests import answers_of_root

from .conftest import PATIENCE, OnNodes, control_of, daemons
from .test_losses import works

BODIES = 60
FROM_HEAD = (
    "ping",
    "nonsense",
    messages.OPEN,
    messages.RESUME,
    messages.CONFIGURE,
    messages.SPAWN,
    messages.DETOUR,
    messages.LISTEN,
    messages.KILL,
    messages.STATUS,
    messages.LOGS,
    messages.CLOSE,
    messages.COMPONENT,
    messages.CLUSTER_READY,
    messages.HEADS,
    messages.DENY,
    messages.COMMAND_START,
    messages.COMMAND_INPUT,
    messages.COMMAND_SIGNAL,
    messages.COMMAND_CANCEL,
    stage_messages.LOOK,
    stage_messages.WRITE,
    stage_messages.FETCH,
    stage_messages.KEEP,
    stage_messages.SERVE,
    stage_messages.LIST,
    stage_messages.REMOVE,
    stage_messages.FIND,
    stage_messages.READ,
)
FROM_NODE = (
    "nonsense",
    messages.REPORT,
    messages.RENEW,
    messages.CERTIFY_PLACES,
    messages.COMPONENTS,
    messages.COMMAND_OUTPUT,
    messages.COMMAND_ENDED,
)


def test_what_a_node_cannot_read_is_the_error_of_that_request(on_nodes: OnNodes) -> None:
    """One text of a node once cut the head off from all of them, and the other way round."""
    cluster, source = on_nodes(2), HostilePeer(3)
    control, before = control_of(cluster).session, daemons(cluster)
    for handler in FROM_HEAD:
        answers = [
            control.ask_encoded(1, handler, source.body(), values.encode(None))
            for _ in range(BODIES)
        ]
        _, left = wait(answers, PATIENCE)
        assert not left, f"{handler} is not answered"
        errors = [answer.exception() for answer in answers]
        assert all(error is None or isinstance(error, SapwoodError) for error in errors)
        assert daemons(cluster) == before, f"{handler} ended the node"
    for handler in FROM_NODE:
        bodies = [source.body() for _ in range(BODIES)]
        answers_of_root(control, 1, handler, bodies, PATIENCE)
        assert daemons(cluster) == before, f"{handler} ended the node"
    assert works(cluster)
