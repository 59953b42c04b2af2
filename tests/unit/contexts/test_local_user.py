"""What processes of another user get, and which users there are."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood.contexts.local_user import UMASK, LocalUser, find_user
from sapwood.core.errors import ConfigurationError, SecurityError

OTHER = LocalUser(  # noqa: S604 - their shell is a fact, it is not run
    name="ann", uid=54321, gid=54321, groups=(54321, 54400), home="/nonexistent", shell="/bin/sh"
)


def test_a_user_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="user 'no-such-user' does not exist"):
        find_user("no-such-user")


def test_who_is_not_root_begins_processes_as_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(SecurityError, match="cannot begin processes as root"):
        find_user("root")


def test_a_daemon_begins_processes_as_its_own_user_as_before() -> None:
    own = find_user(pwd.getpwuid(os.geteuid()).pw_name)
    assert own.is_this_process
    assert own.environment({"SECRET": "x"}) == {"SECRET": "x"}
    assert own.process_options("/tmp") == {"cwd": "/tmp"}  # noqa: S108 - not used
    own.check_python()


def test_variables_of_the_daemon_stay_with_it() -> None:
    found = OTHER.environment(
        {
            "PATH": "/bin",
            "HOME": "/root",
            "AWS_SECRET": "x",
            "XDG_RUNTIME_DIR": "/run/0",
            "LC_ALL": "C",
        }
    )
    assert found == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "USER": "ann",
        "LOGNAME": "ann",
        "SHELL": "/bin/sh",
    }


def test_what_the_bits_of_a_folder_allow(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    bits = {0o755: True, 0o711: True, 0o750: False, 0o700: False}
    assert OTHER.may_enter("/")
    for mode, allowed in bits.items():
        inner.chmod(mode)
        assert OTHER._has(inner, 1) == allowed
    mine = LocalUser(
        name="me",
        uid=inner.stat().st_uid + 1,
        gid=0,
        groups=(inner.stat().st_gid,),
        home="/",
        shell="",
    )
    inner.chmod(0o710)
    assert mine._has(inner, 1)
    assert not OTHER.may_enter(inner / "nothing")


def test_a_python_that_the_user_cannot_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "python").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ConfigurationError, match="ann cannot read the Sapwood of this node"):
        OTHER.check_python()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root begins processes as others")
@pytest.mark.row("C3-AGENT")
@pytest.mark.slow
def test_a_process_is_wholly_theirs() -> None:
    source = (
        "python3 -c 'import os, json; u = os.umask(0); "
        "print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), u, os.getcwd()]))'"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f"{source} || true"],
        env=OTHER.environment(),
        capture_output=True,
        text=True,
        check=True,
        **OTHER.process_options(),
    )
    if not done.stdout:
        pytest.skip("no Python here that all users can read")
    uids, gids, groups, umask, folder = json.loads(done.stdout)
    assert uids == [54321] * 3
    assert gids == [54321] * 3
    assert sorted(groups) == [54321, 54400]
    assert umask == UMASK
    assert folder == "/"
