// The pages of the dashboard: what each shows, what keeps it live, and its twin as JSON.

import { Chart } from "./chart.js";
import { ask } from "./live.js";
import { RunPage } from "./run.js";
import { Table } from "./table.js";
import { TreeDrawing, treeLegend } from "./tree.js";
import { badge, command, count, folded, h, moment, plural, seconds, size } from "./words.js";

const KEPT_POINTS = 1200; // of a rate over time: ten minutes at two a second
const KEPT_EVENTS = 500;
const FEW_EVENTS = 8; // of the overview
const LOG_PAUSE = 2000; // milliseconds between two looks at logs
const KEPT_LINES = 2000;

const code = (text) => h("code", {}, text);
const empty = (text, words) => h("span", {}, `${text} `, code(command(words)), " starts one.");
const link = (to, text) => h("a", { href: `#/${to}` }, text);
const card = (...children) => h("section", { class: "card" }, ...children);

/** Put an event first, and forget the oldest of more than are kept. */
function keepEvent(events, event, most) {
  events.unshift(event);
  events.length = Math.min(events.length, most);
}

function figures(list, entries) {
  list.replaceChildren(...entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function byState(states) {
  const parts = Object.entries(states).map(([state, number]) => badge(state, `${number} ${state}`));
  return parts.length ? h("span", {}, parts.flatMap((part, at) => (at ? [", ", part] : [part]))) : "none";
}

const loadOf = (node) => (node.load === null || !node.cores ? null : node.load / node.cores);

// --- nodes as they are, from what changed ------------------------------------------------------

/** The nodes of the cluster, kept up to date by what the server says has changed. */
class Nodes {
  constructor() {
    this.known = new Map();
  }

  take({ nodes, gone, whole }) {
    if (whole) this.known.clear();
    for (const node of nodes) this.known.set(node.host, node);
    for (const host of gone) this.known.delete(host);
    return [...this.known.values()];
  }
}

function treeOf(name, nodes) {
  return {
    id: "head",
    name: name === "default" ? "head" : `head of ${name}`,
    state: "ready",
    load: null,
    detail: plural(nodes.length, "node"),
    children: nodes.map((node) => ({
      id: String(node.host),
      name: node.name,
      state: node.state,
      load: loadOf(node),
      detail: describe(node),
      href: `#/nodes/${encodeURIComponent(node.name)}`,
    })),
  };
}

const MOST_TREES = 8; // of sessions that the page of all trees draws

/** The trees of sessions, kept up to date by what the server says has changed. */
class Trees {
  constructor() {
    this.known = new Map();
  }

  take({ trees, gone, whole }) {
    if (whole) this.known.clear();
    for (const one of trees) this.known.set(one.id, one);
    for (const id of gone) this.known.delete(id);
    return [...this.known.values()];
  }
}

/** The places of a session as a drawing wants them; loads are those of their nodes, by name. */
function treeOfSession({ id, name, places, left_out: leftOut }, loads) {
  const vertices = new Map();
  const numbers = {};
  for (const one of places) {
    numbers[one.kind] = (numbers[one.kind] ?? 0) + 1;
    const node = one.node ?? "";
    vertices.set(one.rank, {
      id: `${id}/${one.rank}`,
      name: one.kind === "root" ? name : `${one.kind} ${one.rank}`,
      noun: "process",
      state: one.state,
      load: loads?.get(node) ?? null,
      detail: [node && `on ${node}`, one.state === "ready" ? "" : one.state, (one.incarnation ?? 1) > 1 && `process ${one.incarnation}`].filter(Boolean).join(", ") || one.state,
      href: node ? `#/nodes/${encodeURIComponent(node)}` : null,
      children: [],
    });
  }
  const root = vertices.get(0);
  for (const one of places) if (one.rank) (vertices.get(one.parent) ?? root).children.push(vertices.get(one.rank));
  const kinds = ["junction", "spare", "agent"].filter((kind) => numbers[kind]).map((kind) => plural(numbers[kind], kind));
  root.detail = [...kinds, leftOut && `${leftOut} more`].filter(Boolean).join(", ");
  return root;
}

function describe(node) {
  if (node.state !== "ready") return node.reason ? `${node.state}: ${node.reason}` : node.state;
  const parts = [];
  if (node.load !== null) parts.push(`load ${node.load.toFixed(2)}${node.cores ? ` of ${node.cores}` : ""}`);
  return parts.join(", ") || node.state;
}

// --- pages -------------------------------------------------------------------------------------

function overview(main) {
  const sentence = h("p", { role: "status" });
  const alerts = h("ul", { class: "alerts" });
  const list = h("dl", { class: "figures" });
  const rates = card();
  const loads = card();
  const rate = new Chart(rates, "Items per second, all runs", count);
  const load = new Chart(loads, "Load (runnable processes), all nodes", (value) => value.toFixed(1));
  const points = { rate: [], load: [] };
  const runs = runTable("Active runs", RUNS.filter((one) => !["session", "began"].includes(one.name)));
  const programs = new Table("Connected programs", PROGRAMS, { key: (row) => row.name, empty: "No program uses nodes by sapwood.connect or --on head." });
  const events = eventTable("Latest events", false, EVENTS.filter((one) => ["time", "what"].includes(one.name)));
  main.append(
    card(h("h3", {}, "Health"), sentence, alerts),
    card(list),
    h("div", { class: "cards" }, rates, loads),
    h("div", { class: "cards" }, card(runs.element), card(programs.element), card(events.element)),
  );
  const noted = [];
  const take = (found) => {
    sentence.replaceChildren(badge({ good: "ready", poor: "closed", bad: "lost" }[found.health], found.sentence));
    alerts.replaceChildren(...found.alerts.map((one) => h("li", {}, badge(one.level === "bad" ? "lost" : "closed", ""), one.page ? link(one.page, one.text) : one.text)));
    figures(list, [
      ["Nodes", byState(found.nodes)],
      ["Cores", count(found.cores)],
      ["Load", found.load.toFixed(2)],
      ["Free memory", size(found.free_memory)],
      ["Sessions", byState(found.sessions)],
      ["Agents", String(found.agents)],
      ["Runs", byState(found.runs)],
      ["Items per second", count(found.items_per_second)],
      ["Up since", moment(found.started)],
    ]);
    programs.show(found.connected);
    points.rate.push([found.time, found.items_per_second]);
    points.load.push([found.time, found.load]);
    for (const kept of Object.values(points)) if (kept.length > KEPT_POINTS) kept.shift();
    rate.show([{ name: "items per second", points: points.rate }], moment);
    load.show([{ name: "load", points: points.load }], moment);
  };
  return {
    live: {
      topics: "overview,runs,events",
      overview: take,
      runs: (found) => runs.show(found.filter((one) => one.record.state === "running")),
      event: (event) => {
        keepEvent(noted, event, FEW_EVENTS);
        events.show(noted);
      },
    },
  };
}

function tree(main) {
  const home = h("div");
  const said = h("p", { class: "empty" });
  const below = h("div");
  const more = h("p", { class: "empty" });
  main.append(card(treeLegend(), home, said), below, more);
  const drawing = new TreeDrawing(home, "Tree of the cluster");
  const nodes = new Nodes();
  const trees = new Trees();
  const drawn = new Map();
  let name = "default";
  const showTrees = () => {
    const loads = new Map([...nodes.known.values()].map((node) => [node.name, loadOf(node)]));
    const all = [...trees.known.values()];
    for (const [id, one] of drawn) {
      if (trees.known.has(id)) continue;
      one.drawing.destroy();
      one.card.remove();
      drawn.delete(id);
    }
    for (const one of all) {
      if (!drawn.has(one.id)) {
        if (drawn.size >= MOST_TREES) continue;
        const place = h("div");
        const made = card(h("h3", {}, "Session ", link(`sessions/${one.id}`, one.name)), place);
        below.append(made);
        drawn.set(one.id, { card: made, drawing: new TreeDrawing(place, `Tree of the session ${one.name}`) });
      }
      drawn.get(one.id).drawing.show(treeOfSession(one, loads));
    }
    more.replaceChildren(...(all.length > drawn.size ? [`${plural(all.length - drawn.size, "more session")}: `, link("sessions", "all sessions")] : []));
  };
  return {
    live: {
      topics: "nodes,trees",
      trees: (change) => {
        trees.take(change);
        showTrees();
      },
      cluster: (found) => {
        name = found.name;
      },
      nodes: (change) => {
        const found = nodes.take(change);
        drawing.show(treeOf(name, found));
        showTrees();
        said.replaceChildren(...(found.length ? [] : [empty("There are no nodes yet.", "token create")]));
      },
    },
  };
}

const NODES = [
  { name: "node", cell: (row) => link(`nodes/${encodeURIComponent(row.name)}`, row.name) },
  { name: "state", cell: (row) => badge(row.state) },
  { name: "load", cell: (row) => (row.load === null ? "" : row.load.toFixed(2)), sort: (row) => row.load ?? -1, number: true },
  { name: "cores", cell: (row) => String(row.cores || ""), sort: (row) => row.cores, number: true, optional: true },
  { name: "free", cell: (row) => (row.free_memory ? size(row.free_memory) : ""), sort: (row) => row.free_memory, number: true },
  { name: "processes", cell: (row) => String(row.processes), sort: (row) => row.processes, number: true },
  { name: "rtt", cell: (row) => (row.round_trip === null ? "" : seconds(row.round_trip)), sort: (row) => row.round_trip ?? -1, number: true, optional: true },
  { name: "queue", cell: (row) => size(row.queued), sort: (row) => row.queued, number: true, optional: true },
  { name: "why", cell: (row) => [row.reason, ...row.trouble].filter(Boolean).join("; ") },
];

function nodes(main) {
  const table = new Table("Nodes", NODES, { key: (row) => String(row.host), empty: empty("There are no nodes yet.", "token create"), search: true });
  main.append(card(table.element));
  const known = new Nodes();
  return { live: { topics: "nodes", nodes: (change) => table.show(known.take(change)) } };
}

function oneNode(main, name) {
  const list = h("dl", { class: "figures" });
  const why = h("p", {});
  const loads = card();
  const load = new Chart(loads, "Load", (value) => value.toFixed(2));
  const traffic = card();
  const bytes = new Chart(traffic, "Bytes per second between head and node", size);
  const processes = new Table("Processes", PROCESSES, { key: (row) => row.key, empty: empty("No session has processes here.", "session create") });
  const components = new Table("Components", COMPONENTS, { key: (row) => row.name, empty: "The node has not said how its components are." });
  const events = eventTable("Events");
  main.append(card(list, why), h("div", { class: "cards" }, loads, traffic), card(processes.element), h("div", { class: "cards" }, card(components.element), card(events.element)));
  const points = { load: [], sent: [], received: [] };
  const noted = [];
  let last = null;
  return {
    live: {
      topics: "node,events",
      node: ({ time, snapshot, status }) => {
        const facts = status?.record.facts;
        figures(list, [
          ["State", badge(snapshot.state)],
          ["Load", snapshot.load === null ? "not reported yet" : snapshot.load.toFixed(2)],
          ["Cores", String(snapshot.cores || "unknown")],
          ["Free memory", snapshot.free_memory ? size(snapshot.free_memory) : "not reported yet"],
          ["Round trip", snapshot.round_trip === null ? "unknown" : seconds(snapshot.round_trip)],
          ["Clock", `${snapshot.skew >= 0 ? "+" : "−"}${seconds(Math.abs(snapshot.skew))}`],
          ["Since", snapshot.since ? moment(snapshot.since) : "it joined"],
          ["Certificate ends", moment(snapshot.certificate_end)],
          ["Processor", facts ? facts.architecture : "unknown"],
        ]);
        why.textContent = [snapshot.reason, ...snapshot.trouble, status?.unanswered].filter(Boolean).join("; ");
        if (snapshot.load !== null) points.load.push([time, snapshot.load]);
        if (last && time > last.time) {
          points.sent.push([time, Math.max(0, snapshot.sent - last.sent) / (time - last.time)]);
          points.received.push([time, Math.max(0, snapshot.received - last.received) / (time - last.time)]);
        }
        last = { time, sent: snapshot.sent, received: snapshot.received };
        for (const kept of Object.values(points)) if (kept.length > KEPT_POINTS) kept.shift();
        load.show([{ name: "load", points: points.load }], moment);
        bytes.show([{ name: "to the node", points: points.sent }, { name: "from the node", points: points.received }], moment);
        if (status) {
          processes.show(processRows(status.activity));
          components.show(status.components?.components ?? []);
        }
      },
      event: (event) => {
        keepEvent(noted, event, KEPT_EVENTS);
        events.show(noted);
      },
      missing: (problem) => {
        why.textContent = `${problem.detail}. `;
        why.append(link("nodes", "All nodes"));
      },
    },
  };
}

function processRows(activity) {
  if (!activity) return [];
  const row = (what, name, process) => ({ what, name, ...process, key: `${what}/${process.pid}` });
  return [
    row("daemon", "", activity.daemon),
    ...activity.sessions.flatMap((one) => [row("zygote", one.session, one.zygote), ...one.processes.map((process) => row("process", one.session, process))]),
    ...activity.commands.map((one) => row("command", one.arguments.join(" "), one.process)),
  ];
}

const PROCESSES = [
  { name: "what", cell: (row) => row.what },
  { name: "name", cell: (row) => row.name },
  { name: "rank", cell: (row) => (row.rank >= 0 ? String(row.rank) : ""), sort: (row) => row.rank, number: true },
  { name: "process", cell: (row) => String(row.pid), sort: (row) => row.pid, number: true },
  { name: "memory", cell: (row) => (row.memory ? size(row.memory) : ""), sort: (row) => row.memory, number: true },
  { name: "since", cell: (row) => moment(row.since), sort: (row) => row.since, optional: true },
];
const COMPONENTS = [
  { name: "component", cell: (row) => row.name },
  { name: "state", cell: (row) => badge(row.state) },
  { name: "since", cell: (row) => moment(row.since), sort: (row) => row.since },
  { name: "restarts", cell: (row) => String(row.restarts), sort: (row) => row.restarts, number: true },
  { name: "why", cell: (row) => row.reason },
];

function runTable(caption, columns = RUNS) {
  return new Table(caption, columns, { key: (row) => row.record.id, empty: empty("There is no detached run.", "run PROGRAM --detach") });
}

const PROGRAMS = [
  { name: "connection", cell: (row) => row.name },
  { name: "user", cell: (row) => row.user || "-" },
  { name: "address", cell: (row) => row.address || "here", optional: true },
  { name: "agents", cell: (row) => String(row.agents ?? "?"), sort: (row) => row.agents ?? 0, number: true },
  { name: "since", cell: (row) => moment(row.since), sort: (row) => row.since },
  { name: "nodes", cell: (row) => folded(row.nodes) },
  { name: "runs", cell: (row) => row.runs.map((one) => one.run).join(", ") },
];

const RUNS = [
  { name: "run", cell: (row) => link(`runs/${row.record.id}`, row.record.id) },
  { name: "program", cell: (row) => row.record.program },
  { name: "session", cell: (row) => row.record.session || "-", optional: true },
  { name: "state", cell: (row) => badge(row.record.state) },
  { name: "began", cell: (row) => moment(row.record.created), sort: (row) => row.record.created, optional: true },
  { name: "time", cell: (row) => seconds((row.record.ended || Date.now() / 1000) - row.record.created), sort: (row) => (row.record.ended || Date.now() / 1000) - row.record.created, number: true },
  { name: "progress", cell: (row) => progressOf(row.progress) },
  { name: "items/s", cell: (row) => (row.progress?.iteration ? count(row.progress.items_per_second) : ""), sort: (row) => row.progress?.items_per_second ?? 0, number: true, optional: true },
];

function progressOf(progress) {
  if (!progress) return "";
  if (!progress.iteration) return progress.state;
  return `iteration ${progress.iteration}${progress.iterations ? `/${progress.iterations}` : ""}`;
}

function runs(main) {
  const table = runTable("Runs");
  main.append(card(table.element));
  return { live: { topics: "runs", runs: (found) => table.show([...found].reverse()) } };
}

function oneRun(main) {
  const missing = h("p", { class: "empty" });
  const home = h("div");
  main.append(missing, home);
  const picture = new RunPage(home);
  const output = h("pre", { class: "log", tabindex: 0, "aria-label": "Output of agents" });
  main.append(card(h("h3", {}, "Output of agents"), output));
  return {
    live: {
      topics: "run",
      run: (run) => {
        missing.textContent = run.elsewhere;
        picture.show(run);
      },
      output: ({ text }) => {
        output.textContent = text || "No output yet.";
      },
      missing: (problem) => {
        home.hidden = true;
        missing.textContent = `${problem.detail}. `;
        missing.append(link("runs", "All runs"));
      },
    },
  };
}

const SESSIONS = [
  { name: "session", cell: (row) => link(`sessions/${row.id}`, row.name) },
  { name: "state", cell: (row) => badge(row.state) },
  { name: "agents", cell: (row) => String(row.report?.agents ?? 0), sort: (row) => row.report?.agents ?? 0, number: true },
  { name: "on", cell: (row) => row.report?.nodes?.join(", ") || row.on, optional: true },
  { name: "owner", cell: (row) => row.report?.owner || "-", optional: true },
  { name: "streams", cell: (row) => String(row.report?.streams ?? 0), sort: (row) => row.report?.streams ?? 0, number: true },
  { name: "created", cell: (row) => moment(row.created), sort: (row) => row.created },
  { name: "note", cell: noteOf },
];

function noteOf(session) {
  const report = session.report;
  if (!report) return "";
  const parts = [report.reason || report.waits];
  if (report.merged.length) parts.push(`merged with ${report.merged.join(", ")}`);
  if (report.part_of.length) parts.push(`part of ${report.part_of.join(", ")}`);
  if (report.kept) parts.push(`${size(report.kept)} of output wait`);
  if (report.dropped) parts.push(`${size(report.dropped)} of output left out`);
  if (session.restarts.length) parts.push(`restarted ${plural(session.restarts.length, "time")}`);
  return parts.filter(Boolean).join("; ");
}

function sessions(main) {
  const table = new Table("Sessions", SESSIONS, { key: (row) => row.id, empty: empty("There are no sessions.", "session create"), search: true });
  main.append(card(table.element));
  return { live: { topics: "sessions", sessions: (found) => table.show(found) } };
}

/** A button that shows where user code is now, also while it hangs. */
function stackCard(id) {
  const text = h("pre", { class: "log", tabindex: 0, "aria-label": "Stacks", hidden: true });
  const button = h("button", { type: "button" }, "Stacks");
  button.addEventListener("click", async () => {
    button.disabled = true;
    text.hidden = false;
    text.textContent = "Asking the agents …";
    try {
      text.textContent = (await ask(`/sessions/${encodeURIComponent(id)}/stacks`)).text || "The session has no agents.";
    } catch (error) {
      text.textContent = [error.message, error.hint].filter(Boolean).join("\n");
    } finally {
      button.disabled = false;
    }
  });
  return card(h("h3", {}, "Where user code is now"), button, text);
}

function oneSession(main, id) {
  const list = h("dl", { class: "figures" });
  const note = h("p", {});
  const attached = h("p", {});
  const there = runTable("Runs in this session");
  const noted = eventTable("Events");
  const home = h("div");
  const places = card(h("h3", {}, "Tree"), treeLegend(), home);
  places.hidden = true;
  main.append(card(list, note, attached), stackCard(id), places, card(there.element), card(noted.element));
  const drawing = new TreeDrawing(home, "Tree of the session");
  const trees = new Trees();
  let name = null;
  let handle = null;
  let latest = [];
  const found = [];
  const showRuns = () => there.show(latest.filter((one) => name && [name, id, handle].includes(one.record.session)).reverse());
  const showEvents = () => noted.show(found.filter((one) => one.session && [name, id, handle].includes(one.session)));
  return {
    live: {
      topics: "sessions,runs,events,trees",
      trees: (change) => {
        const [tree] = trees.take(change);
        places.hidden = !tree;
        if (tree) drawing.show(treeOfSession(tree));
      },
      sessions: (all) => {
        const session = all.find((one) => one.id === id || one.name === id);
        if (!session) {
          note.replaceChildren("There is no such session any more. ", link("sessions", "All sessions"));
          return;
        }
        name = session.name;
        handle = `${name}#${session.id}`;
        const report = session.report;
        figures(list, [
          ["Name", h("span", {}, handle)],
          ["State", badge(session.state)],
          ["Agents", String(report?.agents ?? 0)],
          ["Nodes", report?.nodes?.length ? folded(report.nodes) : session.on],
          ["Owner", report?.owner || "nobody"],
          ["Streams", String(report?.streams ?? 0)],
          ["Created", moment(session.created)],
          ["Ends", session.idle ? `${seconds(session.idle)} after the last client detached` : "never automatically"],
          ["Process", String(session.pid || "none")],
        ]);
        note.textContent = noteOf(session);
        attached.textContent = report?.clients?.length ? `Attached: ${report.clients.join(", ")}` : "No client is attached.";
        showRuns();
        showEvents();
      },
      runs: (all) => {
        latest = all;
        showRuns();
      },
      event: (event) => {
        if (event.session) keepEvent(found, event, KEPT_EVENTS);
        showEvents();
      },
    },
  };
}

const EVENTS = [
  { name: "time", cell: (row) => moment(row.time), sort: (row) => row.time },
  { name: "kind", cell: (row) => row.kind },
  { name: "node", cell: (row) => row.node, optional: true },
  { name: "session", cell: (row) => row.session, optional: true },
  { name: "what", cell: (row) => row.text },
];

function eventTable(caption = "Events", search = false, columns = EVENTS) {
  return new Table(caption, columns, { key: (row) => String(row.number), empty: "Nothing has happened yet.", search });
}

function events(main) {
  const table = eventTable("Events, newest first", true);
  main.append(card(table.element));
  const noted = [];
  return {
    live: {
      topics: "events",
      event: (event) => {
        keepEvent(noted, event, KEPT_EVENTS);
        table.show(noted);
      },
    },
  };
}

function logs(main) {
  const option = (name) => h("option", { value: name }, name);
  const level = h("select", {}, ["info", "warning", "error"].map(option));
  const node = h("select", {}, h("option", { value: "" }, "the head"));
  const text = h("pre", { class: "log", tabindex: 0, "aria-label": "Log lines" }, "…");
  main.append(card(h("div", { class: "fields" }, h("label", {}, "Log of ", node), h("label", {}, "Minimum level ", level)), text));
  let from = { ring: "", next: 0, lines: [] };
  let timer = null;
  let turn = 0; // of the newest look: an older one that is answered late is dropped
  const look = async () => {
    const mine = ++turn;
    clearTimeout(timer);
    try {
      const where = node.value ? `/nodes/${encodeURIComponent(node.value)}/logs` : "/logs";
      const found = await ask(`${where}?level=${level.value}&after=${from.next}`);
      if (mine !== turn) return;
      if (found.ring !== from.ring && from.next) from = { ring: "", next: 0, lines: [] };
      else from = { ring: found.ring, next: found.next, lines: [...from.lines, ...found.lines.map(lineOf)].slice(-KEPT_LINES) };
      const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;
      text.textContent = from.lines.join("\n") || "Nothing of this level was logged.";
      if (atEnd) text.scrollTop = text.scrollHeight;
      if (found.more) return void look();
    } catch (error) {
      if (mine !== turn) return;
      text.textContent = `${error.message}. ${error.hint ?? ""}`;
    }
    timer = setTimeout(look, LOG_PAUSE);
  };
  const again = () => {
    from = { ring: "", next: 0, lines: [] };
    look();
  };
  level.addEventListener("change", again);
  node.addEventListener("change", again);
  look();
  const known = new Nodes();
  return {
    live: {
      topics: "nodes",
      nodes: (change) => {
        const names = known.take(change).map((one) => one.name);
        if (names.length !== node.options.length - 1) {
          const chosen = node.value;
          node.replaceChildren(h("option", { value: "" }, "the head"), ...names.map(option));
          node.value = names.includes(chosen) ? chosen : "";
        }
      },
    },
    close: () => {
      turn += 1;
      clearTimeout(timer);
    },
  };
}

function lineOf(line) {
  const { timestamp, level, component, event, exception, node, pid, ...fields } = line;
  const shown = Object.entries(fields).map(([name, value]) => `  ${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  const head = `${moment(Date.parse(timestamp) / 1000)} ${node ?? ""}${pid ? `[${pid}]` : ""} ${(level ?? "").padEnd(8)} ${component}: ${event}`;
  return head + shown.join("") + (exception ? `\n${exception}` : "");
}

/** Each page: its title in the menu, its heading, its twin as JSON, and what draws it. */
export const PAGES = {
  overview: { title: "Overview", heading: () => "Overview", twin: () => "/overview", draw: overview },
  tree: { title: "Tree", heading: () => "Tree", twin: () => "/tree", draw: tree },
  nodes: { title: "Nodes", heading: () => "Nodes", twin: () => "/nodes", draw: nodes, one: "node" },
  runs: { title: "Runs", heading: () => "Runs", twin: () => "/runs", draw: runs, one: "run" },
  sessions: { title: "Sessions", heading: () => "Sessions", twin: () => "/sessions", draw: sessions, one: "session" },
  events: { title: "Events", heading: () => "Events", twin: () => "/events", draw: events },
  logs: { title: "Logs", heading: () => "Logs", twin: () => "/logs", draw: logs },
  node: { heading: (name) => `Node ${name}`, twin: (name) => `/snapshot/${name}`, draw: oneNode },
  session: { heading: (id) => `Session ${id}`, twin: (id) => `/sessions/${id}`, draw: oneSession },
  run: { heading: (id) => `Run ${id}`, twin: (id) => `/runs/${id}/picture`, draw: oneRun },
};

/** The page of a name, or the first one. */
export function pageOf(name) {
  return PAGES[name] ?? PAGES.overview;
}
