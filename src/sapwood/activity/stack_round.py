"""The stacks of several agents, gathered at the root of their session."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import wait
from typing import Final

import msgspec

from sapwood.activity import agent_requests
from sapwood.code.stacks import StackInfo
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.session.interface import RequestFuture, SessionInterface

LOST = "lost"
"""The state of an agent that did not answer."""

LONGEST: Final = 60.0
"""Seconds that agents have to answer, at most."""


def gather_stacks(
    session: SessionInterface, ranks: Iterable[int], timeout: float
) -> list[StackInfo]:
    """Ask agents for the stacks of their runners.

    Args:
        session: Their session.
        ranks: The agents.
        timeout: Seconds that they have to answer.
    """
    asked = {rank: session.ask(rank, agent_requests.STACK, None) for rank in ranks}
    _, late = wait(asked.values(), timeout)
    found = []
    for rank, future in asked.items():
        if future in late:
            session.withdraw(future)
            note = f"the agent did not answer within {timeout:g} s"
            found.append(StackInfo(agent=rank, state=LOST, note=note))
        else:
            found.append(_answer(rank, future))
    return found


def _answer(rank: int, future: RequestFuture) -> StackInfo:
    try:
        info = typed.convert(future.result(), StackInfo)
    except SapwoodError as error:
        return StackInfo(agent=rank, state=LOST, note=error.what)
    except msgspec.ValidationError:
        return StackInfo(agent=rank, state=LOST, note="its answer cannot be read")
    return msgspec.structs.replace(info, agent=rank)
