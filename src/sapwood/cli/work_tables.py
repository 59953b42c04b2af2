"""Which agent did which work in a run, and why it moved, as tables and lines."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from sapwood.activity.run_record import AgentShare, Move, RecordedAgent, WorkStatistics
from sapwood.cli import present
from sapwood.cli.present import FittingTable, shortened, table, write

LAST = 8
"""Moves, late chunks and losses that are shown; ``--json`` has more."""


def show_work(work: WorkStatistics) -> None:
    """Print a record; nothing where no agent has said anything yet."""
    if not work.agents:
        return
    write("", _agents(work))
    typer.echo(f"  items are {_how(work)}")
    for lines in (_moves(work), _late(work), _losses(work), _checkpoints(work)):
        for line in lines:
            typer.echo(line)


def _how(work: WorkStatistics) -> str:
    if work.kept_in_place:
        return f"kept where they are: {work.kept_in_place}"
    if work.delegate == "measured":
        first = work.first_guess or "equal parts, because nothing was measured before"
        return f"given to agents by their measured rates; at first by {first}"
    return "given to agents in equal parts"


def _agents(work: WorkStatistics) -> FittingTable:
    columns = ("agent>", "node", "items>", "items/s>", "in map>", "waited>", "came>", "went>")
    rows = shortened([_agent(one, work) for one in work.agents])
    optional = ("waited", "node", "came", "went")
    return FittingTable("Work of each agent (mean of the last iterations)", columns, rows, optional)


def _agent(agent: RecordedAgent, work: WorkStatistics) -> Sequence[str]:
    shares = [
        share for one in work.iterations for share in one.agents if share.agent == agent.agent
    ]
    came = sum(move.items for move in work.moves if move.target == agent.agent)
    went = sum(move.items for move in work.moves if move.source == agent.agent)
    return (
        str(agent.agent),
        agent.node or "-",
        present.count(agent.stop - agent.start),
        present.count(agent.rate or _rate(shares)) if shares or agent.rate else "-",
        _mean([share.seconds for share in shares]),
        _mean([share.waited for share in shares]),
        present.count(came) if came else "-",
        present.count(went) if went else "-",
    )


def _rate(shares: Sequence[AgentShare]) -> float:
    seconds = sum(share.seconds for share in shares)
    return sum(share.items for share in shares) / seconds if seconds else 0.0


def _mean(values: Sequence[float]) -> str:
    return present.seconds(sum(values) / len(values)) if values else "-"


def _moves(work: WorkStatistics) -> list[str]:
    if not work.moves:
        return []
    rows = [_move(one) for one in work.moves[-LAST:]]
    write("", table("Moves", ("before", "from > to", "items>", "why"), rows, wrap="why"))
    return _more(work.counts.get("moves", 0) - len(rows))


def _move(move: Move) -> Sequence[str]:
    return (
        str(move.iteration),
        f"{move.source} > {move.target}",
        present.count(move.items),
        move.reason,
    )


def _late(work: WorkStatistics) -> list[str]:
    if not work.late:
        return []
    rows = [
        (
            str(one.iteration),
            str(one.agent),
            str(one.by),
            present.count(one.stop - one.start),
            one.outcome,
            one.reason,
        )
        for one in work.late[-LAST:]
    ]
    columns = ("iteration", "late>", "done by>", "items>", "outcome", "why")
    write("", table("Late, done elsewhere as well", columns, rows, wrap="why"))
    return _more(work.counts.get("late", 0) - len(rows))


def _losses(work: WorkStatistics) -> list[str]:
    if not work.losses:
        return []
    rows = [
        (present.seconds(one.at), str(one.iteration), str(one.agent), one.what, one.reason)
        for one in work.losses[-LAST:]
    ]
    columns = ("after", "iteration>", "agent>", "what", "why")
    write("", table("Agents that went and came", columns, rows, wrap="why"))
    return _more(work.counts.get("losses", 0) - len(rows))


def _checkpoints(work: WorkStatistics) -> list[str]:
    if not work.checkpoints:
        return []
    last = work.checkpoints[-1]
    count = work.counts.get("checkpoints", len(work.checkpoints))
    times = f"{count} checkpoint{'' if count == 1 else 's'}"
    seconds = present.seconds(last.seconds)
    return ["", f"{times}, the last after iteration {last.iteration}, in {seconds}"]


def _more(left_out: int) -> list[str]:
    return [f"  … and {left_out} before them"] if left_out > 0 else []
