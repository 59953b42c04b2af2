"""A group of commands whose modules are imported when a command is called."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group_from_info
from typer.models import CommandInfo, TyperInfo

from sapwood.cli.help_imports import import_help
from sapwood.core.errors import ProgramError
from sapwood.core.hints import command


class LazyEntry(NamedTuple):
    """A command or group of commands that is imported when it is called.

    Attributes:
        where: ``MODULE:NAME`` of its function, or of its :class:`typer.Typer`.
        about: Its line in the help text of its group.
        hidden: Whether it is left out there.
        context_settings: How its words are parsed.
        package: The package that adds it; empty for a command of Sapwood.
        panel: The heading under which its group lists it.
    """

    where: str
    about: str
    hidden: bool = False
    context_settings: dict[str, Any] | None = None
    package: str = ""
    panel: str | None = None


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name; the first look at one imports it.

    Args:
        entries: Where they are.
    """

    def __init__(self, entries: Mapping[str, LazyEntry]) -> None:
        self.entries = entries
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self.entries[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class LazyGroup(TyperGroup):
    """A group whose help text and completion import no command; a subclass has the entries."""

    entries: ClassVar[Mapping[str, LazyEntry]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: MutableMapping[str, Any] = LazyCommands(self.entries)
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; while the group is listed, one that has only a name and a text."""
        entry = self.entries.get(cmd_name)
        if self._listing and entry is not None:
            return TyperCommand(
                cmd_name, help=entry.about, hidden=entry.hidden, rich_help_panel=entry.panel
            )
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        import_help()
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the names of commands and options that begin with some letters."""
        self._listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._listing = False


def _found(name: str, entry: LazyEntry) -> Any:
    module, _, attribute = entry.where.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        if not entry.package:
            raise
        raise ProgramError(
            f"{command(*name.split())} cannot be imported: {error}",
            where=entry.where,
            hint=f"repair or uninstall the package {entry.package}, which adds it",
        ) from error


def _load(name: str, entry: LazyEntry) -> Any:
    found = _found(name, entry)
    if isinstance(found, typer.Typer):
        return get_group_from_info(
            TyperInfo(found, name=name, help=entry.about),
            pretty_exceptions_short=True,
            rich_markup_mode=found.rich_markup_mode,
            suggest_commands=found.suggest_commands,
        )
    info = CommandInfo(
        name, callback=found, hidden=entry.hidden, context_settings=entry.context_settings
    )
    return get_command_from_info(
        info, pretty_exceptions_short=True, rich_markup_mode=typer.core.DEFAULT_MARKUP_MODE
    )
