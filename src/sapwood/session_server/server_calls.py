"""What clients ask of a session server itself: its calls, each with what answers it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from sapwood.activity.profile_round import check_rate, profile_for
from sapwood.activity.stack_round import LONGEST, gather_stacks
from sapwood.comm.shared_memory import SharedRef
from sapwood.content.refs import ContentRef
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, ProtocolError, SecurityError
from sapwood.session.interface import NewAgent
from sapwood.session_server import session_calls, wire
from sapwood.session_server.client import ServedClient
from sapwood.session_server.merging_hook import SessionMerging
from sapwood.session_server.rights import require_call
from sapwood.session_server.served_session import ServedSession

LONGEST_CONTRACT = 3600.0
"""Seconds that agents which are removed have to do what they were asked for, at most."""

SLOW_CALLS = 4
"""Calls of clients that wait for something at a time; more wait for them.

Those that remove agents may wait for an hour: they have as many other threads, so that nothing else
waits for them. Revoking an invitation waits for neither.
"""

PROFILES = 2
"""Profiles that are made at a time; others wait."""


class AnsweringServer(Protocol):
    """A session server: what its calls need of it.

    Attributes:
        session: The session.
        merging: Merges other sessions into this one.
        denied: The credentials that were revoked.
    """

    session: ServedSession
    merging: SessionMerging
    denied: frozenset[str]

    def status(self) -> msgspec.Struct:
        """Return how the session is."""

    def taken(self, client: ServedClient) -> None:
        """Forget what was kept for a client: it has arrived."""


class ServerCalls:
    """Answers the calls of clients.

    Args:
        server: The session server.
        end: Has the session ended; given why.
        clock: The time, seconds since 1970.
        executor: Does what takes long; by default some threads.
    """

    def __init__(
        self,
        server: AnsweringServer,
        end: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        executor: Executor | None = None,
    ) -> None:
        self._server = server
        self._session = server.session
        self._end = end
        self._clock = clock
        self._pool = executor or ThreadPoolExecutor(SLOW_CALLS, "sapwood-slow")
        self._removing = executor or ThreadPoolExecutor(SLOW_CALLS, "sapwood-removing")
        self._prompt = executor or ThreadPoolExecutor(1, "sapwood-prompt")
        self._profiling = executor or ThreadPoolExecutor(PROFILES, "sapwood-profiling")
        about_merges = server.merging.answer
        self._answers: dict[str, Callable[[ServedClient, wire.SessionCall], Any]] = {
            session_calls.STATUS: self._status,
            session_calls.MACHINES: self._machines,
            session_calls.DETACH: lambda _client, _call: None,  # it leaves after the answer
            session_calls.TAKEN: lambda client, _call: server.taken(client),
            session_calls.MERGED: about_merges,
            session_calls.MERGE: about_merges,
            session_calls.SPLIT: about_merges,
            session_calls.INVITE: self._invite,
            session_calls.STACKS: self._stacks,
            session_calls.PROFILE: self._profile,
            session_calls.INVITATIONS: self._invitations,
            session_calls.REVOKE_INVITATION: self._revoke,
            session_calls.EXPAND: self._expand,
            session_calls.CONTRACT: self._contract,
            session_calls.END: lambda client, _call: end(f"{client.label} has ended it"),
            session_calls.CANCEL_RECEIVE: self._cancel_receive,
            session_calls.OFFER: self._offer,
            session_calls.OFFER_MEMORY: self._offer_memory,
            session_calls.OFFER_FILE: self._offer_file,
            session_calls.WITHDRAW: self._withdraw,
        }

    def answer(self, client: ServedClient, call: wire.SessionCall) -> Any:
        """Return the answer to a call, or a future that gets it.

        Raises:
            SapwoodError: There is none.
        """
        require_call(call.name, client.role, client.allowed)
        answer = self._answers.get(call.name)
        if answer is None:
            raise ProtocolError(
                f"the root of a session knows no '{call.name}'",
                hint="is it of another version of Sapwood?",
            )
        return answer(client, call)

    def close(self) -> None:
        """End the threads; when the session has ended."""
        for pool in {self._pool, self._removing, self._prompt, self._profiling}:
            pool.shutdown(cancel_futures=True)

    def _status(self, _client: ServedClient, _call: wire.SessionCall) -> Any:
        return msgspec.to_builtins(self._server.status())

    def _machines(self, _client: ServedClient, _call: wire.SessionCall) -> Any:
        return [list(self._session.hosts), self._session.ready_hosts()]

    def _cancel_receive(self, client: ServedClient, call: wire.SessionCall) -> bool:
        return client.messages.cancel_receive(typed.convert(call.value, int))

    def _stacks(self, _client: ServedClient, call: wire.SessionCall) -> Future[Any]:
        ranks, seconds = typed.convert(call.value, tuple[list[int], float])
        members = self._members(ranks, seconds)
        return self._pool.submit(
            lambda: msgspec.to_builtins(gather_stacks(self._session, members, seconds))
        )

    def _profile(self, _client: ServedClient, call: wire.SessionCall) -> Future[Any]:
        ranks, seconds, rate = typed.convert(call.value, tuple[list[int], float, float])
        members, rate = self._members(ranks, seconds), check_rate(rate)
        return self._profiling.submit(
            lambda: msgspec.to_builtins(profile_for(self._session, members, seconds, rate))
        )

    def _members(self, ranks: list[int], seconds: float) -> list[int]:
        """Return agents, if the session has them and they are not given too long."""
        agents = set(self._session.tree.agent_ranks)
        if not agents.issuperset(ranks) or not 0 <= seconds <= LONGEST:
            raise ConfigurationError(
                "the session has no such agents, or they are given too long",
                hint=f"wait up to {LONGEST:g} s",
            )
        return sorted(set(ranks))

    # --- agents --------------------------------------------------------------------------------

    def _expand(self, _client: ServedClient, call: wire.SessionCall) -> Future[Any]:
        places = typed.convert(call.value, list[NewAgent])
        return self._pool.submit(self._session.expand, places)

    def _contract(self, _client: ServedClient, call: wire.SessionCall) -> Future[Any]:
        ranks, seconds, reason = typed.convert(call.value, tuple[list[int], float, str])
        if not 0 <= seconds <= LONGEST_CONTRACT:
            raise ConfigurationError(
                f"agents are not given {seconds:g} s to do what they were asked for",
                hint=f"say how many seconds, up to {LONGEST_CONTRACT:g}",
            )
        reason = wire.printable(reason[:200])
        return self._removing.submit(self._session.contract, ranks, seconds, reason)

    def _invite(self, client: ServedClient, call: wire.SessionCall) -> Any:
        count, lifetime, listen = typed.convert(call.value, tuple[int, float, str])
        allowed = client.allowed
        lifetime = min(lifetime, allowed.not_after - self._clock())
        return self._pool.submit(self._invited, count, lifetime, listen, allowed.credential)

    def _invited(self, count: int, lifetime: float, listen: str, by: tuple[str, ...]) -> list[str]:
        """Make invitations that end with a credential; on a thread that may wait."""
        invitations = self._session.invitations
        lines = invitations.create(count, lifetime, listen, by)
        if not self._server.denied.isdisjoint(by):  # meanwhile
            self._session.call(invitations.deny, self._server.denied)
            raise SecurityError("the credential was revoked", hint="use another one")
        return lines

    def _invitations(self, _client: ServedClient, _call: wire.SessionCall) -> Any:
        invitations = self._session.invitations
        return self._prompt.submit(lambda: msgspec.to_builtins(invitations.views()))

    def _revoke(self, _client: ServedClient, call: wire.SessionCall) -> Any:
        invitation = typed.convert(call.value, str)
        return self._prompt.submit(self._session.invitations.revoke, invitation)

    # --- content -------------------------------------------------------------------------------

    def _offer(self, client: ServedClient, call: wire.SessionCall) -> None:
        data = call.payload.view if call.payload is not None else memoryview(b"")
        client.offered(self._session.content.offer(data, typed.convert(call.value, str)))

    def _offer_memory(self, client: ServedClient, call: wire.SessionCall) -> None:
        _must_share(client)
        memory, sha256 = typed.convert(call.value, tuple[SharedRef, str])
        client.offered(self._session.content.offer_memory_of(memory, sha256))

    def _offer_file(self, client: ServedClient, call: wire.SessionCall) -> None:
        _must_share(client)
        ref = typed.convert(call.value, ContentRef)
        if ref.file is None:
            raise ProtocolError("a file without a name is offered")
        content = self._session.content
        client.offered(content.offer_file(ref.file, ref.offset, ref.nbytes, ref.sha256))

    def _withdraw(self, client: ServedClient, call: wire.SessionCall) -> None:
        ref = typed.convert(call.value, ContentRef)
        if client.withdrawn(ref):
            self._session.content.withdraw(ref)


def _must_share(client: ServedClient) -> None:
    """Refuse to use the memory or the files of a client on another machine.

    Raises:
        SecurityError: The client is on another machine.
    """
    if not client.outbox.sharing:
        raise SecurityError(
            "a client of another machine offers bytes: files and memory here are not its own"
        )
