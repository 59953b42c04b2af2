"""Hosts for tests: network namespaces with separate addresses, and an ssh server in each.

All of them are on a bridge in one more namespace: nothing of it is seen by this machine's own
network. The client of a test runs on a separate host, ``head``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 30.0
"""Seconds after which something that did not happen counts as never happening."""

NETWORK = "10.77.0"
"""The first three numbers of all addresses; the head's last one is 10, that of host 1 is 11."""

SSHD = "/usr/sbin/sshd"

_SSHD_CONFIG = """\
Port 22
ListenAddress {address}
HostKey {folder}/host_key
PidFile {folder}/sshd{number}.pid
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv XDG_CACHE_HOME={folder}/cache{number} XDG_RUNTIME_DIR={folder}/run{number} TMPDIR=/tmp
"""


def missing() -> str:
    """Return why there can be no such hosts here; empty where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "ssh", "ssh-keygen", SSHD):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    tried = subprocess.run(
        ["ip", "netns", "add", f"swtry{os.getpid()}"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        return f"no network namespace can be made: {tried.stderr.strip()}"
    _run("ip", "netns", "del", f"swtry{os.getpid()}")
    return ""


class Network:
    """Some hosts.

    Args:
        folder: Where keys and configurations are kept.
        hosts: How many there are besides the head.
        prefix: Begins the names of the namespaces.
        ssh: Whether ssh servers run on them.

    Attributes:
        names: Their names, as ``ssh`` takes them.
        ssh_options: Arguments for ``ssh`` by which it finds them.
    """

    def __init__(self, folder: Path, hosts: int, *, prefix: str = "sw", ssh: bool = True) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, hosts + 1)]
        self.ssh_options = ["-F", str(folder / "ssh_config")]
        self._prefix = f"{prefix}{os.getpid() % 100_000}"
        self._ssh = ssh
        self._servers: list[int] = []

    def up(self) -> None:
        """Make them."""
        if self._ssh:
            self._make_keys()
        switch = self.namespace("switch")
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(["head", *self.names]):
            space = self.namespace(name)
            _run("ip", "netns", "add", space)
            peer = ["peer", "name", "eth0", "netns", space]
            _run("ip", "-n", switch, "link", "add", name, "type", "veth", *peer)
            _run("ip", "-n", switch, "link", "set", name, "master", "bridge", "up")
            _run("ip", "-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                _run("ip", "-n", space, "link", "set", link, "up")
            if number and self._ssh:
                self._serve(number, name)

    def _make_keys(self) -> None:
        """Make what ssh and its servers need."""
        for key in ("host_key", "user_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        (self.folder / "cache0").mkdir()
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized_keys")
        Path("/run/sshd").mkdir(exist_ok=True)
        lines = [f"Host {name}\n  HostName {self.address(name)}\n" for name in self.names]
        (self.folder / "ssh_config").write_text(
            "".join(lines) + f"Host *\n  User root\n  IdentityFile {self.folder}/user_key\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n"
            "  StrictHostKeyChecking accept-new\n  IdentitiesOnly yes\n  LogLevel ERROR\n"
        )

    def _serve(self, number: int, name: str) -> None:
        configuration = self.folder / f"sshd{number}.conf"
        configuration.write_text(
            _SSHD_CONFIG.format(address=self.address(name), folder=self.folder, number=number)
        )
        (self.folder / f"cache{number}").mkdir()
        self.sockets(name).mkdir(mode=0o700)
        hidden = self.folder / "cache0"  # the head's, which a separate host would not see
        log = self.folder / f"sshd{number}.log"
        server = f"mount -t tmpfs none {hidden} && exec {SSHD} -f {configuration} -E {log}"
        self.run(name, "unshare", "--mount", "sh", "-c", server)
        pid = self.folder / f"sshd{number}.pid"
        until(lambda: pid.exists() and pid.read_text().endswith("\n"))
        self._servers.append(int(pid.read_text()))

    def down(self) -> None:
        """Remove them, with all that runs there."""
        for server in self._servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        for name in ("head", *self.names):
            for pid in Network.processes(self, name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for name in ("head", *self.names, "switch"):
            _run("ip", "netns", "del", self.namespace(name))

    def address(self, name: str) -> str:
        """Return the address of a host."""
        return f"{NETWORK}.{10 if name == 'head' else 10 + int(name[1:])}"

    def namespace(self, name: str) -> str:
        """Return the network namespace of a host."""
        return f"{self._prefix}{name}"

    def command(self, name: str, *words: str) -> list[str]:
        """Return the command that runs another one on a host."""
        return ["ip", "netns", "exec", self.namespace(name), *words]

    def run(self, name: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a host."""
        chosen = {"capture_output": True, "text": True, "check": True, "timeout": 120, **options}
        if name == "head":
            chosen["env"] = os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache0")}
        return subprocess.run(self.command(name, *words), **chosen)  # noqa: PLW1510 - among them

    def sapwood(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``sapwood`` on the head."""
        chosen: dict[str, Any] = {"check": False, **options}
        return self.run("head", str(Path(sys.executable).with_name("sapwood")), *words, **chosen)

    def on(self, *names: str) -> list[str]:
        """Return the arguments of ``sapwood`` that name machines."""
        options = ", ".join(f'"{word}"' for word in self.ssh_options)
        return ["--on", f"ssh:{','.join(names or self.names)}", "--set", f"nodes.ssh=[{options}]"]

    def cut(self, name: str) -> None:
        """Pull the plug of a host's network."""
        _run("ip", "-n", self.namespace("switch"), "link", "set", name, "down")

    def heal(self, name: str) -> None:
        """Put it in again."""
        _run("ip", "-n", self.namespace("switch"), "link", "set", name, "up")

    def sockets(self, name: str) -> Path:
        """Return the folder in which processes on a host have their sockets."""
        return self.folder / f"run{name[1:]}"

    @contextlib.contextmanager
    def refusing(self, *names: str) -> Iterator[None]:
        """Have hosts drop without a word, while a block runs, whoever connects except by ssh."""
        rule = "iifname eth0 tcp dport != 22 tcp flags & (syn|ack) == syn drop"
        made = (
            "add table inet wall; "
            "add chain inet wall door { type filter hook input priority 0; }; "
            f"add rule inet wall door {rule}"
        )
        with contextlib.ExitStack() as stack:
            for name in names:
                self.run(name, "nft", made)
                stack.callback(self.run, name, "nft", "delete table inet wall")
            yield

    def processes(self, name: str) -> list[int]:
        """Return the processes on a host, without its ssh server."""
        space = self.namespace(name)
        found = subprocess.run(
            ["ip", "netns", "pids", space], capture_output=True, text=True, check=False
        )
        pids = [int(word) for word in found.stdout.split()]
        return [pid for pid in pids if pid not in self._servers and not _is_gone(pid)]

    def is_clean(self) -> bool:
        """Whether nothing runs on the hosts."""
        return not any(self.processes(name) for name in ("head", *self.names))

    def daemon(self, name: str) -> int:
        """Return the process id of the node daemon on a host: the one that started the zygotes."""
        for pid in self.processes(name):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"-u" in words and any(b"exec(b.read(" in word for word in words):
                    return pid
        pytest.fail(f"no daemon runs on {name}")


def until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.01)


@contextlib.contextmanager
def network(folder: Path, hosts: int) -> Iterator[Network]:
    """Make hosts and remove them."""
    made = Network(folder, hosts)
    try:
        made.up()
        yield made
    finally:
        made.down()


def _is_gone(pid: int) -> bool:
    """Whether a process has ended and waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _run(*words: str | Sequence[str]) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
