"""An agent samples the stack of its runner, and contributes how often it saw each stack.

A profile is a stream: each wave has the agents sample for some seconds more, and brings the samples
since the wave before. Junctions add them up. An agent of which no wave wants more samples stops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sapwood.code.runner.runner_host import RunnerHost
from sapwood.code.runner.stack_reader import StackText
from sapwood.code.stacks import FrameInfo, from_faulthandler, is_serving
from sapwood.comm import plain
from sapwood.comm.loop import Loop, Timer
from sapwood.core import typed
from sapwood.core.errors import ResourceError
from sapwood.session.agent import Agent, Contribution

MAX_STACKS: Final = 1000
"""Different stacks that an agent counts, and that the root has in the end."""

MAX_TEXT: Final = 3000
"""Characters of one stack that are kept: the outermost frames."""

LEAST_RATE: Final = 1.0
MOST_RATE: Final = 200.0
"""Samples per second."""

MAX_PROFILES: Final = 8
"""Profiles that an agent takes part in at a time."""

LONGEST: Final = 30.0
"""Seconds for which one wave may have agents sample."""

OTHERS: Final = ""
"""The stack of samples of further stacks."""

IDLE: Final = "idle"
"""The stack of a runner that executes no user code."""

STARTS: Final = "(a runner starts)"
"""The stack of a runner that cannot execute user code yet."""

FRAMES: Final = "\n"
FILE: Final = "\t"
"""What separates the frames of a stack, the outermost first, and a function from its file."""

REDUCE: Final = {"agents": "sum", "stacks": f"tally:{MAX_STACKS}"}
"""The fields of a contribution, and how each is reduced."""


class SampleOrder(msgspec.Struct, frozen=True):
    """What a wave asks for.

    Attributes:
        rate: Samples per second; 0 for no more.
        seconds: For how long, unless a further wave comes.
    """

    rate: float = 0.0
    seconds: float = 0.0


_order = typed.unpacker(SampleOrder)


class StackSamplers:
    """The profiles that an agent takes part in, by their streams.

    Args:
        agent: The agent.
        runner: Its runner.
    """

    def __init__(self, agent: Agent, runner: RunnerHost) -> None:
        self._agent = agent
        self._runner = runner
        self._by_stream: dict[int, StackSampler] = {}

    def wave(self, contribution: Contribution) -> None:
        """Contribute the samples since the last wave, and continue as the wave says."""
        stream = contribution.arrived.spec.stream
        order = _order(contribution.arrived.body)
        sampler = self._by_stream.pop(stream, None) or StackSampler(self._agent.loop, self._runner)
        found = sampler.next(order)
        self._by_stream = {key: one for key, one in self._by_stream.items() if one.is_active}
        if order.rate > 0:
            if len(self._by_stream) >= MAX_PROFILES:
                contribution.fail(ResourceError(f"agents take part in {MAX_PROFILES} profiles"))
                sampler.stop()
                return
            self._by_stream[stream] = sampler
        contribution.give(plain.encode({"agents": 1, "stacks": found}), None)


class StackSampler:
    """Samples the stack of a runner for one profile.

    Args:
        loop: Event loop of the agent.
        runner: Its runner.
    """

    def __init__(self, loop: Loop, runner: RunnerHost) -> None:
        self._loop = loop
        self._runner = runner
        self._counts: dict[str, int] = {}
        self._keys: dict[str, str] = {}  # by what runners wrote, which is the same very often
        self._timer: Timer | None = None
        self._period = self._until = 0.0

    @property
    def is_active(self) -> bool:
        """Whether it takes further samples."""
        return self._timer is not None

    def next(self, order: SampleOrder) -> dict[str, int]:
        """Return the samples since the last time, and continue as an order says."""
        counts, self._counts = self._counts, {}
        self.stop()
        if order.rate > 0:
            self._period = 1.0 / min(max(order.rate, LEAST_RATE), MOST_RATE)
            self._until = self._loop.time() + min(order.seconds, LONGEST)
            self._timer = self._loop.call_later(self._period, self._sample)
        return counts

    def stop(self) -> None:
        """Take no further samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample(self) -> None:
        self._timer = None
        if self._loop.time() >= self._until:
            return
        self._timer = self._loop.call_later(self._period, self._sample)
        if self._runner.pid:
            self._runner.sample_stack(self._sampled)
        else:
            self._count(IDLE)

    def _sampled(self, found: StackText) -> None:
        if not found.text:
            return  # it is stopped, or has just begun or ended
        key = self._keys.get(found.text)
        if key is None:
            key = key_of(found.text)
            if len(self._keys) < MAX_STACKS:
                self._keys[found.text] = key
        self._count(key)

    def _count(self, stack: str) -> None:
        if stack not in self._counts and len(self._counts) >= MAX_STACKS:
            stack = OTHERS
        self._counts[stack] = self._counts.get(stack, 0) + 1


def key_of(text: str) -> str:
    """Return the stack that a runner wrote."""
    if not is_serving(text):
        return STARTS
    main = next((one for one in from_faulthandler(text) if one.main), None)
    return IDLE if main is None or _waits(main.frames) else stack_key(main.frames)


def _waits(frames: tuple[FrameInfo, ...]) -> bool:
    """Whether a runner waits for its agent, in the C loop that calls a program again and again.

    Example:
        >>> waiting = FrameInfo("recv+0x1f", "/lib/libc.so.6", native=True)
        >>> _waits((waiting,)), _waits((waiting, FrameInfo("read", "/b.py", 7)))
        (True, False)
    """
    return all(one.native and Path(one.file).name.startswith("libc.so") for one in frames)


def stack_key(frames: tuple[FrameInfo, ...]) -> str:
    r"""Return a stack as one text, without lines, so that few stacks differ.

    Example:
        >>> stack_key((FrameInfo("f+0x1f", "/tmp/a.so", native=True), FrameInfo("g", "/b.py", 7)))
        'g\t/b.py\nf\t/tmp/a.so'
    """
    texts = (f"{_function(one)}{FILE}{one.file}" for one in reversed(frames))
    text = FRAMES.join(texts)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT].rpartition(FRAMES)[0]


def _function(frame: FrameInfo) -> str:
    """Return a function without the place in it, which only one without a name needs."""
    name, _, _ = frame.function.partition("+0x") if frame.native else (frame.function, "", "")
    return name or frame.function
