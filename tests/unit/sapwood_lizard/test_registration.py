import json
from typing import Any

import pytest

from sapwood.core.errors import ProgramError
from sapwood_lizard.registration import (
    MAX_PROGRAM_BYTES,
    Registration,
    checked_name,
    checksum_of,
    define,
    is_extension,
    parse_checksum,
)


def registration(config: Any, **changes: Any) -> Registration:
    data = config if isinstance(config, str) else json.dumps(config)
    fields = {"name": "p", "data": data, "checksum": checksum_of(data), **changes}
    return Registration(**fields)


GOOD: dict[str, Any] = {
    "info": {"py_c_extention": False},
    "sources": {"python": "p.py", "cuda": ["a.cu", "b.cu"], "other": "t.cuh"},
    "code": {"python": "import x", "cuda": ["// a", "// b"], "other": "// t"},
    "files": {"x.py": "y = 1", "p.py": "of no use"},
}


def test_a_program_is_taken_apart() -> None:
    found = define(registration(GOOD))
    assert found.extension is False
    assert [(file.key, file.name) for file in found.files] == [
        ("python", "p.py"),
        ("cuda", "a.cu"),
        ("cuda", "b.cu"),
        ("other", "t.cuh"),
        ("", "x.py"),
    ]
    assert found.python.text == "import x"
    assert found.place("cuda") == "a.cu"
    assert found.place("cpp") == "p"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "not JSON"),
        ([1], "not a mapping"),
        ({**GOOD, "sources": {"python": "p.py"}}, "no cuda source"),
        ({**GOOD, "sources": []}, "sources must be a mapping"),
        ({**GOOD, "code": "x"}, "code must be a mapping"),
        ({**GOOD, "code": {"python": "x"}}, "does not hold the text"),
        ({**GOOD, "sources": {"python": 7, "cuda": "a.cu"}}, "must name a file"),
        ({**GOOD, "sources": {**GOOD["sources"], "other": "/etc/passwd"}}, "cannot name a file"),
        ({**GOOD, "files": {"../x": ""}}, "cannot name a file"),
        ({**GOOD, "files": {"x": 3}}, "text of x is missing"),
        ({**GOOD, "info": {"py_c_extention": True}}, "no cpp source"),
    ],
)
def test_what_comes_from_elsewhere_is_checked(config: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        define(registration(config))


def test_identities_are_checked() -> None:
    with pytest.raises(ProgramError, match="checksum does not match"):
        registration(GOOD, checksum="0" * 40).checked()
    with pytest.raises(ProgramError, match="MiB"):
        registration('"' + "x" * MAX_PROGRAM_BYTES + '"').checked()


@pytest.mark.parametrize("name", ["", "..", "a/../../b", "/a", "a\0b", "."])
def test_names_stay_in_their_folder(name: str) -> None:
    with pytest.raises(ProgramError, match="cannot name"):
        checked_name(name, where="x")


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "f" * 39, "g" * 40, "f" * 41])
def test_a_checksum_is_never_a_path(text: str) -> None:
    with pytest.raises(ProgramError, match="not a checksum"):
        parse_checksum(text)


def test_a_checksum_may_be_in_capitals() -> None:
    assert parse_checksum(" " + "AB" * 20 + "\n") == "ab" * 20


@pytest.mark.parametrize(
    ("info", "sources", "expected"),
    [
        ({}, {"cpp": "w"}, True),
        ({}, {}, False),
        ({"py_c_extention": True}, {}, True),
        ({"py_c_extention": "no"}, {"cpp": "w"}, False),
        ({"py_c_extention": None}, {"cpp": "w"}, True),
        ({"py_c_extention": 0}, {"cpp": "w"}, False),
        ({"py_c_extension": False}, {"cpp": "w"}, False),
    ],
)
def test_the_kind_of_a_program(info: Any, sources: Any, expected: bool) -> None:
    assert is_extension(info, sources) is expected
