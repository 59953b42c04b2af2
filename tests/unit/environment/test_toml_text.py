import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sapwood.environment.toml_text import format_key, format_value, key_lines, line_of

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts


@given(scalars | st.lists(scalars))
def test_values_are_read_as_they_were_written(value: Any) -> None:
    assert tomllib.loads(f"x = {format_value(value)}")["x"] == value


@given(st.lists(texts, min_size=1, max_size=4))
def test_keys_are_read_as_they_were_written(key: list[str]) -> None:
    node: Any = tomllib.loads(f"{format_key(tuple(key))} = 1")
    for part in key:
        node = node[part]
    assert node == 1


def test_lines_of_keys() -> None:
    text = """\
# comment = 1
top = 1
[a]
b = '''
not = a key
[nor.a.table]
'''
c.d = [
  1,  # ] =
  2,
]
  [ "x.y" . z ]  # comment
"p q" = { inner = 1 }
[[list]]
e = "[f]"
"""
    assert key_lines(text) == {
        ("top",): 2,
        ("a",): 3,
        ("a", "b"): 4,
        ("a", "c", "d"): 8,
        ("x.y", "z"): 12,
        ("x.y", "z", "p q"): 13,
        ("list",): 14,
        ("list", "e"): 15,
    }


def test_a_key_inside_an_inline_table_stands_where_the_table_does() -> None:
    lines = key_lines("\na = { b = 1 }\n")
    assert line_of(("a", "b"), lines) == 2
    assert line_of(("c",), lines) == 0
