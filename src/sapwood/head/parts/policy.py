"""The policy of a cluster: automatic actions of its head and sessions, changed while they run.

The policy is the table ``[policy]`` of the settings. Files and variables give it when the head
starts, like all settings. A value that is set at the head has precedence, is stored in the head's
store, and is there again when the head starts again. Whoever acts by the policy asks
:attr:`Policy.current` each time, or receives changes.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
import tomllib
from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest
from sapwood.environment.configuration import Configuration, load_configuration
from sapwood.environment.layers import Entry
from sapwood.environment.logs import logger
from sapwood.environment.schema import Key, find_setting
from sapwood.environment.settings import PolicySettings, Settings
from sapwood.environment.settings_toml import render_value
from sapwood.environment.toml_text import format_key
from sapwood.head.protocol.call import HeadPart, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.session_settings import allowed_settings
from sapwood.nodes.note_event import NoteEvent, note_nothing
from sapwood.security.rights import ADMIN, CONNECT, ROLES, read_rights
from sapwood.store.base import Delete, Put, Store

TABLE = "policy"
"""The table of the settings that is the policy."""

MAX_HISTORY = 1000
"""Changes that are kept, the last ones."""

MAX_SET = 1000
"""Keys that may be set at once: roles have any names."""

MAX_VALUE = 4096
"""Characters of a value."""

_SET = "policy/set/"
_HISTORY = "policy/history/"

_log = logger("policy")


class _KeptValue(msgspec.Struct, frozen=True):
    """A value in the store.

    Attributes:
        value: As TOML.
        time: When it was set.
        by: By whom.
    """

    value: str
    time: float
    by: str


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the policy.

    Attributes:
        key: Its dotted name.
        value: Its value as TOML.
        origin: Where it comes from: who set it and when, a file and line, or ``default``.
        expected: What it must look like.
        about: What it means.
        counts: To what a change applies, if not to everything that exists already.
    """

    key: str
    value: str
    origin: str
    expected: str
    about: str
    counts: str = ""


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the policy.

    Attributes:
        time: When, seconds since 1970.
        key: What.
        value: Its value as TOML; empty if it was reset.
        before: Its value before that, as TOML.
        by: Who.
    """

    time: float
    key: str
    value: str
    before: str
    by: str


class Policy(HeadPart):
    """The policy of a cluster; for any thread.

    Args:
        store: Returns what keeps what was set.
        base: The settings when the head started.
        note: Told of changes.
        clock: The time, seconds since 1970.

    Attributes:
        current: The policy as it is now; ask each time.

    Raises:
        StoreError: The store fails.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        base: Configuration | None = None,
        note: NoteEvent = note_nothing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._opened = store
        self._base = load_configuration() if base is None else base
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._watchers: list[Callable[[list[PolicyRow]], None]] = []
        self._set: dict[Key, Entry] = {}
        for entry in store().entries(_SET):
            self._read(entry.key.removeprefix(_SET), entry.value)
        self._shown = self._base.overlaid(self._set)
        read = typed.unpacker(PolicyChange)
        self._history = [(one.key, read(one.value)) for one in store().entries(_HISTORY)]
        last = self._history[-1][0].removeprefix(_HISTORY) if self._history else "0"
        self._next = int(last) + 1

    def _read(self, key: str, value: bytes) -> None:
        """Take in what was set under a former head; another version may have had other keys."""
        parts = _parts(key)
        try:
            kept = typed.unpacker(_KeptValue)(value)
            value = tomllib.loads(f"value = {kept.value}")["value"]
            read = find_setting((TABLE, *parts), "the head's store").convert(value, "the store")
        except (ConfigurationError, msgspec.MsgspecError, tomllib.TOMLDecodeError) as error:
            _log.warning("policy left out", key=key, reason=str(error))
            return
        self._set[(TABLE, *parts)] = Entry(read, TABLE, _origin(kept))

    @property
    def current(self) -> PolicySettings:
        """The policy as it is now."""
        return self._shown.settings.policy

    def allowed(self, wanted: Any) -> Any:
        """Return the settings of a session that a creator who is not the head's user may choose.

        See :func:`~sapwood.head.session_settings.allowed_settings`.
        """
        return allowed_settings(wanted, self.settings)

    @property
    def settings(self) -> Settings:
        """All settings of the head at its start, with the present policy."""
        return self._shown.settings

    def rights_of(self, role: str) -> list[str]:
        """Return what a role allows.

        Raises:
            ConfigurationError: There is no such role.
            SecurityError: The role names something that is not a right.
        """
        own = self.current.roles
        if role in own:
            return sorted(read_rights(own[role].rights))
        if role in ROLES:
            return sorted(ROLES[role])
        raise ConfigurationError(
            f"{shown(role)} is not a role",
            hint=suggest(role, {*own, *ROLES}),
        )

    @call("policy.show", right=CONNECT)
    def rows(self, key: str = "") -> list[PolicyRow]:
        """Return the policy line by line.

        Args:
            key: Of one line, or of an area; empty for all.

        Raises:
            ConfigurationError: There is no such key.
        """
        prefix = f"{TABLE}."
        found = [
            self._row(tuple(_parts(row.key.removeprefix(prefix))), row.value, row.origin)
            for row in self._shown.rows()
            if row.key.startswith(prefix)
        ]
        named = self.current.roles
        found += [
            self._row(("roles", role, "rights"), render_value(_ROLE, list(rights)), "default")
            for role, rights in ROLES.items()
            if role not in named
        ]
        if key:
            found = [one for one in found if one.key == key or one.key.startswith(f"{key}.")]
            if not found:
                find_setting((TABLE, *_parts(key)), "policy")  # says which there are
                raise ConfigurationError(f"{shown(key)} is not set", where="policy")
        return found

    def _row(self, parts: Key, value: str, origin: str) -> PolicyRow:
        setting = find_setting((TABLE, *parts), "policy")
        return PolicyRow(
            key=format_key(parts),
            value=value,
            origin=origin,
            expected=setting.expected(),
            about=setting.about,
            counts=_FOR_ISSUED if parts[0] == "roles" or parts == _LIFE else "",
        )

    @call("policy.set", right=ADMIN, slow=True)
    def change(self, caller: ServiceCaller, key: str, value: str) -> list[PolicyRow]:
        """Change the policy; return the lines that are others now.

        Args:
            caller: The caller.
            key: Its dotted name.
            value: The value as text; empty to remove the value that was set here.
        """
        return self.set(key, value, caller.granted.subject)

    def set(self, key: str, text: str, by: str) -> list[PolicyRow]:
        """Change the policy; it counts, and is in the store, when this returns.

        Args:
            key: Its dotted name.
            text: The value, as in a variable; empty to remove the value that was set here.
            by: Name of the requester.

        Returns:
            The lines that are others now.

        Raises:
            ConfigurationError: There is no such key, or the value is wrong; it says what is right.
            SecurityError: A role names something that is not a right.
            StoreError: It cannot be kept; then nothing has changed.
        """
        parts = _parts(key)
        whole = (TABLE, *parts)
        setting = find_setting(whole, "policy")
        if len(text) > MAX_VALUE:
            raise ConfigurationError(f"a value has more than {MAX_VALUE} characters", where=key)
        now = self._clock()
        kept: _KeptValue | None = None
        value: Any = None
        if text:
            value = setting.parse(text, "policy")
            if whole[-1] == "rights":
                _check_rights(value, key)
            kept = _KeptValue(render_value(whole, value), now, by)
        with self._lock:
            before = self._value_of(whole)
            chosen = {one: entry for one, entry in self._set.items() if one != whole}
            if kept is not None:
                chosen[whole] = Entry(value, TABLE, _origin(kept))
            if len(chosen) > MAX_SET:
                raise ConfigurationError(f"{MAX_SET} keys of the policy are set already")
            shown = self._base.overlaid(chosen)
            change = PolicyChange(
                time=now, key=key, value="" if kept is None else kept.value, before=before, by=by
            )
            self._keep(key, kept, change)
            self._set, self._shown = chosen, shown
            watchers = list(self._watchers)
        after = self._value_of(whole)
        self._note(
            "policy.changed",
            f"{key} = {after or 'unset'}",
            facts={"key": key, "value": after, "before": before, "by": by},
        )
        rows = [one for one in self.rows() if one.key == format_key(parts)]
        for watcher in watchers:
            watcher(rows)
        return rows

    @call("policy.history", right=ADMIN)
    def history(self) -> list[PolicyChange]:
        """Return who changed what, the oldest change first; it does not wait for the store."""
        return [change for _, change in self._history]

    def watch(self, watcher: Callable[[list[PolicyRow]], None]) -> None:
        """Call a function with the values that change, on the thread that changes them."""
        with self._lock:
            self._watchers.append(watcher)

    def _keep(self, key: str, kept: _KeptValue | None, change: PolicyChange) -> None:
        name = f"{_HISTORY}{self._next:012}"
        changes: list[Put | Delete] = [Put(name, msgspec.msgpack.encode(change))]
        if kept is None:
            changes.append(Delete(_SET + key))
        else:
            changes.append(Put(_SET + key, msgspec.msgpack.encode(kept)))
        old = [one for one, _ in self._history[: max(len(self._history) + 1 - MAX_HISTORY, 0)]]
        self._opened().transact([*changes, *(Delete(one) for one in old[:50])])
        self._next += 1
        self._history = [*self._history[len(old[:50]) :], (name, change)]

    def _value_of(self, key: Key) -> str:
        dotted = format_key(key)
        return next((one.value for one in self._shown.rows() if one.key == dotted), "")


_LIFE: Key = ("limits", "credential_life")

_FOR_ISSUED = "to credentials that are issued from now on"

_ROLE: Key = (TABLE, "roles", "x", "rights")


def _check_rights(value: Any, key: str) -> None:
    try:
        read_rights(value)
    except SecurityError as error:
        raise ConfigurationError(error.what, where=key, hint=error.hint) from error


def _parts(key: str) -> Key:
    """Return the parts of a dotted key, of which some may be quoted.

    Raises:
        ConfigurationError: It is no such key.
    """
    try:
        node: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{key[:80]!a} is not a key of the policy", hint="`sapwood policy show` lists them"
        ) from error
    parts: list[str] = []
    while isinstance(node, dict) and len(node) == 1:
        ((name, node),) = node.items()
        parts.append(name)
    return tuple(parts)


def _origin(kept: _KeptValue) -> str:
    when = dt.datetime.fromtimestamp(kept.time, dt.UTC).astimezone()
    return f"set by {kept.by or 'the user of the head'}, {when:%Y-%m-%d %H:%M}"
