"""lizard-slayer's server: its routes and its JSON, over a Sapwood cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sapwood import Cluster, Run
from sapwood.errors import InputError
from sapwood.plugins.tools import logger
from sapwood_lizard.api import (
    RequestBody,
    answer_error,
    answer_json,
    answer_text,
    application,
    body_of,
    common_routes,
    event_created,
)
from sapwood_lizard.clients import MAX_AGENTS, Clients
from sapwood_lizard.events import FINAL, SHUTDOWN, ApiEvent, EventWorker
from sapwood_lizard.gate import ApiGate
from sapwood_lizard.launch import start
from sapwood_lizard.patience import CALL_LIMIT
from sapwood_lizard.programs import RegisteredPrograms

MAX_HARDWARE: Final = 64 * 1024
"""Bytes of what a client says of its machine."""

MAX_REMOTE_EVENT: Final = 64 * 1024
"""Bytes of an event that a client tells of."""


class LizardServer:
    """What a server has and does; :attr:`application` is its API.

    Args:
        cluster: Where programs run.
        programs: The programs.
        gate: The check of requests for access.
        seed: Of the random numbers of first global states.
        on_end: Told when it is asked to end, and has done what was asked for before.
        call_limit: Seconds that each call of a program's own function may take in this process.
    """

    def __init__(
        self,
        cluster: Cluster,
        programs: RegisteredPrograms,
        gate: ApiGate,
        *,
        seed: int = 0,
        on_end: Callable[[], object] | None = None,
        call_limit: float = CALL_LIMIT,
    ) -> None:
        self._cluster = cluster
        self._programs = programs
        self._seed = seed
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._unwanted: Mapping[str, Any] | None = None
        self._closed = False
        self.clients = Clients(cluster)
        handlers = {
            "register_prog": self._register,
            "run_program": self._run_program,
            SHUTDOWN: self._end,
        }
        self.worker = EventWorker(
            handlers, on_end=on_end, on_cancel=self._cancel, call_limit=call_limit
        )
        self.application: Starlette = application(
            [
                *common_routes(self.worker),
                Route("/clients", self._clients, methods=["GET", "POST"]),
                Route("/clients/{client}", self._client, methods=["GET", "DELETE"]),
                Route("/programs", self._program_list, methods=["GET", "POST"]),
                Route("/programs/{checksum}", self._program, methods=["GET", "DELETE"]),
                Route("/runtimes/{checksum}", self._runtime, methods=["POST"]),
                Route("/remote_event/{client}/{event}", self._remote, methods=["GET", "PUT"]),
            ],
            gate,
        )

    def close(self) -> None:
        """End running calls; waiting calls fail."""
        with self._lock:
            self._closed = True
            if self._run is not None:
                self._run.cancel()
        self.worker.close()

    # --- events ----------------------------------------------------------------------------------

    def _register(self, data: Mapping[str, Any]) -> dict[str, Any]:
        shown = self._programs.register(data)
        _log.info("program registered", name=shown["name"], checksum=shown["checksum"])
        return shown

    def _run_program(self, data: Mapping[str, Any]) -> Any:
        checked = self._programs.get(data["checksum"])
        params, dataset = data["global_params_enc"], data["dataset_enc"]
        run = start(self._cluster, checked, params, dataset, seed=self._seed)
        with self._lock:
            self._run = run
            if self._closed or self._unwanted is data:
                run.cancel()
        try:
            return run.result()
        finally:
            with self._lock:
                self._run = self._unwanted = None
            facts = run.progress
            _log.info("run over", run=run.name, state=facts.state.value, iterations=facts.iteration)

    def _cancel(self, event: ApiEvent) -> bool:
        """End a run; nothing else that runs can be ended."""
        if event.kind != "run_program":
            return False
        with self._lock:
            self._unwanted = event.data  # the run may not have begun yet
            if self._run is not None:
                self._run.cancel()
        return True

    def _end(self, _data: Mapping[str, Any]) -> dict[str, Any]:
        self.worker.finish()
        return {}

    # --- routes ----------------------------------------------------------------------------------

    async def _clients(self, request: Request) -> Response:
        if request.method != "POST":
            return answer_json({"clients": await run_in_threadpool(self.clients.all)})
        body = await body_of(request, MAX_HARDWARE)
        body.need(hardware=dict, client_port=int)
        port, agents = body.data["client_port"], body.data.get("agents", 0)
        if not 0 < port < 2**16:
            raise InputError(f"client_port cannot be {port}")
        if type(agents) is not int or not 0 <= agents <= MAX_AGENTS:
            raise InputError(f"agents must be a number up to {MAX_AGENTS}")
        host = request.client.host if request.client is not None else "localhost"
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        made = await run_in_threadpool(self.clients.add, body.data["hardware"], url, agents)
        if agents:
            _log.info("client registered", uuid=made.uuid, url=url, agents=agents)
            return answer_json({"uuid": made.uuid, "invitations": made.invitations})
        _log.warning(
            "a client without Sapwood is registered: it gets no work", uuid=made.uuid, url=url
        )
        return answer_json({"uuid": made.uuid})

    async def _client(self, request: Request) -> Response:
        name = request.path_params["client"]
        if request.method == "DELETE":
            removed = await run_in_threadpool(self.clients.remove, name)
            return answer_text("ok") if removed else answer_error(404)
        found = await run_in_threadpool(self.clients.get, name)
        if found is None:
            return answer_error(404)
        return answer_json(await run_in_threadpool(self.clients.show, found))

    async def _program_list(self, request: Request) -> Response:
        if request.method != "POST":
            return answer_json({"programs": await run_in_threadpool(self._programs.all)})
        body = await program_of(request)
        return event_created(self.worker, "register_prog", body.data, body.nbytes)

    async def _program(self, request: Request) -> Response:
        answer = await program_answer(request, self._programs)
        if request.method == "DELETE" and answer.status_code == HTTPStatus.OK:
            checksum = request.path_params["checksum"].lower()
            await run_in_threadpool(
                self.worker.cancel_where,
                lambda event: event.data.get("checksum", "").lower() == checksum,
            )
        return answer

    async def _runtime(self, request: Request) -> Response:
        body = await body_of(request)
        for key in ("dataset_enc", "global_params_enc"):
            if key not in body.data:
                raise InputError(f"the key {key} is missing")
        data = {**body.data, "checksum": request.path_params["checksum"]}
        return event_created(self.worker, "run_program", data, body.nbytes)

    async def _remote(self, request: Request) -> Response:
        client = await run_in_threadpool(self.clients.get, request.path_params["client"])
        event_id = request.path_params["event"]
        if client is None:
            return answer_error(404)
        if request.method == "GET":
            known = client.event(event_id)
            return answer_error(404) if known is None else answer_json(known)
        body = await body_of(request, MAX_REMOTE_EVENT)
        body.need(event_id=str, type=str, status=str)
        client.keep(event_id, body.data)
        if body.data["status"] in FINAL:
            _log.info("a client's event is over", client=client.uuid, **_facts(body.data))
        return answer_text("ok")


async def program_of(request: Request) -> RequestBody:
    """Read a program that is to be registered.

    Raises:
        InputError: Something is missing.
    """
    body = await body_of(request)
    body.need(name=str, data=str, checksum=str)
    return body


async def program_answer(request: Request, programs: RegisteredPrograms) -> Response:
    """Show or forget the program that a request names."""
    checksum = request.path_params["checksum"]
    if request.method == "DELETE":
        removed = await run_in_threadpool(programs.remove, checksum)
        return answer_text("ok") if removed else answer_error(404)
    shown = await run_in_threadpool(programs.show, checksum)
    return answer_error(404) if shown is None else answer_json(shown)


def _facts(event: Mapping[str, Any]) -> dict[str, str]:
    return {key: json.dumps(event.get(key))[:100] for key in ("event_id", "type", "status")}


_log = logger("lizard")
