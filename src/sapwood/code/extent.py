"""Extents of arrays as annotations write them: ``n``, ``16``, ``rows*cols``, ``2*(n+1)``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sapwood.core.errors import ProgramError

MAX_EXPRESSION: Final = 200
"""Characters of one extent."""

_SYMBOL = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|([-+*/()]))")

_OPERATORS: Final[Mapping[str, tuple[int, Callable[[int, int], int]]]] = {
    "+": (1, lambda a, b: a + b),
    "-": (1, lambda a, b: a - b),
    "*": (2, lambda a, b: a * b),
    "/": (2, lambda a, b: a // b),
}

_Step = int | str | Callable[[int, int], int]


class Extent:
    """An extent, parsed once.

    Attributes:
        text: As it was written.
        names: The names in it.
        name: The name when it is nothing else, otherwise None.
        constant: The number when it is nothing else, otherwise None.

    Raises:
        ProgramError: It is not a sum or product of names and whole numbers.

    Example:
        >>> Extent("2*(n+1)").value({"n": 3})
        8
    """

    __slots__ = ("_steps", "constant", "name", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        steps = _parsed(self.text)
        self._steps = steps
        self.names = tuple(dict.fromkeys(step for step in steps if isinstance(step, str)))
        only = steps[0] if len(steps) == 1 else None
        self.name = only if isinstance(only, str) else None
        self.constant = only if isinstance(only, int) else None

    def value(self, lengths: Mapping[str, int]) -> int:
        """Return the extent for given lengths.

        Raises:
            KeyError: A name is not among them.
            ZeroDivisionError: A divisor is zero.
        """
        stack: list[int] = []
        for step in self._steps:
            if isinstance(step, int):
                stack.append(step)
            elif isinstance(step, str):
                stack.append(lengths[step])
            else:
                right = stack.pop()
                stack.append(step(stack.pop(), right))
        return stack[0]

    def __repr__(self) -> str:
        return f"Extent({self.text!r})"


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[_Step, ...]:
    """Return the steps of an extent; cached, because functions need each several times."""
    return tuple(_postfix(text))


def _symbols(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _SYMBOL.match(text, position)
        if match is None or len(text) > MAX_EXPRESSION:
            raise _bad(text)
        yield match.group().strip()
        position = match.end()


def _postfix(text: str) -> list[_Step]:
    """Turn infix into postfix (the shunting-yard algorithm)."""
    output: list[_Step] = []
    waiting: list[str] = []
    operand_next = True
    for symbol in _symbols(text):
        if symbol == "(" or symbol.isdigit() or symbol.isidentifier():
            if not operand_next:
                raise _bad(text)
            if symbol == "(":
                waiting.append(symbol)
                continue
            output.append(int(symbol) if symbol.isdigit() else symbol)
            operand_next = False
            continue
        if operand_next:
            raise _bad(text)
        if symbol == ")":
            while waiting and waiting[-1] != "(":
                output.append(_OPERATORS[waiting.pop()][1])
            if not waiting:
                raise _bad(text)
            waiting.pop()
            continue
        rank = _OPERATORS[symbol][0]
        while waiting and waiting[-1] != "(" and _OPERATORS[waiting[-1]][0] >= rank:
            output.append(_OPERATORS[waiting.pop()][1])
        waiting.append(symbol)
        operand_next = True
    if operand_next or "(" in waiting:
        raise _bad(text)
    output.extend(_OPERATORS[symbol][1] for symbol in reversed(waiting))
    return output


def _bad(text: str) -> ProgramError:
    return ProgramError(
        f"an array's extent cannot be read: [{text[:MAX_EXPRESSION]}]",
        hint="use names and whole numbers with + - * / and brackets, for example [n] or [2*k]",
    )
