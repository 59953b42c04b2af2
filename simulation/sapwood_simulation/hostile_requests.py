"""Requests with hostile bodies, as if a place of a session had sent them to the root."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from unittest.mock import patch

from sapwood.comm import events as ev
from sapwood.session.embedded import EmbeddedSession

FIRST = 10**6
"""Number of the first request."""


def answers_of_root(
    session: EmbeddedSession, rank: int, handler: str, bodies: Sequence[bytes], patience: float
) -> list[ev.Answer]:
    """Ask the root as a place below it; return the answers in the order of the requests.

    Raises:
        AssertionError: A request is not answered, or is answered twice.
    """
    answers: list[ev.Answer] = []
    complete = threading.Event()
    post = session.host.post

    def take(event: ev.Event) -> None:
        if not isinstance(event, ev.Answer) or event.number < FIRST:
            post(event)
            return
        answers.append(event)
        if len(answers) == len(bodies):
            complete.set()

    def ask() -> None:
        for number, body in enumerate(bodies, FIRST):
            session.requests.asked(ev.Asked(rank, handler, number, body, None))

    with patch.object(session.requests, "_post", take):
        session.call(ask)
        if not complete.wait(patience):
            raise AssertionError(f"{len(bodies) - len(answers)} requests are not answered")
    answers.sort(key=lambda answer: answer.number)
    if [answer.number for answer in answers] != list(range(FIRST, FIRST + len(bodies))):
        raise AssertionError("a request is answered twice")
    return answers
