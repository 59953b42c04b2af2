"""How a runner is set up."""

import msgspec

ORDINAL = "SAPWOOD_AGENT"
"""Environment variable of a runner: which of its machine's agents it belongs to, from 0 on."""


class RunnerOptions(msgspec.Struct, frozen=True):
    """How a runner is set up.

    Attributes:
        memory: Limit of private memory in bytes; 0 for none.
        output: Bytes of captured output that are kept.
        threads: Threads that OpenMP and BLAS may use.
        idle: Seconds that a runner without work and without an open program is kept; 0 for ever.
        keep: Bytes of freed memory that are kept for the next arrays.
        ordinal: Which of the machine's agents it belongs to, from 0 on: that chooses its device.
        bound_agents: How many agents stay on the machine's cores during runs; 0 for none.
        check_memory: Whether all arrays of native functions are put between guards.
        spin: Seconds to look for the next call before sleeping, where the last came as soon.
        fastpath: Whether calls that are alike may be made by a library.
        content: The folder in which its node keeps content that was fetched.
    """

    memory: int = 0
    output: int = 64 * 1024
    threads: int = 1
    idle: float = 60.0
    keep: int = 0
    ordinal: int = 0
    bound_agents: int = 0
    check_memory: bool = False
    spin: float = 0.0
    fastpath: bool = True
    content: str = ""
