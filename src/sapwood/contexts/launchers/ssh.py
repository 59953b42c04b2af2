"""Nodes through OpenSSH: what ``ssh HOST`` reaches, with the user's own ``~/.ssh/config``.

The program ``ssh`` is used and no library, because it knows all that users have configured: jump
hosts, agents, hardware keys, Kerberos. One connection a host carries everything that the launcher
says to a node; the node lives as long as that connection.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sapwood.contexts.process import describe_status
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.hostset import expand_hosts

CONCURRENCY = 8
"""Connections at once that have not shown who they are yet: sshd refuses more than ten
(``MaxStartups 10:30:100``)."""

CONNECT_TIMEOUT = 10
"""Seconds that a host may take to answer."""

SSH_FAILED = 255
"""Exit code of ssh itself; any other is that of the command."""

_CAUSES = (
    (re.compile(r"Could not resolve hostname"), "the name is not known"),
    (re.compile(r"Permission denied \(([^)]*)\)"), "it refuses the login ({0})"),
    (re.compile(r"Host key verification failed"), "its host key is unknown or has changed"),
    (re.compile(r"Connection refused"), "no ssh server answers there"),
    (re.compile(r"timed out|Timeout, server"), "it does not answer"),
    (re.compile(r"No route to host|Network is unreachable"), "there is no route to it"),
    (re.compile(r"Connection (?:reset|closed) by"), "it closes the connection"),
)
"""What ssh says, and what that means."""


_HOST = re.compile(r"(?:ssh://)?(?:[\w.+-]*@)?[\w.:%\[][\w.:%\[\]-]*")
"""What may name a host: nothing that ssh, or a shell in its configuration, reads otherwise."""


class SshLauncher:
    """Starts nodes through ``ssh``.

    Args:
        hosts: Names as ``ssh`` takes them, folded or not (``gpu[1-4]``), or ``@FILE`` with one a
            line.
        options: Arguments for ``ssh``, before the host.

    Raises:
        ConfigurationError: There is no host, or no ``ssh``.

    Example:
        >>> SshLauncher(["user@gpu[1-2]"]).hosts
        ('user@gpu1', 'user@gpu2')
    """

    name = "ssh"

    def __init__(self, hosts: Sequence[str], options: Sequence[str] = ()) -> None:
        self.hosts: Sequence[str] = _hosts(hosts)
        self.concurrency = CONCURRENCY
        self._options = tuple(options)
        self._program = shutil.which("ssh") or ""
        if not self._program:
            raise ConfigurationError(
                "there is no program ssh here", hint="install it: apt install openssh-client"
            )

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command; see :class:`~sapwood.contexts.launchers.base.Launcher`."""
        words = [
            self._program,
            *self._options,  # first: ssh takes the first value that it hears
            "-T",
            *("-o", "BatchMode=yes"),
            *("-o", f"ConnectTimeout={CONNECT_TIMEOUT}"),
            *("-o", "ServerAliveInterval=5"),
            *("-o", "ServerAliveCountMax=6"),
            *("-o", "ForwardAgent=no"),
            *("-o", "ForwardX11=no"),
            "--",
            host,
            command,
        ]
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at the terminal is the front end's business
            )
        except OSError as error:
            raise ResourceError(f"cannot start ssh: {error.strerror}") from error

    def explain(self, host: str, status: int, said: str) -> str:
        """Return why a host did not come.

        Example:
            >>> launcher = SshLauncher(["h"])
            >>> launcher.explain("h", 255, "root@h: Permission denied (publickey).")
            'it refuses the login (publickey)'
        """
        del host
        for pattern, meaning in _CAUSES:
            match = pattern.search(said)
            if match is not None and status == SSH_FAILED:
                return meaning.format(*match.groups())
        last = said.strip().rpartition("\n")[2]
        return last or f"ssh {describe_status(status)}"

    def close(self) -> None:
        """Hold nothing."""


def _hosts(names: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        if name.startswith("@"):
            try:
                lines = Path(name[1:]).read_text("utf-8").splitlines()
            except (OSError, ValueError) as error:  # ValueError: it is no text
                reason = getattr(error, "strerror", "") or "it is no text"
                raise ConfigurationError(
                    f"the file of hosts cannot be read: {reason}", where=name[1:]
                ) from error
            words = [line.partition("#")[0].strip() for line in lines]
            found += [host for word in words if word for host in expand_hosts(word)]
        else:
            found += expand_hosts(name)
    if not found:
        raise ConfigurationError("no host is named", hint="for example --on ssh:n1,n2")
    for host in found:
        if not _HOST.fullmatch(host):
            raise ConfigurationError(f"{host!r} is no name of a host")
    twice = [host for host, times in Counter(found).items() if times > 1]
    if twice:
        raise ConfigurationError(
            f"{', '.join(sorted(twice))} is named twice", hint="name each host once"
        )
    return tuple(found)
