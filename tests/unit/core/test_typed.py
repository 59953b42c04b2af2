"""Types are looked at by one thread at a time."""

import subprocess
import sys

import msgspec
import pytest

from sapwood.core import typed

MANY_THREADS = """
import sys, threading
import msgspec
from sapwood.core import typed

sys.setswitchinterval(1e-6)
THREADS = 4

def first(kind, read, results, ready):
    ready.wait()
    results.append(read(kind))

for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [(f"a{i}", int, 0) for i in range(20)])
    default = msgspec.field(default_factory=inner)
    outer = msgspec.defstruct(f"Outer{number}", [(f"b{i}", inner, default) for i in range(20)])
    results, ready = [], threading.Barrier(THREADS)
    threads = [
        threading.Thread(target=first, args=(outer, HOW, results, ready)) for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [outer(b3=inner(a4=5))] * THREADS
"""


@pytest.mark.parametrize(
    "read",
    [
        "lambda kind: typed.convert({'b3': {'a4': 5}}, kind)",
        'lambda kind: typed.json_reader(kind)(b\'{"b3": {"a4": 5}}\')',
        "lambda kind: typed.unpacker(kind)(msgspec.msgpack.encode({'b3': {'a4': 5}}))",
    ],
)
@pytest.mark.slow
def test_threads_may_read_a_type_for_the_first_time_at_once(read: str) -> None:
    # In a separate process: without the lock it ends with a segmentation fault.
    code = MANY_THREADS.replace("HOW", f"({read})")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


class Pair(msgspec.Struct):
    left: int
    right: str = ""


def test_values_become_what_their_type_says() -> None:
    assert typed.convert({"left": 1}, Pair) == Pair(1)
    assert typed.json_reader(Pair)(b'{"left": 2, "right": "x"}') == Pair(2, "x")
    assert typed.unpacker(Pair)(msgspec.msgpack.encode({"left": 3})) == Pair(3)


def test_what_does_not_fit_is_an_error_of_msgspec() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        typed.convert({"left": "one"}, Pair)
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        typed.json_reader(Pair)(b"{}")
    with pytest.raises(msgspec.DecodeError):
        typed.unpacker(Pair)(b"\xc1")
