"""Where code could act as the user of a head, and which credentials may run code there.

The user of the head may do everything: at the socket of the head, and by reading its store. So
code that runs as that user on the head's machine has all rights of the cluster, whatever the
credential says by which it was started. Such nodes are *reserved*:

=========================================================  ========
node                                                       reserved
=========================================================  ========
on the head's machine, as the head's user or as root       yes
elsewhere, as a user who has the folder of a head there    yes
on the head's machine, as another user                     no
elsewhere                                                  no
=========================================================  ========

On reserved nodes run processes of the head's user, of credentials with the right ``admin``, and of
credentials whose issuer named another user of the head's machine (``--user``). The setting
``limits.head_machine`` of the policy opens reserved nodes to all credentials.
"""

from __future__ import annotations

import os
import pwd
from typing import Final

from sapwood.comm.machine import boot_id
from sapwood.core.errors import SecurityError
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.rights import ADMIN, Rights

_ROOT: Final = 0

_HINT: Final = (
    "use nodes on other machines or of other users, or a credential with the right admin; the user "
    "of the head can also issue one for another user of the machine (--user), or open the machine "
    "to all credentials: `sapwood policy set limits.head_machine shared`"
)


def is_reserved(facts: NodeFacts | None) -> bool:
    """Whether processes of a node could act as the user of a head.

    Args:
        facts: What the node says of itself; None before it has joined.
    """
    if facts is None:
        return False
    here = facts.boot == boot_id() and facts.user in {str(os.geteuid()), str(_ROOT)}
    return here or facts.has_head


def may_use_reserved(rights: Rights, now: float) -> bool:
    """Whether processes with these rights may run on reserved nodes, whatever the policy says.

    What holders add to a credential only narrows it, so only the issuer can name another user: a
    user whom a holder names has not agreed.

    Args:
        rights: The rights.
        now: The time, seconds since 1970.
    """
    return rights.allows(ADMIN, now) or _is_another_user(rights.issued_user)


def refused(what: str, where: str = "") -> SecurityError:
    """Return the error that a credential may not run code as the user of the head.

    Args:
        what: What it would run.
        where: The node or session.
    """
    return SecurityError(
        f"{what} would run as the user of the head, who may do everything in the cluster",
        where=where,
        hint=_HINT,
    )


def _is_another_user(name: str) -> bool:
    """Whether this machine has a user of this name who is neither root nor the head's user."""
    try:
        return pwd.getpwnam(name).pw_uid not in {_ROOT, os.geteuid()}
    except (KeyError, ValueError):
        return False
