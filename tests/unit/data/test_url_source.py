"""Files at URLs, from servers that behave badly in every way."""

import http.server
import io
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from fsspec.asyn import get_loop
from pyarrow import parquet

from sapwood.core.errors import DataError, DataMissingError
from sapwood.data import load, url_source
from sapwood.data.url_source import shown

# fsspec keeps a thread with a loop from its first use on, and the loop a thread for names.
# Both start here, so that no test leaves a new one.
one_thread = ThreadPoolExecutor(1)
one_thread.submit(int).result()
get_loop().call_soon_threadsafe(get_loop().set_default_executor, one_thread)

pytestmark = pytest.mark.row("A-DATA-1")


class Server(http.server.ThreadingHTTPServer):
    """Serves one file by parts.

    Attributes:
        files: Contents by path.
        fail: How many of the next requests for a part go wrong.
        how: What they do then.
        asked: Requests by method.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.version = "1"
        self.fail = 0
        self.how = ""
        self.asked: Counter[str] = Counter()
        self.released = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base
        pass

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        server = self.server
        if server.fail:
            server.fail -= 1
            if server.how == "500":
                self.send_error(500)
                return
            if server.how == "stall":
                server.released.wait(30)
                self.close_connection = True
                return
            if server.how == "cut":
                self._answer(None, part=0.5)
                return
            if server.how == "whole":
                del self.headers["Range"]
        self._answer(None)

    def _answer(self, body: bytes | None, part: float = 1.0) -> None:
        server = self.server
        server.asked[self.command] += 1
        path = self.path.partition("?")[0]
        if path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", path.removeprefix("/moved"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path.startswith("/round"):
            self.send_response(302)
            self.send_header("Location", path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = server.files.get(path)
        if data is None:
            self.send_error(404)
            return
        found = data
        wanted = self.headers.get("Range")
        if wanted and body is None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            found = data[int(first) : int(last or len(data)) + 1]
            self.send_response(206)
            end = int(first) + len(found) - 1
            self.send_header("Content-Range", f"bytes {first}-{end}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{server.version}"')
        self.end_headers()
        if body is None:
            self.wfile.write(found[: int(len(found) * part)])
            if part < 1:
                self.close_connection = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(url_source, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(url_source, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(url_source, "BLOCK_BYTES", 1000)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stream = io.BytesIO()
        parquet.write_table(pa.table({"a": np.arange(2000.0)}), stream, row_group_size=500)
        server.files["/a.parquet"] = stream.getvalue()
        server.files["/a.csv"] = b"a\n" + b"".join(b"%d\n" % n for n in range(2000))
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
@pytest.mark.parametrize("before", ["/", "/moved/", "/moved/moved/"])
@pytest.mark.slow
def test_rows_come_by_http_and_by_redirections(server: Server, name: str, before: str) -> None:
    data = load(server.url(f"{before}{name}"), fields=["a"])
    assert data.rows(700, 705)["a"].tolist() == [700, 701, 702, 703, 704]
    assert data["a"].sum() == 1999 * 1000


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY"])
@pytest.mark.slow
def test_a_proxy_of_the_environment_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    # A proxy is asked for whole URLs; the host of this one can only be reached through it.
    server.files["http://files.invalid/a.csv"] = server.files["/a.csv"]
    monkeypatch.setenv(variable, server.url(""))
    data = load("http://files.invalid/a.csv", fields=["a"])
    assert data.rows(700, 702)["a"].tolist() == [700, 701]


def test_no_proxy_is_used_for_hosts_that_no_proxy_names(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(DataMissingError, match="failed to ask for the size"):
        load(server.url("/a.csv"), fields=["a"])
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert load(server.url("/a.csv"), fields=["a"]).rows(0, 2)["a"].tolist() == [0, 1]


def test_only_the_parts_that_are_wanted_are_read(server: Server) -> None:
    data = load(server.url("/a.parquet"), fields=["a"])
    server.asked.clear()
    data.rows(700, 705)
    assert server.asked["GET"] < 2 + 500 * 8 / 1000 + 3


@pytest.mark.parametrize("how", ["500", "cut", "stall", "whole"])
@pytest.mark.slow
def test_what_passes_is_asked_for_again(server: Server, how: str) -> None:
    data = load(server.url("/a.parquet"), fields=["a"])
    server.how, server.fail = how, 2
    assert data["a"].tolist() == list(range(2000))
    assert server.fail < 2


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("500", r"HTTP status 500 .*\(4 attempts\)"),
        ("cut", r"failed to read bytes \d+ to \d+: .*\(4 attempts\)"),
        ("stall", r"it said nothing for 0.3 s \(4 attempts\)"),
    ],
)
@pytest.mark.slow
def test_what_does_not_pass_is_told(server: Server, how: str, says: str) -> None:
    data = load(server.url("/a.parquet?key=secret"), fields=["a"])
    server.how, server.fail = how, 1000
    with pytest.raises(DataMissingError, match=says) as error:
        data.rows(0, 2000)
    assert error.value.where == server.url("/a.parquet?…")


def test_a_server_that_fails_from_the_start_is_told(server: Server) -> None:
    server.how, server.fail = "500", 1000
    with pytest.raises(DataMissingError, match=r"HTTP status 500 .*\(4 attempts\)"):
        load(server.url("/a.parquet"), fields=["a"])


def test_a_server_that_redirects_for_ever_is_told(server: Server) -> None:
    with pytest.raises(DataMissingError, match=r"redirects again and again"):
        load(server.url("/round.parquet"), fields=["a"])


@pytest.mark.parametrize("size", ["same", "smaller"])
@pytest.mark.slow
def test_a_file_that_changes_is_no_data(server: Server, size: str) -> None:
    data = load(server.url("/a.parquet"), fields=["a"])
    data.rows(0, 1)
    server.version = "2"
    if size == "smaller":
        server.files["/a.parquet"] = server.files["/a.parquet"][:-50]
    with pytest.raises(DataMissingError, match="has changed since") as error:
        data.rows(0, 2000)
    assert error.value.where == server.url("/a.parquet")


def test_a_file_that_changes_while_it_is_read_is_no_data(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load(server.url("/a.csv"), fields=["a"])
    answer = Handler._answer

    def change(self: Handler, body: bytes | None, part: float = 1.0) -> None:
        answer(self, body, part)
        if self.command == "GET":
            server.version = "2"

    monkeypatch.setattr(Handler, "_answer", change)
    with pytest.raises(DataMissingError, match="has changed since"):
        data.rows(0, 2000)


def test_what_is_no_url_that_can_be_read(server: Server) -> None:
    with pytest.raises(DataMissingError, match="no such file"):
        load(server.url("/b.parquet"))
    with pytest.raises(DataMissingError, match="does not know URLs"):
        load("nothing://a/b.parquet")
    server.files["/a.xyz"] = b"1"
    with pytest.raises(DataMissingError, match=r"end in '\.xyz' cannot be read in pieces"):
        load(server.url("/a.xyz"))


@pytest.mark.parametrize("name", ["a.xyz", "wide.parquet", "empty.parquet"])
def test_no_error_shows_what_a_url_has_of_secrets(server: Server, name: str) -> None:
    for one, table in (
        ("wide", {"a": [1, 2], "b": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))}),
        ("empty", {"a": pa.array([], pa.int64())}),
    ):
        stream = io.BytesIO()
        parquet.write_table(pa.table(table), stream)
        server.files[f"/{one}.parquet"] = stream.getvalue()
    server.files["/a.xyz"] = b"1"
    url = server.url(f"/{name}?key=secret").replace("127.0.0.1", "ann:secret@127.0.0.1")
    with pytest.raises(DataError) as caught:
        load(url)
    assert caught.value.where == server.url(f"/{name}?…")
    assert "secret" not in str(caught.value)


def test_a_url_is_shown_without_secrets() -> None:
    assert shown("https://ann:secret@host/a.csv?signature=1") == "https://host/a.csv?…"
