"""The library that exchanges waves, byte by byte: what it takes, and what it leaves alone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.core.errors import ResourceError
from sapwood.fastpath import native
from sapwood.fastpath.exchange_library import MAX_PEERS, READY, SLOT, ExchangeMemory

from .conftest import (
    ALIVE,
    BUSY,
    CREDIT,
    HANDED,
    HEAD,
    ODD,
    OFF,
    OWNER,
    PAUSED,
    Front,
    down,
    frame_size,
    gather,
    receipt,
    up,
    without,
)


def test_a_wave_is_sent_and_gathered(front: Front) -> None:
    library = front.library
    assert front.begin() == 1
    assert [child.recv(100) for child in front.children] == [down()] * 3
    answers = [up(1), up(2, b"x" * 100), up(3, b"y" * 60_000)]
    front.answer(*answers)
    assert not front.is_woken()
    assert gather(library) == 3
    assert [library.answer(number) for number in range(3)] == answers
    assert library.commit(OWNER)
    assert library.memory.waves == 1
    assert library.take_back()
    (passed,) = library.passed()
    assert (passed.frame, list(passed.sizes)) == (down(), [len(answer) for answer in answers])
    assert library.under_way() == b""
    assert list(library.aside()) == []


def test_many_waves_are_noted_in_order(front: Front) -> None:
    library = front.library
    sent = [b"w" * size for size in (1, 8, 13, 700)]
    for body in sent:
        assert front.begin(body) == 1
        front.answer(up(1), up(2), up(3))
        assert gather(library) == 3
        assert library.commit(OWNER)
    assert library.take_back()
    assert [passed.frame for passed in library.passed()] == [down(body) for body in sent]


def test_answers_are_there_as_they_come(front: Front) -> None:
    library = front.library
    front.begin()
    front.children[1].sendall(up(2))
    assert library.wait(OWNER, -1) == 1
    assert library.arrived[0] == 1
    front.answer(up(1))
    front.children[2].sendall(up(3))
    assert gather(library) == 2
    assert library.commit(OWNER)


def test_answers_in_pieces_are_put_together(front: Front) -> None:
    library, whole = front.library, up(1, b"z" * 50_000)
    front.begin()
    front.answer(b"", up(2), up(3))

    def trickle() -> None:
        for at in range(0, len(whole), 7000):
            front.children[0].sendall(whole[at : at + 7000])

    thread = threading.Thread(target=trickle)
    thread.start()
    assert gather(library) == 3
    thread.join()
    assert library.answer(0) == whole


@pytest.mark.parametrize(
    "answers",
    [
        (CREDIT + up(1), up(2) + ALIVE, up(3)),
        (up(1) + CREDIT + ALIVE, CREDIT + up(2) + CREDIT, ALIVE + up(3)),
        (receipt() + up(1), up(2) + receipt(200), receipt(60_000) + ALIVE + up(3)),
    ],
)
def test_credit_receipts_and_life_can_wait(front: Front, answers: tuple[bytes, ...]) -> None:
    library = front.library
    front.begin()
    front.answer(*answers)
    assert gather(library) == 3
    assert [library.answer(number) for number in range(3)] == [up(1), up(2), up(3)]
    assert library.commit(OWNER)
    assert library.take_back()
    waiting = list(library.aside())
    for number, answer in enumerate(answers):
        found = b"".join(frame for child, frame in waiting if child == number)
        assert found == answer.replace(up(number + 1), b"")


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_anything_else_is_the_event_loops(front: Front, odd: bytes) -> None:
    library = front.library
    front.begin()
    front.answer(b"", up(2), up(3))
    sender = threading.Thread(target=front.children[0].sendall, args=(odd,))
    sender.start()
    assert gather(library) == -1
    assert library.memory.state == HANDED
    assert front.is_woken()
    assert not library.commit(OWNER)
    assert front.begin() == 0
    assert library.take_back()
    assert library.memory.state == OFF
    assert library.under_way() == down()
    assert library.memory.owner == OWNER
    there = library.answer(0)
    while len(there) < len(odd):
        front.own[0].setblocking(True)
        there += front.own[0].recv(len(odd))
    sender.join()
    assert there == odd


def test_a_child_that_ends_is_the_event_loops(front: Front) -> None:
    front.begin()
    front.children[2].close()
    assert gather(front.library) == -1
    assert front.is_woken()


def test_a_child_that_does_not_read_is_the_event_loops(front: Front) -> None:
    library = front.library
    front.own[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    body = b"f" * 60_000
    frame = down(body)
    while front.begin(body) == 1:
        front.children[0].recv(len(frame), socket.MSG_WAITALL)
        front.children[2].recv(len(frame), socket.MSG_WAITALL)
        front.answer(up(1), up(2), up(3))
        assert gather(library) == 3
        assert library.commit(OWNER)
    assert library.take_back()
    assert library.under_way() == frame
    sent = [peer.sent for peer in library.memory.peers[:3]]
    assert sent[0] == len(frame)
    assert sent[1] < len(frame)
    assert sent[2] == 0


def test_time_is_up_in_time(front: Front) -> None:
    front.begin()
    front.answer(up(1))
    assert front.library.wait(OWNER, 20_000) == 1
    assert front.library.wait(OWNER, 20) == -1
    assert front.is_woken()
    assert front.library.take_back()
    assert front.library.answer(0) == up(1)


def test_the_bell_ends_a_wait(front: Front) -> None:
    front.begin()
    os.eventfd_write(front.bell, 1)
    assert gather(front.library) == -1


def test_a_signal_ends_a_wait(front: Front) -> None:
    seen: list[int] = []
    former = signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
    main, over = threading.get_ident(), threading.Event()

    def strike() -> None:
        while not over.wait(0.01):  # the first may come before it waits
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=strike)
    try:
        front.begin()
        thread.start()
        assert gather(front.library) == -1
        assert signal.SIGUSR1 in seen
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, former)


def test_what_is_given_up_wakes_the_event_loop(front: Front) -> None:
    front.begin()
    assert not front.is_woken()
    front.library.abandon(OWNER)
    assert front.is_woken()
    assert gather(front.library) == -1


def test_the_event_loop_can_take_it_back_at_any_time(front: Front) -> None:
    library = front.library
    assert library.take_back()
    assert front.begin() == 0
    front.ticket = front.arm()
    front.begin()
    assert library.take_back()
    assert gather(library) == -1
    front.answer(up(1))
    assert front.is_woken()  # it hears of its descriptors again


def test_not_while_a_thread_is_at_it(front: Front) -> None:
    library = front.library
    front.begin()
    thread = threading.Thread(target=library.wait, args=(OWNER, -1))
    thread.start()
    while library.memory.state != BUSY:
        time.sleep(0)
    assert not library.take_back()
    os.eventfd_write(front.bell, 1)
    thread.join()
    assert library.take_back()


def test_only_who_has_begun_a_wave_goes_on_with_it(front: Front) -> None:
    library, other = front.library, OWNER + 1
    front.begin()
    front.answer(up(1), up(2), up(3))
    assert library.wait(other, -1) == -1
    assert not library.commit(other)
    assert not library.abandon(other)
    assert gather(library) == 3
    assert library.commit(OWNER)
    assert not library.abandon(OWNER)


def test_one_who_has_lost_a_wave_does_not_end_that_of_another(front: Front) -> None:
    library, memory = front.library, front.library.memory
    front.begin()
    front.answer(up(1), up(2), up(3))
    assert not library.abandon(OWNER + 1)
    memory.state = BUSY  # by a thread that had the last wave, and just sees that this is another
    looked = threading.Timer(0.01, setattr, [memory, "state", PAUSED])
    looked.start()
    assert gather(library) == 3
    looked.join()
    assert library.commit(OWNER)


@pytest.mark.slow
def test_a_forked_process_has_nothing_armed(front: Front) -> None:
    child = os.fork()
    if not child:
        os._exit(front.begin() + 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert front.library.memory.state == READY
    assert front.begin() == 1


PARTS = st.one_of(
    st.sampled_from(
        [up(1), up(2), up(1, b"payload"), up(1, wave=8), CREDIT, receipt(), CREDIT * 900]
    ),
    st.binary(max_size=40),
    st.builds(lambda size: b"SW\x01\x01" + size, st.binary(min_size=12, max_size=14)),
)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Draw frames in a row, of which some bytes may be others."""
    data = bytearray(b"".join(draw(st.lists(PARTS, max_size=6))))
    for _ in range(draw(st.integers(0, 2)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(st.lists(mangled(), min_size=3, max_size=3))
@settings(max_examples=100)
@pytest.mark.slow
def test_no_byte_is_lost_whatever_a_child_sends(pieces: list[bytes]) -> None:
    front = Front()
    try:
        library = front.library
        front.begin()
        for piece, answers in zip(pieces, [(b"", up(2)), (b"", b"", up(3)), ()], strict=True):
            front.children[0].sendall(piece)
            front.answer(*answers)
            if library.memory.left:
                library.wait(OWNER, 0)
        is_done = not library.memory.left and library.commit(OWNER)
        assert library.take_back()
        rest = library.answer(0)
        if is_done:
            assert rest.startswith(HEAD, 16)
            assert frame_size(rest) == len(rest)
        with contextlib.suppress(BlockingIOError):
            rest += front.own[0].recv(2**20)
        aside = list(library.aside())
        assert {number for number, _ in aside} <= {0}
        assert without(b"".join(pieces), [frame for _, frame in aside]) == rest
    finally:
        front.close()


def test_what_it_was_not_armed_for_is_not_sent(front: Front) -> None:
    front.library.take_back()
    front.arm()
    assert front.begin() == 0  # with the ticket of before
    assert front.library.memory.state == READY


def test_the_event_loop_hears_of_it_in_the_end(front: Front) -> None:
    count = 0
    while front.begin() == 1:
        front.answer(up(1), up(2), up(3))
        assert gather(front.library) == 3
        assert front.library.commit(OWNER)
        count += 1
    assert 1 < count <= 512


def test_a_library_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="the fast path cannot be loaded"):
        native.load(tmp_path / "none.so")
    source = tmp_path / "other.c"
    source.write_text("unsigned long sapwood_exchange_layout(void) { return 1; }\n")
    other = tmp_path / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    library = native.load(other)
    with pytest.raises(ResourceError, match="another version's: exchange"):
        native.check_layout(library, "exchange", 7, 100)
    with pytest.raises(ResourceError, match="has no relay"):
        native.check_layout(library, "relay", 2, 100)
    native.load.cache_clear()


def test_its_memory_is_laid_out_alike_on_both_sides(front: Front) -> None:
    memory = front.library.memory
    assert isinstance(memory, ExchangeMemory)
    assert (memory.slot, memory.n_peers) == (SLOT, 3)
    assert len(memory.peers) == MAX_PEERS
    assert memory.state == READY
