"""lizard-slayer's client: its routes and its JSON, over a cluster of one agent on this machine.

With Sapwood's server, a client's agents do the work, and these routes are there for whoever asks
this machine directly: lizard-slayer's own server does.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sapwood import Cluster, SapwoodError
from sapwood.errors import InputError, ResourceError
from sapwood.plugins.tools import logger, new_thread
from sapwood_lizard.api import answer_json, application, body_of, common_routes, event_created
from sapwood_lizard.events import SHUTDOWN, ApiEvent, EventWorker
from sapwood_lizard.gate import ApiGate
from sapwood_lizard.programs import RegisteredPrograms
from sapwood_lizard.remote import RemoteServer
from sapwood_lizard.server import program_answer, program_of
from sapwood_lizard.stepping import SteppedRun

MAX_RUNTIMES: Final = 16
"""Runtimes that may be there at a time."""

MAX_TOLD: Final = 1024
"""Events that wait to be reported to the server."""

CLOSING: Final = 10.0
"""Seconds in which the last events may be reported."""


class LizardClient:
    """What a client has and does; :attr:`application` is its API.

    Args:
        new_cluster: Starts a cluster of one agent; called when the first runtime is made.
        programs: The programs.
        gate: The check of requests for access.
        server: The server that receives reports of events.
        on_end: Told when it is asked to end, and has done what was asked for before.
    """

    def __init__(
        self,
        new_cluster: Callable[[], Cluster],
        programs: RegisteredPrograms,
        gate: ApiGate,
        *,
        server: RemoteServer | None = None,
        on_end: Callable[[], object] | None = None,
    ) -> None:
        self._new_cluster = new_cluster
        self._cluster: Cluster | None = None
        self._programs = programs
        self._runtimes: dict[tuple[str, str], SteppedRun] = {}
        self._teller = _Teller(server)
        handlers = {
            "register_prog": self._register,
            "init_runtime": self._init_runtime,
            "run_iteration": self._run_iteration,
            "delete_runtime": self._delete_runtime,
            SHUTDOWN: self._end,
        }
        self.worker = EventWorker(handlers, self._teller.changed, on_end)
        runtime = "/runtimes/{checksum}/{runtime}"
        self.application: Starlette = application(
            [
                *common_routes(self.worker),
                Route("/programs", self._program_list, methods=["GET", "POST"]),
                Route("/programs/{checksum}", self._program, methods=["GET", "DELETE"]),
                Route(runtime, self._init, methods=["POST"]),
                Route(f"{runtime}/iterate", self._iterate, methods=["POST"]),
                Route(f"{runtime}/cleanup", self._cleanup, methods=["POST"]),
            ],
            gate,
        )

    @property
    def uuid(self) -> str:
        """What the server calls this client."""
        return self._teller.uuid

    @uuid.setter
    def uuid(self, uuid: str) -> None:
        self._teller.uuid = uuid

    def close(self) -> None:
        """End all runtimes, and the cluster; waiting calls fail."""
        for each in list(self._runtimes.values()):
            each.close()
        self.worker.close()
        self._runtimes.clear()
        self._teller.close()
        if self._cluster is not None:
            self._cluster.close()

    # --- events ----------------------------------------------------------------------------------

    def _register(self, data: Mapping[str, Any]) -> Any:
        return self._programs.register(data)

    def _init_runtime(self, data: Mapping[str, Any]) -> Any:
        key = data["checksum"], data["runtime_id"]
        checked = self._programs.get(data["checksum"])
        if len(self._runtimes) >= MAX_RUNTIMES:
            raise ResourceError(
                f"{MAX_RUNTIMES} runtimes exist already, the maximum", hint="clean up one of them"
            )
        if self._cluster is None:
            self._cluster = self._new_cluster()
        old = self._runtimes.pop(key, None)
        if old is not None:
            old.close()
        self._runtimes[key] = SteppedRun(
            self._cluster, checked, data["global_params_enc"], data["dataset_enc"]
        )
        return {}

    def _run_iteration(self, data: Mapping[str, Any]) -> Any:
        runtime = self._runtime(data)
        return {"aggregation_result_enc": runtime.iterate(data["global_state_enc"])}

    def _delete_runtime(self, data: Mapping[str, Any]) -> Any:
        self._runtime(data).close()
        del self._runtimes[data["checksum"], data["runtime_id"]]
        return {}

    def _runtime(self, data: Mapping[str, Any]) -> SteppedRun:
        found = self._runtimes.get((data["checksum"], data["runtime_id"]))
        if found is None:
            raise InputError(
                "there is no such runtime",
                where=f"{data['checksum']}/{data['runtime_id']}"[:200],
                hint="make it first: POST /runtimes/CHECKSUM/RUNTIME",
            )
        return found

    def _end(self, _data: Mapping[str, Any]) -> Any:
        self.worker.finish()
        return {}

    # --- routes ----------------------------------------------------------------------------------

    async def _program_list(self, request: Request) -> Response:
        if request.method != "POST":
            return answer_json({"programs": await run_in_threadpool(self._programs.all)})
        body = await program_of(request)
        return event_created(self.worker, "register_prog", body.data, body.nbytes)

    async def _program(self, request: Request) -> Response:
        return await program_answer(request, self._programs)

    async def _init(self, request: Request) -> Response:
        return await self._created(request, "init_runtime", ("dataset_enc", "global_params_enc"))

    async def _iterate(self, request: Request) -> Response:
        return await self._created(request, "run_iteration", ("global_state_enc",))

    async def _cleanup(self, request: Request) -> Response:
        return await self._created(request, "delete_runtime", ())

    async def _created(self, request: Request, kind: str, keys: tuple[str, ...]) -> Response:
        body = await body_of(request)
        for key in keys:
            if key not in body.data:
                raise InputError(f"the key {key} is missing")
        path = request.path_params
        named = {"checksum": path["checksum"].lower(), "runtime_id": path["runtime"]}
        return event_created(self.worker, kind, {**body.data, **named}, body.nbytes)


class _Teller:
    """Reports events to a server, in order, on a separate thread."""

    def __init__(self, server: RemoteServer | None) -> None:
        self.uuid = ""
        self._server = server
        self._wanted: set[str] = set()
        self._told: queue.Queue[tuple[str, str] | None] = queue.Queue(MAX_TOLD)
        self._thread = new_thread("sapwood-tell", self._work)
        self._thread.start()

    def changed(self, event: ApiEvent) -> None:
        """An event is new, or final."""
        if event.data.get("send_remote_event"):
            self._wanted.add(event.id)
        if event.id not in self._wanted:
            return
        if event.is_final:
            self._wanted.discard(event.id)
        try:
            self._told.put_nowait((event.id, event.text))
        except queue.Full:
            _log.warning("the server is not told of an event: too many wait", id=event.id)

    def close(self) -> None:
        """Tell what waits, and end."""
        try:
            self._told.put(None, timeout=CLOSING)
        except queue.Full:
            return
        self._thread.join(CLOSING)

    def _work(self) -> None:
        while (told := self._told.get()) is not None:
            event_id, text = told
            if self._server is None or not self.uuid:
                continue
            try:
                path = f"/remote_event/{self.uuid}/{event_id}"
                self._server.ask("PUT", path, json.loads(text))
            except SapwoodError as error:
                _log.warning("the server is not told of an event", id=event_id, error=str(error))


_log = logger("lizard")
