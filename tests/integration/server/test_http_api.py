"""The HTTP API at a real head: rights, live events, browsers, and its death."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.server.conftest import PATIENCE, WebHead, until, web_head

from sapwood.cli.dashboard import ticket
from sapwood.core.errors import ResourceError
from sapwood.head import calls, session_records
from sapwood.head.folder import find_head
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.components import Components
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.web import WebServer
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.nodes.refusals import LOGGED_REFUSALS
from sapwood.security.capabilities import HolderKey


@pytest.mark.row("B-API-1")
def test_an_observer_sees_everything(web: WebHead) -> None:
    with web.client("connect", "observe") as client:
        seen = client.get("/api/v1/cluster").raise_for_status().json()
        assert seen["head"]["name"] == "default"
        assert seen["rights"]["names"] == ["connect", "observe"]
        for path in ("nodes", "sessions", "runs", "programs", "status", "logs", "events"):
            assert client.get(f"/api/v1/{path}").status_code == 200, path
        assert client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.row("B-API-1")
def test_the_heads_own_port_serves_it_by_its_authority(web: WebHead) -> None:
    with web.client("connect", secure=True) as client:
        answer = client.get("/api/v1/whoami")
        assert answer.json()["names"] == ["connect"]
        assert answer.http_version == "HTTP/1.1"
        tls = client.get("/login").extensions["network_stream"].get_extra_info("ssl_object")
        assert tls.version() == "TLSv1.3"
        assert client.get("/login").headers["content-security-policy"].startswith("default-src")


def test_without_a_good_credential_nothing_is_seen(web: WebHead) -> None:
    bound = web.issue("connect", holder=HolderKey.create().public)
    good = web.issue("connect")
    short = web.issue("connect", lifetime=1.0)
    with web.client() as client:

        def asked(credential: str) -> httpx.Response:
            return client.get(
                "/api/v1/nodes",
                headers={"authorization": f"Bearer {credential}"} if credential else {},
            )

        assert asked(good).status_code == 200
        until(lambda: asked(short).status_code == 401)
        changed = good[:-1] + ("1" if good.endswith("0") else "0")
        for credential in ("", "rubbish", changed, bound, short):
            answer = asked(credential)
            assert answer.status_code == 401, credential
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert problem["detail"]
            assert problem["hint"] or credential == short
        hint = asked(bound).json()["hint"]
        assert "one without --holder" in hint
        assert "SAPWOOD_KEY_FILE" not in hint  # it could not make one
        admin = web.issue("connect", "admin", holder=HolderKey.create().public)
        assert "SAPWOOD_KEY_FILE" in asked(admin).json()["hint"]
    until(lambda: web.events("request.refused"))
    told = web.events("request.refused")[-1]
    assert told.facts["address"].startswith("127.0.0.1:")


def test_a_revoked_credential_ends_at_once(web: WebHead) -> None:
    with web.client("connect", "observe") as client:
        me = client.get("/api/v1/whoami").json()["id"]
        with client.stream("GET", "/api/v1/live") as stream:
            assert stream.status_code == 200
            web.head.part(IssuedCredentials).revoked(me)
            assert "retry" in stream.read().decode()  # it ends
        until(lambda: client.get("/api/v1/whoami").status_code == 401)


def test_rights_decide(web: WebHead) -> None:
    with web.client("connect") as client:
        for path in ("status", "runs", "events", "live", "events/stream", "logs"):
            answer = client.get(f"/api/v1/{path}")
            assert answer.status_code == 403, path
            assert "observe" in answer.json()["detail"]
        assert client.get("/api/v1/cluster").json()["runs"] is None
    with web.client("connect", "observe") as client:
        answer = client.post("/api/v1/runs/abcd/cancel")
        assert answer.status_code == 404
    assert any(
        "does not give the right 'observe'" in one.text for one in web.events("credential.refused")
    )


def test_a_good_credential_does_not_fill_the_ledger_with_what_it_lacks(web: WebHead) -> None:
    with web.client("connect") as client:
        me = client.get("/api/v1/whoami").json()["id"]
        for _ in range(3 * LOGGED_REFUSALS):
            assert client.get("/api/v1/runs").status_code == 403
        assert client.get("/api/v1/logs").status_code == 403  # the other refusal is still reported
    found = [one.facts for one in web.events("credential.refused")]
    wanted = [facts["wanted"] for facts in found if facts.get("credential") == me]
    assert wanted == [Runs.every.name] * LOGGED_REFUSALS + [Components.logs.name]


def test_another_ones_session_and_run_stay(web: WebHead, monkeypatch: pytest.MonkeyPatch) -> None:
    record = session_records.SessionRecord(
        id="5b9a9171",
        name="hers",
        state="ready",
        on="head",
        created=1.0,
        creator=session_records.SessionCreator(names=["connect"], subject="ann", owner="ann"),
    )
    ended: list[str] = []
    monkeypatch.setattr(web.head.sessions, "find", lambda _: record)
    monkeypatch.setattr(web.head.sessions, "end", ended.append)
    run = calls.RunRecord(id="abcd1234", program="pi", session="", state="running", created=1.0)
    monkeypatch.setattr(web.head.runs, "find", lambda _: run)
    monkeypatch.setattr(web.head.runs, "cancel", ended.append)
    with web.client("connect", "delete", "observe") as client:
        answer = client.delete("/api/v1/sessions/hers")
        assert answer.status_code == 403, answer.text
        answer = client.post("/api/v1/runs/abcd1234/cancel")
        assert answer.status_code == 403
        assert client.get("/api/v1/runs/abcd1234").json()["record"]["program"] == "pi"
    assert ended == []


def test_a_ticket_lets_a_browser_in_once(web: WebHead) -> None:
    ticket = web.ticket()
    with web.client() as client:
        body = {"ticket": ticket}
        assert client.post("/api/v1/login", json=body).status_code == 403  # no origin
        foreign = {"origin": "http://elsewhere.example"}
        assert client.post("/api/v1/login", json=body, headers=foreign).status_code == 403
        here = {"origin": web.url}
        answer = client.post("/api/v1/login", json=body, headers=here)
        assert answer.status_code == 200, answer.text
        cookie = answer.headers["set-cookie"]
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        port = web.url.rpartition(":")[2]
        assert re.match(rf"sapwood-[\w-]+-{port}=[\w-]{{43}};", cookie)  # no credential
        assert client.get("/api/v1/whoami").json()["names"] == ["admin", "connect", "observe"]
        # The cookie alone changes nothing: the request must come from a page of this server.
        assert client.post("/api/v1/runs/abcd/cancel").status_code == 403
        assert client.post("/api/v1/runs/abcd/cancel", headers=foreign).status_code == 403
        assert client.post("/api/v1/runs/abcd/cancel", headers=here).status_code == 404
        site = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
        assert client.get("/api/v1/nodes", headers=site).status_code == 403
        assert client.post("/api/v1/login", json=body, headers=here).status_code == 401
        client.post("/api/v1/logout", headers=here)
        assert client.get("/api/v1/whoami").status_code == 401
        less = client.post("/api/v1/login", json={"credential": web.issue("connect")}, headers=here)
        assert less.json()["names"] == ["connect"]


def test_a_browser_reads_only_and_its_id_is_good_for_one_port(web: WebHead) -> None:
    made = ticket("default", "12h", allow_changes=False)
    with web.client() as client, web.client(secure=True) as secure:
        answers = [
            one.post("/api/v1/login", json=body, headers={"origin": url})
            for one, url, body in (
                (client, web.url, {"credential": web.issue("connect", "observe", "admin")}),
                (secure, web.secure, {"ticket": made.ticket}),
            )
        ]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert "admin" in client.get("/api/v1/whoami").json()["names"]
        here = {"origin": web.url}
        refused = client.post("/api/v1/runs/abcd/cancel", headers=here)
        assert refused.status_code == 403
        assert "--allow-changes" in refused.json()["hint"]
        assert secure.get("/api/v1/whoami").json()["names"] == ["connect", "observe"]
        plain, safe = (answer.headers["set-cookie"].partition(";")[0] for answer in answers)
        assert safe.startswith("__Host-sapwood-")
        assert "; Secure" in answers[1].headers["set-cookie"]
        # Another port's server gets this cookie, and so does whoever it tells.
        stolen = f"{plain.partition('=')[0]}={safe.partition('=')[2]}"
        assert client.get("/api/v1/whoami").status_code == 200
        client.cookies.clear()
        assert client.get("/api/v1/whoami", headers={"cookie": plain}).status_code == 200
        assert client.get("/api/v1/whoami", headers={"cookie": stolen}).status_code == 401
        web.head.part(IssuedCredentials).revoked(made.credential)
        until(lambda: secure.get("/api/v1/whoami").status_code == 401)


def test_clients_that_name_no_protocol_are_served(web: WebHead) -> None:
    context = ssl.create_default_context(cadata=web.head.control.authority.certificate.decode())
    address = httpx.URL(web.secure)
    connection = http.client.HTTPSConnection(
        address.host, address.port, context=context, timeout=PATIENCE
    )
    with contextlib.closing(connection):
        connection.request("GET", "/healthz")
        assert json.load(connection.getresponse()) == {"status": "ok"}


def test_a_browser_that_does_not_know_the_authority_is_no_event(web: WebHead) -> None:
    with httpx.Client(base_url=web.secure, trust_env=False) as stranger:
        for _ in range(3):
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                stranger.get("/")
    with web.client(secure=True) as client:
        client.get("/api/v1/whoami")
    until(lambda: "GET /api/v1/whoami" in web.events("request.refused")[-1].text)
    assert [one.text for one in web.events("request.refused") if "handshake" in one.text] == []


def test_no_redirect_follows_the_host_of_a_request(web: WebHead) -> None:
    with web.client("connect") as client:
        for path in ("/login/", "/api/v1/nodes/", "/static", "/healthz/"):
            assert client.get(path, follow_redirects=False).status_code == 404, path
            assert client.get(path, headers={"host": "evil.example"}).status_code == 421, path
        assert client.get("/", headers={"host": "evil@127.0.0.1"}).status_code == 421


def test_the_first_page_shows_what_is_known_to_those_who_may_see_it(web: WebHead) -> None:
    def first(client: httpx.Client) -> dict[str, Any]:
        answer = client.get("/").raise_for_status()
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["cache-control"] == "no-store"
        assert "style-src 'self' 'sha256-" in answer.headers["content-security-policy"]
        _, _, behind = answer.text.partition('id="first">')
        found: dict[str, Any] = json.loads(behind.partition("</script>")[0])
        return found

    with web.client("connect", "observe") as client:
        until(lambda: "overview" in first(client))  # a busy head is not waited for
        assert first(client)["cluster"]["name"] == "default"
        name = client.get("/").text.partition('src="')[2].partition('"')[0]
        script = client.get(f"/{name}").raise_for_status()
        assert "immutable" in script.headers["cache-control"]
        assert "EventSource" in script.text
        plain = client.get(f"/{name}", headers={"accept-encoding": "identity"})
        assert plain.text == script.text
    with web.client("connect") as client:
        assert first(client) == {}
    with web.client() as client:
        assert first(client) == {}
        client.headers["authorization"] = "Bearer nonsense"
        assert first(client) == {}


def test_only_hosts_that_the_server_is_are_answered(web: WebHead) -> None:
    with web.client("connect") as client:
        assert client.get("/api/v1/nodes", headers={"host": "evil.example"}).status_code == 421
        assert client.get("/api/v1/nodes", headers={"host": "localhost:1"}).status_code == 200


def test_bad_requests_say_what_is_wrong(web: WebHead) -> None:
    with web.client("connect", "observe") as client:
        for path, detail in (
            ("/api/v1/events?limit=many", "limit"),
            ("/api/v1/events?colour=red", "unknown parameter 'colour'"),
            ("/api/v1/events?limit=1&limit=2", "given twice"),
            ("/api/v1/events?kind=nonsense", "is not a kind of event"),
            ("/api/v1/logs?level=loud", "unknown level"),
        ):
            answer = client.get(path)
            assert answer.status_code == 400, path
            assert detail in answer.json()["detail"]
        assert client.get("/api/v1/nothing").status_code == 404
        assert client.put("/api/v1/nodes").status_code == 405
        assert client.get("/api/v1/nodes/none").status_code == 404
        assert client.post("/api/v1/runs/ab/cancel", content=b"x").status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/static/../process.py",
        "/static/%2e%2e/process.py",
        "/static/..%2fprocess.py",
        "/static/%2fetc/passwd",
        "//etc/passwd",
        "/static/....//process.py",
        "/static/%00",
        "/api/v1/nodes/..%2f..%2fstatus",
        "/api/v1/runs/..%2f..%2fetc%2fpasswd/output",
        "/api/v1/../../etc/passwd",
        "/%",
        "/static/" + "a/" * 5000,
    ],
)
def test_path_tricks_find_nothing(web: WebHead, path: str) -> None:
    token = web.issue("connect", "observe")
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as sock:
        sock.sendall(
            f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n"
            f"authorization: Bearer {token}\r\n\r\n".encode()
        )
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    status = int(answer.split()[1])
    assert status in {400, 404}, answer[:300]
    assert b"root:" not in answer
    assert b"import" not in answer


@pytest.mark.row("B-API-1")
@pytest.mark.parametrize("path", ["live?after=0&kind=policy", "events/stream?kind=policy"])
def test_events_are_told_as_they_happen_and_resumed(web: WebHead, path: str) -> None:
    def heard(client: httpx.Client, until_text: str, **headers: str) -> list[dict[str, Any]]:
        found = []
        with client.stream("GET", f"/api/v1/{path}", headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            kind = ""
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                    began.set()
                elif line.startswith("data: ") and kind == "event":
                    found.append(json.loads(line.removeprefix("data: ")))
                    if until_text in found[-1]["text"]:
                        break
        return found

    began = threading.Event()

    def note(text: str) -> None:
        assert began.wait(PATIENCE)
        web.head.ledger.note("policy.changed", text)

    with web.client("connect", "observe") as client:
        threading.Thread(target=note, args=["first"]).start()
        (first,) = heard(client, "first")
        web.head.ledger.note("policy.changed", "second, while no client listened")
        threading.Thread(target=note, args=["third"]).start()
        told = heard(client, "third", **{"last-event-id": str(first["number"])})
        assert [one["text"] for one in told] == ["second, while no client listened", "third"]


def test_a_dead_server_is_begun_again_and_nobody_else_notices(tmp_path: Path) -> None:
    with web_head(tmp_path) as web:
        client = ServiceClient(UnixWay(find_head("default").socket))
        process = web.head.front.http._process
        os.kill(process.pid, signal.SIGKILL)
        until(
            lambda: (
                web.head.front.http._process not in {None, process} and web.head.front.http.listens
            )
        )
        assert client.call_within(PATIENCE, WholeCluster.facts).name == "default"
        client.close()
        web.listening()
        with web.client("connect") as client:
            assert client.get("/api/v1/nodes").status_code == 200


def test_the_first_request_begins_the_server(tmp_path: Path) -> None:
    with web_head(tmp_path, listen="") as made:
        assert made.head.front.http._process is None
        with made.client("connect", secure=True) as client:
            assert client.get("/api/v1/nodes").json() == {"nodes": []}


def test_who_asks_where_it_serves_is_told_why_it_cannot(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        web_head(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}", wait=False),
    ):
        client = ServiceClient(UnixWay(find_head("default").socket))
        try:
            with pytest.raises(ResourceError, match="address already in use"):
                client.call_within(PATIENCE, WebServer.urls)
        finally:
            client.close()


def test_without_a_token_where_the_user_says_so(tmp_path: Path) -> None:
    with web_head(tmp_path, no_token=True) as made:
        with made.client() as client:
            assert client.get("/api/v1/runs").json() == {"runs": []}
            assert client.post("/api/v1/runs/ab/cancel").status_code == 403  # no origin
            here = {"origin": made.url}
            assert client.post("/api/v1/runs/ab/cancel", headers=here).status_code == 404
        with made.client(secure=True) as client:
            assert client.get("/api/v1/runs").status_code == 401
