from __future__ import annotations

import msgspec

from sapwood.head import session_records
from sapwood.head.tree_registry import TreeRegistry
from sapwood.session.session_life import SessionState

DAY = session_records.SessionRecord(id="aa", name="day", state="ready", on="head", created=1.0)
NIGHT = session_records.SessionRecord(id="bb", name="night", state="ready", on="head", created=2.0)


def tree(session: str) -> session_records.SessionTree:
    root = session_records.SessionPlace(rank=0, parent=-1, kind="root", state="ready")
    return session_records.SessionTree(id=session, places=[root])


def test_one_session_is_found_by_any_of_its_names() -> None:
    registry = TreeRegistry()
    registry.note(tree("aa"))
    registry.note(tree("bb"))
    for name in ("day", "aa", "day#aa"):
        assert registry.changed(session_records.KnownTrees(session=name), [DAY, NIGHT]).ids == [
            "aa"
        ]
    assert registry.changed(session_records.KnownTrees(session="d"), [DAY, NIGHT]).ids == []
    assert registry.changed(session_records.KnownTrees(), [DAY, NIGHT]).ids == ["bb", "aa"], (
        "the newest first"
    )


def test_what_is_known_is_not_told_again_also_by_the_next_head() -> None:
    registry = TreeRegistry()
    registry.note(tree("aa"))
    (found,) = registry.changed(session_records.KnownTrees(), [DAY]).changed
    known = session_records.KnownTrees(versions={"aa": found.version})
    assert registry.changed(known, [DAY]).changed == []
    registry.note(tree("aa"))
    assert len(registry.changed(known, [DAY]).changed) == 1
    following = TreeRegistry()
    following.note(tree("aa"))
    assert len(following.changed(known, [DAY]).changed) == 1


def test_the_tree_of_a_session_that_is_over_is_forgotten() -> None:
    registry = TreeRegistry()
    registry.note(tree("aa"))
    over = msgspec.structs.replace(DAY, state=SessionState.FAILED.value)
    assert registry.changed(session_records.KnownTrees(), [over]).ids == []
    assert registry.changed(session_records.KnownTrees(), [DAY]).ids == []
