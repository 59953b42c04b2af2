from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood_cuda_cpu.edits import Edits

TEXT = st.text("ab\n", max_size=40).map(str.encode)


@given(TEXT, st.lists(st.integers(0, 40), max_size=8), st.text("xy", max_size=3))
@pytest.mark.slow
def test_every_line_keeps_its_number(data: bytes, places: list[int], text: str) -> None:
    edits = Edits(data)
    places = sorted({min(place, len(data)) for place in places})
    for start, end in zip(places[::2], places[1::2], strict=False):
        edits.replace(start, end, text)
    assert edits.apply().count(b"\n") == data.count(b"\n")


def test_what_is_inserted_at_one_place_stays_in_order() -> None:
    edits = Edits(b"ab")
    edits.insert(1, "1")
    edits.insert(1, "2")
    assert edits.apply() == b"a12b"


def test_an_overriding_edit_drops_those_inside_it() -> None:
    edits = Edits(b"abcd")
    edits.replace(1, 2, "x")
    edits.override(0, 3, "y")
    assert edits.apply() == b"yd"


def test_a_part_is_changed_by_the_edits_inside_it() -> None:
    edits = Edits(b"abcd")
    edits.replace(0, 1, "x")
    edits.replace(2, 3, "y")
    assert edits.apply(1, 4) == b"byd"


def test_a_macro_that_goes_on_in_the_next_line_still_does() -> None:
    data = b"#define F(x) \\\n  f<<<a, \\\r\n  b>>>(x)\n"
    edits = Edits(data)
    edits.replace(data.index(b"<<<"), data.index(b">>>") + 3, "[a, b]")
    assert edits.apply() == b"#define F(x) \\\n  f[a, b]\\\r\n(x)\n"


def test_what_is_prepended_comes_first_also_in_other_edits() -> None:
    edits, others = Edits(b"{int i;}"), Edits(b"{int i;}")
    edits.insert(1, "for (;;) {")
    edits.prepend(1, "view();")
    assert edits.apply() == b"{view();for (;;) {int i;}"
    others.extend(edits)
    assert others.apply() == edits.apply()
