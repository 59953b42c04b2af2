import threading
from concurrent.futures import CancelledError

import pytest

from sapwood.core.request import Request, wait_all, wait_any


def test_a_request_can_be_asked_and_waited_for() -> None:
    request = Request()
    assert not request.test()
    assert not request.wait(0.001)
    threading.Timer(0.01, request.set_result, [7]).start()
    assert request.wait(10)
    assert request.test()
    assert request.result() == 7


def test_an_error_ends_a_request() -> None:
    request = Request()
    request.set_exception(ValueError("no"))
    assert request.wait(0)
    with pytest.raises(ValueError, match="no"):
        request.result()


@pytest.mark.parametrize("possible", [True, False])
def test_what_was_asked_can_be_taken_back_where_that_is_possible(*, possible: bool) -> None:
    asked: list[Request] = []

    def on_cancel(request: Request) -> bool:
        asked.append(request)
        return possible

    request = Request(on_cancel)
    assert request.cancel() is possible
    assert request.test() is possible
    assert asked == [request]
    if possible:
        with pytest.raises(CancelledError):
            request.result()


def test_any_of_several_can_be_waited_for() -> None:
    requests = [Request(), Request(), Request()]
    assert wait_any(requests, timeout=0.001) is None
    assert wait_any([], timeout=None) is None
    threading.Timer(0.01, requests[1].set_result, [1]).start()
    assert wait_any(requests) is requests[1]


def test_all_of_several_can_be_waited_for() -> None:
    requests = [Request(), Request()]
    requests[0].set_result(0)
    assert not wait_all(requests, timeout=0.001)
    threading.Timer(0.01, requests[1].set_result, [1]).start()
    assert wait_all(requests)


def test_what_has_arrived_has_arrived_whole() -> None:
    seen: list[tuple[int, int]] = []
    request = Request()
    request.on_progress(lambda arrived, total: seen.append((arrived, total)))
    request.moved(3, 10)
    request.set_result(None)
    assert seen == [(3, 10), (10, 10)]
    assert request.progress() == (10, 10)
