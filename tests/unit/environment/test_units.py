import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.environment.units import (
    describe_size,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@given(st.integers(0, 2**62))
def test_a_size_written_is_the_size_read(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.floats(0, 1e12) | st.integers(0, 10**7).map(lambda one: one / 1000))
def test_a_duration_written_is_the_duration_read(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.floats(0, 1e9))
def test_a_duration_without_unit_is_seconds(seconds: float) -> None:
    assert parse_duration(repr(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("64KiB", 65536),
        (" 2 GB ", 2 * 10**9),
        ("1.5 kib", 1536),
        ("1e3", 1000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1 XB", "1.0001 kB", "1 2", "0x10", "1e999"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|unit|bytes|large"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500 ms", 0.5), ("2min", 120), ("1.5 h", 5400), ("3us", 3e-6), ("1 d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1 s", "1 M", "1 MS", "soon", "1e999", "inf"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|unit|large"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (2**20, "1 MiB"), (1020 * 2**20, "1020 MiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert describe_size(size) == text
