"""Sets of hosts: folded and unfolded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core import hostset
from sapwood.core.errors import ConfigurationError
from sapwood.core.hostset import expand_hosts, fold_hosts, split_hosts

words = st.text("abc-._@", max_size=4)
numbers = st.one_of(st.integers(0, 30).map(str), st.integers(0, 999).map("{:03d}".format))
names = st.lists(st.tuples(words, numbers, words, st.sampled_from(["", "1", "09"])), max_size=12)
HostNames = list[tuple[str, str, str, str]]


@given(names)
@pytest.mark.slow
def test_what_is_folded_names_the_same_hosts(parts: HostNames) -> None:
    hosts = ["h" + "".join(part) for part in parts]
    folded = fold_hosts(hosts)
    assert sorted(expand_hosts(folded)) == sorted(set(hosts))


@given(names)
@pytest.mark.slow
def test_folding_again_changes_nothing(parts: HostNames) -> None:
    folded = fold_hosts("h" + "".join(part) for part in parts)
    assert fold_hosts(expand_hosts(folded)) == folded


@given(st.text("an0159[],-", max_size=20))
def test_any_text_is_a_set_or_refused(text: str) -> None:
    try:
        found = expand_hosts(text)
    except ConfigurationError:
        return
    assert all("[" not in host and "," not in host for host in found)


def test_the_order_is_that_of_the_text() -> None:
    assert expand_hosts("b2,a[3,1-2],b1") == ["b2", "a3", "a1", "a2", "b1"]
    assert expand_hosts("r[1-2]n[1-2]") == ["r1n1", "r1n2", "r2n1", "r2n2"]
    assert expand_hosts(" a , ,b ") == ["a", "b"]
    assert expand_hosts("") == []


def test_leading_zeros_stay() -> None:
    assert expand_hosts("n[08-11]") == ["n08", "n09", "n10", "n11"]
    assert expand_hosts("n[0-2]") == ["n0", "n1", "n2"]


def test_commas_in_brackets_split_nothing() -> None:
    assert split_hosts("a[1,3],b[2],c") == ["a[1,3]", "b[2]", "c"]


@pytest.mark.parametrize(
    "text",
    [
        "n[",
        "n]",
        "n[]",
        "n[1-]",
        "n[-1]",
        "n[2-1]",
        "n[1,]",
        "n[a]",
        "n[1-2",
        "n1-2]",
        "n[[1]]",
        "n[٣]",
        f"n[{'1' * 5000}]",
        "n[1.5]",
    ],
)
def test_malformed_sets_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a set of hosts"):
        expand_hosts(text)


@pytest.mark.parametrize(
    "text", ["n[1-9999999]", "n[1-90000][1-90000]", "n[1-400][1-400][1-400]", "n[1-60000,1-60000]"]
)
def test_too_many_hosts_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(ConfigurationError, match="more than 100000 hosts"):
        expand_hosts(text)


def test_many_parts_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostset, "MAX_HOSTS", 5)
    assert len(expand_hosts("a[1-3],b[1-2]")) == 5
    with pytest.raises(ConfigurationError, match="more than 5 hosts"):
        expand_hosts("a[1-3],b[1-3]")


def test_names_fold_in_the_order_in_which_they_come() -> None:
    assert fold_hosts(["z1", "login", "z3", "z2", "a"]) == "z[1-3],login,a"
    assert fold_hosts(["n1", "n1"]) == "n1"
    assert fold_hosts([]) == ""
    assert fold_hosts(["n٣", "n" + "1" * 30]) == "n٣,n" + "1" * 30
