"""What the two kinds of programs have in common, seen from where their parts run.

A *coordinator* works at the root, a *worker* in the runner of an agent; *combining* may happen
anywhere on the way. States, parts and aggregates travel as values that fit into messages.
"""

from __future__ import annotations

from typing import Any, Protocol


class Coordinator(Protocol):
    """The part of a program that works at the root."""

    items: int
    """Points of the whole dataset."""

    def cut(self, start: int, stop: int) -> Any:
        """Return the points ``start`` to ``stop``, to be sent to a worker."""

    def first_state(self) -> Any:
        """Return the first global state, to be sent to the workers."""

    def next_state(self, parts: list[Any]) -> Any:
        """Take over what combining left of one iteration; return the next global state."""

    def done(self) -> bool:
        """Whether the last state is the end."""

    def end(self) -> tuple[Any, Any]:
        """Return the last aggregate and the last global state as a runner module gets them."""


class LizardWorker(Protocol):
    """The part of a program that works on one slice."""

    def iterate(self, state: Any) -> Any:
        """Return the partial result of one iteration."""

    def close(self) -> None:
        """Give back what was allocated."""


class Combiner(Protocol):
    """The part of a program that makes one partial result of several."""

    def combine(self, parts: list[Any], *, last: bool) -> list[Any]:
        """Return what stands for partial results, in this order; there is at least one.

        Args:
            parts: Partial results, or what this made of some.
            last: Whether the root takes the answer.
        """
