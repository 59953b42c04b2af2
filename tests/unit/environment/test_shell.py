import time
from pathlib import Path

import pytest

from sapwood.core.errors import ConfigurationError
from sapwood.environment.shell import source_files

PLAIN = {"PATH": "/usr/bin:/bin"}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_exports_are_returned_and_plain_variables_are_not(tmp_path: Path) -> None:
    file = write(tmp_path / "a.sh", "export ONE=1\nTWO=2\nexport TEXT='a b\nc=d'\necho chatter\n")
    assert source_files([file], variables=PLAIN) == {"ONE": "1", "TEXT": "a b\nc=d"}


def test_later_files_see_earlier_ones_and_paths_may_grow(tmp_path: Path) -> None:
    first = write(tmp_path / "with space.sh", "export PATH=/opt/bin:$PATH X=1\n")
    second = write(tmp_path / "b.sh", "export X=$X$X\n")
    found = source_files([first, str(second)], variables=PLAIN)
    assert found == {"PATH": "/opt/bin:/usr/bin:/bin", "X": "11"}


def test_unchanged_variables_are_not_returned(tmp_path: Path) -> None:
    file = write(tmp_path / "a.sh", "export SAME=1 OTHER=2\nPATH=/nowhere\n")
    found = source_files([file], variables={**PLAIN, "SAME": "1", "OTHER": "1"})
    assert found == {"OTHER": "2", "PATH": "/nowhere"}


def test_no_files_no_variables() -> None:
    assert source_files([]) == {}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.sh"):
        source_files([tmp_path / "nothing.sh"])


@pytest.mark.parametrize(
    "text", ["echo oops >&2; false\n", "echo oops\nexit 3\n", "echo oops; if\n"]
)
def test_a_failing_file_shows_what_it_wrote(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="failed with status") as caught:
        source_files([write(tmp_path / "a.sh", text)], variables=PLAIN)
    shown = caught.value.details["their output"]
    assert "oops" in shown or "yntax error" in shown


def test_a_file_that_waits_is_ended(tmp_path: Path) -> None:
    file = write(tmp_path / "a.sh", "echo waiting\nsleep 60 &\nsleep 60\n")
    begin = time.monotonic()
    for limit in (0.2, 5.0):  # on a busy machine it may not have written anything at first
        with pytest.raises(ConfigurationError, match=rf"longer than {limit:g} s") as caught:
            source_files([file], time_limit=limit, variables=PLAIN)
        if told := "waiting" in caught.value.details.get("their output", ""):
            break
    assert told
    assert time.monotonic() - begin < 50
