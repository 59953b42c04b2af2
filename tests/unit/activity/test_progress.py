import pytest

from sapwood.activity.progress import RunInfo, RunState

FINAL = {RunState.DONE, RunState.FAILED, RunState.CANCELLED, RunState.DRAINED}


@pytest.mark.parametrize("state", list(RunState))
def test_four_states_are_final(state: RunState) -> None:
    assert state.final == (state in FINAL)


def test_states_are_texts() -> None:
    assert f"{RunState.RUNNING}" == "running"


def test_a_snapshot_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RunInfo(state=RunState.RUNNING).iteration = 5  # type: ignore[misc]  # that is the test
