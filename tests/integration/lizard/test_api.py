"""lizard-slayer's API: the requests of its programs, and the answers that they expect."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.system.hosts.network import until

import sapwood
from sapwood.code.cache import BuildCache
from sapwood.environment.configuration import load_configuration
from sapwood.server.connections import HttpServer
from sapwood.server.peers import is_loopback
from sapwood_lizard import events
from sapwood_lizard.client import LizardClient
from sapwood_lizard.directory import read_directory
from sapwood_lizard.gate import ApiGate
from sapwood_lizard.programs import RegisteredPrograms
from sapwood_lizard.registration import checksum_of
from sapwood_lizard.runner_module import RunnerModule
from sapwood_lizard.server import LizardServer
from sapwood_lizard.serving import LIMITS
from sapwood_lizard.store import ProgramStore

from .conftest import EXAMPLES

TREE = (2, 0)
TOKEN = "0123456789abcdef" * 4
KMEANS = {
    "dims": 2,
    "max_iterations": 20,
    "num_centroids": 3,
    "threshold": 0.01,
    "input_file": EXAMPLES / "kmeans" / "points.txt",
}
SUMS = {"dims": 3, "max_iterations": 10, "input_file": EXAMPLES / "column_sums" / "points.csv"}

pytestmark = pytest.mark.row("B-API-1")


class Asked:
    """An API, asked as lizard-slayer's programs do."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def post(self, path: str, **data: Any) -> httpx.Response:
        return self.http.post(path, json=data)

    def event(self, path: str, **data: Any) -> dict[str, Any]:
        """Have something done, and return the event when it is final."""
        answer = self.post(path, **data)
        assert answer.status_code == 200, answer.text
        (event_id,) = answer.json().values()
        assert list(answer.json()) == ["event_id"]
        assert len(event_id) == 32
        until(lambda: self.get(f"/events/{event_id}").json()["status"] in {"success", "failure"})
        found: dict[str, Any] = self.get(f"/events/{event_id}").json()
        assert found["event_id"] == event_id
        return found

    def register(self, folder: Path) -> dict[str, Any]:
        """Do what the loader does."""
        found = read_directory(folder)
        return self.event("/programs", name=found.name, data=found.data, checksum=found.checksum)


@contextlib.contextmanager
def asked(application: Any) -> Iterator[Asked]:
    """Serve an application at a port of loopback, and ask it with the token."""
    ports: queue.SimpleQueue[int] = queue.SimpleQueue()
    stops: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    async def serve() -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        served = HttpServer(application, is_loopback, LIMITS)
        stops.put(lambda: loop.call_soon_threadsafe(stopped.set))
        ports.put((await served.listen("127.0.0.1", 0))[0][1])
        await stopped.wait()
        await served.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{ports.get(timeout=30)}",
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=60,
        ) as http:
            yield Asked(http)
    finally:
        stops.get(timeout=30)()
        thread.join()


@pytest.fixture
def programs(tmp_path: Path) -> RegisteredPrograms:
    cache = load_configuration({}).settings.cache
    return RegisteredPrograms(
        ProgramStore(tmp_path / "programs"), BuildCache(cache.path(), size_limit=cache.size)
    )


@pytest.fixture
def server(standing: sapwood.Cluster, programs: RegisteredPrograms) -> Iterator[Asked]:
    """A server over two agents."""
    made = LizardServer(standing, programs, ApiGate(TOKEN))
    with contextlib.closing(made), asked(made.application) as api:
        yield api


@pytest.fixture
def client(programs: RegisteredPrograms) -> Iterator[Asked]:
    """A client."""
    made = LizardClient(lambda: sapwood.local(1), programs, ApiGate(TOKEN))
    with contextlib.closing(made), asked(made.application) as api:
        yield api


def prepared(name: str, settings: dict[str, Any]) -> tuple[RunnerModule, dict[str, Any]]:
    """Return a runner module, and what it has a program run over."""
    runner = RunnerModule(EXAMPLES / name / "runner.py")
    params, data = runner.inputs(settings, extension=False)
    return runner, {"global_params_enc": params, "dataset_enc": data}


def test_a_program_is_registered_and_run(server: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    event = server.register(EXAMPLES / "kmeans")
    checksum = read_directory(EXAMPLES / "kmeans").checksum
    shown = {
        "name": "kmeans",
        "checksum": checksum,
        "ready": True,
        "info": {"name": "kmeans", "version": 1, "py_c_extention": False},
    }
    assert (event["type"], event["status"]) == ("register_prog", "success"), event
    assert {**event["result"], "info": shown["info"]} == shown
    assert server.get("/programs").json() == {"programs": [checksum]}
    assert server.get(f"/programs/{checksum}").json() == event["result"]
    runner, inputs = prepared("kmeans", KMEANS)
    event = server.event(f"/runtimes/{checksum}", **inputs)
    assert (event["type"], event["status"]) == ("run_program", "success"), event
    assert event["completion_time"] > 0
    assert set(event["result"]) == {"end_aggregate", "end_global_state"}
    runner.print_result(event["result"]["end_global_state"], quiet=False)
    assert capsys.readouterr().out == (
        "iterations: 3\n0.2005 0.2024\n0.5053 0.8075\n0.8017 0.3010\n"
    )


def test_programs_go(server: Asked) -> None:
    checksum = server.register(EXAMPLES / "column_sums")["result"]["checksum"]
    # Where lizard-slayer answers 500.
    assert server.http.delete(f"/programs/{checksum}").text == "ok"
    assert server.http.delete(f"/programs/{checksum}").status_code == 404
    assert server.get(f"/programs/{checksum}").status_code == 404
    _, inputs = prepared("column_sums", SUMS)
    event = server.event(f"/runtimes/{checksum}", **inputs)
    assert event["status"] == "failure"
    assert "no program is registered as" in event["result"]["error"]


def test_a_compile_error_fails_the_registration(
    server: Asked, copy_of: Callable[..., Path]
) -> None:
    change = ("int grid = (", "int grid = (nothing + ")
    event = server.register(copy_of("column_sums", {"kernel.cu": [change]}))
    assert event["status"] == "failure"
    assert "kernel.cu:21" in event["result"]["error"]
    assert server.get("/programs").json() == {"programs": []}


def test_a_crash_fails_the_run_and_no_other(server: Asked) -> None:
    checksum = server.register(EXAMPLES / "crash")["result"]["checksum"]
    _, inputs = prepared("crash", {"dims": 2, "max_iterations": 4})
    event = server.event(f"/runtimes/{checksum}", **inputs)
    assert event["status"] == "failure"
    assert "SIGSEGV" in event["result"]["error"]
    checksum = server.register(EXAMPLES / "column_sums")["result"]["checksum"]
    _, inputs = prepared("column_sums", SUMS)
    assert server.event(f"/runtimes/{checksum}", **inputs)["status"] == "success"


RECORDED: list[tuple[str, str, Any, int, Any]] = [
    ("GET", "/ruok", None, 200, "imok"),
    ("GET", "/clients", None, 200, {"clients": []}),
    ("GET", "/clients/0123", None, 404, "error: 404"),
    ("DELETE", "/clients/0123", None, 404, "error: 404"),
    ("GET", "/programs", None, 200, {"programs": []}),
    ("GET", f"/programs/{'0' * 40}", None, 404, "error: 404"),
    ("GET", "/programs/..%2f..%2fetc%2fpasswd", None, 404, None),
    ("POST", "/programs", {"name": "x", "data": "{}"}, 400, "error: 400"),
    ("POST", "/programs", {"name": 1, "data": "{}", "checksum": "0"}, 400, "error: 400"),
    ("POST", f"/runtimes/{'0' * 40}", {"dataset_enc": ""}, 400, "error: 400"),
    ("POST", "/clients", {"hardware": {}}, 400, "error: 400"),
    ("POST", "/clients", {"hardware": {}, "client_port": 0}, 400, "error: 400"),
    ("POST", "/clients", {"hardware": {}, "client_port": True}, 400, "error: 400"),
    ("POST", "/clients", {"hardware": {}, "client_port": 1, "agents": -1}, 400, "error: 400"),
    ("POST", "/clients", {"hardware": {}, "client_port": 1, "agents": 1e9}, 400, "error: 400"),
    ("POST", "/clients", {"hardware": {"x": "x" * 70000}, "client_port": 1}, 413, "error: 413"),
    ("PUT", "/remote_event/0123/4567", {"status": "success"}, 404, "error: 404"),
    ("GET", "/events/0123", None, 404, "error: 404"),
    ("GET", "/nowhere", None, 404, "error: 404"),
    ("POST", "/ruok", {}, 405, "error: 405"),
]


def test_answers_are_those_of_lizard_slayer_or_say_what_is_wrong(server: Asked) -> None:
    for method, path, data, status, expected in RECORDED:
        answer = server.http.request(method, path, json=data)
        assert answer.status_code == status, (path, answer.text)
        if isinstance(expected, dict):
            assert answer.json() == expected
        elif expected is not None:
            assert answer.text.splitlines()[0] == expected


def damaged(body: bytes, draw: random.Random) -> bytes:
    """Return a body with something wrong in it, or by chance with nothing."""
    at, more = draw.randrange(len(body)), draw.randrange(1, 40)
    match draw.randrange(6):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + draw.randbytes(more) + body[at:]
        case 2:
            return body[:at] + body[at + more :]
        case 3:
            return body.replace(b'"', draw.choice([b"", b"'", b'""', b"\\"]), 1)
        case 4:
            values = [b"null", b"-1", b"1e400", b"[[[[]]]]", b'{"a":{}}', b'"\\ud800"', b"NaN"]
            name, _, _ = body.partition(b":")
            return name + b":" + draw.choice(values) + b"}"
        case _:
            return body + body


def test_damaged_requests_are_answered_and_harm_nothing(server: Asked, client: Asked) -> None:
    draw = random.Random(7)  # noqa: S311 - no secret
    paths = ["/programs", "/clients", f"/runtimes/{'0' * 40}", f"/runtimes/{'0' * 40}/a/iterate"]
    good: dict[str, Any] = {"name": "x", "data": "{}", "checksum": "0" * 40, "hardware": {}}
    good |= {"client_port": 1, "agents": 0, "runtime_id": "a", "send_remote_event": False}
    good |= dict.fromkeys(("dataset_enc", "global_params_enc", "global_state_enc"), "e30=")
    kind = {"content-type": "application/json"}
    found = set()
    for turn in range(240):
        wrong: dict[str, Any] = {draw.choice(list(good)): draw.choice([{}, [1], 1e9, None])}
        body = json.dumps({**good, **(wrong if turn % 3 else {})})
        path = draw.choice(paths) + draw.choice(["", "", "/", "/%00", "/..%2f", "?a=%ff"])
        api = server if turn % 2 else client
        answer = api.http.request(
            draw.choice(["POST", "POST", "PUT", "DELETE"]),
            path,
            content=damaged(body.encode(), draw),
            headers=kind,
        )
        found.add(answer.status_code)
        assert answer.status_code in {200, 307, 400, 404, 405, 413, 503}, (path, answer.text)
    assert {200, 400, 404, 405} <= found
    for api in (server, client):
        assert api.get("/ruok").text == "imok"
        assert api.get("/programs").json() == {"programs": []}


def test_large_and_slow_bodies_keep_nobody_waiting(server: Asked) -> None:
    url = server.http.base_url
    head = f"POST /programs HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += "Content-Type: application/json\r\n"
    slow = [socket.create_connection((url.host, url.port), 30) for _ in range(20)]
    try:
        for one in slow:
            one.sendall(f'{head}Content-Length: 1000\r\n\r\n{{"name":'.encode())
        with socket.create_connection((url.host, url.port), 30) as large:
            large.sendall(f"{head}Content-Length: {2**40}\r\n\r\n{{".encode())
            assert large.recv(12) == b"HTTP/1.1 413"
        assert server.get("/ruok").text == "imok"
        checksum = server.register(EXAMPLES / "column_sums")["result"]["checksum"]
        assert server.get(f"/programs/{checksum}").json()["ready"] is True
    finally:
        for one in slow:
            one.close()


def test_a_state_that_is_never_updated_fails_its_run_only(
    standing: sapwood.Cluster, programs: RegisteredPrograms, copy_of: Callable[..., Path]
) -> None:
    begin = "def update_global_state(global_params, aggregation_result, global_state):"
    stuck = copy_of(
        "column_sums", {"python_funcs.py": [(begin, f"{begin}\n    while True:\n        pass\n")]}
    )
    made = LizardServer(standing, programs, ApiGate(TOKEN), call_limit=2.0)
    with contextlib.closing(made), asked(made.application) as api:
        checksum = api.register(stuck)["result"]["checksum"]
        _, inputs = prepared("column_sums", SUMS)
        event = api.event(f"/runtimes/{checksum}", **inputs)
        assert event["status"] == "failure"
        assert "update_global_state did not return within 2 s" in event["result"]["error"]
        checksum = api.register(EXAMPLES / "column_sums")["result"]["checksum"]
        assert api.event(f"/runtimes/{checksum}", **inputs)["status"] == "success"


ENDLESS = {**SUMS, "max_iterations": 10**9}
"""Settings with which a program never sets ``done``."""


class Runs:
    """Runs of a program that never end, and of the same program that do."""

    def __init__(self, api: Asked, folder: Path = EXAMPLES / "column_sums") -> None:
        self.api = api
        self.checksum = api.register(folder)["result"]["checksum"]

    def begin(self, settings: dict[str, Any]) -> str:
        _, inputs = prepared("column_sums", settings)
        event_id: str = self.api.post(f"/runtimes/{self.checksum}", **inputs).json()["event_id"]
        return event_id

    def status(self, event_id: str) -> str:
        return str(self.api.get(f"/events/{event_id}").json()["status"])

    def running(self) -> str:
        """Begin a run that never ends, and return its event when it runs."""
        event_id = self.begin(ENDLESS)
        until(lambda: self.status(event_id) == "running")
        return event_id

    def error(self, event_id: str) -> str:
        """Wait until a run has failed, and return why."""
        until(lambda: self.status(event_id) in {"success", "failure"})
        found = self.api.get(f"/events/{event_id}").json()
        return str(found["result"].get("error"))


def test_one_run_can_be_cancelled(server: Asked) -> None:
    runs = Runs(server)
    first, second, third = runs.running(), runs.begin(ENDLESS), runs.begin(SUMS)
    assert [runs.status(each) for each in (second, third)] == ["pending", "pending"]
    assert server.http.delete(f"/events/{second}").text == "ok"
    assert runs.error(second) == "CancelledError: the event was cancelled before its turn came"
    assert server.http.delete(f"/events/{first}").text == "ok"
    assert runs.error(first) == "CancelledError: the event was cancelled while it ran"
    assert runs.error(third) == "None", "and what waited behind it is done"
    answer = server.http.delete(f"/events/{first}")
    assert (answer.status_code, "this event is over" in answer.text) == (400, True)
    assert server.http.delete(f"/events/{'0' * 32}").status_code == 404


def test_runs_of_a_removed_program_are_cancelled(server: Asked) -> None:
    runs = Runs(server)
    running, waiting = runs.running(), runs.begin(ENDLESS)
    assert server.http.delete(f"/programs/{runs.checksum}").text == "ok"
    assert "while it ran" in runs.error(running)
    assert "before its turn came" in runs.error(waiting)


def test_a_call_that_does_not_return_is_cancelled(
    server: Asked, copy_of: Callable[..., Path]
) -> None:
    begin = "def update_global_state(global_params, aggregation_result, global_state):"
    stuck = copy_of(
        "column_sums", {"python_funcs.py": [(begin, f"{begin}\n    while True:\n        pass\n")]}
    )
    runs = Runs(server, stuck)
    running = runs.running()
    assert server.http.delete(f"/events/{running}").text == "ok"
    assert "while it ran" in runs.error(running)
    assert Runs(server).error(running) == runs.error(running), "other programs are registered"


def test_a_second_request_to_end_ends_what_runs(server: Asked) -> None:
    runs = Runs(server)
    running, waiting = runs.running(), runs.begin(ENDLESS)
    ending = server.get("/shutdown").json()["event_id"]
    assert runs.status(running) == "running", "earlier events are done first"
    assert server.get("/shutdown").json()["event_id"] == ending
    assert "while it ran" in runs.error(running)
    assert "before its turn came" in runs.error(waiting)
    until(lambda: runs.status(ending) == "success")


def test_a_request_to_end_waits_for_a_limited_time(
    server: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SHUTDOWN_LIMIT", 0.1)
    runs = Runs(server)
    running = runs.running()
    ending = server.get("/shutdown").json()["event_id"]
    assert "while it ran" in runs.error(running)
    until(lambda: runs.status(ending) == "success")


def test_bodies_that_are_no_objects_are_refused(server: Asked) -> None:
    kind = {"content-type": "application/json"}
    for body in (b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'"x"'):
        assert server.http.post("/programs", content=body, headers=kind).status_code == 400, body
    form = {"content-type": "text/plain"}  # what a page of another site can send unasked
    assert server.http.post("/programs", content=b"{}", headers=form).status_code == 415
    assert server.get("/ruok").text == "imok"


def test_a_program_that_is_not_what_its_checksum_says_is_refused(server: Asked) -> None:
    found = read_directory(EXAMPLES / "column_sums")
    for data, checksum, why in (
        (found.data + " ", found.checksum, "the checksum does not match the program"),
        (found.data, "../../../../tmp/x", "is not a checksum"),
        ("{}", "bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f", "names no python source"),
    ):
        event = server.event("/programs", name="x", data=data, checksum=checksum)
        assert event["status"] == "failure"
        assert why in event["result"]["error"]


def test_who_has_no_token_gets_nothing(server: Asked) -> None:
    for path in ("/ruok", "/programs", "/shutdown", "/nowhere"):
        answer = server.http.get(path, headers={"authorization": "Bearer x"})
        assert answer.status_code == 401
        assert "www-authenticate" in answer.headers
    page = {"origin": "http://example.org"}
    assert server.http.get("/shutdown", headers=page).status_code == 403
    assert server.post("/programs", name="x").status_code == 400  # it still exists


ROUTES = (
    ("GET", "/ruok"),
    ("GET", "/shutdown"),
    ("GET", "/clients"),
    ("POST", "/clients"),
    ("DELETE", "/clients/x"),
    ("GET", "/programs"),
    ("POST", "/programs"),
    ("DELETE", f"/programs/{'0' * 40}"),
    ("POST", f"/runtimes/{'0' * 40}"),
    ("PUT", "/remote_event/x/y"),
    ("GET", "/events/x"),
)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil@127.0.0.1"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_requests_of_pages_and_for_other_hosts_are_refused(
    server: Asked, headers: dict[str, str], status: int
) -> None:
    for method, path in ROUTES:
        answer = server.http.request(method, path, headers=headers, json={"x": 1})
        assert answer.status_code == status, (method, path, answer.text)
    assert server.get("/ruok").text == "imok"


def test_no_path_leads_to_other_files(
    server: Asked, client: Asked, programs: RegisteredPrograms, tmp_path: Path
) -> None:
    server.register(EXAMPLES / "column_sums")
    (tmp_path / "victim.json").write_text("safe")
    before = set(tmp_path.rglob("*"))
    names = ("../victim", "..%2fvictim", "%2e%2e%2fvictim", "..%5cvictim", "/etc/passwd", "%00")
    for api in (server, client):
        url = api.http.base_url
        for name in names:
            for method, path in (
                ("GET", f"/programs/{name}"),
                ("DELETE", f"/programs/{name}"),
                ("GET", f"/events/{name}"),
                ("DELETE", f"/clients/{name}"),
                ("GET", f"/remote_event/{name}/{name}"),
            ):
                # httpx would take out the dots.
                with socket.create_connection((url.host, url.port), 30) as raw:
                    head = f"{method} {path} HTTP/1.1\r\nHost: {url.host}\r\n"
                    head += f"Authorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
                    raw.sendall(head.encode())
                    answer = raw.makefile("rb").read()
                assert answer[9:12] in {b"400", b"404", b"405"}, (method, path, answer)
                assert b"safe" not in answer
                assert b"root:" not in answer
        found = read_directory(EXAMPLES / "column_sums")
        for name in ("../evil.py", "/evil.py", "a/../../evil.py"):
            data = json.loads(found.data)
            data["sources"]["python"] = name
            text = json.dumps(data)
            event = api.event("/programs", name="x", data=text, checksum=checksum_of(text))
            assert event["status"] == "failure"
            assert "cannot name a file of a program" in event["result"]["error"]
    assert (tmp_path / "victim.json").read_text() == "safe"
    assert set(tmp_path.rglob("*")) == before
    assert len(programs.all()) == 1


def test_clients_come_and_go(server: Asked) -> None:
    plain = server.post("/clients", hardware={"cores": 2}, client_port=4000).json()
    assert list(plain) == ["uuid"]  # one that knows nothing of Sapwood
    own = server.post("/clients", hardware={}, client_port=4001, agents=2).json()
    assert len(own["invitations"]) == 2
    assert server.get("/clients").json() == {"clients": [plain["uuid"], own["uuid"]]}
    shown = server.get(f"/clients/{plain['uuid']}").json()
    assert shown == {
        "uuid": plain["uuid"],
        "hardware": {"cores": 2},
        "url": "http://127.0.0.1:4000",
        "agents": [],
    }
    place = f"/remote_event/{plain['uuid']}/4567"
    told = {"event_id": "4567", "type": "register_prog", "status": "success", "result": {}}
    assert server.http.put(place, json=told).text == "ok"
    assert server.get(place).json() == told
    for each in (plain, own):
        assert server.http.delete(f"/clients/{each['uuid']}").text == "ok"
    assert server.get("/clients").json() == {"clients": []}


def test_it_ends_when_all_is_done(server: Asked) -> None:
    found = read_directory(EXAMPLES / "column_sums")
    inputs = {"name": found.name, "data": found.data, "checksum": found.checksum}
    before = server.post("/programs", **inputs).json()["event_id"]
    ending = server.get("/shutdown").json()["event_id"]
    until(lambda: server.get(f"/events/{ending}").json()["status"] == "success")
    assert server.get(f"/events/{before}").json()["status"] == "success"
    assert server.post("/programs", **inputs).status_code == 503


def test_a_client_does_iterations_as_a_server_tells_it(client: Asked) -> None:
    """As lizard-slayer's own server asks its clients; the sums of a slice are what adding gives."""
    checksum = client.register(EXAMPLES / "column_sums")["result"]["checksum"]
    assert client.get(f"/programs/{checksum}").json()["ready"]
    _, inputs = prepared("column_sums", SUMS)
    runtime = f"/runtimes/{checksum}/7"
    inputs |= {"runtime_id": "7", "checksum": checksum, "send_remote_event": True}
    event = client.event(runtime, **inputs)
    assert (event["type"], event["status"], event["result"]) == ("init_runtime", "success", {})
    program = client_program(checksum, inputs["global_params_enc"])
    for iteration in range(2):
        state = program.state(iteration)
        event = client.event(f"{runtime}/iterate", global_state_enc=state)
        assert (event["type"], event["status"]) == ("run_iteration", "success"), event
        sums = program.sums(event["result"]["aggregation_result_enc"])
        assert sums == pytest.approx([-25.17, -4.18, 40.29], abs=1e-3)
    event = client.event(f"{runtime}/cleanup")
    assert (event["type"], event["status"]) == ("delete_runtime", "success")
    event = client.event(f"{runtime}/iterate", global_state_enc=program.state(0))
    assert event["status"] == "failure"
    assert "there is no such runtime" in event["result"]["error"]
    assert client.post(runtime, dataset_enc="").status_code == 400


class client_program:  # noqa: N801 - reads as a call in the test
    """The server's part of the example column_sums."""

    def __init__(self, checksum: str, params: str) -> None:
        from sapwood_lizard.launch import check  # noqa: PLC0415 - as a server has it

        registration = read_directory(EXAMPLES / "column_sums")
        assert registration.checksum == checksum
        self._module = check(registration).module
        self._params = self._module.GlobalParams()
        self._params.decode(params, None)

    def state(self, iteration: int) -> str:
        """Return a global state, encoded."""
        state = self._module.init_global_state(self._params)
        state.iteration = iteration
        text: str = state.encode(self._params)
        return text

    def sums(self, encoded: str) -> list[float]:
        """Return the numbers of an aggregation result."""
        result = self._module.init_aggregation_result(self._params)
        result.decode(encoded, self._params)
        return list(result.get_ref("sums"))


def test_a_client_runs_c_extensions_over_rows(client: Asked) -> None:
    folder = EXAMPLES / "kmeans_extension"
    checksum = client.register(folder)["result"]["checksum"]
    rows = [[0.0, 0.0], [1.0, 1.0], [0.0, 0.2], [1.0, 0.8]]
    # 40 rows of a dataset of 210: the parameters describe the whole.
    inputs = {"global_params_enc": [210, 2, 2, 10, 1e-9], "dataset_enc": [40, rows * 10]}
    assert client.event(f"/runtimes/{checksum}/1", **inputs)["status"] == "success"
    event = client.event(
        f"/runtimes/{checksum}/1/iterate", global_state_enc=[0, [0.0, 0.0, 1.0, 1.0]]
    )
    assert event["status"] == "success", event
    counts, sums = event["result"]["aggregation_result_enc"]
    assert counts == [20, 20]
    assert sums == pytest.approx([0.0, 2.0, 20.0, 18.0])
    bad = {**inputs, "dataset_enc": [3, rows]}
    event = client.event(f"/runtimes/{checksum}/2", **bad)
    assert "the number of rows, and the rows" in event["result"]["error"]
    assert json.loads(client.get("/programs").text) == {"programs": [checksum]}
