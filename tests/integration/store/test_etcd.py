"""The store in etcd with real clusters: members that stop or die, TLS, other servers."""

from __future__ import annotations

import http.server
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.integration.store.members import Member, address, members, wait_for, why_no_etcd
from tests.integration.store.writer import writer

from sapwood.core.errors import ConfigurationError, StoreError, StoreUnavailableError
from sapwood.store import etcd_calls
from sapwood.store.base import Change
from sapwood.store.etcd import EtcdStore
from sapwood.store.opening import open_store
from sapwood.testing.stores import is_whole, seen

pytestmark = pytest.mark.skipif(bool(why_no_etcd()), reason=why_no_etcd())

PATIENCE = 60.0


@pytest.fixture(scope="module")
def three(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Member]]:
    del nothing_is_left_behind_by_all  # it looks when these have ended
    with members(tmp_path_factory.mktemp("three"), 3) as running:
        for member in running:
            wait_for(address([member], "ready"))
        yield running


class Reading:
    """Reads all changes of a watch in a thread."""

    def __init__(self, store: EtcdStore) -> None:
        self.found: list[Change] = []
        self._watch = store.watch("w/")
        self._thread = threading.Thread(target=lambda: self.found.extend(self._all()))
        self._thread.start()

    def _all(self) -> Iterator[Change]:
        for change in self._watch:
            yield change
            if change.events[0].key == "w/last":
                return

    def end(self) -> list[tuple[int, str]]:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"the watch stands at {self.found[-1:]}"
        self._watch.close()
        return [(change.revision, event.key) for change in self.found for event in change.events]


@pytest.mark.row("C4-STORE")
@pytest.mark.parametrize("fault", ["stopped", "killed"])
@pytest.mark.parametrize("turn", range(2))
def test_writes_go_on_without_a_member_and_a_watch_loses_nothing(
    three: list[Member], fault: str, turn: int
) -> None:
    first = three[turn]  # the store asks this one; it may be the leader
    where = address([first, *(member for member in three if member is not first)], f"{fault}{turn}")
    with open_store(where) as store:
        assert isinstance(store, EtcdStore)
        reading = Reading(store)
        written = [(store.put(f"w/{number}", b"before"), f"w/{number}") for number in range(20)]
        lease = store.grant(10)
        slowest = 0.0
        if fault == "stopped":
            first.stop()
        else:
            first.kill()
        try:
            for number in range(20, 60):
                begun = time.monotonic()
                done = store.compare_and_set(f"w/{number}", b"during", 0)
                assert done, "a write that was sent twice was refused because of its first copy"
                written.append((done, f"w/{number}"))
                slowest = max(slowest, time.monotonic() - begun)
            store.keep_alive(lease)
        finally:
            if fault == "stopped":
                first.go_on()
            else:
                first.start()
        wait_for(address([first], "ready"))
        written += [(store.put(f"w/{n}", b"after"), f"w/{n}") for n in range(60, 80)]
        written.append((store.put("w/last", b""), "w/last"))
        assert reading.end() == written
        assert slowest < etcd_calls.CALL_TIME
        found = {entry.key: entry.modified for entry in store.entries("w/")}
        assert found == {key: revision for revision, key in written}


@pytest.mark.row("C4-STORE")
def test_without_most_members_a_call_ends_with_an_error(
    three: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_calls, "CALL_TIME", 3.0)
    with open_store(address(three, "minority")) as store:
        store.put("k", b"1")
        for member in three[1:]:
            member.stop()
        try:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailableError, match="no member of etcd answered"):
                store.put("k", b"2")
            assert time.monotonic() - begun < 3 * etcd_calls.CALL_TIME
        finally:
            for member in three[1:]:
                member.go_on()
        monkeypatch.setattr(etcd_calls, "CALL_TIME", PATIENCE)
        third = store.put("k", b"3")
        entry = store.get("k")
        assert entry is not None
        assert (entry.value, entry.modified) == (b"3", third), "a late copy came behind"


@pytest.mark.row("C4-STORE")
def test_what_a_killed_process_held_goes_with_its_lease(three: list[Member]) -> None:
    where = address(three, "killed-writer")
    acknowledged = 0
    with writer(where, 5) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged == 20:
                process.send_signal(signal.SIGKILL)
                break
        for line in process.stdout:
            acknowledged = int(line)
    with open_store(where) as store:
        assert is_whole(store, acknowledged, 5) >= 20
        lease = store.grant(1)
        done = store.put("held", b"", lease=lease)
        with store.watch("held", after=done) as watch:
            assert seen(watch).events[0].entry is None


def test_a_transaction_that_is_sent_twice_is_done_once(
    three: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first copy is done, but its answer is lost."""
    with open_store(address(three, "twice")) as store:
        store.put("warm", b"")
        asked = etcd_calls.Members.ask
        lost: list[bytes] = []

        def ask(
            self: etcd_calls.Members, endpoint: tuple[str, int], path: str, *rest: object
        ) -> bytes:
            answer = asked(self, endpoint, path, *rest)  # type: ignore[arg-type] # passed on
            if path == "/v3/kv/txn" and not lost:
                lost.append(answer)
                raise etcd_calls._TryNextError("lost", done=True)
            return answer

        monkeypatch.setattr(etcd_calls.Members, "ask", ask)
        done = store.compare_and_set("k", b"1", 0)
        assert lost
        entry = store.get("k")
        assert entry is not None
        assert done == entry.modified == entry.created
        lost.clear()
        assert store.compare_and_set("k", b"2", 0) is None  # refused, and no copy comes later
        assert lost
        assert store.compare_and_set("k", b"2", done)


def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    files = {}
    for name, made in {
        "server": authority.issue_cert("127.0.0.1"),
        "client": authority.issue_cert("client"),
        "stranger": other.issue_cert("client"),
    }.items():
        files[name] = str(tmp_path / f"{name}.pem")
        made.private_key_and_cert_chain_pem.write_to_path(files[name])
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    options = ["--cert-file", files["server"], "--key-file", files["server"]]
    options += ["--trusted-ca-file", str(tmp_path / "ca.pem"), "--client-cert-auth"]
    with (
        members(tmp_path, 1, *options, scheme="https") as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        plain = f"127.0.0.1:{running[0].port}/tls"
        right = f"etcds://{plain}?ca={tmp_path}/ca.pem&cert={files['client']}"
        wait_for(right)
        with open_store(right) as store, store.watch("k") as watch:
            assert store.url == f"etcds://{plain}"
            done = store.put("k", b"1")
            assert seen(watch).revision == done
        patch.setattr(etcd_calls, "CALL_TIME", 0.5)
        for wrong in (
            f"etcd://{plain}",
            f"etcds://{plain}?ca={tmp_path}/ca.pem",
            f"etcds://{plain}?ca={tmp_path}/other.pem&cert={files['client']}",
            f"etcds://{plain}?ca={tmp_path}/ca.pem&cert={files['stranger']}",
        ):
            with pytest.raises(StoreError):
                open_store(wrong)
    for missing in ("ca=/nothing.pem", f"ca={tmp_path}/ca.pem&cert={tmp_path}/ca.pem"):
        with pytest.raises(ConfigurationError, match="TLS"):
            open_store(f"etcds://{plain}?{missing}")


def test_nobody_there_and_no_etcd_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_calls, "CALL_TIME", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{port}: .*refused"):
        open_store(f"etcd://127.0.0.1:{port}")
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with pytest.raises(StoreError, match=r"no member of etcd|not etcd"):
            open_store(f"etcd://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
