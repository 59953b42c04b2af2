from __future__ import annotations

import enum

import pytest

from sapwood.core.errors import InternalError
from sapwood.core.states import StateTable


class Door(enum.Enum):
    OPEN = "open"
    SHUT = "shut"


class Push(enum.Enum):
    CLOSE = "close"
    LOCK = "lock"


TABLE = StateTable("door", {(Door.OPEN, Push.CLOSE): Door.SHUT})


def test_what_is_in_the_table_follows() -> None:
    assert TABLE.after(Door.OPEN, Push.CLOSE) is Door.SHUT
    assert TABLE == {(Door.OPEN, Push.CLOSE): Door.SHUT}


def test_any_other_pair_is_an_error_that_says_which_one_was_in_which_state() -> None:
    with pytest.raises(InternalError, match=r"^door 7 got close while shut\. Hint"):
        TABLE.after(Door.SHUT, Push.CLOSE, 7)
    with pytest.raises(InternalError, match=r"^door got lock while open\. Hint"):
        TABLE.after(Door.OPEN, Push.LOCK)
