"""Which programs aggregate where their states are made."""

import pytest

from sapwood_lizard.shared_state import aggregating_shares_state

AGGREGATE = "def aggregate(params, running, part):\n"
SHARED = {
    "a list": "seen = []\n" + AGGREGATE + "    seen.append(part)\n",
    "a list that another one reads": (
        "seen = []\n" + AGGREGATE + "    running.n = len(seen)\n"
        "def update_global_state(a, b, c):\n    seen.append(b)\n"
    ),
    "an item": "seen = {}\n" + AGGREGATE + "    seen['n'] = part.n\n",
    "a number": "n = 0\n" + AGGREGATE + "    global n\n    n += 1\n",
    "a number that is read": (
        "n = 0\n" + AGGREGATE + "    return n\ndef init_global_state(a):\n    global n\n    n = 1\n"
    ),
    "by a function": (
        "n = [0]\ndef count():\n    n[0] += 1\n" + AGGREGATE + "    count()\n    return running\n"
    ),
    "of a class": (
        "class AggregationResult:\n    size = 0\n" + AGGREGATE + "    return running\n"
        "def init_global_state(p):\n    AggregationResult.size = p.dims\n"
    ),
    "of another module": "import other\n" + AGGREGATE + "    other.n += 1\n",
    "imported": "from other import seen\n" + AGGREGATE + "    seen.update(part)\n",
    "under another name": (
        "n = []\ndef add(a, b, c):\n    n.append(c)\naggregate = add\n"
        "def update_global_state(a, b, c):\n    return n\n"
    ),
}
NOT_SHARED = {
    "constants": "SIZES = [1, 2]\n" + AGGREGATE + "    running.n += SIZES[0]\n",
    "its own": AGGREGATE + "    seen = []\n    seen.append(part)\n",
    "of an argument": AGGREGATE + "    running.seen.append(part)\n    running.sums[0] = 1\n",
    "a history of states": "seen = []\ndef update_global_state(a, b, c):\n    seen.append(c)\n",
    "a closure": (
        AGGREGATE + "    total = []\n    def add(x):\n        total.append(x)\n    add(part)\n"
    ),
    "a name that is local": (
        "seen = []\n" + AGGREGATE + "    for seen in part:\n        seen.append(1)\n"
    ),
}


@pytest.mark.parametrize("text", SHARED.values(), ids=list(SHARED))
def test_state_that_is_shared(text: str) -> None:
    assert aggregating_shares_state(text)


@pytest.mark.parametrize("text", NOT_SHARED.values(), ids=list(NOT_SHARED))
def test_state_that_is_not_shared(text: str) -> None:
    assert not aggregating_shares_state(text)
