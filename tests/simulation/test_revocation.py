"""A revocation reaches 10,000 endpoints: production trees and lists under virtual time."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm.messages import StreamSpec
from sapwood.core.errors import SecurityError
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood.head.credential_issuer import DenialFeed
from sapwood.nodes import messages
from sapwood.security.capabilities import Issuer, new_challenge, verify
from sapwood.security.denials import Denials, DenialUpdate
from sapwood_simulation.timed import TimedTree

ENDPOINTS = 10_000
LATENCY = 0.02
"""Seconds that a message takes between two neighbours: a continent."""

HANDLING = 40e-6
"""Seconds that a place is busy with a message."""


@pytest.mark.row("C5-CRED")
@pytest.mark.parametrize(
    "tree",
    [
        pytest.param(kary(ENDPOINTS, 32), id="32-ary"),
        pytest.param(flat(ENDPOINTS), id="flat", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.slow
def test_a_credential_is_refused_by_ten_thousand_endpoints_within_a_second(tree: Tree) -> None:
    """Each takes the update out of a wave into its list, and refuses who shows the credential."""
    issuer = Issuer.create()
    credential = issuer.issue("demo", ["connect"], not_after=2e9)
    challenge = new_challenge()
    shown = credential.show(challenge, "test")
    lists = [Denials() for _ in range(tree.size)]

    def admits(rank: int) -> bool:
        try:
            verify(
                shown,
                issuer.public,
                "demo",
                challenge,
                "test",
                now=1e9,
                denied=lists[rank].__contains__,
            )
        except SecurityError as error:
            return error.what != "the credential was revoked"
        return True

    update = DenialUpdate(since=0, epoch=1, ids=[credential.id], generation=1)

    def answer(rank: int, value: Any) -> Any:
        told = messages.from_value(value["update"], DenialUpdate)
        whole = lists[rank].take(told)
        return {"whole": int(whole), "epoch": lists[rank].epoch}

    timed = TimedTree(tree, latency=LATENCY, handling=HANDLING, answer=answer)
    timed.start()
    ranks = ((1, tree.agents + 1),)
    reduce = {"whole": "sum", "epoch": "min"}
    timed.post(ROOT, ev.OpenStream(StreamSpec(1, "denials", ranks, reduce)))
    assert all(admits(rank) for rank in (1, ENDPOINTS // 2, ENDPOINTS))
    seconds = timed.wave(1, {"update": messages.to_value(update)})
    assert timed.totals[-1] == {"whole": ENDPOINTS, "epoch": 1}
    assert seconds < 1.0, f"all know after {seconds:.3f} s of virtual time"
    assert not any(admits(rank) for rank in (1, ENDPOINTS // 2, ENDPOINTS))
    assert all(credential.id in lists[rank] for rank in range(1, ENDPOINTS + 1))


@pytest.mark.slow
def test_the_feed_of_a_head_tells_ten_thousand_nodes_each_until_it_knows_all() -> None:
    """The head's own part without a network: every third node has missed something before."""
    whole = DenialUpdate(since=0, epoch=5, ids=["a", "b"], generation=1)
    update = DenialUpdate(since=4, epoch=5, ids=["b"], generation=1)
    lists = [Denials() for _ in range(ENDPOINTS)]
    for number, one in enumerate(lists):
        if number % 3:
            one.take(DenialUpdate(since=0, epoch=4, ids=["a"], generation=1))
    asked = 0

    def ask(host: int, handler: str, value: Any) -> Future[Any]:
        nonlocal asked
        asked += 1
        assert handler == messages.DENY
        done: Future[Any] = Future()
        done.set_result(lists[host].take(messages.from_value(value, DenialUpdate)))
        return done

    feed = DenialFeed(ask, lambda: whole)
    began = time.perf_counter()
    told = [feed.tell(host, update) for host in range(ENDPOINTS)]
    took = time.perf_counter() - began
    assert all(one.result(0) for one in told)
    assert all("a" in one and "b" in one and one.epoch == 5 for one in lists)
    assert asked == ENDPOINTS + (ENDPOINTS + 2) // 3
    assert took < 10.0, "a limit for busy machines; it takes a fraction of a second"
