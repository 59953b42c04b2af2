"""Profiles of the agents of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sapwood.activity.profile_round import profile_for
from sapwood.activity.stack_round import LONGEST
from sapwood.client.stacks import LineNames
from sapwood.code.profiles import ProfileResult, StackCount
from sapwood.code.stacks import FrameInfo
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.session.interface import SessionInterface
from sapwood.session_server import session_calls
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.server_link import CALL_TIMEOUT


def profile_agents(
    session: SessionInterface, ranks: Sequence[int], seconds: float, rate: float
) -> ProfileResult:
    """Have agents sample for some seconds; of a session with a server, that has them do so.

    Args:
        session: Their session.
        ranks: The agents.
        seconds: How long.
        rate: Samples per second.
    """
    if not 0 < seconds <= LONGEST:
        raise ConfigurationError(
            f"a profile does not take {seconds:g} s", hint=f"sample for up to {LONGEST:g} s"
        )
    if isinstance(session, AttachedSession):
        asked = session.link.ask(session_calls.PROFILE, [list(ranks), seconds, rate])
        found = typed.convert(asked.result(seconds + CALL_TIMEOUT), ProfileResult)
    else:
        found = profile_for(session, ranks, seconds, rate)
    return with_names(found)


def with_names(found: ProfileResult) -> ProfileResult:
    """Return a profile with the names of native functions, where this machine knows them."""
    names = LineNames()
    counts: dict[tuple[FrameInfo, ...], int] = {}
    for one in found.stacks:
        frames = (
            msgspec.structs.replace(names.frame(frame), line=0)
            if frame.function.startswith("+0x")
            else frame
            for frame in one.frames
        )
        key = tuple(frames)
        counts[key] = counts.get(key, 0) + one.samples
    stacks = (StackCount(frames, samples) for frames, samples in counts.items())
    ordered = tuple(sorted(stacks, key=lambda one: -one.samples))
    return msgspec.structs.replace(found, stacks=ordered)
