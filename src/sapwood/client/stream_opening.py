"""From what a user asks of a stream, with its options checked, to the open stream."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.crash_site import name_crash_site
from sapwood.client.stream import Stream, parameters_body
from sapwood.client.user_code import name_of
from sapwood.code.filter import Filter, has_own, positional
from sapwood.code.program import NativeFunctionRef
from sapwood.comm.messages import NO_WAIT, REPLACE, FilterAt, Synchronisation
from sapwood.comm.messaging.envelope import ranks_text
from sapwood.comm.reduction import WHOLE
from sapwood.comm.reductions import make_reduction
from sapwood.core.arguments import choice, duration, is_number, is_text
from sapwood.core.errors import ConfigurationError
from sapwood.core.rankset import fold
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest
from sapwood.core.topology import ROOT, Tree
from sapwood.session.interface import SessionInterface, StreamOptions

LATEST = "latest"
"""Of unread results, only the latest are kept."""

VALUES_ALL_THE_WAY = frozenset({"sum", "min", "max"})
"""Reductions of which a junction passes on a value; of others it passes on partial results."""

BUILT_IN = ("echo",)
"""What agents can do without user code."""

MakeCode = Callable[[Any, float], tuple[agent_requests.UserCode, dict[str, Path]]]
"""Makes of a function what a runner can load, with its time limit; and names debug files."""


class StreamRequest(msgspec.Struct, frozen=True):
    """What :meth:`.Cluster.stream` was asked for, in its words."""

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
    follow: bool = False


def open_stream(
    session: SessionInterface,
    request: StreamRequest,
    make_code: MakeCode,
    called: Callable[[], None],
    others: Sequence[int] = (),
) -> Stream:
    """Open a stream.

    Args:
        session: The tree.
        request: What it is to be.
        make_code: Makes of functions what runners can load.
        called: Told of each call of its methods.
        others: Ranks of agents of other sessions, which may take part.

    Raises:
        ConfigurationError: The options do not describe a stream.
        AgentLostError: It is to wait for an agent that is lost for good.
    """
    debug_files: dict[str, Path] = {}
    duration(request.time_limit, "time_limit")

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
    choice(request.keep, "keep", ("all", LATEST))
    handler, code = _handler(request, encode)
    options = StreamOptions(
        code=code,
        sync=sync,
        on_loss=checked_loss(request.on_loss),
        filters=filters(own if own is not None else request.up, request.down, encode),
        parameters=parameters_body(dict(request.parameters)),
        counted=True,
        follows=request.follow,
        paced=sync.kind == NO_WAIT and request.keep != LATEST,
    )
    if request.parameters and not options.filters:
        raise ConfigurationError(
            "the stream has parameters but no user filter",
            hint="send values to the agents in waves: stream.broadcast(value)",
        )
    if request.follow and request.agents is not None:
        raise ConfigurationError(
            "a stream to some agents cannot follow all", hint="leave out agents, or follow"
        )
    check_places(options.filters, session.tree.junctions)
    if sync.kind != NO_WAIT:
        check_reductions(options.filters, reduce, session.tree)
    agents = checked_agents(request.agents, [*session.tree.agent_ranks, *others])
    if options.on_loss == REPLACE:
        _must_come_back(session, [one for one in agents if one < session.tree.size])
    handle = session.open_stream(handler, reduce, agents, options=options)
    handle.explain = lambda error: name_crash_site(error, debug_files)
    what = request.what if isinstance(request.what, str) else name_of(request.what)
    latest = request.keep == LATEST

    def new_filters(up: Any, down: Any) -> tuple[FilterAt, ...]:
        return filters(up, down, encode)

    return Stream(
        session, handle, what, dict(request.parameters), called, new_filters, latest=latest
    )


def _must_come_back(session: SessionInterface, agents: Sequence[int]) -> None:
    """Raise the reason why an agent stays lost: a stream that replaces would wait for ever."""
    if session.failure is not None and any(one.state.is_lost for one in session.processes(agents)):
        raise session.failure


def _handler(
    request: StreamRequest, encode: Callable[[Any, str], agent_requests.UserCode]
) -> tuple[str, bytes]:
    """Return the handler of a stream and what it runs."""
    what = request.what
    if isinstance(what, str):
        if what not in BUILT_IN:
            raise ConfigurationError(
                f"agents have no handler {shown(what)}", hint=suggest(what, BUILT_IN)
            )
        return what, b""
    if not callable(what) and not isinstance(what, NativeFunctionRef):
        raise ConfigurationError(
            f"{shown(what)} cannot be called", hint="pass a function, or program['name']"
        )
    code = encode(what, "function")
    if code.steps and request.sync != "none":
        raise ConfigurationError(
            "a generator sends its values one by one", where=code.function, hint='use sync="none"'
        )
    return agent_requests.CALL, msgspec.msgpack.encode(code)


Encode = Callable[[Any, str], agent_requests.UserCode]
"""``encode(function, role)`` makes of a function what a runner can load."""

Loss = Literal["replace", "partial", "fail"]
Late = Literal["drop", "next"]
Keep = Literal["all", "latest"]

FilterSource = Callable[..., Any] | NativeFunctionRef
"""A function, a subclass or an object of ``Filter``, or a native function of a program."""

MAX_SYNC = 1e6
"""Most seconds of a time-out."""

LOSSES = ("replace", "partial", "fail")
MAX_CODE = 2 * 2**20
"""Bytes of the functions and filters of one stream; data belong into waves."""


def synchronisation(sync: str | float, late: str) -> Synchronisation:
    """Return what ``sync`` and ``late`` say.

    Raises:
        ConfigurationError: They say nothing that a stream can do.

    Example:
        >>> synchronisation(0.25, "next").seconds
        0.25
    """
    choice(late, "late", ("drop", "next"))
    if isinstance(sync, str):
        if sync not in {"all", "none"}:
            hint = 'use "all", "none", or a number of seconds'
            raise ConfigurationError(f"sync is {shown(sync)}", hint=hint)
        return Synchronisation(sync)
    if not is_number(sync) or not 0 < sync <= MAX_SYNC:
        raise ConfigurationError(
            f"sync is {shown(sync)}", hint="a time-out is a positive number of seconds"
        )
    return Synchronisation("time-out", float(sync), late)


def checked_loss(on_loss: str) -> str:
    """Return ``on_loss`` as it is.

    Raises:
        ConfigurationError: It is not a policy.
    """
    return choice(on_loss, "on_loss", LOSSES)


def checked_agents(agents: Sequence[int] | None, every: Sequence[int]) -> list[int]:
    """Return the ranks of a stream's agents.

    Raises:
        ConfigurationError: There are none, or there is no such agent.
    """
    try:
        ranks: list[Any] = list(every if agents is None else agents)
    except TypeError:
        raise ConfigurationError(
            f"agents is {shown(agents)}", hint="give the ranks of agents, as in agents=[1, 2]"
        ) from None
    wrong = [rank for rank in ranks if not isinstance(rank, int) or rank not in every]
    if wrong or not ranks:
        raise ConfigurationError(
            f"unknown agent {shown(wrong[0])}" if wrong else "a stream needs at least one agent",
            hint=f"agents have the ranks {ranks_text(every)}",
        )
    return ranks


def reductions(
    reduce: str | FilterSource | Mapping[Any, Any],
) -> tuple[dict[str, str], FilterSource | None]:
    """Return the built-in reductions, and the own filter if ``reduce`` is one.

    Raises:
        ConfigurationError: It is neither.
        ProgramError: There is no such reduction.
    """
    if isinstance(reduce, str):
        make_reduction(reduce)
        return {WHOLE: reduce}, None
    if isinstance(reduce, Mapping):
        for field, kind in reduce.items():
            named = isinstance(field, str) and field and is_text(field)
            if not named or not isinstance(kind, str):
                raise ConfigurationError(
                    f"reduce has {shown(field)}: {shown(kind)}",
                    hint='name fields and reductions, as in {"total": "sum"}',
                )
            make_reduction(kind)
        return dict(reduce), None
    if callable(reduce) or isinstance(reduce, NativeFunctionRef | Filter):
        return {WHOLE: "gather"}, reduce
    raise ConfigurationError(
        f"reduce is {shown(reduce)}",
        hint="name a reduction, fields with their reductions, or give a function or a Filter",
    )


def filters(up: Any, down: Any, encode: Encode) -> tuple[FilterAt, ...]:
    """Return the own filters of all places.

    Args:
        up: A filter for all places, or a dictionary of filters by ``"rank N"``, ``"depth N"``
            or ``"*"``; None for none.
        down: The same for what goes down.
        encode: Makes of a filter what a runner can load.

    Raises:
        ConfigurationError: A place or a filter is none.
    """
    above, below = _by_place(up), _by_place(down)
    found = []
    for where in sorted(above.keys() | below.keys()):
        upward, downward = above.get(where), below.get(where)
        found.append(
            FilterAt(
                where,
                _encoded(_way(upward, "up"), encode),
                _encoded(_way(downward, "down"), encode),
                per_child=downward is not None and _is_per_child(downward),
            )
        )
    if sum(len(own.up) + len(own.down) for own in found) > MAX_CODE:
        raise ConfigurationError(
            f"the filters take more than {MAX_CODE} bytes", hint="send data in waves"
        )
    return tuple(found)


def check_places(filters: Sequence[FilterAt], junctions: Sequence[int]) -> None:
    """Raise ConfigurationError if a filter is for a rank that cannot have filters.

    A depth may be missing: the same program also runs over flatter trees.
    """
    for own in filters:
        kind, _, number = own.where.partition(" ")
        if kind == "rank" and int(number) and int(number) not in junctions:
            ranks = f" and at {fold('junction', junctions)}" if junctions else ""
            raise ConfigurationError(
                f"no filter works at rank {number}", hint=f"they work at the client, 0{ranks}"
            )


def check_reductions(filters: Sequence[FilterAt], reduce: Mapping[str, str], tree: Tree) -> None:
    """Raise ConfigurationError if a filter would get the partial results of a reduction.

    What a junction without a filter passes on is a value only for some reductions.
    """
    known = {own.where: own.up for own in filters}
    if not known or set(reduce.values()) <= VALUES_ALL_THE_WAY:
        return

    def has_filter(rank: int) -> bool:
        depth = 0 if rank == ROOT else len(list(tree.ancestors(rank)))
        places = (f"rank {rank}", f"depth {depth}", "*")
        return bool(next((known[place] for place in places if place in known), b""))

    for rank in tree.junctions:
        if rank in tree and not has_filter(rank) and any(map(has_filter, tree.ancestors(rank))):
            names = ", ".join(sorted(set(reduce.values())))
            raise ConfigurationError(
                f"junction {rank} has no filter, and those above it cannot use its partial results "
                f"of '{names}'",
                hint='add a filter for "*", or give reduce="sum", "min" or "max"',
            )


def _by_place(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {"*": given}
    for where in given:
        kind, _, number = str(where).partition(" ")
        if where != "*" and not (kind in {"rank", "depth"} and number.isdecimal()):
            raise ConfigurationError(
                f"unknown place {shown(where)}", hint='name "rank N", "depth N" or "*"'
            )
    return dict(given)


def _way(own: Any, way: str) -> Any:
    """Return a filter if it has a way up, or down."""
    if own is None:
        return None
    if isinstance(own, NativeFunctionRef):
        if way == "down":
            raise ConfigurationError(
                f"{shown(own)} cannot be a filter on the way down", hint="write that one in Python"
            )
        return own
    if not callable(own) and not isinstance(own, Filter):
        raise ConfigurationError(
            f"{shown(own)} is not a filter", hint="give a function, a Filter, or program['name']"
        )
    kind = own if isinstance(own, type) else type(own)
    if issubclass(kind, Filter) and not has_own(kind, way):
        raise ConfigurationError(
            f"{kind.__name__} has no way {way}", hint=f"define {way}() in the class"
        )
    if isinstance(own, type) and not issubclass(own, Filter):
        raise ConfigurationError(
            f"{own.__name__} is not a filter", hint="derive the class from sapwood.Filter"
        )
    return own


def _is_per_child(own: Any) -> bool:
    kind = own if isinstance(own, type) else type(own)
    return issubclass(kind, Filter) or (positional(own) or 1) >= 2


def _encoded(own: Any, encode: Encode) -> bytes:
    return b"" if own is None else msgspec.msgpack.encode(encode(own, "filter"))
