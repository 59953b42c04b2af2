"""What a run cost: per agent, and per function and agent."""

from __future__ import annotations

from html import escape

import msgspec


class FunctionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one function on one agent; times in seconds, sizes in bytes.

    ``mean``, ``p50``, ``p95`` and ``maximum`` are over the successful calls; the two
    percentiles are over the last calls only, as many as a runner remembers.
    """

    name: str
    calls: int = 0
    errors: int = 0
    total: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    maximum: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0


class AgentStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent did in a run.

    Attributes:
        agent: Rank of the agent in the tree.
        pid: Process id of the agent.
        start: First item of its slice.
        stop: End of its slice, exclusive.
        items: Length of its slice.
        calls: Calls of the map.
        errors: Calls that failed.
        map_seconds: Time inside the map.
        wait_seconds: Time between an answer and the next request.
        items_per_second: Items mapped per second of ``map_seconds``.
        functions: Each function that was called.
    """

    agent: int
    pid: int
    start: int = 0
    stop: int = 0
    items: int = 0
    calls: int = 0
    errors: int = 0
    map_seconds: float = 0.0
    wait_seconds: float = 0.0
    items_per_second: float = 0.0
    functions: tuple[FunctionStatistics, ...] = ()


class RunStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole run cost; times in seconds."""

    program: str
    iterations: int = 0
    seconds: float = 0.0
    build_seconds: float = 0.0
    prepare_seconds: float = 0.0
    update_seconds: float = 0.0
    replaced_agents: int = 0
    agents: tuple[AgentStatistics, ...] = ()

    def _repr_html_(self) -> str:
        titles = ("agent", "slice", "calls", "items/s", "map s", "wait s")
        head = "".join(f"<th>{title}</th>" for title in titles)
        rows = "".join(
            f"<tr><td>{a.agent}</td><td>{a.start}:{a.stop}</td><td>{a.calls}</td>"
            f"<td>{a.items_per_second:,.0f}</td><td>{a.map_seconds:.3f}</td>"
            f"<td>{a.wait_seconds:.3f}</td></tr>"
            for a in self.agents
        )
        title = f"{escape(self.program)}: {self.iterations} iterations, {self.seconds:.2f} s"
        return f"<table><caption>{title}</caption><tr>{head}</tr>{rows}</table>"
