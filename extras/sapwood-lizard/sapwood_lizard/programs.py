"""Programs that were registered by the API: built, checked, kept as long as the process lives."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Final

from sapwood.errors import ProgramError
from sapwood.plugins.caches import BuildCache
from sapwood_lizard.launch import Checked, check
from sapwood_lizard.registration import Registration, parse_checksum
from sapwood_lizard.store import ProgramStore

MAX_BUILT: Final = 64
"""Programs whose libraries are kept open; others are taken from the build cache again."""


class RegisteredPrograms:
    """Programs of a server or of a client.

    Args:
        store: Where their sources are kept.
        cache: Where built things are kept.
    """

    def __init__(self, store: ProgramStore, cache: BuildCache) -> None:
        self._store = store
        self._cache = cache
        self._lock = threading.Lock()
        self._built: dict[str, Checked] = {}  # the one that was used last comes last

    def register(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Build, check and keep a program; return how the API shows it.

        Args:
            data: With ``name``, ``data`` and ``checksum``, as :class:`Registration` has them.

        Raises:
            BuildError: A source does not compile.
            ProgramError: It is not what its checksum says, or its parts do not fit together.
        """
        registration = Registration(
            name=data["name"], data=data["data"], checksum=parse_checksum(data["checksum"])
        )
        self._keep(check(registration, cache=self._cache))
        self._store.add(registration)
        return _shown(registration)

    def get(self, checksum: str) -> Checked:
        """Return a program, built.

        Raises:
            ProgramError: There is none.
        """
        found = parse_checksum(checksum)
        with self._lock:
            built = self._built.pop(found, None)
            if built is not None:
                self._built[found] = built
                return built
        built = check(self._store.get(found), cache=self._cache)
        self._keep(built)
        return built

    def all(self) -> list[str]:
        """Return the checksums of all programs."""
        return [each.checksum for each in self._store.all()]

    def show(self, checksum: str) -> dict[str, Any] | None:
        """Return a program as the API shows it; None if there is none."""
        try:
            return _shown(self._store.get(checksum))
        except ProgramError:
            return None

    def remove(self, checksum: str) -> bool:
        """Forget a program; return whether there was one."""
        try:
            self._store.remove(checksum)
        except ProgramError:
            return False
        with self._lock:
            self._built.pop(checksum.lower(), None)
        return True

    def _keep(self, built: Checked) -> None:
        with self._lock:
            self._built[built.registration.checksum] = built
            while len(self._built) > MAX_BUILT:
                del self._built[next(iter(self._built))]


def _shown(registration: Registration) -> dict[str, Any]:
    info = json.loads(registration.data).get("info")
    return {
        "name": registration.name,
        "checksum": registration.checksum,
        "ready": True,
        "info": info if isinstance(info, dict) else {},
    }
