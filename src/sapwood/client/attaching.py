"""Clusters with a session server: created, detached, and attached again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from sapwood.activity.agent_requests import UserCode
from sapwood.activity.dashboard_page import DashboardPage
from sapwood.client.cluster import Cluster
from sapwood.client.finding import (
    CALL_TIMEOUT,
    CREATE_TIMEOUT,
    find_root,
    head_here,
    once_there,
)
from sapwood.client.output import OutputPrinter
from sapwood.client.stream import Stream
from sapwood.comm.messages import FilterAt
from sapwood.comm.transport.unix import UnixTransport
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.contexts.launchers.specs import absolute
from sapwood.core import typed
from sapwood.core.arguments import text
from sapwood.core.errors import ClosedError, ConfigurationError, ResourceError, SapwoodError
from sapwood.core.hints import command
from sapwood.core.shown import shown
from sapwood.core.topology import Tree
from sapwood.environment.configuration import whole_paths
from sapwood.environment.logs import configure_logging
from sapwood.environment.settings import Settings
from sapwood.session.interface import SessionInterface, SessionState
from sapwood.session_server.adopted import AdoptedStream
from sapwood.session_server.attached import AttachedSession, MadeSession
from sapwood.session_server.making import chosen_settings, site_variables
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.server_link import Connect, SessionAddress

RoleName = Literal["owner", "user", "watch"]

END_TIMEOUT = 60.0
"""Seconds in which a session that is ended must be gone."""

END_ATTEMPTS = 10
"""How often a head is asked to end a session whose session server is starting again."""

END_PAUSE = 1.0
"""Seconds between two of these attempts."""


class NewSessionOptions(TypedDict, total=False):
    """Options of a new session; ``ClusterHead.create_session`` describes them."""

    name: str
    on: str
    agents_per_node: int | None
    fanout: int | None
    idle: float | None
    settings: Settings | None
    environment: Mapping[str, str] | None


def create_session(
    agents: int | None = None,
    *,
    cluster: str = "default",
    on_wait: WaitCallback | None = None,
    **options: Unpack[NewSessionOptions],
) -> Cluster:
    """Start a session at a head on this machine; see ``ClusterHead.create_session``."""
    chosen = chosen_settings(options.get("settings"), options.pop("environment", None))
    options["settings"] = chosen
    idle = options.get("idle")
    handle = request_session(agents, cluster=cluster, **options)
    try:
        socket, number, called = once_there(partial(find_root, handle, cluster), on_wait)
        address = SessionAddress(session=number, name=called, cluster=cluster)
        made = attached_cluster(
            address,
            _at(socket),
            ClientRole.OWNER,
            chosen,
            # With `idle` the caller has said how long the session waits for another owner.
            made=MadeSession(
                partial(end_session, handle, cluster),
                partial(leave_session, handle, cluster, chosen),
                owned=idle is None,
            ),
        )
    except BaseException as problem:
        try:
            end_session(handle, cluster)
        except SapwoodError as error:
            problem.add_note(str(error))
        raise
    made.page = page_of(cluster, f"sessions/{number}")
    return made


def request_session(
    agents: int | None = None,
    *,
    cluster: str = "default",
    **options: Unpack[NewSessionOptions],
) -> str:
    """Ask for a session and return its handle; see ``ClusterHead.request_session``."""
    from sapwood.head.parts.sessions import Sessions  # noqa: PLC0415 - imports cryptography
    from sapwood.head.session_records import CreateSession  # noqa: PLC0415 - as above

    given: dict[str, Any] = dict(options)
    chosen = chosen_settings(given.pop("settings", None), given.pop("environment", None))
    given["name"] = text(given.get("name", ""), "name")
    given["on"] = absolute(given.get("on", "head"))
    given["settings"] = msgspec.to_builtins(whole_paths(chosen))
    wanted = CreateSession(agents=agents, **given)
    return head_here(cluster).call_once(CREATE_TIMEOUT, Sessions.create, wanted).handle


def end_session(
    handle: str,
    cluster: str,
    *,
    ask: Callable[[str, str], object] | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Have the head end a session, also one whose session server is gone or starts again.

    Args:
        handle: The session.
        cluster: Its cluster.
        ask: Has a head end a session, given cluster and handle; by default the head that is up.
        pause: Waits some seconds.

    Raises:
        SapwoodError: The session may still be running; the hint is the command that ends it.

    Example:
        >>> end_session("night#5b9a", "nw", ask=lambda cluster, handle: print(cluster, handle))
        nw night#5b9a
    """
    ask = ask or _ask_to_end
    for left in reversed(range(END_ATTEMPTS)):
        try:
            ask(cluster, handle)
        except SapwoodError as error:
            if isinstance(error, ResourceError) and left:  # it is just starting again
                pause(END_PAUSE)
                continue
            raise SapwoodError(
                f"the session '{handle}' may still be running: its session server did not answer, "
                f"and the head of '{cluster}' did not end it ({error.what})",
                hint=f"end it with {command('session', 'delete', handle, cluster=cluster)}",
            ) from error
        return


def leave_session(
    handle: str,
    cluster: str,
    settings: Settings,
    *,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Attach to a session whose session server starts again, and leave it, so that it continues.

    Raises:
        SapwoodError: The session may end soon; the hint is the command that keeps it.
    """
    for left in reversed(range(END_ATTEMPTS)):
        try:
            attach(handle, cluster=cluster, settings=settings).close()
        except (ClosedError, ConfigurationError):
            return  # it has ended, or another owner
        except SapwoodError as error:
            if left:
                pause(END_PAUSE)
                continue
            raise SapwoodError(
                f"the session '{handle}' may end within a minute: its session server did not "
                f"answer ({error.what})",
                hint=f"keep it with {command('session', 'follow', handle, cluster=cluster)}",
            ) from error
        return


def _ask_to_end(cluster: str, handle: str) -> None:
    from sapwood.head.parts.sessions import Sessions  # noqa: PLC0415 - imports cryptography

    try:
        head_here(cluster).call_once(END_TIMEOUT, Sessions.end, handle)
    except ClosedError:  # the session has ended, or the head ends
        if not SessionState(
            head_here(cluster).call_once(CALL_TIMEOUT, Sessions.find, handle).state
        ).is_over:
            raise
    except ConfigurationError:
        pass  # it ended long ago: the head does not know it any more


def attach(
    handle: str,
    *,
    role: RoleName = "owner",
    cluster: str = "default",
    settings: Settings | None = None,
    wait: bool = True,
    on_wait: WaitCallback | None = None,
) -> Cluster:
    """Attach to a session that was made before, by this process or another one.

    Closing the cluster leaves the session as it is. A session that waits for its machines is waited
    for.

    Args:
        handle: What :meth:`.Cluster.detach` returned, or the session's name; from another machine,
            the credential that ``sapwood session credential`` shows.
        role: ``"owner"`` may do everything, and there is one at a time; ``"user"`` works with the
            agents beside an owner; ``"watch"`` sees what agents print.
        cluster: What ``sapwood up --cluster`` was given.
        settings: Settings of this client; by default those of files and variables.
        wait: Whether to wait for a session that has not begun yet.
        on_wait: Told what that waits for, and since how many seconds.

    Raises:
        ConfigurationError: There is no such session, or it has an owner already.
        NotReadyError: It has not begun yet, and is not waited for.
        ClosedError: It has ended.
        CommunicationError: Its root does not answer.

    Example:
        ::

            with sapwood.attach("night") as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    try:
        wanted = ClientRole(role)
    except ValueError:
        wanted = ClientRole.MERGER  # which no client is, either
    if wanted is ClientRole.MERGER:
        raise ConfigurationError(
            f"a client cannot be {shown(role)}", where="role", hint="say owner, user or watch"
        )
    chosen = chosen_settings(settings)
    if text(handle, "handle").startswith("sws1."):
        from sapwood.session_server.remote import connect_by  # noqa: PLC0415 - cryptography is seldom needed
        from sapwood.session_server.session_credential import (  # noqa: PLC0415 - as above
            cluster_of,
            read_credential,
        )

        credential = read_credential(handle)
        there = SessionAddress(
            session=credential.session,
            name=credential.name,
            secret=credential.secret,
            cluster=cluster_of(credential),
        )
        return attached_cluster(there, connect_by(credential), wanted, chosen)
    find = partial(find_root, handle, cluster)
    socket, number, name = once_there(find, on_wait) if wait else find()
    address = SessionAddress(session=number, name=name, cluster=cluster)
    made = attached_cluster(address, _at(socket), wanted, chosen)
    made.page = page_of(cluster, f"sessions/{number}")
    return made


def _at(socket: str) -> Connect:
    return partial(UnixTransport().connect, socket)


def attached_cluster(
    address: SessionAddress,
    connect: Connect,
    role: ClientRole,
    settings: Settings,
    *,
    made: MadeSession | None = None,
) -> Cluster:
    """Attach to the root of a session.

    Args:
        address: Which session.
        connect: Connects to its root.
        role: What this client wants to be.
        settings: All settings.
        made: How the session ends with this process, if that has made it.

    Raises:
        SapwoodError: The root does not let it in.
    """
    output = configure_logging(settings.log)
    session = AttachedSession(
        address,
        connect,
        role=role,
        backlog=settings.comm.backlog,
        inline_limit=settings.comm.inline_limit,
        made=made,
    )
    printer = OutputPrinter()
    try:
        session.answer("output", printer.take)
        session.start()
        exports = site_variables(settings)
    except BaseException:
        session.close()
        output.close()
        raise
    cluster = Cluster(session, settings, exports, output, printer, _no_tree)
    cluster.kept_streams = tuple(
        session.call(partial(_taken_over, session, one, printer)) for one in session.kept
    )
    return cluster


def _taken_over(session: AttachedSession, kept: AdoptedStream, printer: OutputPrinter) -> Stream:
    """Return a stream that the last owner has left, with what came meanwhile."""
    spec = kept.handle.spec
    what = spec.handler
    if spec.code:
        what = typed.unpacker(UserCode)(spec.code).function
    stream = Stream(
        session, kept.handle, what, {}, printer.follow, _no_filters, latest=not kept.paced
    )
    stream.catch_up(kept.waves, kept.early, kept.dropped)
    return stream


def _no_filters(up: Any, down: Any) -> tuple[FilterAt, ...]:
    del up, down
    raise ConfigurationError(
        "another client has opened this stream, and knows its filters",
        hint="open a new stream",
    )


def _no_tree(tree: Tree, lender: SessionInterface) -> SessionInterface:
    del tree, lender
    raise ConfigurationError(
        "a session with a session server has one tree",
        hint="choose its fan-out when it is made",
    )


def page_of(cluster: str, page: str) -> DashboardPage:
    """Return a page of the dashboard of a head on this machine; none if it is not there."""
    from sapwood.head.parts.cluster import WholeCluster  # noqa: PLC0415 - imports cryptography

    try:
        facts = head_here(cluster).call_once(CALL_TIMEOUT, WholeCluster.facts)
    except SapwoodError:
        return DashboardPage()
    return DashboardPage.at(facts.urls, page, cluster)
