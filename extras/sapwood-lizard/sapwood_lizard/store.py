"""The registered programs of this user: one file for each, named by its checksum."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from sapwood.errors import ProgramError, ResourceError
from sapwood.plugins.tools import data_folder, make_private, typed
from sapwood_lizard.registration import Registration, parse_checksum

MAX_PROGRAMS: Final = 1024
"""Programs that may be registered at a time."""


class ProgramStore:
    """Registered programs in a folder.

    Args:
        folder: Where; by default ``$XDG_DATA_HOME/sapwood/lizard`` or
            ``~/.local/share/sapwood/lizard``.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def add(self, registration: Registration) -> None:
        """Keep a program; one that exists already is written again.

        Raises:
            ProgramError: It is not what its checksum says.
            ResourceError: There are too many, or the folder cannot be written.
        """
        path = self._path(registration.checked().checksum)
        if not path.exists() and len(self._files()) >= MAX_PROGRAMS:
            raise ResourceError(
                f"{MAX_PROGRAMS} programs are registered already",
                where=str(self.folder),
                hint="remove some: `sapwood lizard delete CHECKSUM`",
            )
        try:
            make_private(self.folder)
            # Written beside and renamed: readers never find half a program.
            descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".")
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(registration))
            Path(name).replace(path)
        except OSError as error:
            raise ResourceError(
                f"the program cannot be kept: {error.strerror}", where=str(self.folder)
            ) from error

    def get(self, checksum: str) -> Registration:
        """Return a program by its checksum.

        Raises:
            ProgramError: There is none, or its file is damaged.
        """
        path = self._path(parse_checksum(checksum))
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ProgramError(
                f"no program is registered as {path.stem}",
                where=str(self.folder),
                hint="register it: `sapwood lizard load DIR`",
            ) from None
        try:
            found = typed.json_reader(Registration)(data).checked()
        except (msgspec.DecodeError, ProgramError) as error:
            raise ProgramError(
                "a registered program is damaged",
                where=str(path),
                hint="register it again: `sapwood lizard load DIR`",
            ) from error
        return found

    def remove(self, checksum: str) -> None:
        """Forget a program.

        Raises:
            ProgramError: There is none.
        """
        path = self._path(parse_checksum(checksum))
        try:
            path.unlink()
        except FileNotFoundError:
            raise ProgramError(f"no program is registered as {path.stem}") from None

    def all(self) -> list[Registration]:
        """Return the registered programs that can be read, in the order of their names."""
        found: list[Registration] = []
        for path in self._files():
            try:
                found.append(self.get(path.stem))
            except ProgramError:
                continue
        return sorted(found, key=lambda each: (each.name, each.checksum))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []

    def _path(self, checksum: str) -> Path:
        return self.folder / f"{checksum}.json"


def default_folder() -> Path:
    """Return where programs are kept by default."""
    return data_folder() / "lizard"
