"""Lists of revoked credentials, as updates come, are lost, come twice or in another order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapwood.security.denials import Denials, DenialUpdate


def one(epoch: int, *ids: str, since: int | None = None, generation: int = 1) -> DenialUpdate:
    since = epoch - 1 if since is None else since
    return DenialUpdate(since=since, epoch=epoch, ids=list(ids), generation=generation)


@given(st.lists(st.integers(1, 8), max_size=30))
def test_whoever_asks_when_told_to_has_the_whole_list(order: list[int]) -> None:
    """Updates come in any order, some never: a list that says it is whole is whole."""
    head = {epoch: f"id{epoch}" for epoch in range(1, 9)}
    denials = Denials()
    newest = 0
    denials.take(one(0, since=0))
    for epoch in order:
        newest = max(newest, epoch)
        if not denials.take(one(epoch, head[epoch])):
            whole = [head[number] for number in range(1, newest + 1)]
            assert denials.take(one(newest, *whole, since=0))
        assert head[epoch] in denials
        assert denials.epoch == newest
        assert all(head[number] in denials for number in range(1, newest + 1))


def test_another_head_counts_anew() -> None:
    denials = Denials()
    assert denials.take(one(7, "a", since=0))
    assert not denials.take(one(3, "b", generation=2))
    assert "b" in denials
    assert denials.take(one(3, "b", since=0, generation=2))
    assert (denials.epoch, len(denials)) == (3, 1)


def test_who_listens_hears_each_id_once() -> None:
    denials = Denials()
    heard: list[frozenset[str]] = []
    denials.subscribe(heard.append)
    denials.take(one(1, "a", since=0))
    denials.take(one(1, "a"))
    denials.take(one(2, "b"))
    assert heard == [{"a"}, {"b"}]
    assert denials.any_of(["x", "b"]) == "b"
    assert denials.any_of(["x"]) == ""
