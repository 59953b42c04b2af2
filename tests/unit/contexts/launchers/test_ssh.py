"""Arguments and messages of ssh. No host is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sapwood.contexts.launchers import ssh
from sapwood.contexts.launchers.base import ForwardingLauncher
from sapwood.contexts.launchers.ssh import CONNECT_TIMEOUT, SSH_FAILED, SshLauncher
from sapwood.core.errors import ConfigurationError, ResourceError

MakeSsh = Callable[[str], Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSsh:
    """Puts another program ``ssh`` first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(text: str) -> Path:
        program = folder / "ssh"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return program

    return make


@pytest.fixture
def launcher(fake: MakeSsh) -> SshLauncher:
    fake("exit 0")
    return SshLauncher(["h"])


def argv(launcher: SshLauncher, host: str, command: str) -> list[str]:
    """Return what the fake program was called with."""
    with closing(launcher), launcher.start(host, command) as process:
        out, _ = process.communicate()
        return out.decode().split("\0")[:-1]


def test_the_host_and_the_command_are_the_last_words(fake: MakeSsh) -> None:
    fake("printf '%s\\0' \"$@\"")
    launcher = SshLauncher(["user@gpu1"], ["-p", "2222"])
    words = argv(launcher, "user@gpu1", "echo 'a b'; exit")
    assert words[-3:] == ["--", "user@gpu1", "echo 'a b'; exit"]
    assert "-T" in words
    assert words.count("BatchMode=yes") == 1
    assert f"ConnectTimeout={CONNECT_TIMEOUT}" in words
    assert {"ForwardAgent=no", "ForwardX11=no"} < set(words)


def test_what_the_user_says_to_ssh_comes_first_because_the_first_counts(fake: MakeSsh) -> None:
    fake("printf '%s\\0' \"$@\"")
    words = argv(SshLauncher(["h"], ["-o", "ConnectTimeout=60"]), "h", "true")
    assert words.index("ConnectTimeout=60") < words.index(f"ConnectTimeout={CONNECT_TIMEOUT}")
    assert words.index("ConnectTimeout=60") < words.index("--")


@pytest.mark.parametrize(
    "host",
    [
        "-oProxyCommand=touch /tmp/x",
        "-oProxyCommand=touch",
        "-p22",
        "u@-oProxyCommand=touch",
        "ssh://-oProxyCommand",
        "h;reboot",
        "h`reboot`",
        "$(reboot)",
        "h|cat",
        "h&",
        "h'",
        'h"',
        "h h",
        "h\tx",
        "h\nx",
        "h\0",
        "u@",
        "@@",
    ],
)
def test_what_is_no_name_of_a_host_is_refused(fake: MakeSsh, tmp_path: Path, host: str) -> None:
    fake(f"touch {tmp_path}/called")
    with pytest.raises(ConfigurationError, match=r"is not a host name|cannot be read"):
        SshLauncher([host])
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    "host",
    [
        "n1",
        "user@n1",
        "first.last@n1.example.org",
        "10.0.0.1",
        "fe80::1%eth0",
        "ssh://u@h:22",
        "n_1",
        "n-1",
        "rechner-ä",
        "user+x@h",
    ],
)
def test_what_ssh_takes_is_taken(fake: MakeSsh, host: str) -> None:
    fake("exit 0")
    assert SshLauncher([host]).hosts == (host,)


def test_hosts_are_unfolded_and_named_once(fake: MakeSsh) -> None:
    fake("exit 0")
    assert SshLauncher(["a[1-2],b", "c"]).hosts == ("a1", "a2", "b", "c")
    with pytest.raises(ConfigurationError, match="a2 is named twice"):
        SshLauncher(["a[1-2]", "a2"])
    with pytest.raises(ConfigurationError, match="no host is named"):
        SshLauncher([])


def test_a_file_names_hosts(fake: MakeSsh, tmp_path: Path) -> None:
    fake("exit 0")
    file = tmp_path / "hosts"
    file.write_text("# all of them\n\nn[1-2]   # the first\n  user@n3\n")
    assert SshLauncher([f"@{file}", "n4"]).hosts == ("n1", "n2", "user@n3", "n4")
    file.write_text("# nobody\n")
    with pytest.raises(ConfigurationError, match="no host is named"):
        SshLauncher([f"@{file}"])
    file.write_text("-oProxyCommand=touch\n")
    with pytest.raises(ConfigurationError, match="is not a host name"):
        SshLauncher([f"@{file}"])


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00n1"], ids=["missing", "no text"])
def test_a_file_that_cannot_be_read_is_named(
    fake: MakeSsh, tmp_path: Path, content: bytes | None
) -> None:
    fake("exit 0")
    file = tmp_path / "hosts"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        SshLauncher([f"@{file}"])
    assert caught.value.where == str(file)


RECORDED = [
    (
        "ssh: Could not resolve hostname n9: Name or service not known\r\n",
        "the name is not known",
    ),
    ("root@n1: Permission denied (publickey,password).\r\n", "it refuses the login"),
    (
        (
            "@@@@@@@@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
            "Host key for n1 has changed and you have requested strict checking.\r\n"
            "Host key verification failed.\r\n"
        ),
        "its host key is unknown or has changed",
    ),
    (
        (
            "No ED25519 host key is known for n1 and you have requested strict checking.\r\n"
            "Host key verification failed.\r\n"
        ),
        "its host key is unknown or has changed",
    ),
    ("ssh: connect to host n1 port 22: Connection refused\r\n", "no ssh server answers there"),
    ("ssh: connect to host n1 port 22: Connection timed out\r\n", "it does not answer"),
    ("Connection timed out during banner exchange\r\n", "it does not answer"),
    ("Timeout, server n1 not responding.\r\n", "it does not answer"),
    ("ssh: connect to host n1 port 22: No route to host\r\n", "no route leads to it"),
    ("ssh: connect to host n1 port 22: Network is unreachable\r\n", "no route leads to it"),
    ("kex_exchange_identification: Connection closed by remote host\r\n", "closes the connection"),
    ("Connection reset by 10.0.0.1 port 22\r\n", "it closes the connection"),
    ("something new\r\n", "something new"),
    ("", "ssh exited with code 255"),
]
"""What OpenSSH 9 writes to standard error, and the explanation that users read."""


@pytest.mark.parametrize(("said", "meaning"), RECORDED)
def test_the_words_of_ssh_are_explained(launcher: SshLauncher, said: str, meaning: str) -> None:
    assert meaning in launcher.explain("h", SSH_FAILED, said)


def test_the_methods_of_a_refused_login_are_named(launcher: SshLauncher) -> None:
    said = "u@h: Permission denied (publickey,password)."
    assert launcher.explain("h", SSH_FAILED, said).endswith("(publickey,password)")


def test_braces_in_what_ssh_says_are_no_format(launcher: SshLauncher) -> None:
    said = "Permission denied ({1.__class__})."
    assert launcher.explain("h", SSH_FAILED, said).endswith("({1.__class__})")


def test_the_exit_code_of_the_command_is_not_that_of_ssh(launcher: SshLauncher) -> None:
    said = "Connection refused by a licence server\nno licence"
    assert launcher.explain("h", 3, said) == "no licence"
    assert launcher.explain("h", -9, "") == "ssh killed by SIGKILL"


def test_without_ssh_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="program ssh is not installed") as caught:
        SshLauncher(["h"])
    assert "openssh" in caught.value.hint


def test_an_ssh_that_vanishes_is_an_error_of_ours(fake: MakeSsh) -> None:
    program = fake("exit 0")
    launcher = SshLauncher(["h"])
    program.unlink()
    with pytest.raises(ResourceError, match="cannot start ssh"):
        launcher.start("h", "true")


# --- a way for connections to this machine --------------------------------------------------------

ASKED = """
echo "$@" >>%(log)s
case "$*" in
  *" -G "*) echo "controlmaster auto"; %(told)s; exit 0 ;;
  *" -O forward "*) %(forwarded)s ;;
esac
"""
"""A program ``ssh`` that notes what it is asked for."""

TARGET = "127.0.0.1:7700"


class Asked:
    """A launcher over such a program, and what it was asked for."""

    def __init__(self, fake: MakeSsh, log: Path, told: str, forwarded: str) -> None:
        fake(ASKED % {"log": log, "told": told, "forwarded": forwarded})
        self.log = log
        self.launcher = SshLauncher(["h"], ["-p", "2222"])

    def lines(self, word: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if word in line.split()]


MakeAsked = Callable[..., Asked]


@pytest.fixture
def asked(fake: MakeSsh, tmp_path: Path) -> Iterator[MakeAsked]:
    made: list[Asked] = []

    def make(told: str = ":", forwarded: str = "exit 0") -> Asked:
        made.append(Asked(fake, tmp_path / "log", told, forwarded))
        return made[-1]

    yield make
    for one in made:
        one.launcher.close()


def test_it_is_asked_over_its_own_connection_and_without_any_configuration(
    asked: MakeAsked,
) -> None:
    one = asked()
    assert isinstance(one.launcher, ForwardingLauncher)
    with one.launcher.start("h", "true") as channel:
        channel.communicate()
        (begun,) = one.lines("ControlMaster=yes")
        path = begun.partition("ControlPath=")[2].split()[0]
        assert Path(path).parent.stat().st_mode & 0o777 == 0o700
        one.launcher.forward(channel, "/run/x/head.sock", TARGET)
        (line,) = one.lines("forward")
        wanted = f"-F none -S {path} -O forward -R /run/x/head.sock:{TARGET} -- h"
        assert line == wanted
        one.launcher.settle(channel)
        assert not Path(path).parent.exists()
    one.launcher.close()
    assert not one.lines("cancel")  # the forwarding ends with the connection


def test_a_master_of_the_user_s_own_is_asked_instead_and_let_alone_after(asked: MakeAsked) -> None:
    one = asked(told="echo controlpath /home/me/.ssh/master")
    with one.launcher.start("h", "true") as channel:
        channel.communicate()
        assert not one.lines("ControlMaster=yes")
        one.launcher.forward(channel, "/x/head.sock", TARGET)
        one.launcher.settle(channel)
    one.launcher.close()
    one.launcher.close()
    (cancelled,) = one.lines("cancel")
    assert cancelled == f"-F none -S /home/me/.ssh/master -O cancel -R /x/head.sock:{TARGET} -- h"


def test_why_nothing_is_forwarded_is_told(asked: MakeAsked) -> None:
    one = asked(forwarded="echo 'remote port forwarding failed' >&2; exit 255")
    with one.launcher.start("h", "true") as channel:
        channel.communicate()
        with pytest.raises(ResourceError, match="remote port forwarding failed") as caught:
            one.launcher.forward(channel, "/x/head.sock", TARGET)
        assert "AllowStreamLocalForwarding" in caught.value.hint


def test_without_room_for_a_socket_machines_start_and_are_led_nowhere(
    asked: MakeAsked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "SHORT", "/nowhere")
    one = asked()
    with one.launcher.start("h", "true") as channel:
        channel.communicate()
        assert channel.returncode == 0
        with pytest.raises(ResourceError, match="no socket can be made in /nowhere"):
            one.launcher.forward(channel, "/x/head.sock", TARGET)


def test_an_ssh_that_is_not_started_leaves_no_folder(
    fake: MakeSsh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake("exit 0")
    launcher = SshLauncher(["h"])
    program.unlink()
    monkeypatch.setattr(ssh, "SHORT", str(tmp_path))
    with pytest.raises(ResourceError, match="cannot start ssh"):
        launcher.start("h", "true")
    assert not list(tmp_path.glob("sapwood-ssh-*"))
