"""Text tables whose numbers a float64 does not hold, or whose header is ambiguous."""

from pathlib import Path
from typing import Any

import pytest

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.data import load


@pytest.fixture(params=["table.csv", "*.csv"], ids=["file", "pattern"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Name a file that is read as a whole, or a pattern of files that agents read."""

    def write(text: str) -> str:
        (tmp_path / "table.csv").write_text(text)
        return str(tmp_path / request.param)

    return write


def values(path: str, fields: list[str]) -> Any:
    data = load(path, fields=fields)
    return [data[field].tolist() for field in fields]


def test_integers_keep_all_digits_or_are_an_error(source: Any) -> None:
    assert values(source("a,b\n9007199254740992,1\n-9007199254740994,2\n"), ["a"]) == [
        [9007199254740992.0, -9007199254740994.0]
    ]
    assert values(source("a,b\n1e300,1\n123456789012345678.5,2\n"), ["a"])[0][0] == 1e300
    with pytest.raises(DataValueError, match=r"column 1 \('a'\).*9007199254740993.*:3"):
        values(source("a,b\n1,1\n9007199254740993,2\n"), ["a"])
    # A column that is not wanted may hold anything.
    assert values(source("a,b\n9007199254740993,1\n3,2\n"), ["b"]) == [[1.0, 2.0]]


def test_a_field_that_two_columns_are_named_like_is_an_error(source: Any) -> None:
    with pytest.raises(DataShapeError, match="several columns 'a'"):
        values(source("a,a,b\n1,2,3\n4,5,6\n"), ["a"])
    assert values(source("a,a,b\n1,2,3\n4,5,6\n"), ["b"]) == [[3.0, 6.0]]


def test_a_comment_is_named(source: Any) -> None:
    with pytest.raises(DataValueError, match=r"begins with a comment.*csv:1"):
        values(source("# made by a tool, 2024\na,b\n1,2\n"), ["a"])


def test_digits_of_other_scripts_are_no_numbers(source: Any) -> None:
    with pytest.raises(DataValueError, match="number"):
        values(source("a,b\n\u0661,2\n"), ["a"])
