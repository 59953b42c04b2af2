"""Old public names work for one release, and warn."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sapwood
from sapwood.old_names import MOVED, REPLACED, find_old


@pytest.mark.parametrize("name", [*MOVED, *REPLACED])
def test_an_old_name_works_and_says_what_to_use(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"sapwood\.{name} works until .*: use \w"):
        value = getattr(sapwood, name)
    assert value is not None
    assert name not in sapwood.__all__
    assert name not in vars(sapwood)  # the next use warns, too


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_name_is_what_its_new_place_has(name: str) -> None:
    module, _, new = f"sapwood.{MOVED[name]}".rpartition(".")
    with pytest.warns(DeprecationWarning, match=name):
        assert getattr(sys.modules[module], new) is find_old(name)


@pytest.mark.slow
def test_the_warning_is_at_the_line_of_the_user() -> None:
    code = "import sapwood\n\n\nfrom sapwood import AgentLostError\n"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "<string>:4: DeprecationWarning: sapwood.AgentLostError" in done.stderr
    assert "use sapwood.errors.AgentLostError" in done.stderr


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'sapwood' has no attribute 'nothing'"):
        find_old("nothing")
