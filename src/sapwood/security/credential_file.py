"""Files with credentials and keys of holders: one line, which their user alone may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sapwood.core.errors import SecurityError
from sapwood.security.capabilities import Capability, HolderKey

MAX_FILE = 64 * 1024
"""Bytes of such a file."""


def write_secret(path: Path, text: str) -> None:
    """Write a line that is a secret to a new file.

    Raises:
        SecurityError: There is such a file already, or it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask is
            file.write(f"{text}\n")
    except FileExistsError as error:
        raise SecurityError(
            "the file exists already", where=str(path), hint="name another one"
        ) from error
    except OSError as error:
        raise SecurityError(f"cannot be written: {error.strerror}", where=str(path)) from error


def read_secret(path: Path) -> str:
    """Return the line of a file that is a secret.

    Raises:
        SecurityError: It cannot be read, or others can read it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise SecurityError("not a file with a credential", where=str(path))
            if status.st_mode & 0o077 or status.st_uid not in {0, os.geteuid()}:
                raise SecurityError(
                    "other users own the file with the credential, or can read or write it",
                    where=str(path),
                    hint=f"chmod 600 {path}; if others have read it, revoke it",
                )
            return file.read(MAX_FILE).decode("ascii", "replace").strip()
    except OSError as error:
        raise SecurityError(
            f"the credential cannot be read: {error.strerror}",
            where=str(path),
            hint="name its file, or give its line",
        ) from error


def find_credential(given: str | os.PathLike[str]) -> Capability:
    """Return the credential of a line, or of the file that a path names.

    Raises:
        SecurityError: There is none.
    """
    return Capability.parse(_line(given, "swc1."))


def find_holder_key(given: str | os.PathLike[str]) -> HolderKey:
    """Return the key of a holder, of a line or of the file that a path names.

    Raises:
        SecurityError: There is none.
    """
    return HolderKey.parse(_line(given, "swk1."))


def _line(given: str | os.PathLike[str], begins: str) -> str:
    if isinstance(given, str) and given.strip().startswith(begins):
        return given
    return read_secret(Path(given).expanduser())
