from sapwood.environment.names import MAX_LISTED, suggestion


def test_near_names_are_suggested_and_far_ones_listed() -> None:
    assert suggestion("colors", ["colours", "seed"]) == "did you mean 'colours'?"
    assert suggestion("zzz", ["b", "a"], kind="keys") == "the keys are a, b"
    assert suggestion("zzz", [], kind="keys") == "there are no keys"


def test_long_lists_are_cut() -> None:
    hint = suggestion("zzz", [f"name{i}" for i in range(MAX_LISTED + 3)])
    assert hint.endswith("and 3 more")
