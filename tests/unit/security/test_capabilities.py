"""Credentials cannot be widened, and a wrong one is refused with the cause."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sapwood.core.errors import SecurityError
from sapwood.core.hostset import fold_hosts
from sapwood.security import capabilities
from sapwood.security.capabilities import (
    Capability,
    Caveats,
    HolderKey,
    Issuer,
    Shown,
    check_id,
    holder_text,
    new_challenge,
    read_holder,
    rights_of,
    verify,
)
from sapwood.security.rights import RIGHTS, Rights

ISSUER = Issuer.create()
CHALLENGE = new_challenge()
NOW = 1_000_000.0
NODES = ["n1", "n2", "n3", "gpu1"]
KEYS = [HolderKey.create(), HolderKey.create()]


def issued(rights: Any = tuple(RIGHTS), **more: Any) -> Capability:
    return ISSUER.issue("demo", rights, **{"not_after": NOW + 1000, **more})


def check(shown: Shown, *, now: float = NOW, denied: Any = (), **other: Any) -> Rights:
    wanted = {
        "issuer": ISSUER.public,
        "cluster": "demo",
        "challenge": CHALLENGE,
        "context": "test",
        **other,
    }
    return verify(shown, **wanted, now=now, denied=lambda one: one in denied)


def shown(credential: Capability, key: HolderKey | None = None) -> Shown:
    return credential.show(CHALLENGE, "test", key)


caveats = st.builds(
    Caveats,
    session=st.none() | st.sampled_from(["s", "t"]),
    rights=st.none() | st.lists(st.sampled_from(sorted(RIGHTS)), unique=True),
    nodes=st.none() | st.lists(st.sampled_from(NODES), min_size=1, unique=True).map(fold_hosts),
    not_after=st.none() | st.floats(NOW - 10, NOW + 5000),
    holder=st.none() | st.sampled_from([key.public for key in KEYS]),
    cluster=st.none() | st.sampled_from(["demo", "other"]),
    subject=st.sampled_from(["", "ann", "ci"]),
)


def everything(rights: Rights) -> set[tuple[str, str, str, float]]:
    """All that rights allow, of a small world."""
    return {
        (right, session, node, moment)
        for right in RIGHTS
        for session in ("", "s", "t")
        for node in ("", *NODES)
        for moment in (NOW - 20, NOW, NOW + 500, NOW + 2000)
        if rights.allows(right, moment, session=session, node=node)
    }


@given(st.lists(caveats, min_size=1, max_size=4))
@pytest.mark.slow
def test_no_block_widens_what_the_blocks_before_it_allow(blocks: list[Caveats]) -> None:
    credential = issued()
    before = everything(rights_of(credential.chain, ISSUER.public))
    for block in blocks:
        credential = credential.append(block)
        try:
            rights = rights_of(credential.chain, ISSUER.public)
        except SecurityError:  # it is for two sessions: for none
            return
        after = everything(rights)
        assert after <= before
        assert rights.ids[:-1] == tuple(rights.ids[: len(rights.ids) - 1])
        before = after


@given(st.integers(min_value=0), st.sampled_from([0, 1, 2]))
@pytest.mark.slow
def test_a_flipped_bit_is_refused(position: int, blocks: int) -> None:
    credential = issued()
    for _ in range(blocks):
        credential = credential.attenuate(rights=["run", "attach"])
    said = shown(credential)
    for name in ("chain", "proof"):
        data = bytearray(getattr(said, name))
        bit = position % (8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SecurityError):
            check(msgspec.structs.replace(said, **{name: bytes(data)}))


@given(st.integers(min_value=0), st.integers(0, 5))
def test_a_flipped_bit_of_the_text_is_refused(position: int, bit: int) -> None:
    text = issued().text
    place = position % len(text)
    changed = text[:place] + chr(ord(text[place]) ^ (1 << bit)) + text[place + 1 :]
    assume(changed.strip() != text)
    with pytest.raises(SecurityError):
        Capability.parse(changed)


def test_a_credential_is_read_as_it_was_written() -> None:
    credential = issued(subject="ann").attenuate(rights=["run"], subject="ann's script")
    assert "\n" not in credential.text
    read = Capability.parse(f"  {credential.text}\n")
    assert read.chain == credential.chain
    rights = check(shown(read))
    assert rights.names == {"run"}
    assert rights.subject == "ann → ann's script"
    assert rights.ids[-1] == read.id == check_id(read.id)
    assert credential.text not in repr(credential)


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode("latin-1")))
def test_no_text_ends_the_reader(text: str) -> None:
    for read in (Capability.parse, HolderKey.parse, read_holder):
        with pytest.raises(SecurityError):
            read(text)
        with pytest.raises(SecurityError):
            read(f"swc1.{text}.00000000")


@given(st.binary(max_size=400))
def test_no_bytes_end_the_verifier(data: bytes) -> None:
    with pytest.raises(SecurityError):
        rights_of(data, ISSUER.public)
    with pytest.raises(SecurityError):
        check(Shown(data, data, data))


def chain(credential: Capability) -> list[Any]:
    return list(msgspec.msgpack.decode(credential.chain))


def pack(blocks: list[Any]) -> bytes:
    return msgspec.msgpack.encode(blocks)


def test_blocks_that_are_taken_off_mixed_or_turned_are_refused() -> None:
    one = issued()
    two = one.attenuate(rights=["run", "attach"])
    three = two.attenuate(rights=["run"])
    other = issued().attenuate(rights=["admin"])
    said = shown(three)

    # A block removed: the one before has more rights, and the proof uses another key.
    with pytest.raises(SecurityError, match="cannot prove"):
        check(msgspec.structs.replace(said, chain=two.chain))
    whole = capabilities._read_whole(capabilities._from_text(three.text, "swc1", ""))
    with pytest.raises(SecurityError, match="lacks the key of its last block"):
        Capability(one.chain, whole.key)

    first, second, third = chain(three)
    for wrong in (
        [first, third],  # one in the middle is gone
        [first, third, second],  # turned
        [second, first, third],
        [second, third],
        [first, chain(other)[1], third],  # one of another credential
        [chain(other)[0], second, third],
        [first, second, third, third],
    ):
        with pytest.raises(SecurityError, match="was changed"):
            check(msgspec.structs.replace(said, chain=pack(wrong)))


def test_a_credential_of_another_issuer_or_cluster_is_refused() -> None:
    with pytest.raises(SecurityError, match="not issued by this cluster"):
        check(shown(issued()), issuer=Issuer.create().public)
    with pytest.raises(SecurityError, match="for another cluster"):
        check(shown(issued()), cluster="demo2")


def test_a_credential_ends() -> None:
    credential = issued().attenuate(not_after=NOW + 5)
    assert check(shown(credential), now=NOW + 4.9).not_after == NOW + 5
    with pytest.raises(SecurityError, match="expired"):
        check(shown(credential), now=NOW + 5)
    later = credential.attenuate(not_after=NOW + 500)
    with pytest.raises(SecurityError, match="expired"):
        check(shown(later), now=NOW + 5)


def test_each_block_can_be_revoked() -> None:
    root = issued()
    mine = root.attenuate(subject="mine")
    yours = root.attenuate(subject="yours")
    with pytest.raises(SecurityError, match="revoked") as caught:
        check(shown(mine), denied={mine.id})
    assert mine.id in str(caught.value)
    check(shown(yours), denied={mine.id})
    for one in (root, mine, yours):
        with pytest.raises(SecurityError, match="revoked"):
            check(shown(one), denied={root.id})


def test_what_was_shown_cannot_be_shown_again_or_elsewhere() -> None:
    said = shown(issued())
    with pytest.raises(SecurityError, match="cannot prove"):
        check(said, challenge=new_challenge())
    with pytest.raises(SecurityError, match="cannot prove"):
        check(said, context="other")


def test_a_stolen_credential_needs_the_key_of_its_holder() -> None:
    mine, stranger = KEYS
    credential = issued(holder=mine.public)
    assert check(shown(credential, mine)).holder == mine.public
    for key in (None, stranger):
        with pytest.raises(SecurityError, match="bound to the key"):
            shown(credential, key)
    said = shown(credential, mine)
    for proof in (b"", said.proof, stranger.sign(b"")):
        with pytest.raises(SecurityError, match="does not have the key"):
            check(msgspec.structs.replace(said, holder_proof=proof))
    with pytest.raises(SecurityError, match="another holder"):
        credential.attenuate(holder=stranger.public)
    with pytest.raises(SecurityError, match="for two holders"):
        rights_of(credential.append(Caveats(holder=stranger.public)).chain, ISSUER.public)


def test_to_ask_for_more_than_there_is_is_refused_at_once() -> None:
    credential = issued(["run", "attach"], session="s", nodes="n[1-2]")
    for wanted, said in (
        ({"rights": ["admin"]}, "does not give admin"),
        ({"rights": ["fly"]}, "unknown right 'fly'"),
        ({"session": "t"}, "for the session 's'"),
        ({"nodes": "n[1-3]"}, r"for n\[1-2\] only"),
        ({"nodes": "n[1"}, "names no nodes"),
        ({"subject": "a\nb"}, "no text"),
        ({"not_after": math.nan}, "not a time"),
    ):
        with pytest.raises(SecurityError, match=said):
            credential.attenuate(**wanted)


def test_there_are_bounds() -> None:
    credential = issued()
    for _ in range(capabilities.MAX_BLOCKS - 1):
        credential = credential.attenuate()
    with pytest.raises(SecurityError, match="blocks"):
        credential.attenuate()
    with pytest.raises(SecurityError, match="characters"):
        issued(nodes=",".join(f"n{'x' * 30}{number}" for number in range(80)))
    with pytest.raises(SecurityError, match="nodes"):
        issued(nodes="n[1-20000]")
    with pytest.raises(SecurityError, match="too long"):
        issued(subject="x" * 200)
    with pytest.raises(SecurityError, match="bytes"):
        rights_of(bytes(capabilities.MAX_BYTES + 1), ISSUER.public)


def test_a_caveat_that_nobody_knows_is_refused() -> None:
    key = bytes(range(32))
    body = msgspec.msgpack.encode([{"cluster": "demo", "moon": "full"}, key])
    with pytest.raises(SecurityError, match="moon"):
        rights_of(pack([[body, bytes(64)]]), ISSUER.public)


def test_a_first_block_says_what_it_is_for() -> None:
    for wrong in (
        Caveats(cluster="demo", rights=["run"]),
        Caveats(cluster="demo", not_after=NOW),
        Caveats(rights=["run"], not_after=NOW),
    ):
        block = capabilities._signed(ISSUER._key, wrong, bytes(32))
        with pytest.raises(SecurityError, match="does not say"):
            rights_of(msgspec.msgpack.encode([block]), ISSUER.public)


def test_signatures_are_checked_once_for_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown(issued().attenuate(rights=["run"]))
    check(said)
    count = 0
    original = capabilities._is_signed

    def counting(*args: Any) -> bool:
        nonlocal count
        count += 1
        return original(*args)

    monkeypatch.setattr(capabilities, "_is_signed", counting)
    check(said)
    assert count == 1, "the proof of this one time"


def test_keys_of_holders_are_copied_as_lines() -> None:
    key = HolderKey.create()
    assert read_holder(holder_text(key.public)) == key.public
    assert HolderKey.parse(key.text).public == key.public
    assert key.text not in repr(key)
    with pytest.raises(SecurityError, match="begins with swh1"):
        read_holder(key.text)
    with pytest.raises(SecurityError, match="not the id"):
        check_id("x")


@pytest.mark.row("C5-RES")
def test_a_credential_names_one_user_of_nodes_and_keeps_it() -> None:
    plain = issued()
    assert plain.claims.user == ""
    ann = plain.attenuate(user="ann")
    assert ann.claims.user == ann.attenuate(rights=["run"]).claims.user == "ann"
    assert ann.attenuate(user="ann").claims.user == "ann"
    with pytest.raises(SecurityError, match="for processes of the user 'ann' already"):
        ann.attenuate(user="root")
    with pytest.raises(SecurityError, match="for two users, so it is for none"):
        _ = ann.append(Caveats(user="root")).claims
    for name in ("", "-x", "a b", "a/b", "a" * 33, "0"):
        with pytest.raises(SecurityError, match="not a valid user name"):
            plain.attenuate(user=name)
