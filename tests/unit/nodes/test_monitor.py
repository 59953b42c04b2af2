from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from typing import Any

from sapwood.contexts.process import children
from sapwood.environment.logs import logger
from sapwood.environment.supervisor import Supervisor
from sapwood.nodes import messages
from sapwood.nodes.monitor import NodeMonitor, OrphanReaper
from sapwood.session.shared_reactor import SharedReactor


class Link:
    """A loop, and how often to look."""

    heartbeat = 0.01

    def __init__(self) -> None:
        self.loop = SharedReactor()


class Request:
    """A request of the head."""

    def __init__(self, value: bytes = b"") -> None:
        self._value = value
        self.answer: Any = None

    def value(self) -> bytes:
        return self._value

    def reply(self, value: object) -> None:
        self.answer = value


def test_children_that_nobody_looks_after_are_ended_and_others_are_not() -> None:
    link = Link()
    mine, nobodys = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
    looks: list[None] = []

    def before() -> None:
        looks.append(None)
        if len(looks) > 3 and nobodys.poll() is not None:
            link.loop.stop()

    # The processes of this test's own surroundings are known as well.
    others = {pid for pid in children(os.getpid()) if pid != nobodys.pid}
    reaper = OrphanReaper(link, lambda: others, before)  # type: ignore[arg-type]  # all that it uses
    watchdog = link.loop.call_later(30.0, link.loop.stop)
    with contextlib.closing(link.loop), Supervisor([reaper]):
        link.loop.run()
    watchdog.cancel()
    assert mine.poll() is None
    assert nobodys.poll() is not None
    mine.kill()
    mine.wait()


def test_lines_are_kept_while_it_runs_and_over_its_lives() -> None:
    link = Link()
    monitor = NodeMonitor(link, list, list)  # type: ignore[arg-type]  # as above
    supervisor = Supervisor([monitor])
    log = logger("monitored")
    for life in (1, 2):
        with supervisor:
            log.info("kept", life=life)
        log.warning("lost", life=life)
    request = Request(messages.to_value(messages.ReadLogs(level=logging.INFO)))
    monitor.requests[messages.LOGS](request)  # type: ignore[arg-type]  # as above
    text = bytes(request.answer)
    assert text.count(b'"kept"') == 2
    assert b'"lost"' not in text
    link.loop.close()
