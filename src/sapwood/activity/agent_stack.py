"""The answer of an agent that is asked for the stack of its runner."""

from __future__ import annotations

import os

import msgspec

from sapwood.code.runner import py_spy
from sapwood.code.runner.runner_host import RunnerHost
from sapwood.code.runner.stack_reader import StackText, signals_of
from sapwood.code.stacks import StackInfo, ThreadInfo, from_faulthandler, from_py_spy
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
    _Reading(agent, runner, request).begin()


class _Reading:
    """One stack: by py-spy if a call is made and it is installed, else by the runner itself."""

    def __init__(self, agent: Agent, runner: RunnerHost, request: IncomingRequest) -> None:
        self._agent = agent
        self._runner = runner
        self._request = request
        self._pid = runner.pid
        self._problem = ""

    def begin(self) -> None:
        """Begin to read."""
        state = signals_of(self._pid) if self._pid else None
        wanted = self._runner.running is not None and state is not None and state.state not in "Tt"
        command = py_spy.installed() if wanted else ""
        if command:
            py_spy.PySpy(command, self._pid, self._agent.loop, self._spied)
        else:
            self._runner.read_stack(self._written)

    def _spied(self, data: bytes, problem: str) -> None:
        """Answer with what py-spy has found; without it, ask the runner."""
        try:
            threads = from_py_spy(data) if data else ()
        except msgspec.MsgspecError:
            threads, problem = (), "py-spy is of another version"
        if not threads:
            self._problem = problem
            self._runner.read_stack(self._written)
            return
        self._answer(threads, "", "")

    def _written(self, found: StackText) -> None:
        problems = "; ".join(filter(None, (found.problem, self._problem)))
        self._answer(from_faulthandler(found.text), found.state, problems)

    def _answer(self, threads: tuple[ThreadInfo, ...], state: str, problem: str) -> None:
        job = self._runner.running
        # A shortcut makes calls of which the agent itself does not know.
        busy = job is not None or any(one.main for one in threads)
        info = StackInfo(
            agent=self._agent.rank,
            node=os.uname().nodename,
            pid=self._pid,
            state=state or (BUSY if busy else IDLE),
            function="" if job is None else job.function or "user code",
            seconds=0.0 if job is None else self._agent.loop.time() - job.begun,
            threads=threads,
            note=problem if busy or state else "",
        )
        self._request.reply(msgspec.to_builtins(info))
