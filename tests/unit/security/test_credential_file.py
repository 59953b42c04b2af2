"""Files with credentials."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sapwood.core.errors import SecurityError
from sapwood.security.capabilities import HolderKey, Issuer
from sapwood.security.credential_file import (
    find_credential,
    find_holder_key,
    read_secret,
    write_secret,
)


def test_a_credential_is_kept_for_its_user_alone(tmp_path: Path) -> None:
    credential = Issuer.create().issue("demo", ["run"], not_after=2e9)
    file = tmp_path / "mine"
    before = os.umask(0o277)
    try:
        write_secret(file, credential.text)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert find_credential(file).id == credential.id
    assert find_credential(str(file)).id == credential.id
    assert find_credential(credential.text).id == credential.id
    with pytest.raises(SecurityError, match="already"):
        write_secret(file, "other")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "mine"
    write_secret(file, HolderKey.create().text)
    assert find_holder_key(file).public
    file.chmod(mode)
    with pytest.raises(SecurityError, match="can read or write"):
        find_holder_key(file)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "file")):
        with pytest.raises(SecurityError, match=said):
            read_secret(path)
    with pytest.raises(SecurityError, match="not a file with a credential"):
        read_secret(tmp_path / "pipe")
    with pytest.raises(SecurityError, match="written"):
        write_secret(tmp_path / "no" / "folder", "x")
