"""Processes of another user: what a daemon that root started begins as whoever asked for it.

Such a process has the user, the groups, the home folder and the variables that the user would have
after a login, and of the daemon's environment only the variables by which programs are found and
how they talk. Limits are inherited from the daemon: whatever starts it sets them.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.core.errors import ConfigurationError, SecurityError

UMASK: Final = 0o022
"""What others may not do with files that such a process makes, as after most logins."""

KEPT: Final = frozenset({"PATH", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH"})
"""Variables of the daemon that processes of another user get."""

KEPT_BEGINNINGS: Final = ("LC_", "SAPWOOD_", "CUDA_", "NVIDIA_", "OCL_", "OMP_", "OPENBLAS_")
"""How others of them begin."""

_SEARCH, _READ = 1, 4


class LocalUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user of this machine.

    Attributes:
        name: What they are called.
        uid: Their number.
        gid: The number of their primary group.
        groups: The numbers of all their groups.
        home: Their home folder; it need not be there.
        shell: Their shell.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def is_this_process(self) -> bool:
        """Whether this process is theirs already."""
        return self.uid == os.geteuid()

    def environment(self, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of their processes.

        Args:
            variables: Those of the daemon; by default of this process.
        """
        inherited = os.environ if variables is None else variables
        if self.is_this_process:
            return dict(inherited)
        kept = {
            name: value
            for name, value in inherited.items()
            if name in KEPT or name.startswith(KEPT_BEGINNINGS)
        }
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return kept | own

    def process_options(self, folder: str = "") -> dict[str, Any]:
        """Return arguments for :class:`subprocess.Popen` by which a process is theirs.

        Args:
            folder: Where it starts; by default in their home folder, if that is there.
        """
        if self.is_this_process:
            return {"cwd": folder or None}
        home = self.home if Path(self.home).is_dir() and self.may_enter(self.home) else "/"
        return {
            "user": self.uid,
            "group": self.gid,
            "extra_groups": list(self.groups),
            "umask": UMASK,
            "cwd": folder or home,
        }

    def may_enter(self, folder: str | Path) -> bool:
        """Whether the bits of a folder, and of those above it, let them in."""
        real = Path(folder).resolve()
        return all(self._has(one, _SEARCH) for one in (real, *real.parents))

    def check_python(self) -> None:
        """See whether they can run this Python with this Sapwood.

        Raises:
            ConfigurationError: They cannot.
        """
        python = Path(sys.executable)
        package = Path(__file__).parents[1] / "__init__.py"
        for file in (python, python.resolve(), package):
            if not self.may_enter(file.parent) or not self._has(file, _READ):
                raise ConfigurationError(
                    f"the user {self.name} cannot read the Sapwood of this node",
                    where=str(file),
                    hint="install Python and Sapwood where all users can read them, "
                    "for example in /opt, and join from there",
                )

    def _has(self, path: Path, bit: int) -> bool:
        try:
            status = path.stat()
        except OSError:
            return False
        if self.uid == 0:
            return True
        if status.st_uid == self.uid:
            shift = 6
        elif status.st_gid in self.groups:
            shift = 3
        else:
            shift = 0
        return bool(stat.S_IMODE(status.st_mode) >> shift & bit)


def is_own_user(name: str) -> bool:
    """Whether this process is that user's; a user whom this machine does not have is another."""
    try:
        return pwd.getpwnam(name).pw_uid == os.geteuid()
    except (KeyError, ValueError):
        return False


def find_user(name: str) -> LocalUser:
    """Return a user of this machine as whom this process can begin others.

    Raises:
        ConfigurationError: This machine has no such user.
        SecurityError: This process is not root's, and not theirs.
    """
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError) as error:
        raise ConfigurationError(
            f"user {name[:40]!a} does not exist on this node",
            hint="make that account here, or issue a credential for another --user",
        ) from error
    if os.geteuid() not in {0, found.pw_uid}:
        raise SecurityError(
            f"this node cannot begin processes as {name}",
            where=f"its daemon runs as user {os.geteuid()}",
            hint=f"start the node as root or as {name}",
        )
    return LocalUser(
        name=name,
        uid=found.pw_uid,
        gid=found.pw_gid,
        groups=tuple(os.getgrouplist(name, found.pw_gid)),
        home=found.pw_dir,
        shell=found.pw_shell,
    )
