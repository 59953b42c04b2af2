"""The credentials of a head as programs see them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from sapwood.client.head_asking import CALL_TIMEOUT, AskWithin
from sapwood.core.arguments import duration, text
from sapwood.core.errors import ConfigurationError
from sapwood.head.calls import CredentialInfo, IssueCredential, IssuedCredential, RevokeResult


class HeadCredentials:
    """The credentials of a head; ``sapwood.connect().credentials``.

    Each call asks the head, and needs the right ``admin``.

    Args:
        ask: Calls the head.
    """

    def __init__(self, ask: AskWithin) -> None:
        self._ask = ask

    def issue(
        self,
        rights: Sequence[str] = (),
        *,
        role: str = "",
        session: str = "",
        nodes: str = "",
        lifetime: float | None = None,
        subject: str = "",
        holder: str = "",
        user: str = "",
    ) -> IssuedCredential:
        """Issue a credential, as ``sapwood credential issue`` does.

        Args:
            rights: What it allows, such as ``["connect", "attach"]``.
            role: Instead of rights, a role of the policy.
            session: Restricts it to this session.
            nodes: Restricts it to these nodes, such as ``gpu[1-4]``.
            lifetime: Seconds; by default 7 days, or less if the policy says so.
            subject: Who it is for, in words; lists show it.
            holder: Binds it to this key, which ``sapwood credential key`` shows.
            user: Its processes run as this user, on nodes that root started.

        Returns:
            The credential; its ``text`` is a secret, which the head does not keep.

        Raises:
            ConfigurationError: A role and rights are both given, or something is not known.
            SecurityError: It would give rights that the caller does not hold.
            NodeLostError: The head has ended.

        Example:
            ::

                head = sapwood.connect()
                ann = head.credentials.issue(["connect", "spawn"], subject="Ann", lifetime=3600)
                sapwood.connect(credential=ann.text).nodes()
        """
        from sapwood.head.parts.credentials import (  # noqa: PLC0415 - imports cryptography
            IssuedCredentials,
        )
        from sapwood.security.capabilities import read_holder  # noqa: PLC0415 - as above

        wanted = IssueCredential(
            subject=text(subject, "subject"),
            rights=[text(one, "rights") for one in rights],
            role=text(role, "role"),
            session=text(session, "session"),
            nodes=text(nodes, "nodes"),
            lifetime=_seconds(lifetime),
            holder=read_holder(text(holder, "holder")) if holder else b"",
            user=text(user, "user"),
        )
        return self._ask(CALL_TIMEOUT, IssuedCredentials.issue, wanted)

    def list(self) -> builtins.list[CredentialInfo]:
        """Return the credentials that have not ended, also those that were revoked.

        Raises:
            SecurityError: The credential does not allow this.
            NodeLostError: The head has ended.

        Example:
            ::

                for one in sapwood.connect().credentials.list():
                    print(one.id, one.subject, one.rights)
        """
        from sapwood.head.parts.credentials import (  # noqa: PLC0415 - imports cryptography
            IssuedCredentials,
        )

        return self._ask(CALL_TIMEOUT, IssuedCredentials.known)

    def revoke(self, id: str) -> RevokeResult:  # noqa: A002 - the column of the list
        """Revoke a credential and all derived from it, and disconnect clients that use it.

        Args:
            id: Its id, as :meth:`list` has it.

        Raises:
            SecurityError: It is not an id, or the credential does not allow this.
            NodeLostError: The head has ended.

        Example:
            ::

                head = sapwood.connect()
                for one in head.credentials.list():
                    if one.subject == "Ann":
                        head.credentials.revoke(one.id)
        """
        from sapwood.head.parts.credentials import (  # noqa: PLC0415 - imports cryptography
            IssuedCredentials,
        )

        return self._ask(CALL_TIMEOUT, IssuedCredentials.revoke, text(id, "id"))


def _seconds(lifetime: float | None) -> float:
    """Return a lifetime as messages have it: 0 for the longest that is usual."""
    if lifetime is None:
        return 0.0
    seconds = duration(lifetime, "lifetime")
    if not seconds:
        raise ConfigurationError("lifetime is 0", hint="give seconds, or leave it out for 7 days")
    return seconds
