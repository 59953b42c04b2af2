"""``sapwood lizard server`` and ``client`` as processes, and programs that talk to them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.system.hosts.network import until
from typer.testing import CliRunner

from sapwood.cli.main import app
from sapwood.core.errors import (
    ConfigurationError,
    ExecutionError,
    InputError,
    NodeLostError,
    ResourceError,
    SecurityError,
)
from sapwood_lizard.api import application, common_routes
from sapwood_lizard.directory import read_directory
from sapwood_lizard.events import EventWorker
from sapwood_lizard.gate import ApiGate
from sapwood_lizard.importing import lizard_first
from sapwood_lizard.remote import RemoteServer
from sapwood_lizard.runner_module import RunnerModule
from sapwood_lizard.runtime_helper import run_using_runner_module
from sapwood_lizard.serving import Place, serve
from sapwood_lizard.structures import b64_json_dec, b64_json_enc

from .conftest import EXAMPLES

TOKEN = "0123456789abcdef" * 4
PATIENCE = 60.0

pytestmark = [pytest.mark.row("B-API-1"), pytest.mark.timeout(240)]


@contextlib.contextmanager
def process(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Begin a command; return it with what it says when it is ready."""
    made = subprocess.Popen(
        [sys.executable, "-P", "-m", "sapwood", "lizard", *words, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert made.stdout is not None
    try:
        yield made, json.loads(made.stdout.readline())
    finally:
        made.terminate()
        made.communicate(timeout=PATIENCE)


def load_program(folder: Path, url: str) -> str:
    """Register a program the way lizard-slayer's loader script does, with its names."""
    import yaml  # noqa: PLC0415 - as a script of users'

    config = yaml.safe_load((folder / "config.yaml").read_text())
    for key, name in config["sources"].items():
        config["code"][key] = (folder / name).read_text()
    data = json.dumps(config)
    checksum = read_directory(folder).checksum
    asked = {"name": config["info"]["name"], "data": data, "checksum": checksum}
    event_id = RemoteServer(url).ask("POST", "/programs", asked)["event_id"]
    with lizard_first():
        from lizard import runtime_helper  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

        event = runtime_helper.poll_for_event_complete(url, event_id, poll_freq=0.05)
    assert event["status"] == "success", event
    return checksum


@pytest.mark.row("B-CLI-1")
@pytest.mark.row("B-RUN-2")
def test_programs_run_on_the_agents_of_server_and_client(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with process("server", "--port", "0", "--agents", "1") as (server, said):
        url = said["url"]
        remote = RemoteServer(url)
        with process("client", "-p", url.rpartition(":")[2], "-n", "--agents", "1") as (
            client,
            answer,
        ):
            uuid = answer["uuid"]
            until(lambda: remote.ask("GET", f"/clients/{uuid}")["agents"] == [2])
            assert RemoteServer(answer["url"]).ask("GET", "/ruok") == "imok"
            kmeans = EXAMPLES / "kmeans"
            settings = {
                "dims": 2,
                "max_iterations": 20,
                "num_centroids": 3,
                "threshold": 0.01,
                "input_file": str(kmeans / "points.txt"),
            }
            checksum = load_program(kmeans, url)
            runner = str(kmeans / "runner.py")
            seconds = run_using_runner_module(runner, settings, url, checksum)
            first, *result = capsys.readouterr().out.splitlines()
            assert first == f"Run completed in {seconds} seconds"
            assert result == ["iterations: 3", "0.2005 0.2024", "0.5053 0.8075", "0.8017 0.3010"]
            with pytest.raises(ExecutionError, match="no program is registered"):
                remote.do(f"/runtimes/{'0' * 40}", {"dataset_enc": "", "global_params_enc": ""})
            with pytest.raises(InputError, match="404"):
                run_using_runner_module(runner, settings, url, "0" * 40)
            # A client that is killed takes its agents with it, and the server forgets it.
            client.kill()
            until(lambda: remote.ask("GET", "/clients") == {"clients": []})
            run_using_runner_module(runner, settings, url, checksum, quiet_print=True)
        remote.ask("GET", "/shutdown")
        assert server.wait(PATIENCE) == 0
    with pytest.raises(NodeLostError, match="no server answers"):
        remote.ask("GET", "/ruok")


class RecordedServer:
    """Answers the requests of a client as lizard-slayer's own server does, by its routes."""

    def __init__(self) -> None:
        self.clients: dict[str, str] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.application = Starlette(
            routes=[
                Route("/clients", self._register, methods=["POST"]),
                Route("/clients/{client}", self._remove, methods=["DELETE"]),
                Route("/remote_event/{client}/{event}", self._take, methods=["PUT"]),
            ]
        )

    async def _register(self, request: Request) -> Response:
        told = await request.json()
        uuid = f"{len(self.clients):032x}"
        self.clients[uuid] = f"http://127.0.0.1:{told['client_port']}"
        assert told["hardware"]
        return JSONResponse({"uuid": uuid})  # and no invitations

    async def _remove(self, request: Request) -> Response:
        del self.clients[request.path_params["client"]]
        return Response("ok")

    async def _take(self, request: Request) -> Response:
        assert request.path_params["client"] in self.clients
        self.events[request.path_params["event"]] = await request.json()
        return Response("ok")

    def tell(self, path: str, **data: Any) -> dict[str, Any]:
        """Have the client do something; return the event that it tells of when it is over."""
        (url,) = self.clients.values()
        answer = RemoteServer(url).ask("POST", path, {**data, "send_remote_event": True})
        event = answer["event_id"]
        until(lambda: self.events.get(event, {}).get("status") in {"success", "failure"})
        return self.events[event]


@pytest.mark.row("B-CLI-1")
@pytest.mark.nightly
def test_a_client_does_what_a_server_of_lizard_slayer_tells_it() -> None:
    recorded = RecordedServer()
    config = uvicorn.Config(recorded.application, port=0, log_config=None)
    served = uvicorn.Server(config)
    thread = threading.Thread(target=served.run)
    thread.start()
    try:
        until(lambda: served.started)
        port = served.servers[0].sockets[0].getsockname()[1]
        with process("client", "-p", str(port), "-n") as (client, answer):
            assert answer["agents"] == 0, "it brings none: the server tells it what to do"
            found = read_directory(EXAMPLES / "column_sums")
            event = recorded.tell(
                "/programs", name=found.name, data=found.data, checksum=found.checksum
            )
            assert event["result"]["ready"] is True, event
            folder = EXAMPLES / "column_sums"
            runner = RunnerModule(folder / "runner.py")
            settings = {"dims": 3, "max_iterations": 10, "input_file": folder / "points.csv"}
            params, data = runner.inputs(settings, extension=False)
            runtime = f"/runtimes/{found.checksum}/7"
            ids = {"runtime_id": "7", "checksum": found.checksum}
            event = recorded.tell(runtime, **ids, dataset_enc=data, global_params_enc=params)
            assert event["status"] == "success", event
            state = b64_json_enc({"done": 0, "iteration": 0, "dynamic": b64_json_enc([0.0] * 3)})
            for _ in range(3):
                event = recorded.tell(f"{runtime}/iterate", **ids, global_state_enc=state)
                sums = b64_json_dec(event["result"]["aggregation_result_enc"])["dynamic"]
                assert b64_json_dec(sums) == pytest.approx([-25.17, -4.18, 40.29], abs=1e-3)
            assert recorded.tell(f"{runtime}/cleanup", **ids)["status"] == "success"
            client.send_signal(signal.SIGINT)
            client.wait(PATIENCE)
        assert recorded.clients == {}
    finally:
        served.should_exit = True
        thread.join()


@pytest.mark.row("B-CLI-1")
@pytest.mark.nightly
def test_a_client_ends_with_its_server() -> None:
    with process("server", "--port", "0", "--agents", "1") as (server, said):
        port = said["url"].rpartition(":")[2]
        with process("client", "-p", port, "--agents", "2", "--retry", "0") as (client, answer):
            remote = RemoteServer(said["url"])
            place = f"/clients/{answer['uuid']}"
            until(lambda: len(remote.ask("GET", place)["agents"]) == 2)
            server.send_signal(signal.SIGINT)
            assert server.wait(PATIENCE) == 0
            assert client.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_a_restarted_server_knows_its_programs_and_its_clients_come_back(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    folder = EXAMPLES / "column_sums"
    settings = {"dims": 3, "max_iterations": 2, "input_file": str(folder / "points.csv")}
    with contextlib.ExitStack() as clients:
        with process("server", "--port", port, "--agents", "1") as (server, said):
            remote = RemoteServer(said["url"])
            checksum = load_program(folder, said["url"])
            client, answer = clients.enter_context(process("client", "-p", port, "--agents", "1"))
            until(lambda: remote.ask("GET", f"/clients/{answer['uuid']}")["agents"] == [2])
            server.send_signal(number)
            server.wait(PATIENCE)
        with process("server", "--port", port, "--agents", "1"):
            assert remote.ask("GET", "/programs") == {"programs": [checksum]}
            assert client.stdout is not None
            again = json.loads(client.stdout.readline())["uuid"]
            assert again != answer["uuid"]
            until(lambda: remote.ask("GET", f"/clients/{again}")["agents"] == [2])
            run_using_runner_module(
                str(folder / "runner.py"), settings, said["url"], checksum, quiet_print=True
            )


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """Files of a certificate for 127.0.0.1, its key, the authority's certificate and a token."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    names = ("certificate.pem", "key.pem", "authority.pem", "token")
    return {name.partition(".")[0]: str(tmp_path / name) for name in names}


def test_over_tls_with_a_token(
    certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = (Path(certificate["certificate"]), Path(certificate["key"]))
    place = Place("127.0.0.1", 0, token=True, certificate=files[0], key=files[1])
    worker = EventWorker({})
    failures: list[BaseException] = []

    def ask() -> None:
        trusted = certificate["authority"]
        assert RemoteServer(place.url, token=TOKEN, certificate=trusted).ask("GET", "/ruok") == (
            "imok"
        )
        named = place.url.replace("//", f"//lizard:{TOKEN}@")
        assert RemoteServer(named, certificate=trusted).ask("GET", "/ruok") == "imok"
        with pytest.raises(SecurityError, match="not trusted"):
            RemoteServer(named).ask("GET", "/ruok")
        with pytest.raises(SecurityError, match="wants its token"):
            RemoteServer(place.url, certificate=trusted).ask("GET", "/ruok")
        monkeypatch.setenv("SAPWOOD_LIZARD_TOKEN", certificate["token"])
        monkeypatch.setenv("SAPWOOD_LIZARD_CERTIFICATE", trusted)
        assert RemoteServer(place.url).ask("GET", "/ruok") == "imok"
        with pytest.raises(NodeLostError):
            RemoteServer(place.url.replace("https", "http")).ask("GET", "/ruok")

    def asked(stop: Callable[[], None]) -> None:
        def work() -> None:
            try:
                ask()
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
            finally:
                stop()

        threads.append(threading.Thread(target=work))
        threads[0].start()

    threads: list[threading.Thread] = []
    serve(application(common_routes(worker), ApiGate(TOKEN)), place, ready=asked)
    threads[0].join()
    worker.close()
    for failure in failures:
        raise failure


def test_the_token_does_not_follow_a_redirect() -> None:
    asked: list[str] = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(InputError, match="answers 302"):
                RemoteServer(f"http://127.0.0.1:{server.server_port}", token=TOKEN).ask(
                    "GET", "/ruok"
                )
        finally:
            server.shutdown()
            thread.join()
    assert asked == ["/ruok"]


def test_other_machines_need_tls_and_a_token(certificate: dict[str, str], tmp_path: Path) -> None:
    own, key = Path(certificate["certificate"]), Path(certificate["key"])
    for token, files, why in (
        (False, (None, None), "without TLS and a token"),
        (True, (None, None), "without TLS$"),
        (False, (own, key), "without a token"),
        (True, (own, None), "belong together"),
        (True, (own, tmp_path / "gone.pem"), "cannot be used"),
        (True, (key, own), "cannot be used"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            Place("0.0.0.0", 0, token=token, certificate=files[0], key=files[1])  # noqa: S104 - it is refused
        assert re_found(why, caught.value.what), caught.value.what
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ResourceError):
        Place("127.0.0.1", taken.getsockname()[1], token=False, certificate=None, key=None)
    with pytest.raises(SecurityError, match="not sent without TLS"):
        RemoteServer("http://10.0.0.1:5000", token=TOKEN)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        RemoteServer("https://10.0.0.1", certificate=str(tmp_path / "gone"))
    for url in ("ftp://localhost", "http://", "http://x:y", "//[", "http://localhost:99999"):
        with pytest.raises(ConfigurationError, match="not the address of a server"):
            RemoteServer(url)


def re_found(pattern: str, text: str) -> bool:
    """Say whether a text has a pattern, whose ``$`` is its end."""
    return text.endswith(pattern[:-1]) if pattern.endswith("$") else pattern in text


def test_wrong_words(certificate: dict[str, str]) -> None:
    for words, message in (
        (("server", "--host", "10.0.0.1"), "without TLS and a token"),
        (("server", "--token", "gone"), "the token cannot be read"),
        (("server", "--port", "99999"), "--port"),
        (("client", "-p", "1", "--retry", "1h"), "no server answers"),
        (("client", "-a", "10.0.0.1", "--token", certificate["token"]), "without TLS"),
    ):
        done = CliRunner().invoke(app, ["lizard", *words], prog_name="sapwood")
        assert done.exit_code in {2, 6, 7}, (words, done.stderr)
        assert message in done.stderr
