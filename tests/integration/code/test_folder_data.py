"""``[data]`` of a ``program.toml``."""

from pathlib import Path

import pytest

from sapwood.code.load import load_program
from sapwood.core.errors import ProgramError


def write(folder: Path, data: str, python: str = "") -> Path:
    (folder / "program.toml").write_text(f'[program]\npython = "p.py"\n{data}')
    (folder / "p.py").write_text(f"def map(program, slice, state):\n    return {{}}\n{python}")
    return folder


def test_data_are_found_from_the_folder_of_the_program(tmp_path: Path) -> None:
    data = '[data]\nsource = "parts/*.csv"\ncolumns = ["b", "a"]\n'
    program = load_program(write(tmp_path, data))
    assert program.data_columns == ("b", "a")
    assert program.default_data() == str(tmp_path / "parts" / "*.csv")


def test_a_url_stays_as_it_is(tmp_path: Path) -> None:
    program = load_program(write(tmp_path, '[data]\nsource = "https://example.org/a.csv"\n'))
    assert program.data_columns is None
    assert program.default_data() == "https://example.org/a.csv"


@pytest.mark.parametrize(
    ("data", "python", "says"),
    [
        ('[data]\nsource = "a.csv"\n', "def default_data(program):\n    return 1\n", "both"),
        ("[data]\ncolumns = []\n", "", "source"),
        ('[data]\nsource = "a.csv"\ncolums = []\n', "", "unknown key colums"),
        (
            '[data]\nsource = "a.csv"\n',
            "import sapwood\nclass P(sapwood.Program):\n    def map(self, s, t): return {}\n",
            r"\[data\] cannot stand beside a program class",
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, data: str, python: str, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        load_program(write(tmp_path, data, python))
