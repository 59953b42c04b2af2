"""Programs whose own code combines results, at every vertex of the tree."""

import sys
from collections.abc import Sequence

import cloudpickle

from sapwood.activity import agent_requests
from sapwood.code.filter import Filter
from sapwood.code.pickling import pickle_of
from sapwood.code.program import Program
from sapwood.code.reducers import has_reducers
from sapwood.comm.messages import FilterAt
from sapwood.content.refs import ContentRef
from sapwood.core.errors import DataValueError, ProgramError
from sapwood.core.extras import is_own
from sapwood.session.interface import StreamOptions


def stream_options(
    program: Program,
    time_limit: float,
    image: bytes = b"",
    crash_handlers: Sequence[ContentRef] = (),
    content: Sequence[ContentRef] = (),
) -> StreamOptions:
    """Return what the stream of a run is to be besides the named reductions of its fields.

    Args:
        program: The program.
        time_limit: Seconds that one call of its filter may take; 0 for no limit.
        image: The program as agents get it, which has its reducers.
        crash_handlers: Libraries that write a native backtrace.
        content: What the image needs and a place may have to fetch.

    Raises:
        ProgramError: Two different things are to put its results together.
        DataValueError: Its filter cannot be sent to other processes.
    """
    own = program.own_filter()
    reducers = has_reducers(program.reduce)
    if own is not None and reducers:
        raise ProgramError(
            "own_filter and a function in reduce both combine the results",
            where=program.name,
            hint="keep one of them: own_filter gets whole results, a reducer one field",
        )
    if reducers:
        code = agent_requests.UserCode(
            function=f"{program.name}.reduce",
            code=image,
            crash_handlers=list(crash_handlers),
            time_limit=time_limit,
            reducers=True,
            content=list(content),
        )
        return StreamOptions(filters=(FilterAt("*", up=agent_requests.encode(code)),))
    if own is None:
        return StreamOptions()
    name = f"{program.name}.{type(own).__name__}"
    try:
        pickled = _by_value(own)
    except Exception as error:  # whatever the user's objects raise when they are pickled
        raise DataValueError(
            f"the filter of a program cannot be sent to other processes: {error}",
            where=name,
            hint="open files, make locks and connections inside its methods",
        ) from error
    code = agent_requests.UserCode(function=name, code=pickled, time_limit=time_limit)
    return StreamOptions(filters=(FilterAt("*", up=agent_requests.encode(code)),))


def _by_value(own: Filter) -> bytes:
    """Pickle a filter with its class, as programs travel: an edit does not reach a run."""
    module = sys.modules.get(type(own).__module__)
    name = module.__name__ if module is not None else ""
    known = cloudpickle.list_registry_pickle_by_value()
    if module is None or name in {"__main__", *known} or is_own(name):
        return pickle_of(own)
    cloudpickle.register_pickle_by_value(module)
    try:
        return pickle_of(own)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
