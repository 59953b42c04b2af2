"""A node that root started begins processes as the user whom a credential names."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
from tests.integration.head.conftest import Cli, Until

import sapwood
from sapwood.content import messages as stage_messages
from sapwood.core.errors import SapwoodError
from sapwood.core.topology import ROOT
from sapwood.head_client.access import HeadAccess
from sapwood.nodes import messages
from sapwood.security.capabilities import Capability
from sapwood.session.interface import NewAgent

PATIENCE = 30.0
SHORT = Path("/tmp")  # noqa: S108 - where the folders of other users are
USER = "nobody"
RIGHTS = "connect,create,delete,attach,allocate,spawn,run"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root begins processes as others"),
    pytest.mark.timeout(120),
]

SEEN_BY_ALL = """\
mount -t tmpfs none /mnt && mkdir /mnt/python /mnt/source /mnt/packages && chmod 755 /mnt &&
mount --bind "$1" /mnt/python && mount --bind "$2" /mnt/source && mount --bind "$3" /mnt/packages &&
shift 4 && export LD_LIBRARY_PATH=/mnt/python/lib PYTHONPATH=/mnt/source:/mnt/packages &&
export SECRET=of-the-daemon && umask 077 &&
exec $AS /mnt/python/bin/python3 "$@"
"""
"""Runs Sapwood in a separate view of the files, where all users can read it."""


NEIGHBOUR = """\
import sys, sapwood
with sapwood.local(2) as cluster:
    for line in sys.stdin:
        print(sum(cluster.map(abs, range(-9, 0))), flush=True)
"""

OURS = """\
import sys, sapwood
with sapwood.connect().start(agents=2) as cluster:
    print(sum(cluster.map(abs, range(-9, 0))), flush=True)
    sys.stdin.read()
"""


def place_for_all() -> list[str]:
    """Return the words before a command by which all users can read its Python."""
    source = Path(sapwood.__file__).parents[1]
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        SEEN_BY_ALL,
        "sh",
        sys.base_prefix,
        str(source),
        site.getsitepackages()[0],
    ]


class Node:
    """A node of root's, and a head that it joined.

    Attributes:
        cli: The command line of the head's user.
        url: Where the head is.
        pid: The daemon of the node.
    """

    def __init__(self, cli: Cli, url: str, pid: int) -> None:
        self.cli = cli
        self.url = url
        self.pid = pid

    def credential(self, name: str, *words: str) -> Path:
        file = self.cli.folder / name
        rights = () if "--rights" in words else ("--rights", RIGHTS)
        self.cli.run("credential", "issue", *rights, "--output", str(file), *words)
        return file


@pytest.fixture(scope="module")
def node(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    del nothing_is_left_behind_by_all  # it looks when the head has ended
    made = Cli(tmp_path_factory.mktemp("users"))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the node has no tests
    try:
        up = made.up()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", made.environment["XDG_STATE_HOME"])
            daemon = made.join(up["join"], "roots", *place_for_all())
            _warm_up()
            yield Node(made, f"sapwood://{up['places'][0]}", daemon.pid)
            made.run("node", "delete", "roots")
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        made.close()
        made.end_head()


def _warm_up() -> None:
    """Have the process there that stands beside all commands of the node."""
    with contextlib.closing(HeadAccess()) as head:
        start = messages.StartCommand(command=99, arguments=[b"true"])
        (host,) = [one.host for one in head.nodes]
        head.ask(host, messages.COMMAND_START, messages.to_value(start)).result(PATIENCE)


@pytest.fixture
def nobodys(node: Node) -> Iterator[Path]:
    file = node.credential("nobodys", "--user", USER)
    yield file
    file.unlink()


def look(daemon: int) -> dict[str, Any]:
    """Return what a task sees of the daemon and of the task's process."""
    import contextlib  # noqa: PLC0415 - it travels
    import os  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    seen: dict[str, Any] = {
        "uids": os.getresuid(),
        "gids": os.getresgid(),
        "groups": sorted(os.getgroups()),
        "umask": os.umask(0o022),
        "user": os.environ.get("USER"),
        "home": os.environ.get("HOME"),
        "secret": os.environ.get("SECRET"),
        "read": [],
    }
    parents = {os.getpid()}
    pid = os.getpid()
    while pid != daemon and pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        parents.add(pid)
    seen["below"] = daemon in parents
    for name in ("environ", "mem", "maps", "fd/0"):
        with contextlib.suppress(OSError), Path(f"/proc/{daemon}/{name}").open("rb"):
            seen["read"].append(name)
    keys = []
    for pid in parents - {daemon}:
        with contextlib.suppress(OSError):
            keys += [
                part
                for part in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if b"swd1" in part
            ]
    seen["tokens"] = keys
    return seen


@pytest.mark.row("C3-AGENT")
@pytest.mark.row("C5-RES")
def test_agents_and_tasks_run_as_the_user_of_the_credential(node: Node, nobodys: Path) -> None:
    account = pwd.getpwnam(USER)
    with sapwood.connect(node.url, credential=nobodys).start(agents=2) as cluster:
        seen = cluster.submit(look, node.pid).result(PATIENCE)
        folders = [one for one in SHORT.glob("sapwood-*") if one.stat().st_uid == account.pw_uid]
        assert folders
        assert all(one.stat().st_mode & 0o777 == 0o700 for one in folders)
    assert set(seen["uids"]) == {account.pw_uid}
    assert set(seen["gids"]) == {account.pw_gid}
    assert seen["groups"] == sorted(os.getgrouplist(USER, account.pw_gid))
    assert seen["umask"] == 0o022
    assert (seen["user"], seen["home"]) == (USER, account.pw_dir)
    assert seen["below"]
    assert seen["secret"] is None
    assert not seen["tokens"]
    assert not seen["read"]
    assert not [one for one in folders if one.exists()]


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder that all users may write to."""
    made = Path(tempfile.mkdtemp(prefix="everybodys-", dir=SHORT))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@pytest.mark.row("C5-RES")
def test_commands_run_as_the_user_whatever_the_client_says(
    node: Node, nobodys: Path, everybodys: Path, until: Until
) -> None:
    account = pwd.getpwnam(USER)
    credential = Capability.parse(nobodys.read_text())
    script = "(id -u; id -G; umask; echo $HOME $SECRET; pwd) > .said; mv .said said"
    with contextlib.closing(HeadAccess(node.url, credential, None, "127.0.0.1:0")) as head:
        (host,) = [one.host for one in head.nodes if one.name == "roots"]
        for user in ("", "root"):
            start = messages.StartCommand(
                command=1 + len(user),
                arguments=[b"sh", b"-c", script.encode()],
                folder=str(everybodys),
                user=user,
            )
            head.ask(host, messages.COMMAND_START, messages.to_value(start)).result(PATIENCE)
            until((everybodys / "said").exists)
            assert (everybodys / "said").owner() == USER
            assert (everybodys / "said").read_text().split() == [
                str(account.pw_uid),
                *map(str, os.getgrouplist(USER, account.pw_gid)),
                "0022",
                account.pw_dir,
                str(everybodys),
            ]
            (everybodys / "said").unlink()


@pytest.fixture
def as_nobody(node: Node, nobodys: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command line on another machine, of a user with that credential."""

    def run(*words: str, status: int = 0) -> str:
        with monkeypatch.context() as patch:
            patch.setitem(node.cli.environment, "SAPWOOD_CREDENTIAL_FILE", str(nobodys))
            return node.cli.run(*words, "--cluster", node.url, status=status)

    return run


@pytest.mark.row("C5-RES")
def test_agents_of_a_session_that_stays_run_as_the_user_of_who_made_it(
    node: Node, as_nobody: Callable[..., str]
) -> None:
    account = pwd.getpwnam(USER)
    as_nobody("session", "create", "eves", "--agents", "1")
    try:
        line = as_nobody("session", "credential", "eves").strip()
        with sapwood.attach(line) as cluster:
            assert cluster.submit(os.getuid).result(PATIENCE) == account.pw_uid
            with pytest.raises(SapwoodError, match="on the machine of its root"):
                cluster.session.expand([NewAgent(ROOT, 0)])
            with (
                cluster.stream(abs, reduce=lambda one, _other: one) as stream,
                pytest.raises(SapwoodError, match="user filters cannot run"),
            ):
                stream.broadcast(-1).result(PATIENCE)
            assert cluster.expand(1)
            assert set(cluster.map(_user_of, range(8))) == {account.pw_uid}
    finally:
        as_nobody("session", "delete", "eves")
    refused = as_nobody("session", "create", "--on", "local", "--agents", "1", status=7)
    assert "runs as the user of the head" in refused


@pytest.mark.row("C5-RES")
def test_files_of_a_node_are_not_read_as_the_user_of_its_daemon(
    node: Node, nobodys: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("of root")
    credential = Capability.parse(nobodys.read_text())
    with contextlib.closing(HeadAccess(node.url, credential, None, "127.0.0.1:0")) as head:
        (host,) = [one.host for one in head.nodes if one.name == "roots"]
        piece = messages.to_value(stage_messages.ReadPiece(str(secret), b"secret", 0, 10))
        find = messages.to_value(stage_messages.FindFiles(str(secret), user="root"))
        for order, value in ((stage_messages.FIND, find), (stage_messages.READ, piece)):
            with pytest.raises(SapwoodError, match="reads files as the user of its daemon"):
                head.ask(host, order, value).result(PATIENCE)
        for order in (stage_messages.KEEP, stage_messages.REMOVE):
            with pytest.raises(SapwoodError, match="code and data of all users"):
                head.ask(host, order, None).result(PATIENCE)


@pytest.mark.row("C5-RES")
def test_commands_show_the_credential_that_a_variable_names(
    node: Node, nobodys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = str(pwd.getpwnam(USER).pw_uid).encode()
    on = f"head:{node.url}"
    found = sapwood.execute(["id", "-u"], on, credential=nobodys)
    assert found.nodes["roots"].stdout.split() == [uid]
    words = ("exec", "--on", on, "--no-label", "--", "id", "-u")
    assert "needs a credential" in node.cli.run_apart(*words, status=7)
    monkeypatch.setitem(node.cli.environment, "SAPWOOD_CREDENTIAL_FILE", str(nobodys))
    assert node.cli.run_apart(*words).split() == [uid.decode()]


def _user_of(_number: int) -> int:
    import os  # noqa: PLC0415 - it travels

    return os.getuid()


@pytest.mark.row("C5-RES")
def test_a_user_that_a_node_does_not_have_is_named(node: Node) -> None:
    file = node.credential("strangers", "--user", "no-such-user")
    with pytest.raises(SapwoodError, match="user 'no-such-user' does not exist on this node"):
        sapwood.connect(node.url, credential=file).start(agents=1)


@pytest.mark.row("C5-RES")
@pytest.mark.nightly
def test_without_a_user_processes_run_as_the_daemon(node: Node) -> None:
    file = node.credential("plain")
    with sapwood.connect(node.url, credential=file).start(agents=1) as cluster:
        assert cluster.submit(os.getuid).result(PATIENCE) == 0


@contextlib.contextmanager
def _client(words: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        process.kill()
        process.wait()
        process.stdout.close()


def _sum_of(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def _below(pid: int) -> set[int]:
    return {one.pid for one in psutil.Process(pid).children(recursive=True)}


@pytest.mark.nightly  # it starts two clusters; that users are kept apart is tested above
@pytest.mark.row("C3-AGENT")
def test_the_cluster_of_another_user_is_untouched_when_ours_is_killed_and_cleaned(
    node: Node, everybodys: Path, until: Until
) -> None:
    account = pwd.getpwnam(USER)
    drop = f"setpriv --reuid={account.pw_uid} --regid={account.pw_gid} --clear-groups"
    theirs = {"PATH": os.environ["PATH"], "HOME": str(everybodys), "AS": drop}
    words = [*place_for_all(), sys.executable, "-c", NEIGHBOUR]
    with _client(words, theirs) as neighbour:
        assert _sum_of(neighbour) == 45
        processes = _below(neighbour.pid)
        assert {psutil.Process(pid).uids().real for pid in processes} == {account.pw_uid}
        idle = _below(node.pid)
        with _client([sys.executable, "-c", OURS], node.cli.environment) as ours:
            assert _sum_of(ours) == 45
            assert _below(node.pid) > idle
            ours.kill()
            until(lambda: _below(node.pid) == idle)
        node.cli.run("node", "restart", "zygotes", "--nodes", "roots")
        node.cli.run("node", "restart", "commands", "--nodes", "roots")
        assert _sum_of(neighbour) == 45
        assert _below(neighbour.pid) == processes
