"""What ``sapwood agent`` does."""

from __future__ import annotations

import datetime as dt

import msgspec
import typer

from sapwood.cli.present import print_json, table, write
from sapwood.client.attaching import attach
from sapwood.core.hints import command_line
from sapwood.environment.units import parse_duration
from sapwood.session.port import InvitationView


def invite(session: str, count: int, ttl: str, listen: str, cluster: str, *, as_json: bool) -> None:
    """Show a command for each agent that is to join."""
    lifetime = parse_duration(ttl)
    with attach(session, role="watch", cluster=cluster) as watched:
        lines = watched.invite(count, lifetime=lifetime, listen=listen)
    if as_json:
        print_json({"lines": lines})
        return
    for line in lines:
        typer.echo(command_line("agent", "join", line))


def show_all(session: str, cluster: str, *, as_json: bool) -> None:
    """List the invitations of a session."""
    with attach(session, role="watch", cluster=cluster) as watched:
        found = watched.invitations
    if as_json:
        print_json({"invitations": [msgspec.to_builtins(one) for one in found]})
        return
    rows = [(one.id, one.state, _until(one.expires), str(one.joined), _who(one)) for one in found]
    write(table("", ("id", "state", "until", "joined>", "agent"), rows, wrap="agent"))


def revoke(session: str, invitation: str, cluster: str, *, as_json: bool) -> None:
    """Revoke an invitation."""
    with attach(session, role="watch", cluster=cluster) as watched:
        watched.revoke_invitation(invitation)
    if as_json:
        print_json({"revoked": invitation})
    else:
        typer.echo(f"Revoked the invitation {invitation}.")


def _until(expires: float) -> str:
    return f"{dt.datetime.fromtimestamp(expires, dt.UTC).astimezone():%F %H:%M}"


def _who(one: InvitationView) -> str:
    return f"{one.rank}: process {one.pid} on {one.host}" if one.rank else "-"
