"""From what a user asks of a stream to the open stream."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.crash_site import name_crash_site
from sapwood.client.stream import Stream, parameters_body
from sapwood.client.stream_options import (
    MAX_CODE,
    check_places,
    check_time_limit,
    checked_agents,
    checked_loss,
    filters,
    name_of,
    reductions,
    synchronisation,
)
from sapwood.code.program import NativeFunctionRef
from sapwood.comm.messages import NO_WAIT, REPLACE
from sapwood.core.errors import ConfigurationError
from sapwood.core.suggest import suggest
from sapwood.session.port import PlaceState, SessionPort, StreamOptions

LATEST = "latest"
"""Of results that nobody reads, only the latest are kept."""

BUILT_IN = ("echo",)
"""What agents can do without user code."""

MakeCode = Callable[[Any, float], tuple[agent_requests.UserCode, dict[str, Path]]]
"""Makes of a function what a runner can load, with its time limit; and names debug files."""


class StreamRequest(msgspec.Struct, frozen=True):
    """What :meth:`Cluster.stream` was asked for, in its words."""

    what: Any
    reduce: Any
    agents: Sequence[int] | None
    sync: str | float
    late: str
    keep: str
    on_loss: str
    up: Any
    down: Any
    parameters: Mapping[str, Any]
    time_limit: float


def open_stream(
    session: SessionPort, request: StreamRequest, make_code: MakeCode, called: Callable[[], None]
) -> Stream:
    """Open a stream; ``called`` is told of each call of its methods.

    Raises:
        ConfigurationError: What is asked for is no stream.
        AgentLostError: It is to wait for an agent that is lost for good.
    """
    debug_files: dict[str, Path] = {}
    check_time_limit(request.time_limit)

    def encode(function: Any, role: str) -> agent_requests.UserCode:
        code, files = make_code(function, request.time_limit)
        debug_files.update(files)
        if len(code.code) > MAX_CODE:
            raise ConfigurationError(
                f"the {role} takes {len(code.code)} bytes, which is more than {MAX_CODE}",
                where=code.function,
                hint="it holds data: send them in waves",
            )
        if role == "filter" and code.steps:
            raise ConfigurationError(
                "a filter cannot be a generator", where=code.function, hint="return one value"
            )
        return code

    reduce, own = reductions(request.reduce)
    if own is not None and request.up is not None:
        raise ConfigurationError(
            "reduce and up are both own filters", hint="give one of them, or a built-in reduce"
        )
    sync = synchronisation(request.sync, request.late)
    if request.keep not in {"all", LATEST}:
        raise ConfigurationError(f"keep is {request.keep!r}", hint='use "all" or "latest"')
    handler, code = _handler(request, encode)
    options = StreamOptions(
        code=code,
        sync=sync,
        on_loss=checked_loss(request.on_loss),
        filters=filters(own if own is not None else request.up, request.down, encode),
        parameters=parameters_body(dict(request.parameters)),
        counted=True,
        paced=sync.kind == NO_WAIT and request.keep != LATEST,
    )
    if request.parameters and not options.filters:
        raise ConfigurationError(
            "the stream has parameters but no filter of its own",
            hint="send values to the agents in waves: stream.broadcast(value)",
        )
    check_places(options.filters, session.tree.junctions)
    agents = checked_agents(request.agents, session.tree.agents)
    if options.on_loss == REPLACE:
        _must_come_back(session, agents)
    handle = session.open_stream(handler, reduce, agents, options=options)
    handle.explain = lambda error: name_crash_site(error, debug_files)
    what = request.what if isinstance(request.what, str) else name_of(request.what)
    latest = request.keep == LATEST
    return Stream(session, handle, what, dict(request.parameters), called, latest=latest)


def _must_come_back(session: SessionPort, agents: Sequence[int]) -> None:
    """Raise the reason why an agent stays lost: a stream that replaces would wait for ever."""
    if session.failure is not None and any(
        place.state is PlaceState.LOST for place in session.places(agents)
    ):
        raise session.failure


def _handler(
    request: StreamRequest, encode: Callable[[Any, str], agent_requests.UserCode]
) -> tuple[str, bytes]:
    """Return the handler of a stream and what it runs."""
    what = request.what
    if isinstance(what, str):
        if what not in BUILT_IN:
            raise ConfigurationError(f"agents know no {what!r}", hint=suggest(what, BUILT_IN))
        return what, b""
    if not callable(what) and not isinstance(what, NativeFunctionRef):
        raise ConfigurationError(
            f"{what!r} cannot be called", hint="pass a function, or program['name']"
        )
    code = encode(what, "function")
    if code.steps and request.sync != "none":
        raise ConfigurationError(
            "a generator sends its values one by one", where=code.function, hint='use sync="none"'
        )
    return agent_requests.CALL, msgspec.msgpack.encode(code)
