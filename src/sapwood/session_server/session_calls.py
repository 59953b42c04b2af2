"""What a client may want of the server of its session: names of calls."""

DETACH = "detach"
"""Leave: the session continues."""

TAKEN = "taken"
"""The detached buffer has arrived; no answer."""

END = "end"
"""End the session."""

EXPAND = "expand"
"""Add agents: a list of ``NewAgent``. Answer: their ranks."""

CONTRACT = "contract"
"""Remove places: ranks, seconds, reason."""

MACHINES = "machines"
"""Answer: the machine of each place, by rank, and those on which processes can begin now."""

INVITE = "agents.invite"
"""Invite processes: how many, seconds, where to listen. Answer: lines."""

INVITATIONS = "agents.invitations"
"""Answer: a list of ``InvitationInfo``."""

REVOKE_INVITATION = "agents.revoke"
"""Revoke an invitation: its id. Answer: whether it existed."""

CANCEL_RECEIVE = "receive.cancel"
"""Take a receive back: its number. Answer: whether that was in time."""

OFFER = "content.offer"
"""Offer the payload as content: its SHA-256."""

OFFER_MEMORY = "content.offer-memory"
"""Offer shared memory of the client: its reference and SHA-256."""

OFFER_FILE = "content.offer-file"
"""Offer a file of this machine: a ``ContentRef``."""

WITHDRAW = "content.withdraw"
"""Offer content once less: a ``ContentRef``."""

STATUS = "status"
"""Say how the session is. Answer: ``SessionStatus``."""

STACKS = "stacks"
"""Ask agents for the stacks of their runners: ranks, seconds. Answer: a list of ``StackInfo``."""

PROFILE = "profile"
"""Have agents sample stacks: ranks, seconds, samples per second. Answer: a ``ProfileResult``."""

MERGE = "merge"
"""Merge another session into this one: ``MergeOrder``. Answer: its ``MergedSession``."""

SPLIT = "split"
"""End the merge with another session, whichever is merged into the other: ``SplitOrder``."""

MERGED = "merged"
"""Say which sessions are merged into this one. Answer: a list of ``MergedSession``."""
