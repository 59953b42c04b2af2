"""What a run cost: per agent, and per function and agent."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sapwood.activity.durations import Buckets, Durations
from sapwood.code.transfers import NOTHING, DeviceTransfers
from sapwood.core.html_table import html_table
from sapwood.environment.units import describe_size

TITLES = ("agent", "slice", "calls", "items/s", "map s", "wait s")
DEVICE_TITLES = ("to device", "from device", "launches")


class FunctionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one function on one agent, or on all agents of a machine.

    Times are in seconds, sizes in bytes. ``mean``, ``p50``, ``p95`` and ``maximum`` are over the
    successful calls; the two percentiles are right to 2.2 %.

    Attributes:
        name: The function.
        node: The machine, as it calls itself.
        agents: How many agents of it have called the function.
        calls: Calls.
        errors: Calls that failed.
        total: Time of all.
        mean: Time of one.
        p50: Time that half of them were not above.
        p95: Time that 95 % of them were not above.
        maximum: The longest time.
        bytes_in: What the calls were given.
        bytes_out: What they gave back.
        device_seconds: Time of copies to and from devices and of launches there, where the
            language measures it.
        durations: How long calls took: numbers of buckets of which there are sixteen for each
            doubling, the second as bucket 0, and how many calls are in each.
    """

    name: str
    node: str = ""
    agents: int = 1
    calls: int = 0
    errors: int = 0
    total: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    maximum: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    device_seconds: float = 0.0
    durations: Buckets = ()


def summed_up(function: FunctionStatistics) -> FunctionStatistics:
    """Return statistics with the mean and the percentiles that follow from the others."""
    counted = Durations(function.durations)
    good = function.calls - function.errors
    return msgspec.structs.replace(
        function,
        mean=function.total / good if good else 0.0,
        p50=min(counted.quantile(0.5), function.maximum),
        p95=min(counted.quantile(0.95), function.maximum),
    )


def together(
    one: FunctionStatistics, other: FunctionStatistics, *, same_agent: bool = False
) -> FunctionStatistics:
    """Return the statistics of two parts of the calls of one function.

    Args:
        one: The statistics of some calls.
        other: Those of others.
        same_agent: Whether the same agent made both.

    Example:
        >>> one = FunctionStatistics(name="f", calls=3, total=6.0, maximum=2.0)
        >>> both = together(one, FunctionStatistics(name="f", calls=1, total=8.0, maximum=8.0))
        >>> both.calls, both.mean, both.maximum, both.agents
        (4, 3.5, 8.0, 2)
    """
    return summed_up(
        msgspec.structs.replace(
            other,
            agents=max(one.agents, other.agents) if same_agent else one.agents + other.agents,
            calls=one.calls + other.calls,
            errors=one.errors + other.errors,
            total=one.total + other.total,
            maximum=max(one.maximum, other.maximum),
            bytes_in=one.bytes_in + other.bytes_in,
            bytes_out=one.bytes_out + other.bytes_out,
            device_seconds=one.device_seconds + other.device_seconds,
            durations=(Durations(one.durations) + Durations(other.durations)).buckets,
        )
    )


def by_function_and_node(found: Iterable[FunctionStatistics]) -> tuple[FunctionStatistics, ...]:
    """Return the statistics of each function on each machine, in the order of their names."""
    sums: dict[tuple[str, str], FunctionStatistics] = {}
    for one in found:
        key = one.name, one.node
        sums[key] = together(sums[key], one) if key in sums else one
    return tuple(sums[key] for key in sorted(sums))


class AgentStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent did in a run.

    Attributes:
        agent: Rank of the agent in the tree.
        pid: Process id of the agent.
        node: Its machine, as that calls itself.
        start: First item of its slice.
        stop: End of its slice, exclusive.
        items: Length of its slice.
        calls: Calls of the map.
        errors: Calls that failed.
        repeated: Calls that were repeated because their runner was killed.
        map_seconds: Time inside the map.
        wait_seconds: Time between an answer and the next request.
        items_per_second: Items mapped per second of ``map_seconds``.
        functions: Each function that was called.
        device: Copies to and from its device, and launches; None when it used none.
        relayed: Calls that passed the agent without its interpreter.
        read_bytes: Bytes of files that it read itself to open its slice; what it mapped or held
            already does not count.
    """

    agent: int
    pid: int
    node: str = ""
    start: int = 0
    stop: int = 0
    items: int = 0
    calls: int = 0
    errors: int = 0
    repeated: int = 0
    map_seconds: float = 0.0
    wait_seconds: float = 0.0
    items_per_second: float = 0.0
    functions: tuple[FunctionStatistics, ...] = ()
    device: DeviceTransfers | None = None
    relayed: int = 0
    read_bytes: int = 0


def added(before: AgentStatistics, after: AgentStatistics) -> AgentStatistics:
    """Return what an agent did in two parts of a run; with the slice and rate of the second.

    Example:
        >>> first, second = (AgentStatistics(agent=1, pid=pid, calls=2) for pid in (7, 8))
        >>> both = added(first, second)
        >>> both.pid, both.calls
        (8, 4)
    """
    return msgspec.structs.replace(
        after,
        calls=before.calls + after.calls,
        errors=before.errors + after.errors,
        repeated=before.repeated + after.repeated,
        map_seconds=before.map_seconds + after.map_seconds,
        wait_seconds=before.wait_seconds + after.wait_seconds,
        relayed=before.relayed + after.relayed,
        functions=_of_both(before.functions, after.functions),
        device=_sum(before.device, after.device),
        read_bytes=before.read_bytes + after.read_bytes,
    )


def _of_both(
    before: tuple[FunctionStatistics, ...], after: tuple[FunctionStatistics, ...]
) -> tuple[FunctionStatistics, ...]:
    sums = {one.name: one for one in before}
    for one in after:
        known = sums.get(one.name)
        sums[one.name] = one if known is None else together(known, one, same_agent=True)
    return tuple(sums.values())


def _sum(before: DeviceTransfers | None, after: DeviceTransfers | None) -> DeviceTransfers | None:
    return after if before is None else before if after is None else before + after


class RunStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole run cost; times in seconds.

    ``cut_short`` says that ``max_iterations`` ended the run before its program was done,
    ``resumed_from`` after which iteration it resumed; ``iterations`` also counts earlier ones.
    """

    program: str
    iterations: int = 0
    cut_short: bool = False
    seconds: float = 0.0
    build_seconds: float = 0.0
    prepare_seconds: float = 0.0
    update_seconds: float = 0.0
    replaced_agents: int = 0
    resumed_from: int | None = None
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    agents: tuple[AgentStatistics, ...] = ()

    def __str__(self) -> str:
        rows = [self._titles(), *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (map(str.rjust, row, widths) for row in rows)
        return "\n".join([self._headline(), *map("  ".join, lines)])

    def __repr__(self) -> str:
        return f"<RunStatistics {self._headline()}, {len(self.agents)} agents>"

    def _repr_html_(self) -> str:
        return html_table(self._rows(), self._titles(), self._headline())

    @property
    def functions(self) -> tuple[FunctionStatistics, ...]:
        """The statistics of each function on each machine."""
        return by_function_and_node(one for agent in self.agents for one in agent.functions)

    @property
    def uses_devices(self) -> bool:
        """Whether an agent copied anything to or from a device."""
        return any(agent.device is not None for agent in self.agents)

    def _titles(self) -> tuple[str, ...]:
        return (*TITLES, *DEVICE_TITLES) if self.uses_devices else TITLES

    def _headline(self) -> str:
        iterations = f"{self.iterations} iteration{'' if self.iterations == 1 else 's'}"
        limit = " (max_iterations)" if self.cut_short else ""
        return f"{self.program}: {iterations}{limit}, {self.seconds:.2f} s"

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                str(a.agent),
                f"{a.start}:{a.stop}",
                str(a.calls),
                f"{a.items_per_second:,.0f}",
                f"{a.map_seconds:.3f}",
                f"{a.wait_seconds:.3f}",
                *(_device_cells(a.device) if self.uses_devices else ()),
            )
            for a in self.agents
        ]


def _device_cells(device: DeviceTransfers | None) -> tuple[str, ...]:
    moved = device or NOTHING
    return (
        f"{moved.copies_in}: {describe_size(moved.bytes_in)}, {moved.seconds_in:.3f} s",
        f"{moved.copies_out}: {describe_size(moved.bytes_out)}, {moved.seconds_out:.3f} s",
        f"{moved.launches}: {moved.launch_seconds:.3f} s",
    )
