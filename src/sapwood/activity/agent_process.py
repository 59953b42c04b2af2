"""The process of an agent: its runner, and a worker for each tree that it has a place in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.agent_calls import AgentCalls
from sapwood.activity.agent_messaging import AgentMessaging
from sapwood.activity.needed_content import content_folder
from sapwood.activity.output_buffer import OutputBuffer
from sapwood.code.runner import rpc_messages
from sapwood.code.runner.affinity import CoreAffinity
from sapwood.code.runner.rpc_server import RpcCall, RunnerRpcServer
from sapwood.code.runner.runner_host import RunnerHost, RunnerState
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.contexts.plan import Main
from sapwood.contexts.process import resident_memory
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.errors import ResourceError
from sapwood.core.optional import fastpath
from sapwood.core.rankset import to_ranges
from sapwood.core.topology import ROOT
from sapwood.session.agent import JOIN, Agent, Contribution, IncomingRequest
from sapwood.session.agent_groups import AgentGroups
from sapwood.session.member import read_configuration

if TYPE_CHECKING:
    from sapwood.session.secondary_tree import SecondaryPlace


class AgentProcess:
    """Connects an agent with its runner.

    Args:
        agent: The agent.
        settings: What it needs of the settings.
        runner_factory: Has its runners forked.

    Attributes:
        rpc_handlers: Who answers what user code asks while it runs, by the name of the request.
    """

    def __init__(
        self, agent: Agent, settings: agent_requests.AgentSettings, runner_factory: RunnerFactory
    ) -> None:
        self._agent = agent
        self._output = OutputBuffer()
        self._output_sent = False
        self._settings = settings
        options = msgspec.structs.replace(
            settings.runner, ordinal=max(agent.rank - 1, 0), content=content_folder(settings)
        )
        self._runner = RunnerHost(agent.loop, options, runner_factory, self._printed)
        self._affinity = CoreAffinity(options.ordinal, options.bound_agents)
        self.rpc_handlers: dict[str, Callable[[RpcCall], None]] = {
            **AgentGroups(agent.groups).handlers
        }
        welcome = rpc_messages.RpcWelcome(
            agent.rank, to_ranges(agent.configuration.tree.agent_ranks)
        )
        self._runner.rpc_server = RunnerRpcServer(agent.loop, welcome, self.rpc_handlers)
        self._worker = AgentCalls(agent, self._runner, self._affinity, settings)
        AgentMessaging(agent, self.rpc_handlers)
        agent.requests[JOIN] = self._first_join
        agent.requests[agent_requests.STACK] = self._read_stack
        agent.waves[agent_requests.FASTPATH] = self._use_shortcuts
        agent.waves[agent_requests.METRICS] = self._report_metrics
        agent.waves[agent_requests.PROFILE] = self._profile
        self._has_shortcut = False

    def _first_join(self, request: IncomingRequest) -> None:
        from sapwood.session.secondary_tree import SecondaryPlaces  # noqa: PLC0415 - most agents know one tree

        SecondaryPlaces(self._agent, self._settle).join(request)

    def _settle(self, place: SecondaryPlace) -> Callable[[], None]:
        """Make a place in a further tree work: it shares the runner."""
        tree = f"{place.tree} "
        return AgentCalls(place, self._runner, self._affinity, self._settings, tree).close

    def _report_metrics(self, contribution: Contribution) -> None:
        """Contribute what this agent has done since it was asked last."""
        runner = self._runner
        memory = resident_memory(os.getpid()) + (resident_memory(runner.pid) if runner.pid else 0)
        values = self._worker.metrics.take(busy=runner.state is RunnerState.BUSY, memory=memory)
        contribution.give(plain.encode(values), None)

    def _profile(self, contribution: Contribution) -> None:
        """Sample the stacks of the runner."""
        from sapwood.activity.agent_profile import StackSamplers  # noqa: PLC0415 - most agents are never asked

        wave = self._agent.waves[agent_requests.PROFILE] = StackSamplers(
            self._agent, self._runner
        ).wave
        wave(contribution)

    def _read_stack(self, request: IncomingRequest) -> None:
        """Answer with what the runner does; also while it does not answer calls."""
        from sapwood.activity.agent_stack import read_stack  # noqa: PLC0415 - most agents are never asked

        read_stack(self._agent, self._runner, request)

    def _use_shortcuts(self, contribution: Contribution) -> None:
        """Let waves pass without the interpreter from now on, where that can be."""
        contribution.give(plain.encode({}), None)
        room = None if self._has_shortcut else fastpath("relay")
        if room is None:
            return
        worker = self._worker
        with contextlib.suppress(ResourceError):  # then everything goes the long way
            relay = room.Relay(self._agent, self._runner, worker)
            worker.relayed = lambda run: relay.passed.pop(run, 0)
            self._has_shortcut = True

    def close(self) -> None:
        """Stop the runner if the process continues without the agent."""
        self._runner.close()

    # --- output --------------------------------------------------------------------------------

    def _printed(self, data: bytes) -> None:
        self._output.add(data)
        if not self._output_sent:
            self._output_taken()

    def _output_taken(self, _answer: ev.Answered | None = None) -> None:
        """Send what was printed meanwhile: one message is under way at a time."""
        data = self._output.take()
        self._output_sent = bool(data)
        if data:
            body = plain.encode(data)
            self._agent.ask(ROOT, agent_requests.OUTPUT, body, self._output_taken)


def main(configuration: bytes, rank: int, incarnation: int, runner_factory: RunnerFactory) -> Main:
    """Assemble an agent that runs user code; entry of a forked process."""
    settings = read_configuration(configuration)
    agent = Agent(settings, rank, incarnation)
    AgentProcess(agent, agent_requests.decode_settings(settings.extra), runner_factory)
    return agent.run
