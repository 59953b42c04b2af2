"""What ``sapwood up`` and ``sapwood down`` do."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import typer

from sapwood.cli.head_connection import connected
from sapwood.cli.present import print_json
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.core import typed
from sapwood.core.errors import (
    CommunicationError,
    ConfigurationError,
    NodeLostError,
    SapwoodError,
    StoreInUseError,
)
from sapwood.environment import background
from sapwood.environment.configuration import load_configuration
from sapwood.environment.logs import configure_logging
from sapwood.head import calls
from sapwood.head.folder import DEFAULT, HeadInfo, find_head, head_folder
from sapwood.head.head import Head
from sapwood.nodes.joining import NodeFacts
from sapwood.roots.making import session_options, site_variables

START_TIMEOUT = 120.0
"""Seconds until a head that starts in the background must be ready."""

END_TIMEOUT = 30.0
"""Seconds until a head that ends must be gone."""

JOIN_USES = 1000
"""How many machines may use the line that ``sapwood up`` shows."""


@dataclass(frozen=True)
class UpRequest:
    """What the user wants.

    Attributes:
        name: Of the cluster.
        listen: Where its head listens.
        own_node: Whether this machine is a node.
        announce: Whether it is announced on the local network.
        flags: Settings by dotted key.
    """

    name: str
    listen: str
    own_node: bool
    announce: bool
    flags: Mapping[str, str]


class UpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A head is ready.

    Attributes:
        name: Of the cluster.
        pid: Of its head.
        places: Where nodes reach it.
        nodes: Its nodes.
        join: What ``sapwood node join`` takes on other machines.
        expires: Until when, seconds since 1970.
    """

    name: str
    pid: int
    places: list[str]
    nodes: list[str]
    join: str
    expires: float


_read_answer: Callable[[bytes], UpAnswer] = typed.json_reader(UpAnswer)


def run_here(request: UpRequest, ready_descriptor: int, *, as_json: bool) -> None:
    """Be the head until somebody ends it.

    Args:
        request: What the user wants.
        ready_descriptor: Where to say that it is ready, or why not; -1 for standard output.
        as_json: Whether to say so in JSON.

    Raises:
        SapwoodError: It cannot start.
    """
    try:
        head = _new_head(request)
    except SapwoodError as error:
        background.tell(ready_descriptor, background.Failure(error.to_record()))
        raise
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: head.ended.set())
    try:
        head.start()
        try:
            answer = _answer_of(request.name)
            if ready_descriptor >= 0:
                background.tell(ready_descriptor, answer)
            else:
                _show(answer, as_json=as_json)
                sys.stdout.flush()
            _wait(head)
        finally:
            head.close()
    except SapwoodError as error:
        background.tell(ready_descriptor, background.Failure(error.to_record()))
        raise


def _wait(head: Head) -> None:
    """Wait in a way that lets signals through."""
    while not head.ended.wait(3600.0):
        pass


def _new_head(request: UpRequest) -> Head:
    configuration = load_configuration(request.flags)
    settings = configuration.settings
    configure_logging(settings.log)
    nodes = msgspec.structs.replace(settings.nodes, listen=request.listen)
    launcher = LocalLauncher(1, [NodeFacts.here().name]) if request.own_node else None
    try:
        return Head(
            request.name,
            head_folder(request.name),
            session_options(settings, site_variables(settings)),
            nodes,
            launcher,
            configuration,
            announce=request.announce,
        )
    except StoreInUseError as error:  # it began a moment ago, or ends
        raise _second(request.name, error.what) from error


def _answer_of(name: str) -> UpAnswer:
    with connected(name) as head:
        wanted = msgspec.to_builtins(calls.CreateToken(uses=JOIN_USES))
        line = typed.convert(head.client.call(calls.CREATE_TOKEN, wanted), calls.JoinLine)
        return UpAnswer(
            name=name,
            pid=head.facts.pid,
            places=head.facts.places,
            nodes=[one.name for one in head.nodes],
            join=line.text,
            expires=line.expires,
        )


def start_behind(request: UpRequest, *, as_json: bool) -> None:
    """Start a head in the background and show how to join it.

    Raises:
        ConfigurationError: The cluster is up already.
        SapwoodError: The head cannot start.
    """
    _refuse_second(request.name)
    folder = head_folder(request.name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    words = ["up", "--foreground", "--name", request.name, "--listen", request.listen]
    words.append("--node" if request.own_node else "--no-node")
    words += ["--announce"] if request.announce else []
    words += [word for key, value in request.flags.items() for word in ("--set", f"{key}={value}")]
    line = background.start(background.own_command(*words), folder / "head.log", b"", START_TIMEOUT)
    _show(_read_answer(line), as_json=as_json)


def _refuse_second(name: str) -> None:
    try:
        with connected(name) as head:
            pid = head.facts.pid
    except (NodeLostError, CommunicationError):
        return  # there is none
    raise _second(name, f"process {pid}")


def _second(name: str, where: str) -> ConfigurationError:
    return ConfigurationError(
        f"the cluster '{name}' is up already",
        where=where,
        hint="`sapwood token create` shows how to join it, `sapwood down` ends it",
    )


def _show(answer: UpAnswer, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    nodes = f"{len(answer.nodes)} node{'s' * (len(answer.nodes) != 1)}"
    typer.echo(f"The cluster '{answer.name}' is up: {nodes}, process {answer.pid}.")
    if all(place.startswith(("127.", "[::1]")) for place in answer.places):
        typer.echo("It listens on this machine only; --listen 0.0.0.0:7700 lets others join.")
    else:
        typer.echo("Within an hour, other machines join it by:\n")
        typer.echo(f"sapwood node join {answer.join}\n")
    option = "" if answer.name == DEFAULT else f":{answer.name}"
    typer.echo(f"Run on it with --on head{option}. `sapwood down` ends it.")


def end(name: str, *, as_json: bool) -> None:
    """End a cluster.

    Raises:
        NodeLostError: It is not up, or does not end.
    """
    info = find_head(name)
    watch = _watch(info)
    nodes = 0
    try:
        with connected(name) as head:
            nodes = len(head.nodes)
            head.client.call(calls.DOWN, None, END_TIMEOUT)
        ended = watch is None or bool(select.select([watch], [], [], END_TIMEOUT)[0])
    finally:
        if watch is not None:
            os.close(watch)
    if not ended:
        raise NodeLostError(
            f"the head did not end within {END_TIMEOUT:g} s",
            where=f"process {info.pid}",
            hint=f"end it by `kill -9 {info.pid}`",
        )
    if as_json:
        print_json({"name": name, "nodes": nodes})
    else:
        typer.echo(f"The cluster '{name}' is down.")


def _watch(info: HeadInfo) -> int | None:
    try:
        return os.pidfd_open(info.pid)
    except OSError:
        return None
