"""Capability credentials: what lets a person or program do some things in a cluster, and no more.

A credential is a chain of blocks, as in Biscuit or in macaroons with public keys. The issuer of the
cluster signs the first block. Each block has the public half of a new key, and whoever has the
private half can add one more block. A block only takes away: its *caveats* say for which cluster,
session, rights, nodes, time and holder the credential is good, and all blocks count. So everybody
can narrow a credential alone, and no one can widen it.

The private half of the last block's key belongs to the credential, and never leaves its holder: to
show a credential is to sign a challenge by it. So an eavesdropper cannot replay it, and a verifier
cannot take blocks off. A credential that names its holder's key also needs a signature by that key.

::

    issuer key ──signs──► block 0: cluster, rights … , key 0
                                                        └──signs──► block 1: less, key 1
    whoever shows it signs the challenge by key 1, the last one ◄──────────────────┘
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import math
import re
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.core.extras import LazyModule
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.security.rights import Rights, read_rights

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives.asymmetric import ed25519
else:
    exceptions = LazyModule("cryptography.exceptions", "cluster")
    ed25519 = LazyModule("cryptography.hazmat.primitives.asymmetric.ed25519", "cluster")

CREDENTIAL: Final = "swc1"
"""How the text of a credential begins."""

HOLDER_KEY: Final = "swk1"
"""How the text of a holder's private key begins."""

HOLDER: Final = "swh1"
"""How the text of a holder's public key begins."""

LIFETIME: Final = 7 * 86_400.0
"""Seconds that a credential is good by default."""

MAX_BLOCKS: Final = 16
"""Blocks of a credential."""

MAX_BLOCK: Final = 4096
"""Bytes of one block."""

MAX_BYTES: Final = 32 * 1024
"""Bytes of a credential."""

MAX_NAME: Final = 128
"""Characters of the name of a cluster, a session or a subject."""

MAX_NODES: Final = 10_000
"""Nodes that a credential may name."""

MAX_NODES_TEXT: Final = 2048
"""Characters of the set of them, folded."""

CHALLENGE_BYTES: Final = 32
"""Bytes of a challenge."""

_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_CHECKSUM_BYTES: Final = 4
_BLOCK: Final = b"sapwood credential block 1\0"
_SHOWN: Final = b"sapwood credential shown 1\0"
_TEXT = re.compile(r"(sw[a-z]1)\.([A-Za-z0-9_-]+)\.([0-9a-f]{8})")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_ID = re.compile(r"[a-z2-7]{16}")

_encode = msgspec.msgpack.Encoder().encode

T = TypeVar("T")


class Caveats(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The limits of a block; None and empty fields limit nothing.

    Attributes:
        cluster: The cluster that the credential is for, as certificates call it.
        session: The session that it is for.
        rights: What it allows.
        nodes: The nodes that it is for, folded: ``gpu[1-4]``.
        not_after: When it ends, seconds since 1970.
        holder: Public key of whoever may show it.
        user: The user of nodes as whom its processes run.
        subject: Who it is for, in words; this limits nothing.
        authority: SHA-256 of the public key of the cluster's certificate authority, so that its
            holder knows the right head; this limits nothing.
    """

    cluster: str | None = None
    session: str | None = None
    rights: list[str] | None = None
    nodes: str | None = None
    not_after: float | None = None
    holder: bytes | None = None
    user: str | None = None
    subject: str = ""
    authority: bytes = b""


class _BlockBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The signed part: the caveats, and the key that signs the next block."""

    caveats: Caveats
    key: bytes


class _Block(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A block and its signature."""

    body: bytes
    signature: bytes


class _Whole(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A credential with the private key of its last block."""

    chain: bytes
    key: bytes


class Shown(msgspec.Struct, frozen=True):
    """A credential as it is shown to a verifier, who cannot use it.

    Attributes:
        chain: Its blocks.
        proof: Signature of the challenge by the key of its last block.
        holder_proof: The same by the holder's key; empty if the credential names none.
    """

    chain: bytes
    proof: bytes
    holder_proof: bytes = b""


_read_chain: Callable[[bytes], list[_Block]] = typed.unpacker(list[_Block])
_read_body: Callable[[bytes], _BlockBody] = typed.unpacker(_BlockBody)
_read_whole: Callable[[bytes], _Whole] = typed.unpacker(_Whole)


class HolderKey:
    """The key of a person or program that credentials may be bound to.

    Args:
        key: Its private half, 32 bytes.

    Example:
        >>> key = HolderKey.create()
        >>> HolderKey.parse(key.text).public == key.public
        True
    """

    def __init__(self, key: bytes) -> None:
        self._key = _private(key)
        self._bytes = key

    @classmethod
    def create(cls) -> HolderKey:
        """Make a new one."""
        return cls(_new_key())

    @classmethod
    def parse(cls, text: str) -> HolderKey:
        """Return the key of a text.

        Raises:
            SecurityError: It is none.
        """
        return cls(_from_text(text, HOLDER_KEY, "key of a holder"))

    @property
    def text(self) -> str:
        """The key as it is kept; it is a secret."""
        return _to_text(HOLDER_KEY, self._bytes)

    @property
    def public(self) -> bytes:
        """Its public half, which a credential names."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"<HolderKey {holder_text(self.public)}>"


def holder_text(public: bytes) -> str:
    """Return the public key of a holder as people copy it."""
    return _to_text(HOLDER, public)


def read_holder(text: str) -> bytes:
    """Return the public key of a text.

    Raises:
        SecurityError: It is none.
    """
    return _checked_public(_from_text(text, HOLDER, "public key of a holder"))


class Capability:
    """A credential; its holder can show it, and narrow it.

    Args:
        chain: Its blocks in wire format.
        key: Private half of the last block's key.

    Raises:
        SecurityError: The blocks are malformed, or the key does not belong to the last one.
        Signatures
            of blocks are looked at by who verifies them.

    Example:
        >>> issuer = Issuer.create()
        >>> credential = issuer.issue("demo", ["run", "attach"], not_after=2e9)
        >>> less = credential.attenuate(rights=["run"])
        >>> shown = less.show(b"c" * 32, "head")
        >>> rights = verify(shown, issuer.public, "demo", b"c" * 32, "head", now=1e9)
        >>> sorted(rights.names)
        ['run']
    """

    def __init__(self, chain: bytes, key: bytes) -> None:
        self.chain = chain
        self._bytes = key
        self._key = _private(key)
        self._bodies = [body for _, body in _opened(chain)]
        if self._key.public_key().public_bytes_raw() != self._bodies[-1].key:
            raise SecurityError(
                "the credential lacks the key of its last block",
                hint="its blocks were removed, or mixed with blocks of another credential",
            )

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Return the credential of a text.

        Raises:
            SecurityError: It is none, or was copied wrongly.
        """
        data = _from_text(text, CREDENTIAL, "credential")
        try:
            whole = _read_whole(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise _malformed(str(error)) from error
        if _encode(whole) != data:
            raise _malformed("it is not written as Sapwood does")
        return cls(whole.chain, whole.key)

    @property
    def text(self) -> str:
        """The credential as people copy it; it is a secret."""
        return _to_text(CREDENTIAL, _encode(_Whole(self.chain, self._bytes)))

    @property
    def id(self) -> str:
        """Id of its last block; revoking it also revokes all credentials derived from it."""
        return self.claims.ids[-1]

    @property
    def claims(self) -> Rights:
        """What it says that it allows; no signature was looked at."""
        return _folded(_opened(self.chain))

    @property
    def authority(self) -> str:
        """Pin of the certificate authority of its cluster, 64 hexadecimal digits."""
        return self._bodies[0].caveats.authority.hex()

    def attenuate(
        self,
        *,
        rights: Sequence[str] | None = None,
        session: str | None = None,
        nodes: str | None = None,
        not_after: float | None = None,
        holder: bytes | None = None,
        user: str | None = None,
        subject: str = "",
    ) -> Capability:
        """Return a credential that allows less, without asking the issuer.

        Args:
            rights: What it allows.
            session: The session that it is for.
            nodes: The nodes that it is for: ``gpu[1-4]``.
            not_after: When it ends, seconds since 1970, if this one does not end before.
            holder: Public key of whoever may show it.
            user: The user of nodes as whom its processes run.
            subject: Who it is for, in words.

        Raises:
            SecurityError: This one does not allow what the other should, or has too many blocks.
        """
        now = self.claims
        wanted = None if rights is None else read_rights(rights)
        if wanted is not None and not wanted <= now.names:
            raise SecurityError(
                f"the credential does not give {', '.join(sorted(wanted - now.names))}",
                hint=f"it gives {', '.join(sorted(now.names)) or 'no right at all'}",
            )
        if session is not None and now.session not in {"", session}:
            raise SecurityError(f"the credential is for the session '{now.session}' already")
        if nodes is not None and now.nodes is not None and not _node_set(nodes) <= now.nodes:
            raise SecurityError(f"the credential is for {fold_hosts(sorted(now.nodes))} only")
        if holder is not None and now.holder not in {b"", holder}:
            raise SecurityError("the credential is bound to the key of another holder already")
        if user is not None and now.user not in {"", user}:
            raise SecurityError(f"the credential is for processes of the user '{now.user}' already")
        return self.append(
            Caveats(
                rights=None if wanted is None else sorted(wanted),
                session=session,
                nodes=nodes,
                not_after=not_after,
                holder=holder,
                user=user,
                subject=subject,
            )
        )

    def append(self, caveats: Caveats) -> Capability:
        """Return a credential with one more block.

        Raises:
            SecurityError: A caveat is malformed, or there are too many blocks.
        """
        key = _new_key()
        block = _signed(self._key, caveats, key)
        return Capability(_encode([*_read_chain(self.chain), block]), key)

    def show(self, challenge: bytes, context: str, holder: HolderKey | None = None) -> Shown:
        """Return the proof for a verifier that this side has it.

        Args:
            challenge: Random bytes from the verifier.
            context: What it is shown for, such as the name of a protocol.
            holder: The key of its holder, if it names one.

        Raises:
            SecurityError: It names a holder, and this is not the key.
        """
        bound = self.claims.holder
        if bound and (holder is None or holder.public != bound):
            raise SecurityError(
                "the credential is bound to the key of its holder",
                where=holder_text(bound),
                hint="give the file with that key, too",
            )
        message = _shown_message(self.chain, challenge, context)
        signed = holder.sign(message) if bound and holder is not None else b""
        return Shown(self.chain, self._key.sign(message), signed)

    def __repr__(self) -> str:
        return f"<Capability {self.id}>"


class Issuer:
    """Who signs the first block of the credentials of a cluster.

    Args:
        key: Its private key, 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = _private(key)
        self.key = key

    @classmethod
    def create(cls) -> Issuer:
        """Make a new one."""
        return cls(_new_key())

    @property
    def public(self) -> bytes:
        """Its public key, by which everybody verifies credentials."""
        return self._key.public_key().public_bytes_raw()

    def issue(  # noqa: PLR0913 - each is a thing that a credential says
        self,
        cluster: str,
        rights: Sequence[str],
        *,
        not_after: float,
        session: str | None = None,
        nodes: str | None = None,
        holder: bytes | None = None,
        user: str | None = None,
        subject: str = "",
        authority: bytes = b"",
    ) -> Capability:
        """Return a new credential.

        Args:
            cluster: The cluster that it is for.
            rights: What it allows.
            not_after: When it ends, seconds since 1970.
            session: The session that it is for; None for all.
            nodes: The nodes that it is for; None for all.
            holder: Public key of the only holder; None for any holder.
            user: The user of nodes as whom its processes run; None for the user of their daemons.
            subject: Who it is for, in words.
            authority: SHA-256 of the public key of the cluster's certificate authority.

        Raises:
            SecurityError: One of these is malformed.
        """
        caveats = Caveats(
            cluster=cluster,
            rights=sorted(read_rights(rights)),
            not_after=not_after,
            session=session,
            nodes=nodes,
            holder=holder,
            user=user,
            subject=subject,
            authority=authority,
        )
        key = _new_key()
        return Capability(_encode([_signed(self._key, caveats, key)]), key)

    def __repr__(self) -> str:
        return f"<Issuer {self.public.hex()[:8]}…>"


def verify(
    shown: Shown,
    issuer: bytes,
    cluster: str,
    challenge: bytes,
    context: str,
    *,
    now: float,
    denied: Callable[[str], bool] = lambda _id: False,
) -> Rights:
    """Return the rights of a shown credential.

    This reads no clock and keeps nothing but the last chains whose signatures were right.

    Args:
        shown: The shown credential.
        issuer: Public key of the cluster's issuer.
        cluster: Which cluster this is.
        challenge: What this side has made up, for this one time.
        context: What it must be shown for.
        now: The time, seconds since 1970.
        denied: Says whether the id of a block was revoked.

    Raises:
        SecurityError: It is not valid, or not for this; the error says why.
    """
    rights = rights_of(shown.chain, issuer)
    if rights.cluster != cluster:
        raise SecurityError(
            "the credential is for another cluster", where=rights.cluster, hint=f"this is {cluster}"
        )
    if now >= rights.not_after:
        raise SecurityError("the credential has expired", hint="ask for a new one")
    for one in rights.ids:
        if denied(one):
            raise SecurityError("the credential was revoked", where=one)
    message = _shown_message(shown.chain, challenge, context)
    last = _opened(shown.chain)[-1][1].key
    if not _is_signed(last, shown.proof, message):
        raise SecurityError(
            "the client cannot prove that it holds the credential",
            hint="blocks were removed from it, or a proof for another server is repeated",
        )
    if rights.holder and not _is_signed(rights.holder, shown.holder_proof, message):
        raise SecurityError(
            "the client does not have the key that the credential is bound to",
            where=holder_text(rights.holder),
        )
    return rights


@functools.lru_cache(maxsize=1024)
def rights_of(chain: bytes, issuer: bytes) -> Rights:
    """Return what a chain of blocks allows whose signatures are right.

    Args:
        chain: The blocks.
        issuer: Public key of who signs the first one.

    Raises:
        SecurityError: A signature is wrong, or a block malformed.
    """
    blocks = _opened(chain)
    key = issuer
    for number, (block, body) in enumerate(blocks):
        if not _is_signed(key, block.signature, _BLOCK + block.body):
            raise SecurityError(
                "the credential was not issued by this cluster, or it was changed"
                if number == 0
                else f"block {number} of the credential was changed, or is of another one",
                hint="ask for a new one",
            )
        key = body.key
    return _folded(blocks)


def new_challenge() -> bytes:
    """Return the bytes that the holder of a credential must sign."""
    return secrets.token_bytes(CHALLENGE_BYTES)


def check_id(text: str) -> str:
    """Return the id of a block of a credential.

    Raises:
        SecurityError: It is none.
    """
    if _ID.fullmatch(text) is None:
        raise SecurityError(
            f"{text[:40]!a} is not the id of a credential",
            hint="`sapwood credential list` shows ids: 16 small letters and digits",
        )
    return text


# --- blocks ---------------------------------------------------------------------------------------


def _opened(chain: bytes) -> list[tuple[_Block, _BlockBody]]:
    """Return the blocks of a chain, and what is in them; no signature is looked at.

    Raises:
        SecurityError: It is malformed.
    """
    if len(chain) > MAX_BYTES:
        raise _malformed(f"it has more than {MAX_BYTES} bytes")
    try:
        blocks = _read_chain(chain)
        if not 1 <= len(blocks) <= MAX_BLOCKS:
            raise _malformed(f"it has {len(blocks)} blocks, and may have {MAX_BLOCKS}")
        bodies = [_read_body(block.body) for block in blocks]
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _malformed(str(error)) from error
    if _encode(blocks) != chain:
        raise _malformed("it is not written as Sapwood does")
    for block, body in zip(blocks, bodies, strict=True):
        _check_block(block, body)
    return list(zip(blocks, bodies, strict=True))


def _check_block(block: _Block, body: _BlockBody) -> None:
    said = body.caveats
    if len(block.body) > MAX_BLOCK:
        raise _malformed(f"a block has more than {MAX_BLOCK} bytes")
    _checked_public(body.key)
    if said.holder is not None:
        _checked_public(said.holder)
    for text in (said.cluster, said.session, said.subject):
        if text and (len(text) > MAX_NAME or not text.isprintable()):
            raise _malformed("a name in it is too long, or no text")
    if said.session is not None and not said.session:
        raise _malformed("it is for a session without a name")
    if said.user is not None and _USER.fullmatch(said.user) is None:
        raise _malformed("its user is not a valid user name")
    if said.rights is not None:
        read_rights(said.rights)
    if said.nodes is not None and len(said.nodes) > MAX_NODES_TEXT:
        raise _malformed(f"its nodes have more than {MAX_NODES_TEXT} characters")
    if said.not_after is not None and not math.isfinite(said.not_after):
        raise _malformed("its expiry is not a time")
    if len(said.authority) not in {0, hashlib.sha256().digest_size}:
        raise _malformed("its authority is none")


def _folded(blocks: Sequence[tuple[_Block, _BlockBody]]) -> Rights:
    """Return what all blocks allow together.

    Raises:
        SecurityError: Two of them contradict each other, or the first is not one of an issuer.
    """
    first = blocks[0][1].caveats
    if first.cluster is None or first.rights is None or first.not_after is None:
        raise _malformed("its first block does not say what it is for")
    names: frozenset[str] = frozenset(first.rights)
    nodes: frozenset[str] | None = None
    end = first.not_after
    for _, body in blocks:
        said = body.caveats
        if said.rights is not None:
            names &= frozenset(said.rights)
        if said.nodes is not None:
            named = _node_set(said.nodes)
            nodes = named if nodes is None else nodes & named
        if said.not_after is not None:
            end = min(end, said.not_after)
    every = [body.caveats for _, body in blocks]
    return Rights(
        names=names,
        session=_only([one.session for one in every], "sessions") or "",
        nodes=nodes,
        not_after=end,
        cluster=_only([one.cluster for one in every], "clusters") or "",
        subject=" → ".join(one.subject for one in every if one.subject),
        ids=tuple(_id_of(block) for block, _ in blocks),
        holder=_only([one.holder for one in every], "holders") or b"",
        user=_only([one.user for one in every], "users") or "",
        owner=first.subject or f"#{_id_of(blocks[0][0])}",
        issued_session=first.session or "",
        issued_user=first.user or "",
    )


def _only(said: list[T | None], what: str) -> T | None:
    """Return the one thing that blocks name, or None.

    Raises:
        SecurityError: They name several, so that nothing is allowed.
    """
    found = {one for one in said if one is not None}
    if len(found) > 1:
        raise SecurityError(f"the credential is for two {what}, so it is for none")
    return next(iter(found), None)


def _node_set(text: str) -> frozenset[str]:
    try:
        found = frozenset(expand_hosts(text))
    except ConfigurationError as error:
        raise SecurityError(f"{text[:80]!a} names no nodes: {error.what}") from error
    if len(found) > MAX_NODES:
        raise SecurityError(f"a credential names more than {MAX_NODES} nodes")
    return found


def _id_of(block: _Block) -> str:
    """Return the id by which a block is revoked; its signer cannot choose it."""
    digest = hashlib.sha256(_BLOCK + block.body).digest()[:10]
    return base64.b32encode(digest).decode().lower()


def _signed(key: ed25519.Ed25519PrivateKey, caveats: Caveats, following: bytes) -> _Block:
    public = _private(following).public_key().public_bytes_raw()
    body = _encode(_BlockBody(caveats, public))
    made = _Block(body, key.sign(_BLOCK + body))
    _check_block(made, _read_body(body))
    if caveats.nodes is not None:
        _node_set(caveats.nodes)
    return made


def _shown_message(chain: bytes, challenge: bytes, context: str) -> bytes:
    parts = (context.encode(), challenge, hashlib.sha256(chain).digest())
    return _SHOWN + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


# --- keys and texts -------------------------------------------------------------------------------


def _new_key() -> bytes:
    return ed25519.Ed25519PrivateKey.generate().private_bytes_raw()


def _private(key: bytes) -> ed25519.Ed25519PrivateKey:
    if len(key) != _KEY_BYTES:
        raise _malformed("its key is none")
    return ed25519.Ed25519PrivateKey.from_private_bytes(key)


def _checked_public(key: bytes) -> bytes:
    if len(key) != _KEY_BYTES:
        raise _malformed("a public key in it is none")
    return key


def _is_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    if len(signature) != _SIGNATURE_BYTES:
        return False
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (exceptions.InvalidSignature, ValueError):
        return False
    return True


def _to_text(kind: str, data: bytes) -> str:
    shown = base64.urlsafe_b64encode(data).decode().rstrip("=")
    return f"{kind}.{shown}.{_checksum(kind, data)}"


def _from_text(text: str, kind: str, what: str) -> bytes:
    if len(text) > 2 * MAX_BYTES:
        raise SecurityError(f"this is no {what}: it is too long")
    match = _TEXT.fullmatch(text.strip())
    if match is None or match[1] != kind:
        raise SecurityError(
            f"this is no {what}", hint=f"copy the whole line; it begins with {kind}."
        )
    try:
        data = base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4))
    except (binascii.Error, ValueError):
        data = b""
    if _to_text(kind, data) != match[0]:
        raise SecurityError(
            f"a character of this {what} is wrong, or some are missing",
            hint="copy it again: its checksum does not fit",
        )
    return data


def _checksum(kind: str, data: bytes) -> str:
    return hashlib.sha256(kind.encode() + data).digest()[:_CHECKSUM_BYTES].hex()


def _malformed(why: str) -> SecurityError:
    return SecurityError(f"the credential is malformed: {why}")
