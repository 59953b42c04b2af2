// One run: how far it is, who worked and who waited, what moved, what it gave. Dashboard and report.

import { Chart, progressBar } from "./chart.js";
import { FlameGraph } from "./flame.js";
import { Table } from "./table.js";
import { Timeline, shares, verdict } from "./timeline.js";
import { badge, count, h, metric, moment, plural, seconds, size } from "./words.js";

const LEAD = 0.02; // part of a timeline before the first iteration that is shown at first
const PREPARING = ["building", "preparing"];

/** The record of a run as rows and marks of a timeline. */
export function timelineOf(record) {
  const rows = new Map(record.agents.map((one) => [one.agent, { name: `agent ${one.agent}`, spans: [] }]));
  const root = { name: "root", spans: [] };
  const marks = [];
  const rowOf = (agent) => {
    if (!rows.has(agent)) rows.set(agent, { name: `agent ${agent}`, spans: [] });
    return rows.get(agent);
  };
  let length = record.seconds;
  for (const one of record.iterations) {
    const all = one.agents ?? [];
    length = Math.max(length, one.started + one.seconds);
    if (!all.length) continue;
    let slowest = all[0];
    let end = one.started;
    for (const share of all) {
      const { spans } = rowOf(share.agent);
      const before = spans.at(-1)?.[1] ?? 0;
      const waits = Math.max(before, share.started - share.waited);
      if (share.started > waits) spans.push([waits, share.started, "wait", one.iteration]);
      spans.push([share.started, share.started + share.seconds, "work", one.iteration]);
      if (share.started + share.seconds > slowest.started + slowest.seconds) slowest = share;
      end = Math.max(end, share.started + share.seconds);
    }
    const stop = one.started + one.seconds;
    if (stop > end) root.spans.push([end, stop, "update", one.iteration]);
    const lost = all.reduce((sum, share) => sum + end - share.started - share.seconds, 0);
    if (all.length > 1 && lost > 0.05 * all.length * (end - one.started)) {
      marks.push({ kind: "slow", time: end, agent: slowest.agent, cost: lost });
    }
  }
  const last = record.iterations.findLast((one) => one.agents?.length)?.agents ?? [];
  const over = Math.max(...last.map((share) => share.started + share.seconds));
  for (const share of last) {
    const stop = share.started + share.seconds;
    if (stop < over) rowOf(share.agent).spans.push([stop, over, "wait", 0]);
  }
  const order = [...rows.keys()].sort((one, other) => one - other);
  for (const mark of marks) mark.row = order.indexOf(mark.agent) + 1;
  const row = (agent) => order.indexOf(agent) + 1 || -1;
  for (const one of record.moves) {
    const text = `${plural(one.items, "item")} moved from agent ${one.source} to agent ${one.target}: ${one.reason}`;
    marks.push({ kind: "moved", time: one.at, from: row(one.source), row: row(one.target), text });
  }
  for (const one of record.late) {
    const text = `agent ${one.by} was asked for ${plural(one.stop - one.start, "item")} of agent ${one.agent} as well: ${outcomeOf(one)}`;
    marks.push({ kind: one.outcome === "used" ? "used" : "unused", time: one.at, from: row(one.agent), row: row(one.by), text });
  }
  for (const one of record.losses) marks.push({ kind: "lost", time: one.at, row: order.indexOf(one.agent) + 1 });
  for (const one of record.checkpoints) marks.push({ kind: "checkpoint", time: one.at, row: 0 });
  const first = record.iterations.find((one) => one.agents?.length)?.started ?? 0;
  return { rows: [root, ...order.map((agent) => rows.get(agent))], marks, length, begin: Math.max(0, first - LEAD * (length - first)) };
}

const OUTCOMES = {
  running: "nobody has answered yet",
  used: "it was faster",
  late: "the straggler was faster",
  failed: "it gave no answer",
};

function outcomeOf(chunk) {
  return OUTCOMES[chunk.outcome] ?? chunk.outcome;
}

/** The picture of one run, which can be shown again and again while the run goes on. */
export class RunPage {
  /** @param {HTMLElement} home Where it is drawn. */
  constructor(home) {
    this.head = h("section", { class: "card", "aria-label": "How far the run is" });
    this.result = h("section", { class: "card", "aria-label": "What the run gave", hidden: true });
    this.worked = h("section", { class: "card", "aria-label": "Timeline of agents" });
    this.sentence = h("p", {});
    const canvas = h("div");
    this.noTimeline = h("p", { class: "empty" }, "The run has noted no iteration yet.");
    this.sums = new Table("Work and waiting, by agent", SUMS, { key: (row) => row.name, empty: "No agent has worked yet." });
    this.drawing = h("div", { hidden: true }, this.sentence, canvas, h("details", {}, h("summary", {}, "Totals as a table"), this.sums.element));
    this.worked.append(h("h3", {}, "Timeline of agents"), this.noTimeline, this.drawing);
    this.timeline = new Timeline(canvas, "Timeline of the run by agent");
    const rates = h("section", { class: "card" });
    const metrics = h("section", { class: "card" });
    this.rates = new Chart(rates, "Items per second, by iteration", count);
    this.metrics = new Chart(metrics, "Metrics of the program", metric);
    this.metricHome = metrics;
    this.agents = new Table("Agents", AGENTS, { key: (row) => row.agent, empty: "No agent takes part yet.", search: true });
    this.moves = new Table("Moved items", MOVES, { key: (row) => row.key, empty: "No items have moved." });
    this.late = new Table("Stragglers (items mapped by another agent, too)", LATE, { key: (row) => row.key, empty: "No agent was late enough for another one to be asked." });
    this.losses = new Table("Losses and replacements", LOSSES, { key: (row) => row.key, empty: "No agent was lost." });
    this.functions = new Table("Functions", FUNCTIONS, { key: (row) => row.key, empty: "What functions took is known when the run is over." });
    this.profile = h("section", { class: "card", "aria-label": "Profile", hidden: true }, h("h3", {}, "Profile of user code"));
    this.flame = new FlameGraph(this.profile);
    home.append(
      this.head,
      this.worked,
      this.profile,
      h("div", { class: "cards" }, rates, metrics),
      this.result,
      h("section", { class: "card" }, this.agents.element),
      h("div", { class: "cards" }, h("section", { class: "card" }, this.moves.element), h("section", { class: "card" }, this.late.element)),
      h("section", { class: "card" }, this.losses.element),
      h("section", { class: "card" }, this.functions.element),
    );
    this.history = new Map();
  }

  /** Stop listening; the elements may be removed. */
  destroy() {
    for (const view of [this.timeline, this.rates, this.metrics]) view.destroy();
  }

  /** Show {program, state, progress, record, statistics, answer, error, restarts}. */
  show(run) {
    this.#showHead(run);
    this.#showResult(run);
    const record = run.record;
    const iterations = record?.iterations ?? [];
    this.noTimeline.hidden = iterations.length > 0;
    this.drawing.hidden = !iterations.length;
    if (iterations.length) {
      const data = timelineOf(record);
      this.timeline.show(data);
      const found = shares(data.rows, data.marks);
      this.sums.show(found);
      this.sentence.textContent = verdict(found) + helped(record) + leftOut(record);
      const items = record.items || run.progress?.items || 0;
      const points = iterations.filter((one) => one.seconds > 0).map((one) => [one.started + one.seconds, items / one.seconds]);
      this.rates.show([{ name: "items per second", points }]);
    } else {
      this.rates.show([]);
    }
    this.profile.hidden = !run.profile;
    if (run.profile) this.flame.show(run.profile);
    this.#showMetrics(run.progress);
    this.agents.show(agentRows(run));
    this.moves.show((record?.moves ?? []).map((one, at) => ({ ...one, key: `${at}/${one.at}` })).reverse());
    this.late.show((record?.late ?? []).map((one, at) => ({ ...one, key: `${at}/${one.at}` })).reverse());
    this.losses.show((record?.losses ?? []).map((one, at) => ({ ...one, key: `${at}/${one.at}` })).reverse());
    const functions = (run.statistics?.agents ?? []).flatMap((agent) => agent.functions.map((one) => ({ ...one, agent: agent.agent, key: `${one.name}/${agent.agent}` })));
    this.functions.show(functions);
  }

  #showHead(run) {
    const progress = run.progress;
    const statistics = run.statistics;
    const figures = [["State", badge(run.state)]];
    const add = (name, text) => text && figures.push([name, text]);
    if (progress) {
      add("Time", seconds(progress.seconds));
      add("Agents", String(progress.agents));
      if (progress.iteration) {
        add("Per iteration", seconds(progress.seconds_per_iteration));
        add("Items per second", count(progress.items_per_second));
      }
      add("Items", count(progress.items));
      for (const [name, value] of Object.entries(progress.metrics)) add(name, metric(value));
    }
    if (statistics?.iterations) {
      add("Build", seconds(statistics.build_seconds));
      add("Prepare", seconds(statistics.prepare_seconds));
      add("Update", seconds(statistics.update_seconds));
      if (statistics.replaced_agents) add("Agents replaced", String(statistics.replaced_agents));
    }
    add("Session", run.session);
    if (run.created) add("Began", moment(run.created));
    const parts = [];
    if (progress && !PREPARING.includes(progress.state)) {
      parts.push(run.state === "done" ? progressBar(1, 1, `done after ${plural(progress.iteration, "iteration")}`) : progressBar(progress.iteration, progress.iterations, `iteration ${progress.iteration}${progress.iterations ? ` of ${progress.iterations}` : ""}`));
    }
    parts.push(h("dl", { class: "figures" }, figures.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))));
    if (run.restarts?.length) parts.push(h("p", {}, `It was restarted ${plural(run.restarts.length, "time")}, last at ${moment(run.restarts.at(-1))}: its process or its session was gone.`));
    if (run.error) parts.push(errorOf(run.error));
    this.head.replaceChildren(...parts);
  }

  #showResult(run) {
    const answer = run.answer;
    const result = answer && "result" in answer ? answer.result : undefined;
    this.result.hidden = result === undefined;
    if (result === undefined) return;
    const fields = result !== null && typeof result === "object" && !Array.isArray(result) ? result : { result };
    const rows = Object.entries(fields).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, shown(value))));
    const given = [["data", `${answer.items} items from ${answer.data}`], ...Object.entries(answer.parameters ?? {})];
    if (answer.output) given.push(["output", answer.output]);
    this.result.replaceChildren(
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Result" }, h("table", {}, h("caption", {}, "Result"), h("tbody", {}, rows))),
      h("details", {}, h("summary", {}, "Inputs"), h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, given.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, shown(value)))))))),
    );
  }

  #showMetrics(progress) {
    for (const [name, value] of Object.entries(progress?.metrics ?? {})) {
      if (!this.history.has(name)) this.history.set(name, []);
      const points = this.history.get(name);
      if (!points.length || points.at(-1)[0] < progress.seconds) points.push([progress.seconds, value]);
      if (points.length > 2000) points.shift();
    }
    this.metricHome.hidden = ![...this.history.values()].some((points) => points.length > 1);
    this.metrics.show([...this.history].map(([name, points]) => ({ name, points })));
  }
}

/** What moved and what was done twice, in a sentence. */
function helped(record) {
  const parts = [];
  const { moves = 0, late = 0 } = record.counts ?? {};
  if (moves) parts.push(`items were moved ${plural(moves, "time")}`);
  if (late) {
    const used = record.late.filter((one) => one.outcome === "used").length;
    parts.push(`${plural(late, "time")} another agent also got items of a straggler` + (late === record.late.length ? `, and was faster ${plural(used, "time")}` : ""));
  }
  if (!parts.length) return "";
  const text = parts.join("; ");
  return ` ${text[0].toUpperCase()}${text.slice(1)}.`;
}

function leftOut(record) {
  const all = record.counts?.iterations ?? record.iterations.length;
  const named = record.iterations.filter((one) => one.agents?.length).length;
  if (named === all) return "";
  return ` Shown are ${plural(named, "iteration")} of ${all}: of fast or early ones not all are kept.`;
}

function shown(value) {
  if (typeof value === "number") return metric(value);
  if (typeof value === "string") return value;
  return h("code", {}, JSON.stringify(value));
}

function errorOf(error) {
  const lines = [h("strong", {}, error.what ?? error.message ?? "It failed.")];
  if (error.where) lines.push(h("div", {}, `where: ${error.where}`));
  if (error.hint) lines.push(h("div", {}, `what to do: ${error.hint}`));
  return h("div", { class: "notice bad", role: "alert" }, lines);
}

function agentRows(run) {
  const rows = new Map();
  for (const one of run.record?.agents ?? []) {
    rows.set(one.agent, { agent: one.agent, node: one.node, start: one.start, stop: one.stop, rate: one.rate, kind: one.kind });
  }
  for (const one of run.statistics?.agents ?? []) {
    rows.set(one.agent, { ...rows.get(one.agent), ...one, rate: one.items_per_second });
  }
  return [...rows.values()].sort((one, other) => one.agent - other.agent);
}

const time = (name) => (row) => (row[name] === undefined ? "" : seconds(row[name]));
const number = (name) => (row) => (row[name] === undefined ? "" : count(row[name]));
const by = (name) => (row) => row[name] ?? 0;

const SUMS = [
  { name: "agent", cell: (row) => row.name },
  { name: "worked", cell: time("work"), sort: by("work"), number: true },
  { name: "waited", cell: time("wait"), sort: by("wait"), number: true },
  { name: "last in iterations", cell: (row) => String(row.slowest), sort: by("slowest"), number: true },
  { name: "others waited for it", cell: time("cost"), sort: by("cost"), number: true },
];
const AGENTS = [
  { name: "agent", cell: (row) => String(row.agent), number: true },
  { name: "node", cell: (row) => row.node ?? "", optional: true },
  { name: "slice", cell: (row) => `${row.start}..${row.stop}`, sort: by("start") },
  { name: "items", cell: (row) => count(row.stop - row.start), sort: (row) => row.stop - row.start, number: true },
  { name: "items/s", cell: number("rate"), sort: by("rate"), number: true },
  { name: "calls", cell: (row) => String(row.calls ?? ""), sort: by("calls"), number: true, optional: true },
  { name: "errors", cell: (row) => String(row.errors ?? ""), sort: by("errors"), number: true, optional: true },
  { name: "in map", cell: time("map_seconds"), sort: by("map_seconds"), number: true },
  { name: "waiting", cell: time("wait_seconds"), sort: by("wait_seconds"), number: true },
];
const MOVES = [
  { name: "at", cell: time("at"), sort: by("at"), number: true },
  { name: "items", cell: number("items"), sort: by("items"), number: true },
  { name: "from agent", cell: (row) => String(row.source), sort: by("source"), number: true },
  { name: "to agent", cell: (row) => String(row.target), sort: by("target"), number: true },
  { name: "why", cell: (row) => row.reason },
];
const LATE = [
  { name: "at", cell: time("at"), sort: by("at"), number: true },
  { name: "iteration", cell: (row) => String(row.iteration), sort: by("iteration"), number: true, optional: true },
  { name: "straggler", cell: (row) => String(row.agent), sort: by("agent"), number: true },
  { name: "asked", cell: (row) => String(row.by), sort: by("by"), number: true },
  { name: "items", cell: (row) => `${row.start}..${row.stop}`, sort: by("start"), optional: true },
  { name: "what came of it", cell: outcomeOf },
];
const LOSSES = [
  { name: "at", cell: time("at"), sort: by("at"), number: true },
  { name: "agent", cell: (row) => String(row.agent), number: true },
  { name: "what", cell: (row) => row.what },
  { name: "why", cell: (row) => row.reason ?? "" },
];
const FUNCTIONS = [
  { name: "function", cell: (row) => row.name },
  { name: "agent", cell: (row) => String(row.agent), sort: by("agent"), number: true },
  { name: "node", cell: (row) => row.node ?? "", sort: by("node"), optional: true },
  { name: "calls", cell: (row) => String(row.calls), sort: by("calls"), number: true },
  { name: "errors", cell: (row) => String(row.errors), sort: by("errors"), number: true, optional: true },
  { name: "mean", cell: time("mean"), sort: by("mean"), number: true },
  { name: "p50", cell: time("p50"), sort: by("p50"), number: true, optional: true },
  { name: "p95", cell: time("p95"), sort: by("p95"), number: true, optional: true },
  { name: "max", cell: time("maximum"), sort: by("maximum"), number: true },
  { name: "in", cell: (row) => size(row.bytes_in), sort: by("bytes_in"), number: true, optional: true },
  { name: "out", cell: (row) => size(row.bytes_out), sort: by("bytes_out"), number: true, optional: true },
  { name: "device", cell: time("device_seconds"), sort: by("device_seconds"), number: true, optional: true },
];
