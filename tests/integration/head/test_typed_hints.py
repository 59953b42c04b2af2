"""What commands print about a cluster with a name works when it is typed as printed."""

from __future__ import annotations

import os
import re
import shlex
import signal
from functools import partial
from pathlib import Path

import msgspec
import pytest

import sapwood
from sapwood.cli.head_connection import asked_head
from sapwood.head.folder import find_head, running_heads

from .conftest import Cli


def typed(text: str, verb: str) -> list[str]:
    """Return the words of the one command in backquotes that starts like this."""
    (found,) = re.findall(rf"`sapwood ({verb}[^`]*)`", text)
    return shlex.split(found)


def test_hints_of_a_named_cluster_work_as_printed(own_cli: Cli, tmp_path: Path) -> None:
    cli = own_cli
    said = cli.run("up", "--cluster", "nw", "--http", "127.0.0.1:0")
    assert running_heads() == ["nw"]
    try:
        assert "/login#" in cli.run(*typed(said, "dashboard"), "--json")
        assert "`sapwood down --cluster nw` ends it" in said
        assert "'s' is ready" in cli.run("exec", *said_options(said), "--", "echo", "'s' is ready")

        twice = cli.run("up", "--cluster", "nw", status=2)
        assert cli.run(*typed(twice, "token create")).startswith("sapwood node join ")

        made = cli.run("session", "create", "night", "--cluster", "nw", "--agents", "1")
        options = re.search(r"--session night --cluster nw", made)
        assert options is not None
        cli.run("new", str(tmp_path / "fit"))
        cli.run("run", str(tmp_path / "fit"), "-q", *options[0].split())
        with sapwood.attach("night", cluster="nw") as cluster:
            os.kill(cli.json("session", "show", "night", "--cluster", "nw")["pid"], signal.SIGKILL)
            with pytest.raises(
                sapwood.errors.CommunicationError, match="connection to the sess"
            ) as lost:
                cluster.submit(signal.pause).result(60)
        assert lost.value.hint is not None
        assert "night#" in cli.run(*typed(lost.value.hint, "session show"))
        check_hints_by_credential(cli, "night")
        again = cli.run("session", "create", "night", "--cluster", "nw", status=2)
        assert typed(again, "session show")[2:] == ["night", "--cluster", "nw"]

        unknown = cli.run("node", "show", "n9", "--cluster", "nw", status=2)
        listed = cli.run(*typed(unknown, "node list"))
        assert re.search(r"reserved.*\n.* ready ", listed), listed
        (node,) = cli.json("node", "list", "--cluster", "nw")["nodes"]
        assert node["reserved"] is False  # the policy of this head opens its machine
        cli.run("policy", "set", "limits.head_machine", "owner", "--cluster", "nw")
        assert re.search(r" ready .* yes ", cli.run("node", "list", "--cluster", "nw"))
        assert re.search(r"reserved +yes", cli.run("node", "show", node["name"], "--cluster", "nw"))
        run = cli.run(
            *("run", str(tmp_path / "fit"), "--detach", "--session", "night", "--cluster", "nw")
        )
        assert cli.run(*typed(run, "run follow"))

        (view,) = sapwood.connect("nw").runs.history()
        elsewhere = msgspec.structs.replace(view.record, machine="another", folder="/none")
        with pytest.raises(
            sapwood.errors.ConfigurationError, match="machine of its head"
        ) as caught:
            sapwood.types.DetachedRun(elsewhere, partial(asked_head, "nw"), "nw").result()
        assert caught.value.hint is not None
        assert cli.run(*typed(caught.value.hint, "run follow"))

        nowhere = cli.run("node", "list", "--cluster", "default", status=6)
        assert "no cluster 'default' is up here" in nowhere
        assert "`sapwood up`" in nowhere
        assert "'nw' (--cluster nw, --on head:nw, sapwood.connect('nw'))" in nowhere
        assert "head" in cli.run("logs")  # of the only cluster that is up
    finally:
        ended = cli.run(*typed(said, "down"))
    assert ended == "The cluster 'nw' is down.\n"
    with pytest.raises(Exception, match="`sapwood up --cluster nw`"):
        find_head("nw")


def check_hints_by_credential(cli: Cli, session: str) -> None:
    """Check hints of errors in a session that was attached by a credential."""
    check_where_commands_run(cli)
    line = cli.run("session", "credential", session, "--cluster", "nw").strip()
    with sapwood.attach(line, role="user") as cluster:
        with pytest.raises(
            sapwood.errors.ConfigurationError, match="unknown invitation 'x1'"
        ) as unknown:
            cluster.revoke_invitation("x1")
        assert unknown.value.hint is not None
        listed = typed(unknown.value.hint, "agent list")
        assert listed[2:] == [session, "--cluster", "nw"]
        assert cli.run(*listed)
        with pytest.raises(sapwood.errors.ConfigurationError, match="not merged with") as other:
            cluster.split("day")
    assert other.value.hint is not None
    assert typed(other.value.hint, "session merge")[2:] == [session, "day", "--cluster", "nw"]


def check_where_commands_run(cli: Cli) -> None:
    """Check that commands with ``--cluster`` run there without ``--on`` as well."""
    shown = cli.run("exec", "--cluster", "nw", "--", "sh", "-c", "echo $PPID")
    (daemon,) = [
        one["facts"]["pid"] for one in cli.json("node", "list", "--cluster", "nw")["nodes"]
    ]
    assert int(shown) == daemon
    before = len(cli.json("events", "--cluster", "nw", "--kind", "run.ended")["events"])
    cli.run("run", str(cli.folder / "fit"), "-q", "--cluster", "nw")
    after = cli.json("events", "--cluster", "nw", "--kind", "run.ended")["events"]
    assert len(after) == before + 1


def said_options(said: str) -> list[str]:
    """Return the options with which `sapwood up` says that a command runs on the cluster."""
    found = re.search(r"`sapwood run PROGRAM (--cluster \S+)`", said)
    assert found is not None
    return found[1].split()
