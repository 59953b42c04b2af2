"""Cuts the data of a run into slices, gives them to agents, and moves them."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import wait

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.chunked_map import GRID_REDUCTIONS, REPRODUCIBLE
from sapwood.activity.delegation import assign, moved
from sapwood.activity.offered_content import OfferedContent
from sapwood.activity.rate_history import FunctionHistory, MeasuredRate, key_of, read_history
from sapwood.activity.run_job import RunJob
from sapwood.activity.run_participants import RunParticipants
from sapwood.activity.run_record import Move
from sapwood.activity.run_watch import RunWatch
from sapwood.activity.speculation import MakeOrder
from sapwood.activity.statistics import AgentStatistics, added
from sapwood.code.build import Built
from sapwood.code.crash_handler import build_crash_handlers
from sapwood.code.image import make_image
from sapwood.code.kept_state import kept_state
from sapwood.code.pickling import check_versions
from sapwood.code.program import Program
from sapwood.code.reducers import built_in, has_reducers
from sapwood.content.refs import ContentRef
from sapwood.core import typed
from sapwood.core.topology import ROOT
from sapwood.data.dataset import Dataset
from sapwood.data.publish import Published
from sapwood.environment.logs import logger
from sapwood.session.interface import SessionInterface

MACHINE_TIME = 1.0
"""Seconds that agents get to say where they are, before the first cut."""

TOKEN_BYTES = 8
"""Random bytes by which agents tell runs of the same name apart."""

_log = logger("activity")


class ProgramCode(msgspec.Struct, frozen=True):
    """The code of a run as agents get it.

    Attributes:
        image: The encoded image.
        crash_handlers: Libraries that write a native backtrace.
        content: What both need of content.
    """

    image: bytes = b""
    crash_handlers: tuple[ContentRef, ...] = ()
    content: tuple[ContentRef, ...] = ()


class Cutter:
    """Cuts the data of one run; all on the run's thread.

    Args:
        job: The run.

    Attributes:
        watch: Knows what the agents do, and decides who does what.
        code: The code of the run as agents get it.
        replaced: How many agents were replaced so far.
        statistics: What each agent has done so far, by rank.
    """

    def __init__(self, job: RunJob) -> None:
        program = job.program
        reduce, own = built_in(program.reduce), has_own_code(program)
        self._job = job
        self._kept = kept_state(program) if program.movable is None else ""
        self._grid = bool(job.spec.chunk) and _has_grid(reduce, job.data, own=own)
        self.watch = RunWatch(
            job.session,
            job.recorder,
            job.life.began,
            job.setup.delegation,
            reduce,
            own=own,
            helped=program.movable is not False and not self._kept,
        )
        self.code = ProgramCode()
        self.replaced = 0
        self.statistics: dict[int, AgentStatistics] = {}
        self._token = secrets.token_hex(TOKEN_BYTES)
        self._cuts = 0
        self._given: dict[int, range] = {}
        self._history: FunctionHistory | None = None
        self._offered = OfferedContent(job.session)

    def begin(self) -> None:
        """Find out whether items may move, and what is known of the agents."""
        recorder = self._job.recorder
        recorder.hash = self._job.program.hash
        recorder.delegate = self._job.setup.delegation.how
        recorder.kept_in_place = self._why_in_place()
        self.watch.movable = not recorder.kept_in_place

    def close(self) -> None:
        """Offer nothing to agents any more."""
        self._offered.close()

    @property
    def context(self) -> str:
        """What agents call what they have of the run.

        Other processes that use the same agents may have runs of the same name.
        """
        return f"{self._job.name}.{self._token}.{self._cuts}"

    def cut(self, iterated: int) -> dict[int, range]:
        """Return which agent gets which items; agents without items have none.

        Args:
            iterated: Iterations that are over.
        """
        ranks = self._job.session.tree.agent_ranks
        wanted, self.watch.wanted = self.watch.wanted, None
        rates = self.watch.rates.of(ranks) if self.watch.movable else {}
        if wanted is not None and wanted.given.keys() <= set(ranks):
            slices = wanted.given
        elif rates:
            slices = assign(self._job.data.items, rates, self._job.spec.chunk or 1)
        else:
            parts = self._job.data.split(len(ranks), self._job.spec.chunk)
            slices = dict(zip(ranks, parts, strict=True))
        slices = {rank: part for rank, part in slices.items() if part}
        if self._given:
            reason = "agents left or came" if wanted is None else wanted.reason
            self._job.recorder.move(
                Move(
                    at=self.watch.now,
                    iteration=iterated + 1,
                    source=source,
                    target=target,
                    items=items,
                    reason=reason,
                )
                for source, target, items in moved(self._given, slices)
            )
            _log.info("data cut anew", run=self._job.name, iteration=iterated, reason=reason)
            self._cuts += 1
        self._given = slices
        return slices

    def gather(
        self, built: Built, published: Published, slices: dict[int, range]
    ) -> tuple[RunParticipants, MakeOrder]:
        """Return the agents of a cut, not opened yet, and what an agent needs to open items."""
        context = self.context
        check_versions(
            self._job.program.bundle.pickled, self._job.program.name, self._job.session.pythons
        )
        image = make_image(self._job.program, built, self._job.cache)
        encoded = msgspec.msgpack.encode(image)
        function = self._function
        replace, options = self._job.spec.on_agent_loss == "replace", self._job.spec.options
        handlers = build_crash_handlers(self._job.cache, built)
        content = self._offered.code(image, handlers)
        at_places = encoded
        if has_reducers(self._job.program.reduce) and not self._job.session.shares_machine(ROOT):
            # The root fetches nothing: it gets the program itself, not the file that has it.
            at_places = msgspec.msgpack.encode(make_image(self._job.program, built))
        self.code = ProgramCode(at_places, handlers, content)

        def order(rank: int, part: range) -> agent_requests.OpenRun:
            self._job.life.must_go_on()
            ref, needed = self._offered.slice(published.ref(part.start, part.stop), rank)
            return agent_requests.OpenRun(
                run=context,
                image=encoded,
                slice=msgspec.msgpack.encode(ref),
                start=part.start,
                stop=part.stop,
                function=function,
                options=options,
                crash_handlers=list(handlers),
                content=[] if self._job.session.shares_machine(rank) else [*content, *needed],
                reduce=built_in(self._job.program.reduce) if self._grid else {},
                trace=self._job.span.carrier if self._job.span is not None else {},
            )

        opening = {rank: order(rank, part) for rank, part in slices.items()}
        self._job.life.must_go_on()
        return RunParticipants(self._job.session, opening, replace=replace), order

    def release(self, participants: RunParticipants, slices: dict[int, range]) -> None:
        """Let the agents of a cut forget the run, and add what they did to what they did before."""
        said = participants.close()
        self.replaced += participants.replaced
        for rank, closed in said.items():
            self.watch.heard(rank, closed.pulse)
            self._note_agent(closed.statistics, slices[rank])

    def _note_agent(self, found: AgentStatistics | None, part: range) -> None:
        """Add what an agent did with its slice to what it did before."""
        if found is None:
            return
        before = self.statistics.get(found.agent)
        whole_run = found if before is None else added(before, found)
        self.statistics[found.agent] = msgspec.structs.replace(
            whole_run, start=part.start, stop=part.stop
        )

    def _why_in_place(self) -> str:
        """Return why items stay where they are; empty if they may move."""
        if self._job.setup.delegation.how != "measured":
            return "delegate is static"
        if self._job.program.movable is False:
            return "the program says that it is not movable"
        if self._kept:
            return f"its map seems to keep something: {self._kept}"
        if REPRODUCIBLE in self._job.program.reduce.values() and not self._grid:
            return f"{REPRODUCIBLE} gives the same bits after a move only with a chunk size"
        return ""

    @property
    def _function(self) -> str:
        """What the map is called."""
        return self._job.program.map_function or f"{self._job.program.name}.map"

    def guess_rates(self) -> None:
        """Take what former runs have measured for the rates of agents until they are measured."""
        history = self._job.setup.history
        if history is None or not self.watch.movable:
            return
        found = self._history = read_history(
            history, key_of(self._job.program.hash, self._function)
        )
        if found is None:
            return
        machines = agent_machines(self._job.session)
        guessed = found.guess({rank: (one.node, one.kind) for rank, one in machines.items()})
        if guessed:
            self.watch.guess(guessed)
            described = found.described(len(guessed), len(machines), history.place)
            self._job.recorder.first_guess = described

    def keep_rates(self) -> None:
        """Keep what was measured for the next run of this function."""
        history, function = self._job.setup.history, self._function
        rates = self.watch.rates
        measured = [
            MeasuredRate(agent=one.agent, node=one.node, kind=one.kind, rate=rate)
            for one in self._job.recorder.agents
            for rate in rates.of([one.agent]).values()
            if rates.measured(one.agent)
        ]
        if history is None or not self.watch.movable or not measured:
            return
        known = self._history or FunctionHistory(function=function, run=self._job.name, written=0.0)
        kept = known.with_run(self._job.name, time.time(), measured)
        history.write(key_of(self._job.program.hash, function), msgspec.json.encode(kept))


def agent_machines(session: SessionInterface) -> dict[int, agent_requests.AgentMachine]:
    """Ask agents for their machines; those that do not answer soon are left out."""
    ranks = session.tree.agent_ranks
    asked = {rank: session.ask(rank, agent_requests.MACHINE, None) for rank in ranks}
    wait(asked.values(), MACHINE_TIME)
    return {
        rank: typed.convert(one.result(), agent_requests.AgentMachine)
        for rank, one in asked.items()
        if one.done() and not one.cancelled() and one.exception() is None
    }


def _has_grid(reduce: dict[str, str], data: Dataset, *, own: bool) -> bool:
    """Return whether the map is called for each chunk of a slice, not once with all of it."""
    wanted = REPRODUCIBLE in reduce.values() and set(reduce.values()) <= GRID_REDUCTIONS
    return wanted and not own and data.per_item


def has_own_code(program: Program) -> bool:
    """Whether code of the program puts results together."""
    return has_reducers(program.reduce) or type(program).own_filter is not Program.own_filter
