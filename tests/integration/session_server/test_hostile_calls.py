"""Calls of a session's root with values that it does not expect: each is that call's error."""

from __future__ import annotations

import contextlib
from concurrent.futures import wait

import msgspec

from sapwood.core.errors import SapwoodError
from sapwood.environment.settings import Settings
from sapwood.session_server import session_calls
from sapwood.session_server.attached import AttachedSession
from sapwood_simulation.hostile import HostilePeer
from sapwood_simulation.local_session_server import attach_here, local_session_server

PATIENCE = 30.0
VALUES = 30
LEFT_OUT = {session_calls.DETACH, session_calls.END}
"""Let the client leave, and end the session."""

CALLS = sorted(
    value
    for name, value in vars(session_calls).items()
    if name.isupper() and isinstance(value, str) and value not in LEFT_OUT
)


def test_a_session_survives_whatever_its_root_is_called_with() -> None:
    source = HostilePeer(9)
    with (
        local_session_server(Settings(), agents=1) as address,
        attach_here(address, Settings()) as cluster,
    ):
        session = cluster.session
        assert isinstance(session, AttachedSession)
        for call in [*CALLS, "nonsense"]:
            answers = []
            for _ in range(VALUES):
                with contextlib.suppress(msgspec.MsgspecError, OverflowError):
                    answers.append(session.link.ask(call, source.value()))
            _, left = wait(answers, PATIENCE)
            assert not left, f"{call} is not answered"
            errors = [answer.exception() for answer in answers]
            assert all(error is None or isinstance(error, SapwoodError) for error in errors)
            assert cluster.submit(pow, 2, 10).result(PATIENCE) == 1024, call
