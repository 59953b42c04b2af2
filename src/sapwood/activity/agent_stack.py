"""The answer of an agent that is asked for the stack of its runner."""

from __future__ import annotations

import os

import msgspec

from sapwood.code.runner.runner_host import RunnerHost
from sapwood.code.runner.stack_reader import StackText
from sapwood.code.stacks import StackInfo, from_faulthandler
from sapwood.session.agent import Agent, IncomingRequest

BUSY = "busy"
IDLE = "idle"


def read_stack(agent: Agent, runner: RunnerHost, request: IncomingRequest) -> None:
    """Read the stack of a runner, and answer with it.

    Args:
        agent: The agent.
        runner: Its runner.
        request: Gets a :class:`StackInfo`.
    """
    pid = runner.pid

    def answer(found: StackText) -> None:
        job = runner.running
        threads = from_faulthandler(found.text)
        # A shortcut makes calls of which the agent itself does not know.
        busy = job is not None or any(one.main for one in threads)
        info = StackInfo(
            agent=agent.rank,
            node=os.uname().nodename,
            pid=pid,
            state=found.state or (BUSY if busy else IDLE),
            function="" if job is None else job.function or "user code",
            seconds=0.0 if job is None else agent.loop.time() - job.begun,
            threads=threads,
            note=found.problem if busy or found.state else "",
        )
        request.reply(msgspec.to_builtins(info))

    runner.read_stack(answer)
