"""Counters of a stream as people see them."""

from typing import Any

import msgspec

from sapwood.client.stream import HEADINGS, StreamStatistics
from sapwood.comm.messages import PlaceStatistics


def report(rank: int) -> PlaceStatistics:
    known: dict[str, Any] = {
        "rank": rank,
        "state": "closing",
        "bytes_down": 2**40,
        "bytes_up": 2**39,
    }
    fields = msgspec.structs.fields(PlaceStatistics)
    values: dict[str, Any] = {
        field.name: 0.25 if field.type is float else 99_999 for field in fields
    }
    return PlaceStatistics(**{**values, **known})


def test_every_counter_has_a_heading() -> None:
    code = ("code", "staged", "problem")  # which stream.filters() tells
    assert (*HEADINGS, *code, "relayed") == PlaceStatistics.__struct_fields__


def test_shortcuts_are_in_the_json_for_which_a_table_has_no_room() -> None:
    counters = StreamStatistics("work", (PlaceStatistics(1, "open", relayed=7),))
    assert '"relayed":7' in counters.json()


def test_a_table_fits_eighty_characters_and_names_every_place() -> None:
    lines = str(StreamStatistics("work", (report(0), report(1000)))).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:]] == ["0", "1000"]
