"""An ssh server on each machine of a benchmark, with keys in a folder that goes afterwards."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from machines import Machines

SSHD = "/usr/sbin/sshd"

_SERVER = """\
ListenAddress {address}
Port 22
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
SetEnv XDG_CACHE_HOME={folder}/cache-{name}
"""


def why_no_ssh(lan: Machines) -> str:
    """Return why there can be no such servers; empty where there can."""
    if not lan.prefix:
        return "all machines are this one"
    for program in ("ssh", "ssh-keygen", SSHD):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    return ""


@contextlib.contextmanager
def ssh_servers(lan: Machines) -> Iterator[list[str]]:
    """Serve ssh on all machines but the head; yield the arguments by which ``ssh`` reaches them."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        for key in ("host_key", "user_key"):
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(made, check=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        hosts = "".join(f"Host {one}\n  HostName {lan.address(one)}\n" for one in lan.names)
        (folder / "config").write_text(
            f"{hosts}Host *\n  User root\n  IdentityFile {folder}/user_key\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking accept-new\n"
            "  IdentitiesOnly yes\n  LogLevel ERROR\n"
        )
        arguments = ["-F", str(folder / "config")]
        for one in lan.names:
            settings = folder / f"sshd-{one}"
            settings.write_text(_SERVER.format(address=lan.address(one), folder=folder, name=one))
            server = subprocess.Popen(
                lan.command(one, [SSHD, "-D", "-f", str(settings)]), stderr=subprocess.DEVNULL
            )
            stack.callback(server.wait)
            stack.callback(server.kill)
            tried = ["ssh", *arguments, "-o", "ConnectionAttempts=30", one, "true"]
            if subprocess.run(tried, check=False).returncode:
                sys.exit(f"error: no ssh server answers on {one}")
        yield arguments
