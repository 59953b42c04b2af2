"""What the places of a stream counted, for people and for programs."""

from html import escape

import msgspec

from sapwood.comm.messages import PlaceReport
from sapwood.environment.units import describe_size

HEADINGS = {
    "rank": ("", "rank"),
    "state": ("", "state"),
    "waves_open": ("open", "waves"),
    "held": ("", "held"),
    "queued": ("", "queue"),
    "messages_down": ("down", "msgs"),
    "bytes_down": ("down", "size"),
    "messages_up": ("up", "msgs"),
    "bytes_up": ("up", "size"),
    "filtered": ("filter", "calls"),
    "filter_seconds": ("filter", "time"),
    "late": ("", "late"),
    "repeated": ("sent", "again"),
}
"""Two lines above each column, so that a table fits 80 characters."""


class StreamCounters(msgspec.Struct, frozen=True):
    """Performance counters of a stream, one entry a place.

    Attributes:
        what: What the stream's agents do.
        places: What each place counted, by rank: the front end is rank 0.
    """

    what: str
    places: tuple[PlaceReport, ...]

    def __getitem__(self, rank: int) -> PlaceReport:
        for place in self.places:
            if place.rank == rank:
                return place
        raise KeyError(rank)

    def json(self) -> str:
        """Return the counters as JSON."""
        rows = [
            {name: getattr(place, name) for name in place.__struct_fields__}
            for place in self.places
        ]
        return msgspec.json.encode({"stream": self.what, "places": rows}).decode()

    def __str__(self) -> str:
        names = PlaceReport.__struct_fields__
        rows = list(zip(*(HEADINGS[name] for name in names), strict=True)) + [
            tuple(_text(name, getattr(place, name)) for name in names) for place in self.places
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
        return "\n".join(
            " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )

    def _repr_html_(self) -> str:
        names = PlaceReport.__struct_fields__
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{escape(_text(name, getattr(place, name)))}</td>" for name in names)
            + "</tr>"
            for place in self.places
        )
        return f"<table><caption>{escape(self.what)}</caption><tr>{head}</tr>{body}</table>"


def _text(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2g} s" if value else "0"
    if isinstance(value, int) and name.startswith("bytes"):
        return describe_size(value).replace(" ", "")
    return str(value)
