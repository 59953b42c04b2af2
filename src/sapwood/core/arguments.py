"""Checks of the arguments of public calls: each returns the value that the call works with.

A wrong argument is the error of the call that it is given to, and not of what the call does with
it later, perhaps in another process.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, TypeVar

from sapwood.core.errors import ConfigurationError, InputError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest

F = TypeVar("F", bound=Callable[..., Any])

MAX_SECONDS = 1e9
"""Seconds of the longest duration, about 30 years; Python cannot wait for more than 300."""

MAX_WHOLE = 2**63 - 1
"""Largest whole number."""

MAX_PATH = 16 * 1024
"""Characters of the longest path; systems take 4096, and addresses of objects may be longer."""


def whole(value: Any, name: str, kind: type[InputError] = InputError) -> int:
    """Return a whole number as ``int``, also one of numpy.

    Args:
        value: The argument.
        name: Its name.
        kind: The class of the error.

    Raises:
        InputError: It is not one of at most 63 bits; or one of its subclasses as ``kind`` says.

    Example:
        >>> whole(3, "chunk")
        3
        >>> whole("3", "chunk")
        Traceback (most recent call last):
        sapwood.core.errors.InputError: chunk is '3' (chunk). Hint: give a whole number
    """
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except Exception:  # noqa: BLE001, S110 - objects of users may do anything when asked
            pass
        else:
            if abs(number) <= MAX_WHOLE:
                return number
    raise kind(f"{name} is {shown(value)}", where=name, hint="give a whole number")


def wait_time(timeout: Any, name: str = "timeout") -> float | None:
    """Return how long a call may wait, in seconds; None for any time.

    As in the standard library a negative time does not wait; a call computes it from a deadline
    that has passed. A longer time than :data:`MAX_SECONDS` is that time.

    Raises:
        ConfigurationError: It is not a number.

    Example:
        >>> wait_time(None), wait_time(-1), wait_time(2), wait_time(1e300)
        (None, 0.0, 2.0, 1000000000.0)
        >>> wait_time("soon")
        Traceback (most recent call last):
        sapwood.core.errors.ConfigurationError: timeout is 'soon'. Hint: give seconds, or None \
for any time
    """
    if timeout is None:
        return None
    if not is_number(timeout):
        raise ConfigurationError(
            f"{name} is {shown(timeout)}", hint="give seconds, or None for any time"
        )
    return float(min(max(timeout, 0), MAX_SECONDS))


def duration(seconds: Any, name: str) -> float:
    """Return a limit in seconds; 0 for no limit. A longer one than :data:`MAX_SECONDS` is that.

    Raises:
        ConfigurationError: It is not a finite number, or negative.

    Example:
        >>> duration(2, "time_limit")
        2.0
        >>> duration(-1, "time_limit")
        Traceback (most recent call last):
        sapwood.core.errors.ConfigurationError: time_limit is -1. Hint: give seconds, or 0 for no \
limit
    """
    if not is_number(seconds) or not 0 <= seconds < math.inf:
        raise ConfigurationError(
            f"{name} is {shown(seconds)}", hint="give seconds, or 0 for no limit"
        )
    return float(min(seconds, MAX_SECONDS))


def choice(
    value: Any, name: str, choices: Iterable[str], kind: type[InputError] = ConfigurationError
) -> str:
    """Return a word that is one of several.

    Raises:
        InputError: It is not, or one of its subclasses as ``kind`` says.

    Example:
        >>> choice("all", "keep", ("all", "latest"))
        'all'
        >>> choice(None, "keep", ("all", "latest"))
        Traceback (most recent call last):
        sapwood.core.errors.ConfigurationError: keep is None. Hint: known: all, latest
    """
    words = tuple(choices)
    if isinstance(value, str) and value in words:
        return value
    raise kind(f"{name} is {shown(value)}", hint=suggest(value, words))


def function(value: F, name: str) -> F:
    """Return an object that can be called.

    Raises:
        ConfigurationError: It cannot.

    Example:
        >>> function(abs, "on_loss") is abs
        True
        >>> function(3, "on_loss")
        Traceback (most recent call last):
        sapwood.core.errors.ConfigurationError: on_loss is 3. Hint: give a function
    """
    if not callable(value):
        raise ConfigurationError(f"{name} is {shown(value)}", hint="give a function")
    return value


def items(values: Any, name: str, kind: type[InputError] = ConfigurationError) -> list[Any]:
    """Return several values as a list.

    Raises:
        InputError: They cannot be iterated over; one of its subclasses as ``kind`` says.

    Example:
        >>> items(("x", "y"), "fields")
        ['x', 'y']
        >>> items(3, "fields")
        Traceback (most recent call last):
        sapwood.core.errors.ConfigurationError: fields is 3. Hint: give a list
    """
    try:
        return list(values)
    except TypeError:
        raise kind(f"{name} is {shown(values)}", hint="give a list") from None


def text(value: Any, name: str, kind: type[InputError] = ConfigurationError) -> str:
    r"""Return a text that can name something in a file system or in a message.

    Raises:
        InputError: It is not a text, is not valid Unicode, or has NUL characters; or one of its
            subclasses as ``kind`` says.

    Example:
        >>> text("left", "name")
        'left'
        >>> text("\0", "name")
        Traceback (most recent call last):
        sapwood.core.errors.ConfigurationError: name is '\x00'. Hint: give Unicode text without NUL
    """
    if isinstance(value, str) and is_text(value):
        return value
    raise kind(f"{name} is {shown(value)}", hint="give Unicode text without NUL")


def path_text(value: Any, name: str, kind: type[InputError]) -> str:
    r"""Return the text of a path that the system can be asked for; its file may be missing.

    Raises:
        InputError: There can be no file of this name; one of its subclasses as ``kind`` says.

    Example:
        >>> path_text("data.npy", "the path", InputError)
        'data.npy'
        >>> path_text("\0", "the path", InputError)
        Traceback (most recent call last):
        sapwood.core.errors.InputError: the path is '\x00', and there can be no such file
    """
    try:
        path = os.fspath(value)
        if isinstance(path, str) and len(path) <= MAX_PATH and b"\0" not in os.fsencode(path):
            return path
    except (TypeError, UnicodeEncodeError):
        pass
    raise kind(f"{name} is {shown(value)}, and there can be no such file")


def is_text(value: str) -> bool:
    r"""Return whether a text is valid Unicode without NUL characters.

    Example:
        >>> is_text("left"), is_text("\ud800"), is_text("\0")
        (True, False, False)
    """
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, also one of numpy, and not NaN.

    Example:
        >>> is_number(1), is_number(0.5), is_number(float("nan")), is_number(True), is_number("1")
        (True, True, False, False, False)
    """
    return isinstance(value, _REAL) and type(value) is not bool and value == value  # noqa: PLR0124


_REAL: tuple[Any, ...] = (int, float, Real)
"""Sooner found in this order."""
