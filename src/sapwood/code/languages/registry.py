"""The languages that are there: the built-in ones and those of plug-ins."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from sapwood.code.languages.base import ENTRY_POINT_GROUP, Language
from sapwood.code.languages.c import C
from sapwood.code.languages.cpp import Cpp
from sapwood.code.languages.python import Python
from sapwood.core.errors import ProgramError
from sapwood.core.extras import install
from sapwood.core.suggest import suggest


@functools.cache
def built_in_languages() -> dict[str, Language]:
    """Return C, C++ and Python by name."""
    languages: tuple[Language, ...] = (C(), Cpp(), Python())
    return {language.name: language for language in languages}


@functools.cache
def languages() -> dict[str, Language]:
    """Return all languages by name, plug-ins included.

    Raises:
        ProgramError: A plug-in cannot be imported, or takes the name of another language.
    """
    from importlib.metadata import (  # noqa: PLC0415 - slow, and runners do without
        entry_points,
    )

    found = dict(built_in_languages())
    for point in entry_points(group=ENTRY_POINT_GROUP):
        made = _made(point.name, point.value, point.load)
        if made.name in found:
            raise ProgramError(
                f"two languages are called {made.name}",
                where=point.value,
                hint="uninstall the package that provides the second one",
            )
        found[made.name] = made
        _places[made.name] = f"{point.module}:{point.attr}"
    return found


OF_EXTRAS: Final = {"cuda": "cuda-cpu", ".cu": "cuda-cpu"}
"""Languages of the packages in ``extras/`` and their suffixes, and the extra that has each."""

_places: Final[dict[str, str]] = {}
"""Where the plug-ins are that were found, as ``module:name``."""


def _made(name: str, place: str, load: Callable[[], Any]) -> Language:
    try:
        loaded = load()
    except Exception as error:
        raise ProgramError(
            f"language plug-in {name} cannot be imported: {error}",
            where=place,
            hint="repair or uninstall the package that provides it",
        ) from error
    made: Language = loaded() if isinstance(loaded, type) else loaded
    return made


def place_of(name: str) -> str:
    """Return where a language is, as ``module:name``; empty for a built-in one."""
    return "" if name in built_in_languages() else _places.get(name, "")


@functools.cache
def language_at(name: str, place: str) -> Language:
    """Return the language at a place: faster than by name, because nothing is searched.

    Args:
        name: Its name.
        place: What :func:`place_of` gave, in this process or another one.

    Raises:
        ProgramError: It cannot be imported, or there is none of that name.
    """
    if place == place_of(name):  # nothing has to be looked for, or that was done here before
        return language(name)
    made = _made(name, place, functools.partial(_found_at, place))
    if made.name != name:
        raise ProgramError(f"the language at {place} is {made.name}, not {name}")
    return made


def _found_at(place: str) -> Any:
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return operator.attrgetter(name)(found) if name else found


def language(name: str) -> Language:
    """Return a language by name.

    Raises:
        ProgramError: There is none of that name.
    """
    found = built_in_languages().get(name) or languages().get(name)
    if found is None:
        extra = OF_EXTRAS.get(name)
        hint = install(extra) if extra is not None else suggest(name, languages())
        raise ProgramError(f"unknown language {name}", hint=hint)
    return found


def _by_suffix(found: Mapping[str, Language]) -> dict[str, Language]:
    return {suffix: each for each in found.values() for suffix in each.suffixes}


def group_sources(sources: Sequence[str], *, where: str) -> list[tuple[Language, tuple[str, ...]]]:
    """Group sources by the language that builds them: one library each.

    Raises:
        ProgramError: No language has the suffix of a source.

    Example:
        >>> [(made_by.name, names) for made_by, names in group_sources(["a.c", "b.cc"], where="")]
        [('c++', ('a.c', 'b.cc'))]
    """
    if not sources:
        return []
    known = _by_suffix(built_in_languages())
    if any(PurePosixPath(source).suffix not in known for source in sources):
        known = _by_suffix(languages())
    groups: dict[str, list[str]] = {}
    for source in sources:
        suffix = PurePosixPath(source).suffix
        if suffix not in known and suffix in OF_EXTRAS:
            raise ProgramError(
                f"source {source} needs the package sapwood-{OF_EXTRAS[suffix]}, which is not "
                "installed",
                where=where,
                hint=install(OF_EXTRAS[suffix]),
            )
        if suffix not in known:
            raise ProgramError(
                f"no language for source {source}",
                where=where,
                hint=suggest(suffix, known) + "; headers are found by their #include",
            )
        groups.setdefault(known[suffix].name, []).append(source)
    for name in list(groups):
        for absorbed in language(name).absorbs:
            if name in groups:
                groups[name] += groups.pop(absorbed, [])
    return [(language(name), tuple(sorted(names))) for name, names in groups.items()]
