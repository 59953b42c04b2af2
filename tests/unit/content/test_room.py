"""Which content may go: never what is pinned, has a name or is locked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.content import room
from sapwood.content.room import PINNED, ContentFile, Pins, removable

FILES = st.lists(
    st.builds(
        ContentFile,
        used=st.floats(0, 100),
        nbytes=st.integers(0, 3),
        name=st.sampled_from([letter * 64 + end for letter in "abcde" for end in ("", ".x")]),
        links=st.integers(1, 3),
    ),
    unique_by=lambda file: file.name,
)


@given(FILES, st.sets(st.sampled_from([letter * 64 for letter in "abcde"])))
@pytest.mark.slow
def test_the_oldest_goes_first_and_what_is_needed_stays(
    files: list[ContentFile], pinned: set[str]
) -> None:
    pins = Pins(lambda: 0.0)
    pins.pin(pinned)
    found = list(removable(files, pins))
    assert [one.used for one in found] == sorted(one.used for one in found)
    for file in files:
        needed = file.links > 1 or file.sha256 in pinned or not file.nbytes
        assert (file in found) is not needed


@given(st.lists(st.tuples(st.sampled_from("pun"), st.sampled_from("abc"), st.floats(0, PINNED))))
@pytest.mark.slow
def test_a_pin_ends_after_its_time_and_not_before(
    events: list[tuple[str, str, float]],
) -> None:
    now = 0.0
    pins = Pins(lambda: now)
    ends: dict[str, float] = {}
    for what, name, pause in events:
        now += pause
        if what == "p":
            pins.pin({name})
            ends[name] = now + PINNED
        elif what == "u":
            pins.unpin({name})
            ends.pop(name, None)
        for one in "abc":
            assert (one in pins) is (ends.get(one, 0.0) > now)


def test_pins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_PINNED", 3)
    pins = Pins(lambda: 0.0)
    for name in "abcde":
        pins.pin(name)
    pins.pin("c")
    assert len(pins) == 3
    assert [name for name in "abcde" if name in pins] == ["c", "d", "e"]
