"""A small part of the API of Kubernetes: Jobs whose pods are processes of this machine.

It is not Kubernetes. It takes Jobs with the documented fields only, makes pods of them that run at
once, and starts what ``kubectl exec`` asks for as processes here, over WebSockets
(v5.channel.k8s.io).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
"""Channels of the protocol: the first byte of each message."""

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455


class Selector(msgspec.Struct, forbid_unknown_fields=True):
    """A LabelSelector."""

    matchLabels: dict[str, str]  # noqa: N815 - as Kubernetes has it


class Spread(msgspec.Struct, forbid_unknown_fields=True):
    """A TopologySpreadConstraint."""

    maxSkew: int  # noqa: N815
    topologyKey: str  # noqa: N815
    whenUnsatisfiable: str  # noqa: N815
    labelSelector: Selector  # noqa: N815


class Resources(msgspec.Struct, forbid_unknown_fields=True):
    """ResourceRequirements."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(msgspec.Struct, forbid_unknown_fields=True):
    """A Container."""

    name: str
    image: str
    command: list[str]
    resources: Resources


class PodSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A PodSpec."""

    restartPolicy: str  # noqa: N815
    containers: list[Container]
    automountServiceAccountToken: bool  # noqa: N815
    enableServiceLinks: bool  # noqa: N815
    terminationGracePeriodSeconds: int  # noqa: N815
    topologySpreadConstraints: list[Spread]  # noqa: N815


class Metadata(msgspec.Struct, forbid_unknown_fields=True):
    """ObjectMeta."""

    labels: dict[str, str]
    name: str = ""


class PodTemplate(msgspec.Struct, forbid_unknown_fields=True):
    """A PodTemplateSpec."""

    metadata: Metadata
    spec: PodSpec


class JobSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A JobSpec."""

    completions: int
    parallelism: int
    completionMode: str  # noqa: N815
    ttlSecondsAfterFinished: int  # noqa: N815
    template: PodTemplate
    activeDeadlineSeconds: int = 0  # noqa: N815


class Job(msgspec.Struct, forbid_unknown_fields=True):
    """A Job of ``batch/v1``."""

    apiVersion: str  # noqa: N815
    kind: str
    metadata: Metadata
    spec: JobSpec


class KubernetesApi:
    """The API, served at a port of loopback.

    Args:
        folder: Where its file for ``kubectl`` is written.
    """

    def __init__(self, folder: Path) -> None:
        self.jobs: dict[str, Job] = {}
        self.status: dict[str, Any] = {}
        """What pods are, instead of running."""
        self.refused = ""
        """Why no Job is taken."""
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        api = self

        class Handler(_Handler):
            served = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        port = self._server.server_address[1]
        self.configuration = folder / "kubeconfig"
        self.configuration.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [
                        {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}
                    ],
                    "current-context": "x",
                }
            )
        )

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def pods(self, job: str) -> list[dict[str, Any]]:
        """Return the pods of a Job."""
        found = self.jobs.get(job)
        if found is None:
            return []
        running = {
            "phase": "Running",
            "containerStatuses": [{"name": "node", "ready": True, "state": {"running": {}}}],
        }
        return [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{job}-{index}-abcde",
                    "namespace": "lab",
                    "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                },
                "spec": {
                    "nodeName": f"machine{index}",
                    "containers": msgspec.to_builtins(found.spec.template.spec.containers),
                },
                "status": self.status or running,
            }
            for index in range(found.spec.completions)
        ]

    def pod(self, name: str) -> dict[str, Any] | None:
        """Return a pod by its name."""
        return next(
            (pod for job in self.jobs for pod in self.pods(job) if pod["metadata"]["name"] == name),
            None,
        )

    def begin(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a command of a pod."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._running.add(process)
        return process

    def over(self, process: subprocess.Popen[bytes]) -> None:
        """Take note that a command has ended."""
        self._running.discard(process)


class _Handler(BaseHTTPRequestHandler):
    served: KubernetesApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        url = urlsplit(self.path)
        parts, query = url.path.strip("/").split("/"), parse_qs(url.query)
        match parts:
            case ["api"]:
                self._answer({"kind": "APIVersions", "versions": ["v1"]})
            case ["apis"]:
                version = {"groupVersion": "batch/v1", "version": "v1"}
                group = {"name": "batch", "versions": [version], "preferredVersion": version}
                self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
            case ["api", "v1"]:
                self._resources("v1", "pods", "Pod")
            case ["apis", "batch", "v1"]:
                self._resources("batch/v1", "jobs", "Job")
            case ["api", "v1", "namespaces", "lab", "pods"]:
                job = query["labelSelector"][0].removeprefix("job-name=")
                items = self.served.pods(job)
                self._answer({"kind": "PodList", "apiVersion": "v1", "items": items})
            case ["api", "v1", "namespaces", "lab", "pods", name]:
                pod = self.served.pod(name)
                self._answer(pod) if pod else self._missing(name)
            case ["api", "v1", "namespaces", "lab", "pods", name, "exec"]:
                if self.served.pod(name) is None:
                    self._missing(name)
                else:
                    assert query["container"] == ["node"]
                    _Exec(self, query["command"]).run()
            case ["apis", "batch", "v1", "namespaces", "lab", "jobs", name]:
                found = self.served.jobs.get(name)
                self._answer(msgspec.to_builtins(found)) if found else self._missing(name)
            case _:
                self._missing(url.path)

    def do_POST(self) -> None:
        """Make a Job."""
        data = self.rfile.read(int(self.headers["content-length"]))
        url = urlsplit(self.path)
        if url.path != "/apis/batch/v1/namespaces/lab/jobs":
            self._missing(url.path)
            return
        if self.served.refused:
            self._failure(403, "Forbidden", self.served.refused)
            return
        try:
            given = json.loads(data)
            given["metadata"].pop("namespace", None)  # kubectl adds it
            job = msgspec.convert(given, Job)
        except (ValueError, msgspec.ValidationError) as error:
            self._failure(422, "Invalid", str(error))
            return
        self.served.jobs[job.metadata.name] = job
        self._answer(json.loads(data), 201)

    def do_DELETE(self) -> None:
        """Delete a Job."""
        self.rfile.read(int(self.headers.get("content-length") or 0))
        name = urlsplit(self.path).path.rpartition("/")[2]
        if self.served.jobs.pop(name, None) is None:
            self._missing(name)
        else:
            self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _resources(self, version: str, name: str, kind: str) -> None:
        verbs = ["create", "delete", "get", "list"]
        one = {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
        self._answer(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": [one],
            }
        )

    def _missing(self, what: str) -> None:
        self._failure(404, "NotFound", f"{what} not found")

    def _failure(self, code: int, reason: str, message: str) -> None:
        status = {"status": "Failure", "code": code, "reason": reason, "message": message}
        self._answer({"kind": "Status", "apiVersion": "v1", **status}, code)

    def _answer(self, data: Any, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Exec:
    """A command over a WebSocket."""

    def __init__(self, handler: _Handler, command: list[str]) -> None:
        self._handler = handler
        self._command = command
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run it to its end, or until the connection ends."""
        handler = self._handler
        asked = handler.headers.get("sec-websocket-protocol", "")
        if handler.headers.get("upgrade", "").lower() != "websocket" or "v5" not in asked:
            handler._failure(400, "BadRequest", "only v5.channel.k8s.io is spoken here")
            return
        key = handler.headers["sec-websocket-key"] + _MAGIC
        digest = hashlib.sha1(key.encode(), usedforsecurity=False).digest()
        handler.send_response(101)
        handler.send_header("upgrade", "websocket")
        handler.send_header("connection", "Upgrade")
        handler.send_header("sec-websocket-accept", base64.b64encode(digest).decode())
        handler.send_header("sec-websocket-protocol", "v5.channel.k8s.io")
        handler.end_headers()
        handler.close_connection = True
        process = handler.served.begin(self._command)
        assert process.stdout is not None
        assert process.stderr is not None
        carried = [
            threading.Thread(target=self._carry, args=(STDOUT, process.stdout)),
            threading.Thread(target=self._carry, args=(STDERR, process.stderr)),
        ]
        ended = threading.Thread(target=self._end, args=(process, carried))
        for thread in (*carried, ended):
            thread.start()
        self._feed(process)
        ended.join()
        handler.served.over(process)

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        """Hand its input over, until the connection ends."""
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            while (message := self._receive()) is not None:
                if message[:1] == bytes([STDIN]):
                    with contextlib.suppress(BrokenPipeError):
                        left = memoryview(message)[1:]
                        while left:
                            left = left[process.stdin.write(left) :]
                elif message == bytes([CLOSE, STDIN]):
                    process.stdin.close()
        process.stdin.close()

    def _carry(self, channel: int, stream: Any) -> None:
        with stream:
            while data := stream.read(32768):
                self._send(bytes([channel]) + data)

    def _end(self, process: subprocess.Popen[bytes], carried: list[threading.Thread]) -> None:
        status = process.wait()
        for thread in carried:
            thread.join()
        told: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if status:
            causes = [{"reason": "ExitCode", "message": str(status if status > 0 else 137)}]
            told |= {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: {status}",
                "details": {"causes": causes},
            }
        self._send(bytes([STATUS]) + json.dumps(told).encode())
        self._send(struct.pack(">H", 1000), 0x88)
        with contextlib.suppress(OSError):
            self._handler.connection.shutdown(socket.SHUT_WR)

    def _send(self, data: bytes, kind: int = 0x82) -> None:
        size = len(data)
        head = bytes([kind, size]) if size < 126 else struct.pack(">BBH", kind, 126, size)
        if size >= 2**16:
            head = struct.pack(">BBQ", kind, 127, size)
        with self._lock, contextlib.suppress(OSError):
            self._handler.connection.sendall(head + data)

    def _receive(self) -> bytes | None:
        """Return the next message; None at the end."""
        whole = b""
        while True:
            head = self._read(2)
            if len(head) < 2:
                return None
            size = head[1] & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", self._read(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self._read(8))
            mask = self._read(4)
            data = self._read(size)
            if len(data) < size:
                return None
            repeated = (mask * (size // 4 + 1))[:size]
            plain = (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(
                size, "big"
            )
            kind = head[0] & 0x0F
            if kind == 8:
                return None
            if kind == 9:
                self._send(plain, 0x8A)
                continue
            if kind == 10:
                continue
            whole += plain
            if head[0] & 0x80:
                return whole

    def _read(self, size: int) -> bytes:
        data = self._handler.rfile.read(size)
        return data or b""
