"""What a run consists of: what the user gave, and the records of its course."""

from __future__ import annotations

import msgspec

from sapwood.activity.delegation import DelegationOptions
from sapwood.activity.rate_history import RateHistory
from sapwood.activity.run_life import RunLife
from sapwood.activity.run_record import RunRecorder
from sapwood.code.cache import BuildCache
from sapwood.code.program import Program
from sapwood.code.run_spec import RunSpec
from sapwood.code.target import Target
from sapwood.data.dataset import Dataset
from sapwood.environment.tracing import TraceSpan
from sapwood.session.interface import SessionInterface


class RunSetup(msgspec.Struct, frozen=True):
    """What a run gets from its cluster, besides its options.

    Attributes:
        environment: Variables of builds.
        targets: What the agents are; empty for this machine.
        checkpoint_share: Share of the time of the run that its checkpoints may take.
        delegation: How items are given to agents.
        history: Where it is kept what agents were measured to do; None to keep and know nothing.
    """

    environment: dict[str, str] = {}
    targets: tuple[Target, ...] = ()
    checkpoint_share: float = 0.02
    delegation: DelegationOptions = DelegationOptions()
    history: RateHistory | None = None


class RunJob(msgspec.Struct, kw_only=True):
    """A run, as its driver and its cutter share it.

    Attributes:
        name: What users call the run.
        session: Where it runs.
        program: What runs.
        data: What it runs over.
        cache: Where built libraries are kept.
        spec: Its options, complete and checked.
        setup: What it gets from its cluster.
        life: Where it is in its life.
        recorder: Records which agent does which work.
        span: Its span in traces; None without traces.
    """

    name: str
    session: SessionInterface
    program: Program
    data: Dataset
    cache: BuildCache
    spec: RunSpec
    setup: RunSetup
    life: RunLife
    recorder: RunRecorder
    span: TraceSpan | None = None
