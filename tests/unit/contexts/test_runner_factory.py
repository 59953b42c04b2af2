import os
import socket
from collections.abc import Iterator

import pytest

from sapwood.contexts import runner_factory
from sapwood.contexts.runner_factory import (
    Ended,
    EndRunner,
    Fork,
    Forked,
    NotForked,
    RunnerFactory,
    receive_order,
)

Ends = tuple[RunnerFactory, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield RunnerFactory(ours), theirs


def test_an_order_arrives_with_its_descriptors(ends: Ends) -> None:
    mine, zygote = ends
    read, write = os.pipe()
    mine.fork(b"options", [write, write, write])
    os.close(write)
    order = receive_order(zygote)
    assert order is not None
    assert order[0] == Fork(b"options")
    assert len(order[1]) == runner_factory.DESCRIPTORS
    os.write(order[1][2], b"through")
    assert os.read(read, 10) == b"through"
    for descriptor in (read, *order[1]):
        os.close(descriptor)


def test_a_runner_is_ended_by_an_order_until_the_zygote_is_gone(ends: Ends) -> None:
    mine, zygote = ends
    mine.kill(5)
    assert receive_order(zygote) == (EndRunner(5), [])
    zygote.close()
    mine.kill(5)


@pytest.mark.parametrize("news", [Forked(5), NotForked("no"), Ended(5, -9)], ids=str)
def test_news_arrive_as_they_were_sent(ends: Ends, news: runner_factory.News) -> None:
    mine, zygote = ends
    assert mine.news() is None
    zygote.send(runner_factory.encode(news))
    assert mine.news() == news
    assert mine.news() is None


def test_the_end_of_the_zygote_is_no_news(ends: Ends) -> None:
    mine, zygote = ends
    zygote.close()
    with pytest.raises(ConnectionError, match="gone"):
        mine.news()


def test_the_end_of_a_member_is_no_order() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs:
        assert receive_order(theirs) is None
