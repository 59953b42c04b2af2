"""The user's folders, also of users without a home."""

import os
import pwd
import stat
import tempfile
from pathlib import Path

import pytest

from sapwood.core.errors import ResourceError, SecurityError
from sapwood.environment import folders

WITHOUT_HOME = Path(tempfile.gettempdir()) / f"sapwood-of-{os.geteuid()}"


@pytest.fixture
def without_passwd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove HOME and the entry of this user in passwd."""

    def missing(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", missing)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_folders_follow_the_specification(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert folders.cache_folder(home) == tmp_path / ".cache/sapwood"
    assert folders.state_folder(home) == tmp_path / ".local/state/sapwood"
    assert folders.data_folder(home) == tmp_path / ".local/share/sapwood"
    assert folders.cache_folder(home | {"XDG_CACHE_HOME": "/c"}) == Path("/c/sapwood")
    # The specification: a relative path is invalid and ignored.
    assert folders.cache_folder(home | {"XDG_CACHE_HOME": "c"}) == tmp_path / ".cache/sapwood"


@pytest.mark.usefixtures("without_passwd")
def test_a_user_without_a_home_has_folders() -> None:
    assert folders.home_folder() is None
    assert folders.cache_folder() == WITHOUT_HOME / ".cache/sapwood"
    assert folders.state_folder() == WITHOUT_HOME / "state/sapwood"
    assert folders.expand_user("data.csv") == Path("data.csv")
    with pytest.raises(ResourceError, match="no home folder"):
        folders.expand_user("~/data.csv")


def test_a_home_that_cannot_be_written_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    environment = {"HOME": str(tmp_path / "home")}

    def access(path: Path, mode: int, *, effective_ids: bool) -> bool:  # root may write anywhere
        assert (mode, effective_ids) == (os.W_OK | os.X_OK, True)
        return path != tmp_path / "home"

    monkeypatch.setattr(os, "access", access)
    assert folders.cache_folder(environment) == WITHOUT_HOME / ".cache/sapwood"
    (tmp_path / "home/.cache/sapwood").mkdir(parents=True)  # the administrator made it for the user
    assert folders.cache_folder(environment) == tmp_path / "home/.cache/sapwood"


def test_only_users_are_expanded() -> None:
    root = pwd.getpwuid(0)
    assert folders.expand_user(f"~{root.pw_name}/a") == Path(root.pw_dir, "a")
    assert folders.expand_user("~tilde.npy") == Path("~tilde.npy")
    assert folders.expand_user("~$book.csv") == Path("~$book.csv")
    assert folders.expand_user(Path("a/~b")) == Path("a/~b")


def test_a_private_folder_is_private_under_each_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = folders.make_private(tmp_path / "sapwood" / "heads" / "lab")
    finally:
        os.umask(before)
    for one in (made, made.parent, made.parent.parent):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert folders.make_private(made) == made


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    lax = tmp_path / "lax"
    lax.mkdir()
    lax.chmod(0o757)
    with pytest.raises(SecurityError, match=r"other users may write.*0757.*chmod -R go-w"):
        folders.make_private(lax)
    lax.chmod(0o755)
    folders.check_private(lax)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 54321, 54321)
    with pytest.raises(SecurityError, match="another user"):
        folders.make_private(tmp_path)
    os.chown(tmp_path, 0, 54321)
    tmp_path.chmod(0o770)  # a group with others in it
    with pytest.raises(SecurityError, match="other users may write"):
        folders.make_private(tmp_path)


def test_the_folder_that_replaces_a_home_is_checked_too(tmp_path: Path) -> None:
    """Another user may have made it, and could replace what is made in it later."""
    replacement = tmp_path / f"sapwood-of-{os.geteuid()}"
    replacement.mkdir()
    replacement.chmod(0o777)
    with pytest.raises(SecurityError, match=f"sapwood-of-{os.geteuid()}, mode 0777"):
        folders.make_private(replacement / ".cache" / "sapwood")
    replacement.chmod(0o700)
    folders.make_private(replacement / ".cache" / "sapwood")
