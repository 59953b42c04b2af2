"""Nodes through OpenSSH: what ``ssh HOST`` reaches, with the user's own ``~/.ssh/config``.

The program ``ssh`` is used and no library, because it knows all that users have configured: jump
hosts, agents, hardware keys, Kerberos. One connection a host carries everything that the launcher
says to a node; the node lives as long as that connection. A node that cannot connect to this
machine is reached through it: ssh is the control master of the connection, and forwards a socket
when that turns out to be needed. Where the user has configured masters, theirs are asked.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sapwood.contexts.process import describe_status
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.hostset import expand_hosts
from sapwood.core.shown import shown

CONCURRENCY = 8
"""Connections at once that have not shown who they are yet: sshd refuses more than ten
(``MaxStartups 10:30:100``)."""

CONNECT_TIMEOUT = 10
"""Seconds that a host may take to answer."""

FORWARD_TIMEOUT = 15.0
"""Seconds that ssh may take to forward a socket; it asks the server."""

SHORT = "/tmp"  # noqa: S108 - the folder made there is ours alone
"""Where the sockets of masters are: their paths have a hundred characters at most."""

SSH_FAILED = 255
"""Exit code of ssh itself; any other comes from the command."""

_CAUSES = (
    (re.compile(r"Could not resolve hostname"), "the name is not known"),
    (re.compile(r"Permission denied \(([^)]*)\)"), "it refuses the login ({0})"),
    (re.compile(r"Host key verification failed"), "its host key is unknown or has changed"),
    (re.compile(r"Connection refused"), "no ssh server answers there"),
    (re.compile(r"timed out|Timeout, server"), "it does not answer"),
    (re.compile(r"No route to host|Network is unreachable"), "no route leads to it"),
    (re.compile(r"Connection (?:reset|closed) by"), "it closes the connection"),
)
"""What ssh says, and what that means."""


_HOST = re.compile(r"(?:ssh://)?(?:[\w.+-]*@)?[\w.:%\[][\w.:%\[\]-]*")
"""Names of hosts: without characters that are special to ssh or to a shell in its configuration."""


class SshLauncher:
    """Starts nodes through ``ssh``.

    Args:
        hosts: Names as ``ssh`` takes them, folded or not (``gpu[1-4]``), or ``@FILE`` with one a
            line.
        options: Arguments for ``ssh``, before the host.

    Raises:
        ConfigurationError: No host is given, or ``ssh`` is missing.

    Example:
        >>> SshLauncher(["user@gpu[1-2]"]).hosts
        ('user@gpu1', 'user@gpu2')
    """

    name = "ssh"

    def __init__(self, hosts: Sequence[str], options: Sequence[str] = ()) -> None:
        self.hosts: Sequence[str] = _hosts(hosts)
        self.concurrency = CONCURRENCY
        self._options = tuple(options)
        self._lock = threading.Lock()
        self._masters: dict[int, _Master] = {}  # by the process ids of channels
        self._program = shutil.which("ssh") or ""
        if not self._program:
            raise ConfigurationError(
                "the program ssh is not installed", hint="install it: apt install openssh-client"
            )

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command; see :class:`~sapwood.contexts.launchers.base.Launcher`."""
        master = self._new_master(host)
        words = [
            self._program,
            *self._options,  # first: ssh takes the first value that it hears
            *master.options,
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
            channel = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at the terminal is the client's business
            )
        except OSError as error:
            master.remove()
            raise ResourceError(f"cannot start ssh: {error.strerror}") from error
        with self._lock:
            self._masters[channel.pid] = master
        return channel

    def _new_master(self, host: str) -> _Master:
        """Return who may be asked to forward sockets over the next connection with a host."""
        words = [self._program, *self._options, "-G", "--", host]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            told = subprocess.run(
                words,
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=FORWARD_TIMEOUT,
            )
            found = re.search(
                r"^controlpath (.+)$", told.stdout.decode(errors="replace"), re.MULTILINE
            )
            if found is not None and found[1] != "none":
                return _Master(host, found[1])
        try:
            folder = tempfile.mkdtemp(prefix=f"sapwood-ssh-{os.getpid()}-", dir=SHORT)
        except OSError:
            return _Master(host)
        return _Master(host, f"{folder}/ssh", folder)

    def forward(self, channel: subprocess.Popen[bytes], path: str, target: str) -> None:
        """Lead connections here.

        See :class:`~sapwood.contexts.launchers.base.ForwardingLauncher`.
        """
        with self._lock:
            master = self._masters.get(channel.pid)
        if master is None or not master.path:
            raise ResourceError(f"ssh cannot be asked: no socket can be made in {SHORT}")
        master.forwards(self._program, "forward", f"{path}:{target}")

    def settle(self, channel: subprocess.Popen[bytes]) -> None:
        """Remove the socket of a master; its connection stays open."""
        with self._lock:
            master = self._masters.get(channel.pid)
            if master is not None and not master.forwarded:
                del self._masters[channel.pid]
        if master is not None:
            master.remove()

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
        """Take back what masters of the user's own have been asked for."""
        with self._lock:
            masters, self._masters = list(self._masters.values()), {}
        for master in masters:
            master.remove()
            if not master.folder and master.forwarded:  # its connection may live on
                with contextlib.suppress(ResourceError):
                    master.forwards(self._program, "cancel", master.forwarded)


class _Master:
    """An ssh that has a connection and can be asked for more over it.

    Args:
        host: The host.
        path: Its socket; empty if there is none.
        folder: Its folder, if Sapwood has made it.
    """

    def __init__(self, host: str, path: str = "", folder: str = "") -> None:
        self.host = host
        self.path = path
        self.folder = folder
        self.forwarded = ""

    @property
    def options(self) -> list[str]:
        """Arguments by which ssh becomes this master; none where the user has configured it."""
        if not self.folder:
            return []
        return [
            "-o",
            "ControlMaster=yes",
            "-o",
            "ControlPersist=no",
            "-o",
            f"ControlPath={self.path}",
        ]

    def forwards(self, program: str, what: str, forwarding: str) -> None:
        """Ask for a forwarding, or for its end.

        Raises:
            ResourceError: It refuses.
        """
        # Without any configuration, because that may have forwardings, too.
        words = [program, "-F", "none", "-S", self.path, "-O", what, "-R", forwarding]
        try:
            done = subprocess.run(
                [*words, "--", self.host],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=FORWARD_TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ResourceError(f"ssh cannot forward a port: {error}") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ResourceError(
                f"ssh cannot forward a port: {said or 'its server refuses'}",
                hint="the server's AllowStreamLocalForwarding may forbid it",
            )
        self.forwarded = forwarding

    def remove(self) -> None:
        """Remove its socket, if Sapwood has made it."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _hosts(names: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        if name.startswith("@"):
            try:
                lines = Path(name[1:]).read_text("utf-8").splitlines()
            except (OSError, ValueError) as error:  # ValueError: it is not text
                reason = getattr(error, "strerror", "") or "it is not text"
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
            raise ConfigurationError(f"{shown(host)} is not a host name")
    twice = [host for host, times in Counter(found).items() if times > 1]
    if twice:
        raise ConfigurationError(
            f"{', '.join(sorted(twice))} is named twice", hint="name each host once"
        )
    return tuple(found)
