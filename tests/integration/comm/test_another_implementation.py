"""An agent that was written from the document of the protocol works beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sapwood.comm import events as ev
from sapwood.comm import plain

ANOTHER = Path(__file__).with_name("another_agent.py")


def test_an_agent_written_from_the_document_takes_part(plant_grove: Callable[..., Any]) -> None:
    """Waves in messages, with payloads and in pieces; flushes; requests: all as ours does them."""
    grove = plant_grove("unix", 3, 2, foreign={2: ANOTHER, 3: ANOTHER})
    assert grove.broadcast({"x": 7}) == 42
    small = np.arange(1000.0)
    np.testing.assert_array_equal(grove.broadcast({"x": small}), small * 6)
    large = np.arange(1_000_000.0)  # 8 MB: twice what may be on its way
    np.testing.assert_array_equal(grove.broadcast({"x": large}), large * 6)
    grove.driver.post(ev.SweepStream(1, 1, "flush"))
    grove.until(lambda: grove.seen(ev.SweepDone))
    assert grove.seen(ev.SweepDone)[0].reached == ((1, 4),)
    for number in range(1, 301):  # more than the window of messages
        grove.driver.post(ev.Ask(2, "echo", number, plain.encode(number), None))
    grove.until(lambda: len(grove.seen(ev.Answered)) == 300)
    assert [plain.decode(answer.body) for answer in grove.seen(ev.Answered)] == [*range(1, 301)]
    np.testing.assert_array_equal(grove.broadcast({"x": small}), small * 6)
    assert grove.seen(ev.PlacesLost) == []
    assert grove.problems == []
