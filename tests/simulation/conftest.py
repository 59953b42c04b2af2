"""Simulations in separate processes, so that the system frees their memory."""

import gc
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest


def apart(work: Callable[[], Any]) -> Any:
    """Return what a function returns that is called in a copy of this process.

    Places are circles of objects: to look for rubbish and to free it takes a fifth of the time
    that simulating takes. A process that ends with its seeds does neither.

    Raises:
        AssertionError: With the traceback of what the function raised.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of pytest have no part in it
        pid = os.fork()
    if pid == 0:
        os.close(reading)
        _answer(work, writing)
    os.close(writing)
    try:
        with open(reading, "rb") as file:  # noqa: PTH123 - a descriptor
            said = file.read()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        status = os.waitpid(pid, 0)[1]
    assert status == 0, f"it ended with status {status}"
    result, error = pickle.loads(said)  # noqa: S301 - written below
    assert not error, error
    return result


def _answer(work: Callable[[], Any], writing: int) -> None:
    """Write what a function returns or raises, and end."""
    gc.disable()
    status = 1
    try:
        try:
            answer = pickle.dumps((work(), ""))
        except BaseException:  # noqa: BLE001 - the parent raises it
            answer = pickle.dumps((None, traceback.format_exc()))
        with open(writing, "wb") as file:
            file.write(answer)
        status = 0
    finally:
        os._exit(status)


@pytest.fixture(name="apart", scope="session")
def apart_fixture() -> Callable[[Callable[[], Any]], Any]:
    """Call a function in a copy of this process."""
    return apart
