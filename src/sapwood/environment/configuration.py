"""Layers of configuration, highest first, each value with where it comes from.

======== =====================================================================
flag     ``--set log.console=debug`` and the options of a command
variable ``SAPWOOD_LOG__CONSOLE=debug``; two underscores nest
project  ``sapwood.toml``, or ``[tool.sapwood]`` in ``pyproject.toml``, in the
         working folder or the nearest folder above it that has one
user     ``$XDG_CONFIG_HOME/sapwood/config.toml`` (``~/.config`` if unset)
site     ``/etc/sapwood/config.toml``
default  :mod:`sapwood.environment.settings`
======== =====================================================================

In each file tables ``[host."gpu*".log]`` overlay ``[log]`` on hosts whose name matches.
"""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.environment.folders import expand_user
from sapwood.environment.layers import Entry, read_file, read_flags, read_variables
from sapwood.environment.schema import ANY, Key, all_settings, find_setting
from sapwood.environment.settings import Settings
from sapwood.environment.settings_toml import render_toml, render_value
from sapwood.environment.toml_text import format_key

SITE_FILE = Path("/etc/sapwood/config.toml")

PROJECT_FILE = "sapwood.toml"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of ``sapwood config show --origin``.

    Attributes:
        key: Dotted name of the setting.
        value: Its value as TOML.
        layer: ``flag``, ``variable``, ``project``, ``user``, ``site`` or ``default``.
        origin: File and line, variable, or the name of the layer.
    """

    key: str
    value: str
    layer: str
    origin: str


class Configuration:
    """Settings, and where each comes from; made by :func:`load_configuration`."""

    __slots__ = ("_entries", "settings")

    def __init__(self, entries: Mapping[Key, Entry]) -> None:
        self._entries = {key: entry for key, entry in entries.items() if ANY not in key}
        self.settings = self._build()

    def _build(self) -> Settings:
        tree: dict[str, Any] = {}
        for key, entry in self._entries.items():
            node = tree
            for part in key[:-1]:
                node = node.setdefault(part, {})
            node[key[-1]] = entry.value
        try:
            return typed.convert(tree, Settings)
        except ConfigurationError as error:
            # A check across settings: say where the one that it names comes from.
            key = tuple(error.where.split("."))
            raise error.located(self._entries[key].origin) from None

    def overlaid(self, entries: Mapping[Key, Entry]) -> Configuration:
        """Return a configuration in which some settings are others; their keys are complete.

        Raises:
            ConfigurationError: Settings do not fit together then.
        """
        return Configuration({**self._entries, **entries})

    def origin(self, key: str) -> str:
        """Return where a setting comes from: file and line, variable, ``flag`` or ``default``.

        Raises:
            ConfigurationError: There is no such setting.
        """
        parts = tuple(key.split("."))
        entry = self._entries.get(parts)
        if entry is None:
            find_setting(parts, "asking for its origin")
            return "default"
        return entry.origin

    def rows(self) -> list[Row]:
        """Return every setting with value and origin, in the order of the defaults."""
        return [
            Row(format_key(key), render_value(key, entry.value), entry.layer, entry.origin)
            for key, entry in self._entries.items()
            if entry.value is not None
        ]

    def to_toml(self) -> str:
        """Return all settings as a file that can be read again."""
        return render_toml(self.settings)

    def __repr__(self) -> str:
        changed = [
            f"{format_key(key)}={entry.value!r}"
            for key, entry in self._entries.items()
            if entry.layer != "default"
        ]
        return f"<Configuration {', '.join(changed) or 'all defaults'}>"


def load_configuration(
    flags: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
    hostname: str | None = None,
    site_file: Path = SITE_FILE,
) -> Configuration:
    """Read all layers.

    Args:
        flags: Values by dotted key; texts are read like those of variables.
        variables: Environment variables; None means this process's.
        folder: Where to begin looking for the project's file; None means the working folder.
        hostname: Name that host overlays are compared with; None means this machine's.
        site_file: The file of the whole machine or site.

    Raises:
        ConfigurationError: A file cannot be read, a key is unknown or a value is wrong; the
            message has file and line, and what was expected.
    """
    variables = os.environ if variables is None else variables
    host = hostname or socket.gethostname()
    entries = {
        setting.key: Entry(setting.default, "default", "default") for setting in all_settings()
    }
    entries.update(read_file(site_file, "site", host))
    if (user := user_file(variables)) is not None:
        entries.update(read_file(user, "user", host))
    if (project := find_project_file(folder or _working_folder())) is not None:
        table = () if project.name == PROJECT_FILE else ("tool", "sapwood")
        entries.update(read_file(project, "project", host, table))
    entries.update(read_variables(variables))
    entries.update(read_flags(flags or {}))
    return Configuration(entries)


def whole_paths(settings: Settings) -> Settings:
    """Return settings for another process, in whose folder they name the same files.

    Example:
        >>> shaped = msgspec.structs.replace(Settings().nodes, topology="file:/etc/racks")
        >>> whole_paths(msgspec.structs.replace(Settings(), nodes=shaped)).nodes.topology
        'file:/etc/racks'
    """
    replace = msgspec.structs.replace
    log = settings.log
    return replace(
        settings,
        cluster=replace(settings.cluster, shape=_whole_shape(settings.cluster.shape)),
        nodes=replace(settings.nodes, topology=_whole_shape(settings.nodes.topology)),
        environment=replace(
            settings.environment, source=[_whole(one) for one in settings.environment.source]
        ),
        log=replace(log, file=log.file and _whole(log.file)),
    )


def _whole(path: str) -> str:
    return str(_working_folder() / expand_user(path))


def _whole_shape(shape: str) -> str:
    kind, _, path = shape.partition(":")
    return f"file:{_whole(path)}" if kind == "file" and path else shape


def find_project_file(folder: Path) -> Path | None:
    """Return the project's configuration file: the nearest one in or above a folder."""
    for parent in (folder.absolute(), *folder.absolute().parents):
        own = parent / PROJECT_FILE
        if own.is_file():
            return own
        shared = parent / "pyproject.toml"
        if shared.is_file() and "tool.sapwood" in _text_of(shared):
            return shared
    return None


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise ConfigurationError(
            "the current folder has been removed", hint="go to one that exists: cd, or os.chdir()"
        ) from error


def user_file(variables: Mapping[str, str]) -> Path | None:
    """Return where the user's settings are, by the variables of a process."""
    if base := variables.get("XDG_CONFIG_HOME"):
        return Path(base) / "sapwood" / "config.toml"
    if home := variables.get("HOME"):
        return Path(home) / ".config" / "sapwood" / "config.toml"
    return None


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
