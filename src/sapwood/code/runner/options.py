"""How a runner is set up."""

import msgspec


class RunnerOptions(msgspec.Struct, frozen=True):
    """How a runner is set up.

    Attributes:
        memory: Limit of private memory in bytes; 0 for none.
        output: Bytes of captured output that are kept.
        threads: Threads that OpenMP and BLAS may use.
    """

    memory: int = 0
    output: int = 64 * 1024
    threads: int = 1
