"""The credentials of a cluster, as its clients see them: issued, listed, revoked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from typing import Final

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.head.calls import (
    DENIED,
    CredentialInfo,
    IssueCredential,
    IssuedCredential,
    NodeRecord,
    RevokeResult,
)
from sapwood.head.credential_issuer import CredentialIssuer, DenialFeed, longest_of
from sapwood.head.parts.policy import Policy
from sapwood.head.protocol.call import HeadPart, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.service import ServiceServer
from sapwood.security.capabilities import LIFETIME
from sapwood.security.denials import DenialUpdate
from sapwood.security.rights import ADMIN, CONNECT, Rights

DENIAL_WAIT: Final = 1.0
"""Seconds that a revocation waits for the confirmations of nodes."""


class IssuedCredentials(HeadPart):
    """The credentials of a cluster.

    Args:
        issuer: It issues and revokes them.
        policy: It has the roles, and how long credentials may live.
        server: It cuts off those whose credential is revoked.
        feed: It tells the nodes what was revoked.
        nodes: Returns the nodes.
        addresses: Returns where the head is reached, ``host:port`` each.
    """

    def __init__(
        self,
        issuer: CredentialIssuer,
        policy: Policy,
        server: ServiceServer,
        feed: DenialFeed,
        nodes: Callable[[], list[NodeRecord]],
        addresses: Callable[[], list[str]],
    ) -> None:
        self._issuer = issuer
        self._policy = policy
        self._server = server
        self._feed = feed
        self._nodes = nodes
        self._addresses = addresses

    @call("credential.issue", right=ADMIN, slow=True)
    def issue(self, caller: ServiceCaller, wanted: IssueCredential) -> IssuedCredential:
        """Make a credential.

        Args:
            caller: It cannot grant rights that it does not hold.
            wanted: The credential.

        Raises:
            ConfigurationError: A role and rights are both given.
        """
        if wanted.role and wanted.rights:
            raise ConfigurationError("a role and rights are both given", hint="leave one out")
        if wanted.role:
            wanted = msgspec.structs.replace(wanted, rights=self._policy.rights_of(wanted.role))
        if not wanted.lifetime:
            wanted = msgspec.structs.replace(wanted, lifetime=min(LIFETIME, self.longest))
        return self.issued(caller.granted, wanted)

    def issued(self, by: Rights, wanted: IssueCredential) -> IssuedCredential:
        """Return a new credential.

        Args:
            by: The rights of the requester, which bound the new ones.
            wanted: The credential.
        """
        return self._issuer.issue(wanted, by, self._addresses(), self.longest)

    @property
    def longest(self) -> float:
        """Seconds that a credential may live at most."""
        return longest_of(self._policy.current.limits.credential_life)

    @call("credential.list", right=ADMIN, slow=True)
    def known(self) -> list[CredentialInfo]:
        """Return the credentials that have not ended, also those that were revoked."""
        return self._issuer.list()

    @call("credential.denials", right=CONNECT)
    def denials(self) -> DenialUpdate:
        """Return all that was revoked and could still be used."""
        return self._issuer.whole_list()

    @call("credential.revoke", right=ADMIN, slow=True)
    def revoke(self, caller: ServiceCaller, block: str) -> RevokeResult:
        """Refuse a credential everywhere.

        Args:
            caller: The caller.
            block: Its id.
        """
        return self.revoked(block, caller.granted.subject)

    def revoked(self, block: str, by: str = "") -> RevokeResult:
        """Refuse a credential everywhere; wait a moment for the nodes to say that they know.

        Args:
            block: Its id.
            by: Name of the requester; empty for the user of the head.

        Raises:
            SecurityError: It is not an id of a credential.
            StoreError: It cannot be kept; then nothing is revoked.
        """
        update, known = self._issuer.revoke(block, by)
        cut_off = self._server.deny(frozenset(update.ids))
        self._server.tell_all(DENIED, update)
        answers = {
            one.name: self._feed.tell(one.host, update) for one in self._nodes() if one.can_be_asked
        }
        wait(answers.values(), DENIAL_WAIT)
        knowing = [name for name, answer in answers.items() if answer.done() and answer.result()]
        return RevokeResult(
            id=block,
            known=known,
            nodes=knowing,
            missing=[
                one.name for one in self._nodes() if not one.is_gone and one.name not in knowing
            ],
            clients=cut_off,
            epoch=update.epoch,
        )
