"""Sets of host names, folded as people write them: ``gpu[1-4,7]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown

MAX_HOSTS = 100_000
"""Hosts that one expression may name."""

_DIGITS = 18
"""Digits of one number in a name; longer ones are not folded."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(rf"([0-9]{{1,{_DIGITS}}})(?:-([0-9]{{1,{_DIGITS}}}))?")
_NUMBERED = re.compile(rf"(?s)^(|.*?[^0-9])([0-9]{{1,{_DIGITS}}})([^0-9]*)$")


def split_hosts(text: str) -> list[str]:
    """Split a list of host names at commas that are not in brackets.

    Example:
        >>> split_hosts("n[1,3],m1")
        ['n[1,3]', 'm1']
    """
    parts = re.split(r",(?![^\[]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def expand_hosts(text: str) -> list[str]:
    """Return the names of an expression, in its order.

    Raises:
        ConfigurationError: It is malformed, or names too many.

    Example:
        >>> expand_hosts("gpu[08-10,12]-ib,n1")
        ['gpu08-ib', 'gpu09-ib', 'gpu10-ib', 'gpu12-ib', 'n1']
    """
    found: list[str] = []
    for part in split_hosts(text):
        found += _expand(part, text)
        if len(found) > MAX_HOSTS:
            raise _too_many(text)
    return found


def _expand(part: str, whole: str) -> list[str]:
    match = _BRACKETS.search(part)
    if match is None:
        if "[" in part or "]" in part:
            raise _malformed(whole)
        return [part]
    before, after = part[: match.start()], part[match.end() :]
    names: list[str] = []
    rest = _expand(after, whole) if after else [""]
    count = 0
    for piece in match.group(1).split(","):
        numbers = _RANGE.fullmatch(piece.strip())
        if numbers is None:
            raise _malformed(whole)
        first, last = numbers.group(1), numbers.group(2) or numbers.group(1)
        if int(last) < int(first):
            raise _malformed(whole)
        count += (int(last) - int(first) + 1) * len(rest)
        if count > MAX_HOSTS:
            raise _too_many(whole)
        width = len(first) if first.startswith("0") else 0
        names += [
            f"{before}{number:0{width}d}{end}"
            for number in range(int(first), int(last) + 1)
            for end in rest
        ]
    return names


def fold_hosts(names: Iterable[str]) -> str:
    """Return names as one short expression; what differs in one number is folded.

    Example:
        >>> fold_hosts(["gpu1", "gpu2", "gpu3", "gpu7", "login"])
        'gpu[1-3,7],login'
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    order: list[tuple[str, str, int] | str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.match(name)
        if match is None:
            order.append(name)
            continue
        before, digits, after = match.groups()
        key = (before, after, len(digits) if digits.startswith("0") else 0)
        if key not in groups:
            groups[key] = []
            order.append(key)
        groups[key].append(int(digits))
    return ",".join(one if isinstance(one, str) else _fold(*one, groups[one]) for one in order)


def _fold(before: str, after: str, width: int, numbers: Sequence[int]) -> str:
    numbers = sorted(set(numbers))
    if len(numbers) == 1:
        return f"{before}{numbers[0]:0{width}d}{after}"
    pieces: list[str] = []
    start = previous = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == previous + 1:
            previous = number
            continue
        first, last = f"{start:0{width}d}", f"{previous:0{width}d}"
        pieces.append(first if start == previous else f"{first}-{last}")
        start = previous = number
    return f"{before}[{','.join(pieces)}]{after}"


def _too_many(text: str) -> ConfigurationError:
    return ConfigurationError(f"more than {MAX_HOSTS} hosts", where=text[:80])


def _malformed(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"{shown(text)} is not a set of hosts", hint="write for example n1,n2 or gpu[1-4,7]"
    )
