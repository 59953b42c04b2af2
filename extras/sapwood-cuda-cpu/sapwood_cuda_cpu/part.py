"""A part of a kernel between two cuts."""

from __future__ import annotations

from typing import Any

from sapwood_cuda_cpu.parse import declared_names, walk
from sapwood_cuda_cpu.stride import StrideLoop
from sapwood_cuda_cpu.variables import used_words


class Part:
    """Statements that stand together and hold no barrier.

    Attributes:
        compound: What they stand in.
        statements: The statements.
        before: Declarations among them that are moved before the loop.
        stride: The grid-stride loop that the part is, if it is one.
        declared: Names that the statements declare for what follows.
    """

    def __init__(
        self, compound: Any, statements: list[Any], before: list[Any], stride: StrideLoop | None
    ) -> None:
        self.compound = compound
        self.statements = statements
        self.before = before
        self.stride = stride
        self.declared = {
            name
            for node in statements
            if node.type == "declaration"
            for name in declared_names(node)
        }
        self.words: set[str] = set().union(*(used_words(node) for node in statements))

    @property
    def nodes(self) -> list[Any]:
        """Everything in it."""
        return [each for node in self.statements for each in walk(node)]
