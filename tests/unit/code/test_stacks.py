"""Stacks as text: what faulthandler writes is read, and equal stacks are shown once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.stacks import (
    MAX_FRAMES,
    FrameInfo,
    StackInfo,
    StackResult,
    ThreadInfo,
    from_faulthandler,
    stack_text,
)

RUNNER = '  File "/x/sapwood/code/runner/child.py", line 9 in serve\n'
HEAD = "Current thread 0x00007f10b2be7b80 (most recent call first):\n"


def frames(text: str) -> list[str]:
    return [str(frame) for thread in from_faulthandler(text) for frame in thread.frames]


def test_frames_of_the_runner_are_left_out() -> None:
    own = '  File "/home/in a, line b.py", line 6 in <lambda>\n'
    inside = '  File "/x/sapwood/code/user.py", line 3 in call\n'
    assert frames(HEAD + own + inside + RUNNER) == ["<lambda> (/home/in a, line b.py:6)"]


def test_without_user_code_what_is_done_for_it_is_shown() -> None:
    opening = '  File "/x/sapwood/code/image.py", line 3 in open_image\n'
    assert frames(HEAD + opening + RUNNER) == ["open_image (/x/sapwood/code/image.py:3)"]
    assert frames(HEAD + RUNNER) == []


def test_native_frames_come_first_without_what_has_called_them() -> None:
    native = "/c/library.so(+0x1139)[0x7f]\n/c/library.so(spin+0x1a)[0x7f]\n"
    ffi = "/usr/lib/libffi.so.8(+0x7e3a)[0x7f]\n"
    binding = '  File "/x/sapwood/code/native_binding.py", line 1 in call\n'
    user = '  File "/home/a.py", line 6 in work\n'
    text = native + ffi + HEAD + binding + user + binding + RUNNER
    assert frames(text) == [
        "+0x1139 (/c/library.so)",
        "spin+0x1a (/c/library.so)",
        "work (/home/a.py:6)",
    ]
    assert stack_text(text).splitlines()[:2] == [
        "/c/library.so(+0x1139)",
        "/c/library.so(spin+0x1a)",
    ]
    # Without a native function of the user, all native frames belong to the interpreter.
    assert frames("/lib/libc.so.6(read+0x1)[0x7f]\n" + HEAD + user + RUNNER) == [
        "work (/home/a.py:6)"
    ]


def test_a_stack_is_cut_to_its_innermost_frames() -> None:
    many = "".join(f'  File "/home/a.py", line {n} in f\n' for n in range(500))
    (thread,) = from_faulthandler(HEAD + many + RUNNER)
    assert len(thread.frames) == MAX_FRAMES
    assert thread.frames[0].line == 0


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    from_faulthandler(text)
    from_faulthandler(HEAD + text + RUNNER)


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_text_that_ends_anywhere_can_be_read(cut: int) -> None:
    user = '  File "/home/a.py", line 6 in work\n'
    assert len(frames((HEAD + user + RUNNER)[:cut])) <= 2


def test_equal_stacks_are_shown_once_with_all_their_agents() -> None:
    waits = (ThreadInfo(main=True, frames=(FrameInfo("wait", "a.py", 3),)),)

    def busy(rank: int, seconds: float) -> StackInfo:
        return StackInfo(
            agent=rank, pid=rank, state="busy", function="fit", seconds=seconds, threads=waits
        )

    found = StackResult((busy(1, 2.0), StackInfo(agent=2), busy(3, 2.5), busy(7, 2.0)))
    assert [ranks for ranks, _ in found.folded()] == [(1, 3, 7), (2,)]
    assert str(found).splitlines() == [
        "agent[1,3,7]: busy in fit for 2.0 to 2.5 s",
        "  wait (a.py:3)",
        "agent 2: idle",
    ]
    assert str(busy(1, 2.0)).splitlines() == ["busy in fit for 2.0 s", "  wait (a.py:3)"]
