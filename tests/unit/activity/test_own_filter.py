import threading
from typing import Any

import msgspec
import pytest

from sapwood.activity.agent_requests import UserCode
from sapwood.activity.own_filter import stream_options
from sapwood.code.filter import Filter
from sapwood.code.program import Program
from sapwood.core.errors import DataValueError


class Joined(Filter):
    def up(self, values: list[Any]) -> Any:
        return {"text": "".join(value["text"] for value in values)}


class Text(Program):
    reduce = {"text": "gather"}  # noqa: RUF012 - as users write it


def test_most_programs_have_none() -> None:
    assert stream_options(Text(), 1.0).filters == ()


def test_a_filter_is_that_of_all_places() -> None:
    class WithFilter(Text):
        def own_filter(self) -> Filter:
            return Joined()

    (found,) = stream_options(WithFilter(), 2.5).filters
    code = msgspec.msgpack.decode(found.up, type=UserCode)
    assert (found.where, found.down) == ("*", b"")
    assert (code.function, code.time_limit) == ("WithFilter.Joined", 2.5)


def test_a_filter_that_cannot_be_sent_is_an_error() -> None:
    class Locked(Text):
        def own_filter(self) -> Filter:
            made: Any = Joined()
            made.lock = threading.Lock()
            return made  # type: ignore[no-any-return]  # an attribute that the class has not

    with pytest.raises(DataValueError, match="cannot be sent"):
        stream_options(Locked(), 0.0)
