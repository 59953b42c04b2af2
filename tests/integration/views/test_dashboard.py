"""The dashboard in a real browser: the real application and pages, over a simulated head."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.head import calls
from sapwood_simulation.seen_cluster import Served, SimulatedHead, served

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PATIENCE = 60_000
"""Milliseconds in which something must be seen, on a machine that is busy."""

PAGES = ["overview", "tree", "nodes", "nodes/n2", "runs", "runs/aa11bb22", "sessions"]
PAGES += ["sessions/00000000", "events", "logs"]

IGNORED = ("Failed to load resource",)
"""Messages that the browser's console shows when a test stops the server."""


@pytest.fixture(scope="module")
def standing(nothing_is_left_behind_by_all: None) -> Iterator[Any]:
    """A browser for all tests of this module."""
    del nothing_is_left_behind_by_all  # it looks when the browser has ended
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is missing on this machine (Debian's package chromium)")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with served(SimulatedHead(1)) as cluster:  # then all its processes are there
            made.new_page().goto(cluster.url)
        yield made
        made.close()


class Page:
    """A page of the browser, and what went wrong on it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))

    def _said(self, message: Any) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(IGNORED):
            self.wrong.append(message.text)

    def see(self, text: str, within: str = "main") -> None:
        """Wait until something is shown."""
        self.page.locator(within).get_by_text(text).filter(visible=True).first.wait_for()

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))


Open = Callable[..., Page]


@pytest.fixture
def opened(standing: Any) -> Iterator[Open]:
    """Open pages, which must do nothing wrong."""
    pages: list[Page] = []

    def make(url: str, width: int = 1200, *, scheme: str = "light") -> Page:
        size = {"width": width, "height": 900}
        page = Page(standing.new_page(viewport=size, color_scheme=scheme))
        pages.append(page)
        page.page.goto(url)
        return page

    yield make
    for one in pages:
        one.page.close()
    assert [what for one in pages for what in one.wrong] == []


def work_record() -> dict[str, Any]:
    """Return what a run of two agents has noted: the second one is late."""
    shares = [
        {"agent": 1, "started": 0.1, "seconds": 0.1, "waited": 0.0, "items": 5, "bytes_up": 8},
        {"agent": 2, "started": 0.1, "seconds": 0.4, "waited": 0.0, "items": 5, "bytes_up": 8},
    ]
    move = {"at": 0.5, "iteration": 2, "source": 2, "target": 1, "items": 3, "reason": "it is late"}
    late = {"iteration": 1, "agent": 2, "by": 1, "start": 5, "reason": "it is late"}
    return {
        "run": "pi-1",
        "program": "pi",
        "hash": "ab",
        "began": 0.0,
        "seconds": 0.6,
        "items": 10,
        "done": 1,
        "agents": [{"agent": 1, "stop": 5}, {"agent": 2, "start": 5, "stop": 10}],
        "iterations": [{"iteration": 1, "started": 0.1, "seconds": 0.42, "agents": shares}],
        "moves": [move],
        "late": [
            {**late, "at": 0.3, "stop": 8, "outcome": "used"},
            {**late, "at": 0.4, "stop": 6, "outcome": "failed"},
        ],
        "counts": {"iterations": 1, "moves": 1, "late": 2},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Served]:
    """A simulated cluster of 24 nodes with a session, runs and events, and its server."""
    head = SimulatedHead(24)
    head.session("day", 8, fanout=4)
    head.note("node.joined", "n2 joined", "n2")
    progress = {"state": "running", "iteration": 1, "iterations": 4, "seconds": 0.6, "agents": 2}
    (tmp_path / "progress.json").write_text(json.dumps(progress))
    (tmp_path / "work.json").write_text(json.dumps(work_record()))
    (tmp_path / "output.log").write_text("agent 1: <b>hello</b>\n")
    head.runs.append(
        calls.RunRecord(
            id="aa11bb22",
            program="pi",
            session="day",
            state="running",
            created=time.time(),
            folder=str(tmp_path),
        )
    )
    with served(head) as made:
        yield made


def test_pages_work_below_the_path_of_a_proxy(cluster: Served, standing: Any) -> None:
    page = Page(standing.new_page())
    prefix = f"{cluster.url}tools/sapwood/"
    passed: list[str] = []

    def proxy(route: Any) -> None:
        path = route.request.url.removeprefix(prefix)
        passed.append(path.partition("?")[0])
        route.continue_(url=f"{cluster.url}{path}")

    page.page.route(f"{prefix}**", proxy)
    page.page.goto(f"{prefix}#/tree")
    page.see("n24")
    page.see("● live", "header")
    assert "api/v1/live" in passed
    page.page.goto(f"{prefix}login")
    page.page.get_by_role("textbox").fill("nonsense")
    page.page.get_by_role("button").click()
    page.see("a credential")
    assert passed[-1] == "api/v1/login"
    assert page.wrong == []
    page.page.close()


@pytest.mark.row("D-7")
def test_every_page_is_drawn_without_errors_and_has_a_twin_as_json(
    cluster: Served, opened: Open
) -> None:
    page = opened(cluster.url)
    words = {
        "overview": "24 nodes are ready",
        "tree": "24 nodes",
        "nodes": "n24",
        "nodes/n2": "zygote",
        "runs": "iteration 1/4",
        "runs/aa11bb22": "They waited most for agent 2",
        "sessions": "day",
        "sessions/00000000": "junction 10",
        "events": "n2 joined",
        "logs": "node admitted",
    }
    for name in PAGES:
        page.page.evaluate("where => { location.hash = where }", f"#/{name}")
        page.see(words[name])
        assert page.page.locator("nav a[aria-current]").count() == 1
        twin = page.page.locator("a.twin").get_attribute("href")
        status = page.page.evaluate("path => fetch(path).then(answer => answer.status)", twin)
        assert status == 200, (name, twin)
    page.see("Sapwood lab", "header")
    program = calls.ConnectedUser(
        name="connection-4", user="ann", address="", since=time.time(), nodes=["n1", "n2"], agents=6
    )
    cluster.head.connected = [program]
    page.page.evaluate("where => { location.hash = where }", "#/overview")
    row = page.page.locator("tr", has=page.page.get_by_text("connection-4"))
    assert "ann" in row.inner_text()
    assert "n[1-2]" in row.inner_text()


@pytest.mark.row("D-7")
def test_what_happens_is_seen_at_once_and_again_after_the_server_was_away(
    cluster: Served, opened: Open
) -> None:
    page = opened(f"{cluster.url}#/nodes")
    row = page.page.locator("tr", has=page.page.get_by_role("rowheader", name="n7", exact=True))
    row.get_by_text("ready").wait_for()
    cluster.head.lost = {"n7"}
    row.get_by_text("nothing heard for 4.2 s").wait_for()
    cluster.stop()
    page.see("does not answer", "#live")
    cluster.head.lost = set()
    cluster.start()
    row.get_by_text("ready").wait_for()
    page.see("live", "#live")


def test_who_is_not_signed_in_any_more_is_told_what_to_do(cluster: Served, opened: Open) -> None:
    page = opened(f"{cluster.url}#/nodes")
    page.see("n24")
    cluster.head.expired = True
    cluster.stop()
    cluster.start()
    page.see("sapwood dashboard")
    page.see("not signed in", "#live")


@pytest.mark.row("D-7")
def test_a_thousand_nodes_are_folded_and_stay_quick(opened: Open) -> None:
    with served(SimulatedHead(1000)) as cluster:
        cluster.head.lost = {"n500"}
        page = opened(f"{cluster.url}#/tree")
        page.see("n[967-1000]")
        tiles = page.page.locator("svg.tree .place")
        assert tiles.count() == 25
        assert page.page.locator("svg.tree .cell").count() == 1000
        folded = page.page.get_by_role("button", name="n[463-504]")
        assert "1 lost" in folded.get_attribute("aria-label")
        folded.focus()
        page.page.keyboard.press("Enter")
        page.page.locator("svg.tree .name").get_by_text("n500", exact=True).wait_for()
        assert tiles.count() == 25 + 42
        took = page.page.evaluate(DRAW_TIME)
        assert took < 200, f"a change of 32 nodes takes {took:.0f} ms to draw"


DRAW_TIME = """async () => {
  const { TreeDrawing } = await import("/static/tree.js");
  const home = document.createElement("div");
  document.body.append(home);
  const drawing = new TreeDrawing(home, "test");
  const node = (id, load) => ({ id: String(id), name: `n${id}`, state: "ready", load });
  const children = Array.from({ length: 1000 }, (_, id) => node(id, 0.5));
  drawing.show({ id: "head", name: "head", state: "ready", load: null, children });
  const times = [];
  for (let turn = 1; turn <= 9; turn += 1) {
    for (let id = 0; id < 32; id += 1) children[id * 31] = node(id * 31, turn / 10);
    const began = performance.now();
    drawing.show({ id: "head", name: "head", state: "ready", load: null, children });
    times.push(performance.now() - began);
  }
  home.remove();
  return times.sort((one, other) => one - other)[4];
}"""
"""Returns milliseconds: the median of nine changes."""


@pytest.mark.row("D-7")
def test_places_of_sessions_are_seen_and_folded_in_branches(opened: Open) -> None:
    with served(SimulatedHead(1000)) as cluster:
        cluster.head.session("day", 1000, fanout=32)
        page = opened(f"{cluster.url}#/tree")
        drawing = page.page.get_by_role("group", name="Tree of the session day")
        page.page.get_by_label("day: ready, 32 junctions, 1000 agents").wait_for()
        assert drawing.locator(".place").count() == 1 + 32
        assert drawing.locator(".cell").count() == 1000
        cluster.head.tree("00000000", 1000, 32, lost=[5])
        branch = drawing.get_by_role("button", name="junction 1001: lost")
        branch.focus()
        page.page.keyboard.press("Enter")
        page.page.get_by_role("button", name="agent [1-").focus()
        page.page.keyboard.press("Enter")
        drawing.locator(".place.bad").get_by_text("agent 5", exact=True).wait_for()
        assert page.overflow <= 0


@pytest.mark.row("D-7")
@pytest.mark.row("D-13")
def test_stacks_of_a_session_are_shown_or_why_they_are_not(cluster: Served, opened: Open) -> None:
    page = opened(f"{cluster.url}#/sessions/00000000")
    text = "agent[1-8]: busy in hangs for 2.0 s\n  hangs (/home/ann/fit.py:3)"
    answers = [
        {"status": 200, "json": {"text": text, "agents": []}},
        {"status": 403, "json": {"detail": "no right 'attach'", "hint": "ask for one"}},
    ]
    page.page.route("**/stacks", lambda route: route.fulfill(**answers.pop(0)))
    button = page.page.get_by_role("button", name="Stacks")
    button.click()
    page.see("busy in hangs for 2.0 s")
    button.click()
    page.see("no right 'attach'")
    page.see("ask for one")
    assert page.overflow <= 0


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.nightly), "dark"])
def test_nothing_is_wider_than_a_phone(cluster: Served, opened: Open, scheme: str) -> None:
    page = opened(cluster.url, 380, scheme=scheme)
    for name in PAGES:
        page.page.evaluate("where => { location.hash = where }", f"#/{name}")
        page.page.locator("main h2").wait_for()
        page.page.wait_for_function("document.querySelector('#live').textContent.includes('live')")
        assert page.overflow <= 0, name
        if name.startswith("runs"):
            end = time.monotonic() + 10.0
            while page.page.evaluate(CUT):  # the page before may still be shown
                assert time.monotonic() < end, name
        assert page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "none"


CUT = """[...document.querySelectorAll('.scroll')].filter(
  (one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1).length"""
"""How many tables are wider than their card; browsers round both widths to whole pixels."""

NARROW = """(width) => {
  for (const one of document.querySelectorAll('figure, canvas.timeline')) {
    Object.assign(one.style, { width: `${width}px`, minWidth: 0, maxWidth: `${width}px` });
  }
}"""
"""Gives charts and timelines a width."""

OUTSIDE = """[...document.querySelectorAll('svg.chart text')].filter((text) => {
  const [box, all] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
  return all.width && (box.left < all.left - 0.5 || box.right > all.right + 0.5);
}).map((text) => text.textContent)"""
"""Labels of charts that are cut off."""


def test_charts_are_drawn_at_every_width(tmp_path: Path, opened: Open) -> None:
    from sapwood.activity.run_record import WorkStatistics  # noqa: PLC0415 - for this test only
    from sapwood.core import typed  # noqa: PLC0415 - as above
    from sapwood.views.page import report  # noqa: PLC0415 - as above
    from sapwood.views.run_page import RunPage  # noqa: PLC0415 - as above

    made = work_record()
    (first,) = made["iterations"]
    times = [0.1 + 0.5 * number for number in range(4000)]
    made["iterations"] = [
        {
            **first,
            "started": at,
            "seconds": 0.4 + at / 99999,
            "agents": [{**share, "started": at} for share in first["agents"]],
        }
        for at in times
    ]
    view = RunPage(program="pi", state="done", record=typed.convert(made, WorkStatistics))
    file = tmp_path / "run.html"
    file.write_text(report(view), "utf-8")
    page = opened(file.as_uri(), 1280)
    page.see("The agents worked 100 %")
    drawn = """() => {
        const chart = document.querySelector('svg.chart');
        const room = chart.closest('figure').clientWidth;
        return !room || Number(chart.getAttribute('width')) === room;
    }"""
    for width in (1280, 400, 200, 117, 100, 85, 60, 50, 48, 20):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.page.wait_for_function(drawn)
        assert page.page.locator("svg.chart path.curve").count() == 1
        assert page.page.evaluate(OUTSIDE) == [], width
    page.page.set_viewport_size({"width": 1280, "height": 900})
    for width in (1, 10, 68, 200, 400):  # of the pictures themselves
        page.page.evaluate(NARROW, width)
        page.page.wait_for_function(
            "width => document.querySelector('svg.chart').getAttribute('width') === `${width}`",
            arg=width,
        )
        curve = page.page.locator("svg.chart path.curve").get_attribute("d")
        assert "NaN" not in curve
        assert curve.count("L") < max(4 * width, 8)
        assert page.page.evaluate(OUTSIDE) == [], width
        canvas = page.page.locator("canvas.timeline").first
        assert canvas.evaluate("one => one.clientWidth") <= width


def test_the_timeline_is_zoomed_by_keys_and_says_what_is_pointed_at(
    cluster: Served, opened: Open
) -> None:
    page = opened(f"{cluster.url}#/runs/aa11bb22")
    page.see("They waited most for agent 2")
    canvas = page.page.locator("canvas.timeline")
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 0.5, "y": 22 + 20 * 2.5})
    page.see("agent 2: works for 400 ms, iteration 1")
    begin, end = 0.1 - 0.02 * (0.6 - 0.1), 0.6  # of what is shown
    for time_, row, text in (
        (0.3, 1, "agent 1 was asked for 3 items of agent 2 as well: it was faster"),
        (0.4, 2, "agent 1 was asked for 1 item of agent 2 as well: it gave no answer"),
        (0.5, 2, "3 items moved from agent 2 to agent 1: it is late"),
    ):
        x = 62 + (box["width"] - 62) * (time_ - begin) / (end - begin)
        canvas.hover(position={"x": x, "y": 22 + 20 * (row + 0.5)})
        page.see(text)
    page.see("Items were moved 1 time; 2 times another agent also got items of a straggler")
    before = canvas.evaluate("one => one.toDataURL()")
    canvas.focus()
    page.page.keyboard.press("+")
    assert canvas.evaluate("one => one.toDataURL()") != before
    page.page.get_by_text("Totals as a table").click()
    page.page.get_by_role("button", name="waited").first.click()
    assert page.page.locator("th[aria-sort]").count() == 1
    assert "<b>hello</b>" in page.page.locator("pre.log").inner_text()


def test_empty_pages_say_which_command_fills_them(opened: Open) -> None:
    with served(SimulatedHead(0)) as cluster:
        page = opened(f"{cluster.url}#/overview")
        page.see("No nodes have joined yet")
        for name, command in (
            ("nodes", "sapwood token create"),
            ("tree", "sapwood token create"),
            ("runs", "sapwood run PROGRAM --detach"),
            ("sessions", "sapwood session create"),
        ):
            page.page.evaluate("where => { location.hash = where }", f"#/{name}")
            page.see(command)
        page.page.evaluate("where => { location.hash = where }", "#/runs/ffff")
        page.see("no run begins with")


@pytest.mark.row("D-7")
def test_a_report_opens_from_its_file_without_a_network(tmp_path: Path, opened: Open) -> None:
    from sapwood.activity.run_record import WorkStatistics  # noqa: PLC0415 - for this test only
    from sapwood.core import typed  # noqa: PLC0415 - as above
    from sapwood.views.page import report  # noqa: PLC0415 - as above
    from sapwood.views.run_page import RunPage  # noqa: PLC0415 - as above

    record = typed.convert(work_record(), WorkStatistics)
    view = RunPage(program="pi</script>", state="done", record=record, written=time.time())
    file = tmp_path / "run.html"
    file.write_text(report(view), "utf-8")
    for width in (1200, 380):
        page = opened(file.as_uri(), width)
        page.see("They waited most for agent 2")
        page.see("it is late")
        page.see("it was faster")
        assert page.page.title() == "pi</script> · Sapwood"
        assert page.overflow <= 0


@pytest.mark.row("D-19")
def test_a_flame_graph_is_zoomed_and_says_what_is_pointed_at(tmp_path: Path, opened: Open) -> None:
    from sapwood.code.profiles import ProfileResult, StackCount  # noqa: PLC0415 - as above
    from sapwood.code.stacks import FrameInfo  # noqa: PLC0415 - as above
    from sapwood.views.page import profile  # noqa: PLC0415 - as above

    main, fast, slow = (FrameInfo(name, "/home/ann/fit.py") for name in ("main", "fast", "slow"))
    stacks = (StackCount((main, slow), 60), StackCount((main, fast), 30), StackCount((fast,), 10))
    found = ProfileResult(agents=2, seconds=1.0, rate=50.0, idle=100, stacks=stacks)
    file = tmp_path / "fit.html"
    file.write_text(profile(found), "utf-8")
    for width in (1200, 380):
        page = opened(file.as_uri(), width)
        page.see("100 samples of 2 agents in 1.00 s. In 50 % of all samples")
        block = page.page.get_by_role("button", name="slow (fit.py): 60 samples, 60 %")
        narrow = block.bounding_box()["width"]
        block.click()
        page.see("/home/ann/fit.py")
        assert block.bounding_box()["width"] > 1.5 * narrow
        page.page.get_by_role("button", name="all user code").click()
        assert block.bounding_box()["width"] == pytest.approx(narrow, abs=2)
        page.page.get_by_text("Functions as a table").click()
        page.see("40.0 %")
        assert page.overflow <= 0


def test_viewers_leave_nothing_to_look_at_when_they_go(cluster: Served, opened: Open) -> None:
    page = opened(f"{cluster.url}#/nodes")
    page.see("n24")
    page.page.goto("about:blank")
    pause = threading.Event()
    end = time.monotonic() + PATIENCE / 1000
    while cluster.followed and time.monotonic() < end:
        pause.wait(0.05)
    assert cluster.followed == 0


COUNTED = """
(() => {
  const held = new Map();
  const outer = (target) => target === window || target instanceof MediaQueryList;
  const { addEventListener: add, removeEventListener: remove } = EventTarget.prototype;
  globalThis.outerListeners = 0;
  globalThis.observers = 0;
  EventTarget.prototype.addEventListener = function (kind, act, options) {
    if (outer(this ?? window)) globalThis.outerListeners += 1;
    return add.call(this ?? window, kind, act, options);
  };
  EventTarget.prototype.removeEventListener = function (kind, act, options) {
    if (outer(this ?? window)) globalThis.outerListeners -= 1;
    return remove.call(this ?? window, kind, act, options);
  };
  const Observer = globalThis.ResizeObserver;
  globalThis.ResizeObserver = class extends Observer {
    constructor(act) {
      super(act);
      globalThis.observers += 1;
    }
    disconnect() {
      globalThis.observers -= 1;
      super.disconnect();
    }
  };
  const unshift = Array.prototype.unshift;
  globalThis.longest = 0;
  Array.prototype.unshift = function (...more) {
    const length = unshift.apply(this, more);
    globalThis.longest = Math.max(globalThis.longest, length);
    return length;
  };
  const timers = new Set();
  globalThis.lookTimers = () => timers.size;
  const { setTimeout: begin, clearTimeout: end } = globalThis;
  globalThis.setTimeout = (act, pause, ...rest) => {
    const number = begin(() => {
      timers.delete(number);
      act(...rest);
    }, pause);
    if (pause === 2000) timers.add(number);
    return number;
  };
  globalThis.clearTimeout = (number) => {
    timers.delete(number);
    end(number);
  };
})();
"""
"""Counts the listeners and observers that pages leave behind."""


def test_pages_that_are_left_hold_nothing(cluster: Served, opened: Open) -> None:
    page = opened("about:blank").page
    page.add_init_script(COUNTED)
    page.goto(cluster.url)

    def go(name: str) -> None:
        page.evaluate("document.querySelector('main h2').className = 'left'")
        page.evaluate(f"location.hash = '#/{name}'")
        page.locator("main h2:not(.left)").wait_for()

    def held() -> list[int]:
        found: list[int] = page.evaluate("[outerListeners, observers]")
        return found

    for name in PAGES[1:]:
        go(name)
    go("overview")
    before = held()
    for _ in range(3):
        for name in [*PAGES[1:], "overview"]:
            go(name)
    assert held() == before


def test_the_logs_are_asked_for_once_at_a_time(cluster: Served, opened: Open) -> None:
    page = opened("about:blank").page
    page.add_init_script(COUNTED)
    asked: list[str] = []

    def slow(route: Any) -> None:
        asked.append(route.request.url)
        waiting.append(route)

    waiting: list[Any] = []
    page.route("**/api/v1/logs*", slow)
    page.goto(f"{cluster.url}#/logs")
    for level in ("warning", "error", "info"):
        page.locator("main select").nth(1).select_option(level)
    page.wait_for_function("true")
    assert len(asked) == 4  # each of them is under way
    for route in waiting[:4]:
        route.continue_()
    page.locator("pre.log").filter(has_not_text="…").wait_for()
    page.wait_for_function("lookTimers() > 0")
    assert page.evaluate("lookTimers()") == 1
    page.unroute_all()


def test_events_that_a_page_keeps_are_bounded(cluster: Served, opened: Open) -> None:
    page = opened("about:blank").page
    page.add_init_script(COUNTED)
    page.goto(cluster.url)
    page.locator("main table").first.wait_for()
    for number in range(40):
        cluster.head.note("node.joined", f"machine {number} joined", "n2")
    page.get_by_text("machine 39 joined").wait_for()
    assert page.evaluate("longest") <= 8 + 1
