"""Components of nodes and of the head: stopped, restarted, killed, and what keeps running."""

from __future__ import annotations

import operator
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.cli import node as node_commands
from sapwood.cli.head_access import connected
from sapwood.cli.status_tables import status_of
from sapwood.core.errors import ConfigurationError, InputError
from sapwood.environment.component import ComponentAction, ComponentView
from sapwood.head import calls
from sapwood.head.folder import find_head

from .conftest import PATIENCE, Cli, Until

EXAMPLE = Path(__file__).parents[3] / "examples" / "component"

MOODY = '''
"""A component that does what the test wants: it fails, or starts a process."""
import os, subprocess
from pathlib import Path
from sapwood.environment.lifecycle import State

class Moody:
    name = "moody"

    def __init__(self):
        self.folder = Path(os.environ["MOODY"])
        self.process = None

    def start(self, context):
        self.say(f"start {context.settings.restart.limit}")
        self.process = subprocess.Popen(["sleep", "1000"])
        context.own(self.process.pid)
        (self.folder / "pid").write_text(str(self.process.pid))

    def check(self):
        if (self.folder / "fail").exists():
            raise RuntimeError("told to")
        if (self.folder / "cut").exists():
            (self.folder / "cut").unlink()
            break_link()
        if self.process.poll() is not None:
            return State.FAILED
        return State.READY

    def receive(self, event):
        self.say(f"{event.topic} {event.source}")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def say(self, line):
        with (self.folder / "heard").open("a") as file:
            file.write(line + "\\n")

def break_link():
    """Let the next look at the link with the head fail."""
    from sapwood.nodes.control_link import ControlLink
    check = ControlLink.check

    def fail(_link):
        ControlLink.check = check
        raise RuntimeError("cut")

    ControlLink.check = fail
'''


def nodes() -> dict[str, calls.NodeStatus]:
    return {one.record.name: one for one in status_of("default").nodes}


def component(node: str, name: str) -> ComponentView:
    """Return how a component of a node is, or of the head."""
    found = status_of("default")
    views = found.head
    if node != "head":
        told = {one.record.name: one for one in found.nodes}[node].components
        views = told.components if told else []
    return next(view for view in views if view.name == name)


def act(name: str, action: ComponentAction, node: str) -> ComponentView:
    ((_, view),) = node_commands.act("default", name, action, node)
    return view


def entry_of(name: str) -> str:
    """Return what the example registers."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return str(project["entry-points"]["sapwood.components"][name])


def install(folder: Path, name: str, entry: str) -> None:
    """Install an entry point, as pip does it."""
    facts = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[sapwood.components]\n{name} = {entry}\n")


@pytest.fixture
def moody(own_cli: Cli, tmp_path: Path) -> Path:
    """A head whose nodes run components of packages: the folder that moves one of them."""
    installed, folder = tmp_path / "installed", tmp_path / "moody"
    folder.mkdir()
    install(installed, "moody", "moody:Moody")
    install(installed, "disk-watch", entry_of("disk-watch"))
    (installed / "moody.py").write_text(MOODY)
    shutil.copy(EXAMPLE / "sapwood_disk_watch.py", installed)
    own_cli.environment |= {
        "PYTHONPATH": str(installed),
        "MOODY": str(folder),
        "DISK_WATCH_FOLDER": str(folder),
        "DISK_WATCH_FREE": "0",
        "SAPWOOD_NODES__COMPONENTS": '["moody", "disk-watch"]',
        "SAPWOOD_RESTART__LIMIT": "2",
    }
    own_cli.join(own_cli.json("up", "--listen", "127.0.0.1:0", "--no-node")["join"], "n1")
    return folder


@pytest.mark.row("A-ENV-1")
@pytest.mark.row("A-ENV-6")
def test_sessions_lose_a_node_whose_zygotes_stop_and_nothing_of_their_waves(
    own_cli: Cli, own_head: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPWOOD_CLUSTER__NODE_PATIENCE", "1")
    monkeypatch.setenv("SAPWOOD_RESTART__LIMIT", "100")  # a busy machine takes more than one try
    own_cli.join(own_head["join"], "n1")
    own_cli.join(own_head["join"], "n2")
    with (
        sapwood.connect().start(agents=4) as cluster,
        cluster.stream(abs, reduce=operator.add) as stream,
    ):
        assert stream.broadcast(-1).result(PATIENCE).total == 4
        before = nodes()["n1"].activity
        assert before is not None
        (session,) = before.sessions
        # A zygote is killed: its session restarts there.
        os.kill(session.zygote.pid, signal.SIGKILL)
        assert stream.broadcast(-2).result(PATIENCE).total == 8
        # The component restarts: the processes end and restart.
        shown = own_cli.run("node", "restart", "zygotes", "--nodes", "n1")
        assert shown.splitlines()[1].split()[:3] == ["n1", "zygotes", "ready"]
        assert stream.broadcast(-3).result(PATIENCE).total == 12
        assert component("n1", "zygotes").works
        # It stops: all places go to the other node.
        assert act("zygotes", ComponentAction.STOP, "n1").state == "stopped"
        assert stream.broadcast(-4).result(PATIENCE).total == 16
        until(lambda: not (activity := nodes()["n1"].activity) or not activity.sessions)
        listed = own_cli.json("node", "list")["nodes"]
        found = {one["name"]: (one["state"], one["reason"]) for one in listed}
        assert found == {
            "n1": ("closed", "its component 'zygotes' is stopped"),
            "n2": ("ready", ""),
        }
        assert own_cli.run("exec", "--on", "head", "--", "echo", "hi") == "n[1-2]: hi\n"
        with connected("default") as access:
            assert [one.name for one in access.nodes] == ["n2"]  # what a new session would get
        assert act("zygotes", ComponentAction.START, "n1").state == "ready"
        assert stream.broadcast(-5).result(PATIENCE).total == 20
    with connected("default") as access:
        assert "n1" in [one.name for one in access.nodes]  # at once
    with sapwood.connect().start(agents=2):
        until(lambda: (activity := nodes()["n1"].activity) and activity.sessions)


@pytest.mark.row("A-ENV-1")
def test_what_may_not_be_done_says_what_to_do_instead(
    own_cli: Cli, own_head: Any, tmp_path: Path, until: Until
) -> None:
    own_cli.join(own_head["join"], "n1")
    assert "sapwood node delete" in own_cli.run("node", "stop", "link", status=2)
    with pytest.raises(InputError, match="unknown component 'zygots'") as misspelt:
        act("zygots", ComponentAction.STOP, "n1")
    assert misspelt.value.hint == "did you mean 'zygotes'?"
    with pytest.raises(InputError) as elsewhere:
        act("store", ComponentAction.RESTART, "n1")
    assert "add --nodes head" in elsewhere.value.hint
    with pytest.raises(InputError, match="node n9 does not exist"):
        act("zygotes", ComponentAction.STOP, "n9")
    for name in ("store", "service", "tree"):
        with pytest.raises(ConfigurationError, match="cannot be stopped") as caught:
            act(name, ComponentAction.STOP, "head")
        assert "sapwood down" in caught.value.hint
    # Commands that run when their component stops end, and whoever started them hears of it.
    ready = tmp_path / "ready"
    words = ["sh", "-c", f"touch {ready}; exec sleep 600"]
    command = subprocess.Popen(
        [sys.executable, "-m", "sapwood", "exec", "--on", "head", "--", *words],
        env=own_cli.environment,
    )
    until(ready.exists)
    assert act("commands", ComponentAction.STOP, "n1").state == "stopped"
    assert command.wait(PATIENCE) == 137
    said = own_cli.run("exec", "--on", "head", "--", "true", status=6)
    assert "component 'commands' is stopped" in said
    assert act("commands", ComponentAction.START, "n1").state == "ready"
    assert own_cli.run("exec", "--on", "head", "--", "echo", "hi") == "hi\n"
    # Without its monitor a node says nothing of itself, but its components are known.
    act("monitor", ComponentAction.STOP, "n1")
    assert "component 'monitor' is stopped" in nodes()["n1"].unanswered
    shown = own_cli.run("node", "status", "--nodes", "n1")
    assert ["n1", "monitor", "stopped"] in [line.split()[:3] for line in shown.splitlines()]
    assert max(map(len, shown.splitlines())) <= 80
    act("monitor", ComponentAction.START, "n1")
    assert nodes()["n1"].activity is not None


@pytest.mark.row("A-ENV-1")
def test_components_of_the_head_restart_while_it_works(
    own_cli: Cli, own_head: Any, until: Until
) -> None:
    assert act("store", ComponentAction.RESTART, "head").state == "ready"
    first = Path(find_head().socket)
    assert act("service", ComponentAction.RESTART, "head").state == "ready"
    second = Path(find_head().socket)
    assert not first.exists()
    # A user deletes the folder with the socket: there is another one soon.
    shutil.rmtree(second.parent)
    until(lambda: find_head().socket != str(second))
    until(lambda: component("head", "service").restarts == 1)
    # While the authority is stopped, whoever joins waits.
    assert act("authority", ComponentAction.STOP, "head").state == "stopped"
    joining = subprocess.Popen(
        [sys.executable, "-m", "sapwood", "node", "join", own_head["join"], "--as", "n1"],
        env=own_cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    own_cli.nodes.append(joining)
    until(lambda: Path(f"/proc/{joining.pid}/stat").exists())
    assert own_cli.states() == {}
    assert act("authority", ComponentAction.START, "head").state == "ready"
    assert joining.stdout is not None
    assert joining.stdout.readline().startswith("joined as n1")
    # All components of all nodes and of the head are ready: the status says so, with its time.
    until(lambda: component("head", "tree").state == "ready")
    assert 0 < (status_of("default").ready_seconds or 0.0) < PATIENCE
    parts = nodes()["n1"].components
    assert parts is not None
    assert 0 < (parts.ready_seconds or 0.0) < PATIENCE
    assert parts.ready


@pytest.mark.row("A-ENV-4")
@pytest.mark.row("A-ENV-5")
@pytest.mark.row("A-ENV-6")
@pytest.mark.nightly
def test_a_component_of_a_package_is_restarted_and_given_up_as_the_policy_says(
    own_cli: Cli, moody: Path, until: Until
) -> None:
    def heard() -> list[str]:
        return (moody / "heard").read_text().splitlines()

    def view(name: str) -> ComponentView:
        return component("n1", name)

    assert view("disk-watch").state == "ready"
    # It has the settings of the head, and hears of the others.
    assert heard()[0] == "start 2"
    act("commands", ComponentAction.RESTART, "n1")
    assert heard().count("component.state commands") >= 3
    # Its process is killed: another one comes.
    pid = int((moody / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    until(lambda: int((moody / "pid").read_text()) != pid)
    until(lambda: view("moody").works)
    assert view("moody").restarts == 1
    # It fails again and again: it is given up, and the node keeps running.
    (moody / "fail").touch()
    until(lambda: view("moody").state == "stopped")
    assert view("moody").reason == "given up: RuntimeError: told to"
    shown = own_cli.run("node", "status")
    assert "given up:" in shown
    assert own_cli.states() == {"n1": "ready"}
    own_cli.run("node", "start", "moody", status=5)
    until(lambda: view("moody").state == "stopped")
    # The cause is gone: a user starts it again. With the last one, all are ready.
    (moody / "fail").unlink()
    assert act("moody", ComponentAction.START, "n1").state == "ready"
    owned = int((moody / "pid").read_text())
    with sapwood.connect().start(agents=2) as cluster:
        assert cluster.submit(pow, 2, 3).result(PATIENCE) == 8
    assert Path(f"/proc/{owned}").exists()  # the reaper spares what is a component's own


@pytest.mark.nightly
@pytest.mark.row("A-ENV-6")
def test_a_node_whose_link_fails_joins_again(own_cli: Cli, moody: Path, until: Until) -> None:
    assert component("n1", "link").state == "ready"
    (moody / "cut").touch()
    until(lambda: not (moody / "cut").exists())

    def is_back() -> bool:
        told = nodes()["n1"].components
        return told is not None and any(
            one.name == "link" and one.restarts for one in told.components
        )

    until(is_back)
    until(lambda: own_cli.states() == {"n1": "ready"})
    assert "link.joined link" in (moody / "heard").read_text()
    with sapwood.connect().start(agents=2) as cluster:
        assert cluster.submit(pow, 2, 3).result(PATIENCE) == 8
