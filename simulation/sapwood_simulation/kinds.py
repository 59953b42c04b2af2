"""The kinds of simulations, by name."""

from __future__ import annotations

from sapwood.core.errors import ConfigurationError
from sapwood_simulation.group_simulation import GroupSimulation
from sapwood_simulation.membership_simulation import MembershipSimulation
from sapwood_simulation.message_simulation import MessageSimulation
from sapwood_simulation.node_simulation import NodeSimulation
from sapwood_simulation.piece_simulation import PieceSimulation
from sapwood_simulation.run_simulation import RunSimulation
from sapwood_simulation.session_simulation import SessionSimulation
from sapwood_simulation.simulation import Simulation, SimulationOptions
from sapwood_simulation.stream_simulation import StreamKind, StreamSimulation

KINDS: dict[str, type[Simulation]] = {
    kind.what: kind
    for kind in (
        Simulation,
        StreamSimulation,
        GroupSimulation,
        MessageSimulation,
        PieceSimulation,
        MembershipSimulation,
        NodeSimulation,
        SessionSimulation,
        RunSimulation,
    )
}
"""The classes of simulations, from ``waves`` to ``sessions``, by the name of each kind."""


def made(what: str, options: SimulationOptions, kind: StreamKind | None = None) -> Simulation:
    """Return a simulation, to be run.

    Args:
        what: A name of :data:`KINDS`.
        options: The tree, the seed and the faults.
        kind: Of ``streams``: what the stream is.

    Raises:
        ConfigurationError: There is no such simulation.

    Example:
        >>> made("messages", SimulationOptions(agents=4, waves=1)).run().waves
        50
    """
    if what not in KINDS:
        raise ConfigurationError(f"{what!r} cannot be simulated", hint=f"one of {', '.join(KINDS)}")
    if what == StreamSimulation.what:
        return StreamSimulation(options, kind or StreamKind())
    return KINDS[what](options)
