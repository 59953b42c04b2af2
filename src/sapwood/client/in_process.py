"""``sapwood.local(in_process=True)``: agents in your process, for debuggers and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from sapwood.activity.agent_requests import UserCode
from sapwood.activity.delegation import DelegationOptions
from sapwood.activity.in_process_runner import alone
from sapwood.activity.in_process_session import InProcessSession, interrupts
from sapwood.activity.in_process_stream import raised_by
from sapwood.activity.offered_content import OfferedContent
from sapwood.activity.profile_round import RATE
from sapwood.activity.run import Run
from sapwood.activity.run_job import RunSetup
from sapwood.activity.task_future import TaskFuture, futures_in, with_results
from sapwood.client.cluster import Cluster
from sapwood.client.output import OutputPrinter
from sapwood.client.submitting import Submitting, TaskOptions
from sapwood.client.user_code import CodeMaker, Function, FunctionCode, NativeProgram
from sapwood.code.program import NativeFunctionRef, Program
from sapwood.code.run_spec import RunSpec
from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import Tree
from sapwood.data.dataset import Dataset
from sapwood.environment.logs import configure_logging
from sapwood.environment.settings import Settings
from sapwood.environment.tracing import Carrier
from sapwood.session.interface import SessionInterface
from sapwood.session_server.making import plan_here


def in_process_cluster(
    settings: Settings, agents: int | None, refused: Mapping[str, object]
) -> Cluster:
    """Return a cluster whose agents take turns in this process.

    Args:
        settings: All settings.
        agents: How many.
        refused: Options that need processes, by name; each must be None.

    Raises:
        ConfigurationError: One of these is given, or the number is out of range.
    """
    for name, value in refused.items():
        if value is not None:
            raise ConfigurationError(
                f"{name} is for agents in processes, and with in_process=True there are none",
                where=name,
                hint=f"leave out {name}, or in_process",
            )
    planned = plan_here(settings, agents, 0)
    output = configure_logging(settings.log)
    session = InProcessSession(planned.options.tree.agents)

    def no_tree(_shape: Tree, _lender: SessionInterface) -> SessionInterface:
        raise alone("further trees")

    printer = OutputPrinter(session.tree.agents)
    return InProcessCluster(session, settings, planned.exports, output, printer, no_tree)


class LiveCodeMaker(CodeMaker):
    """Makes of functions tokens, with which agents of this process find the functions themselves.

    Attributes:
        session: Where the agents are.
    """

    session: InProcessSession

    def code(self, function: Function) -> FunctionCode:
        """Return the code of a function, after the checks that it has for other agents."""
        code = super().code(function)
        if isinstance(function, NativeFunctionRef):
            return code
        return {"code": self.session.code.add(function)}

    def for_stream(self, function: Any, limit: float) -> tuple[UserCode, dict[str, Path]]:
        """Return a function or filter of a stream, and the debug files of its libraries."""
        user, files = super().for_stream(function, limit)
        if not isinstance(function, NativeFunctionRef):
            user = msgspec.structs.replace(user, code=self.session.code.add(function))
        return user, files

    def _native(self, program: Program) -> NativeProgram:
        self.session.code.add_program(program)
        return super()._native(program)


class InProcessSubmitting(Submitting):
    """Has each call made before the method that submits it returns."""

    def _submit(
        self,
        function: Function,
        code: FunctionCode,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace: Carrier | None = None,
    ) -> TaskFuture:
        if all(map(_has_result, futures_in((args, kwargs)))):
            args, kwargs = with_results((args, kwargs))
        future = super()._submit(function, code, args, kwargs, trace)
        self._ended([future])
        return future

    def _new_options(self, time_limit: float, retries: int) -> TaskOptions:
        return InProcessOptions(self, self._maker, self._tasks, time_limit, retries)

    def _ended(self, futures: Iterable[TaskFuture]) -> None:
        """Raise what has interrupted calls; let the errors of others show where they were raised.

        Raises:
            BaseException: Ctrl-C, or what quits a debugger.
        """
        session = cast("LiveCodeMaker", self._maker).session
        interruption, session.interruption = session.interruption, None
        if interruption is not None:
            raise interruption
        for future in futures:
            if future.done() and not future.cancelled():
                reported, error = Future.exception(future), future.exception()
                if reported is not None and error is not None:
                    raised_by(error, reported.__cause__)


class InProcessOptions(InProcessSubmitting, TaskOptions):
    """A cluster in this process whose tasks have other options."""


class InProcessCluster(InProcessSubmitting, Cluster):
    """A cluster whose agents are in this process; made by :func:`sapwood.local`."""

    def _new_maker(self, session: SessionInterface) -> CodeMaker:
        maker = LiveCodeMaker(
            self._cache,
            self._build_environment,
            lambda: self.targets,
            lambda: session.pythons,
            OfferedContent(session),
            pickle=self.settings.tasks.pickle,
        )
        maker.session = cast("InProcessSession", session)
        return maker

    def _new_run(self, program: Program, data: Dataset, spec: RunSpec, setup: RunSetup) -> Run:
        cast("LiveCodeMaker", self._maker).session.code.add_program(program)
        setup = msgspec.structs.replace(setup, delegation=DelegationOptions(), history=None)
        return InProcessRun(self._session, program, data, self._cache, spec, setup)

    def stacks(self, timeout: float = 5.0, *, agents: Iterable[int] | None = None) -> NoReturn:
        """Refuse: no runner has a stack, and ``traceback.print_stack()`` shows the caller's."""
        del timeout, agents
        raise alone("stacks")

    def profile(
        self, seconds: float = 5.0, *, rate: float = RATE, agents: Iterable[int] | None = None
    ) -> NoReturn:
        """Refuse: no runner has a stack; profilers of the client's process see the program."""
        del seconds, rate, agents
        raise alone("profile")

    def _call_on(
        self,
        ranks: tuple[int, ...],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Mapping[int, TaskFuture]:
        asked = self._tasks.ask(ranks, self._call_of(function, args, kwargs))
        self._ended(asked.values())
        return asked


class InProcessRun(Run):
    """A run that has ended when ``cluster.run`` returns."""

    def _begin(self) -> None:
        self._work()
        error = self._future.exception()
        if error is None:
            return
        if interrupts(error):
            raise error
        raised_by(error, error.__cause__)


def _has_result(future: Future[Any]) -> bool:
    """Whether a future is done and has not failed."""
    return future.done() and not future.cancelled() and future.exception() is None
