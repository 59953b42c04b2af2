// The timeline of a run: a row an agent, who worked when, and who waited for whom.

import { View } from "./view.js";
import { h, plural, seconds } from "./words.js";

const KINDS = {
  work: ["--work", "works"],
  wait: ["--wait", "waits for others"],
  update: ["--update", "update at the root"],
  prepare: ["--prepare", "prepares"],
};
const MARKS = {
  slow: ["--slow", "the others waited for this one"],
  lost: ["--lost", "an agent was lost"],
  moved: ["--moved", "items moved to another agent"],
  used: ["--used", "items of a straggler: the other agent was faster"],
  unused: ["--unused", "items of a straggler: also given to another agent"],
  checkpoint: ["--checkpoint", "a checkpoint"],
};
const AXIS = 22; // pixels
const ROW = { most: 20, least: 3, all: 420 }; // heights, and of all rows if that is possible
const LABELS = 62; // pixels for the names of rows
const NARROW = 3 * LABELS; // a timeline that is not wider shows no names
const LABEL_HEIGHT = 11;
const ZOOM = 1.6;
const PAN = 0.2;
const MOST_TICKS = 50;
const APART = 16; // pixels between words of an axis
const NEAR = 5; // pixels between the pointer and a mark that it means
const HEAD = 4; // of an arrow, pixels

/** Seconds between the lines of a time axis that has room for so many. */
function step(length, lines) {
  const rough = length / Math.max(1, lines);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? power;
}

/** The lines of an axis: at multiples of a step, as many as there are, within bounds. */
export function ticks(from, to, lines) {
  const each = step(to - from, lines);
  const first = Math.ceil(from / each) * each;
  const found = [];
  for (let number = 0; number < MOST_TICKS && first + number * each <= to; number += 1) found.push(first + number * each);
  return found;
}

/** A timeline that can be zoomed and moved, by buttons, keys and the pointer. */
export class Timeline extends View {
  /**
   * @param {HTMLElement} home Where it is drawn.
   * @param {string} title What it is, for those who do not see it.
   */
  constructor(home, title) {
    super();
    this.window = null;
    this.canvas = h("canvas", {
      tabindex: 0,
      role: "img",
      class: "timeline",
      "aria-label": `${title}. Arrow keys move, plus and minus zoom, 0 shows all. The table below has the sums.`,
    });
    this.said = h("p", { class: "said" }, "Point at a span to see what it is.");
    const button = (text, label, act) => h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    this.legend = h("ul", { class: "legend", "aria-label": "What the colours mean" });
    home.append(
      h(
        "div",
        { class: "bar" },
        this.legend,
        h(
          "div",
          { class: "buttons" },
          button("+", "Zoom in", () => this.zoom(1 / ZOOM)),
          button("−", "Zoom out", () => this.zoom(ZOOM)),
          button("◀", "Earlier", () => this.pan(-PAN)),
          button("▶", "Later", () => this.pan(PAN)),
          button("All", "Show the whole run", () => this.whole()),
        ),
      ),
      this.canvas,
      this.said,
    );
    this.#listen();
    this.observe(home, () => this.draw());
    this.listen(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.draw());
    this.home = home;
  }

  /** Show {rows: [{name, spans: [[start, stop, kind, iteration]]}], marks, length, begin}. */
  show(data) {
    const begin = data.begin ?? 0;
    if (!this.window || !this.data) this.window = [begin, data.length || 1];
    else if (this.window[1] >= this.data.length) this.window = [this.window[0], data.length];
    this.data = data;
    const kinds = new Set(data.rows.flatMap((row) => row.spans.map((span) => span[2])));
    const marks = new Set(data.marks.map((mark) => mark.kind));
    const entry = (name, text, shape) => h("li", {}, h("span", { class: `swatch ${shape} ${name.slice(2)}`, "aria-hidden": "true" }), ` ${text}`);
    this.legend.replaceChildren(
      ...Object.keys(KINDS).filter((kind) => kinds.has(kind)).map((kind) => entry(...KINDS[kind], "box")),
      ...Object.keys(MARKS).filter((kind) => marks.has(kind)).map((kind) => entry(...MARKS[kind], "line")),
    );
    this.draw();
  }

  whole() {
    this.window = [0, this.data.length || 1];
    this.draw();
  }

  zoom(factor, at = 0.5) {
    const [from, to] = this.window;
    const length = Math.min(this.data.length, Math.max(1e-5, (to - from) * factor));
    this.#move(from + (to - from - length) * at, length);
  }

  pan(share) {
    const [from, to] = this.window;
    this.#move(from + (to - from) * share, to - from);
  }

  #move(from, length) {
    const begin = Math.max(0, Math.min(this.data.length - length, from));
    this.window = [begin, begin + length];
    this.draw();
  }

  #listen() {
    const keys = {
      ArrowLeft: () => this.pan(-PAN),
      ArrowRight: () => this.pan(PAN),
      "+": () => this.zoom(1 / ZOOM),
      "=": () => this.zoom(1 / ZOOM),
      "-": () => this.zoom(ZOOM),
      0: () => this.whole(),
    };
    this.canvas.addEventListener("keydown", (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      act();
    });
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // else the page is scrolled
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? ZOOM : 1 / ZOOM, this.#share(event));
    }, { passive: false });
    let dragged = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      dragged = this.#share(event);
    });
    this.listen(globalThis, "pointerup", () => {
      dragged = null;
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const share = this.#share(event);
      if (dragged !== null) {
        this.pan(dragged - share);
        dragged = share;
      } else {
        this.#say(event, share);
      }
    });
  }

  #share(event) {
    const box = this.canvas.getBoundingClientRect();
    return (event.clientX - box.left - this.left) / Math.max(1, box.width - this.left);
  }

  #say(event, share) {
    const row = this.data.rows[Math.floor((event.offsetY - AXIS) / this.rowHeight)];
    if (!row || share < 0) return;
    const [from, to] = this.window;
    const time = from + share * (to - from);
    const mark = this.#markNear(event, time);
    if (mark) {
      this.said.textContent = `${mark.text} (${seconds(mark.time)})`;
      return;
    }
    const span = row.spans[lastBefore(row.spans, time)];
    const found = span && span[1] >= time ? span : null;
    const when = found ? `${seconds(found[0])} to ${seconds(found[1])}` : seconds(time);
    const what = found ? `${KINDS[found[2]][1]} for ${seconds(found[1] - found[0])}${found[3] ? `, iteration ${found[3]}` : ""}` : "nothing noted";
    this.said.textContent = `${row.name}: ${what} (${when})`;
  }

  /** The mark with a text that is drawn where the pointer is. */
  #markNear(event, time) {
    const [from, to] = this.window;
    const width = Math.max(1, (this.home.clientWidth || 640) - this.left);
    const reach = (NEAR * (to - from)) / width;
    const row = Math.floor((event.offsetY - AXIS) / this.rowHeight);
    const passes = (mark) => Math.min(mark.from, mark.row) <= row && row <= Math.max(mark.from, mark.row);
    const near = this.data.marks.filter((mark) => mark.text && Math.abs(mark.time - time) <= reach && passes(mark));
    const distance = (mark) => Math.abs(mark.time - time) + (mark.row === row || mark.from === row ? 0 : reach);
    return near.sort((one, other) => distance(one) - distance(other))[0];
  }

  draw() {
    if (!this.data) return;
    const width = this.home.clientWidth || 640;
    const left = width > NARROW ? LABELS : 0;
    this.left = left;
    const rows = this.data.rows;
    const tall = Math.max(ROW.least, Math.min(ROW.most, Math.floor(ROW.all / Math.max(1, rows.length))));
    this.rowHeight = tall;
    const height = AXIS + tall * rows.length + 2;
    const sharp = globalThis.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * sharp)) this.canvas.width = Math.round(width * sharp);
    if (this.canvas.height !== Math.round(height * sharp)) this.canvas.height = Math.round(height * sharp);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    const [from, to] = this.window;
    const scale = (width - left) / (to - from);
    const at = (time) => left + (time - from) * scale;
    this.#drawAxis(pen, colour, at, width, height);
    const colours = Object.fromEntries(Object.entries(KINDS).map(([kind, [name]]) => [kind, colour(name)]));
    rows.forEach((row, index) => drawRow(pen, row, AXIS + index * tall, tall, { from, to, at, left, colours }));
    const every = Math.max(1, Math.ceil(LABEL_HEIGHT / tall));
    pen.fillStyle = colour("--text");
    pen.textAlign = "left";
    rows.forEach((row, index) => {
      if (left && index % every === 0) pen.fillText(row.name, 0, AXIS + (index + 0.5) * tall + 3.5, LABELS - 6);
    });
    this.#drawMarks(pen, colour, { at, from, to, tall, height });
  }

  #drawAxis(pen, colour, at, width, height) {
    const [from, to] = this.window;
    pen.font = "11px system-ui, sans-serif";
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--quiet");
    pen.textAlign = "left";
    pen.beginPath();
    const text = (time) => seconds(Number(time.toPrecision(9)));
    const wide = Math.max(pen.measureText(text(from)).width, pen.measureText(text(to)).width) + APART;
    let free = this.left;
    for (const time of ticks(from, to, Math.floor((width - this.left) / wide))) {
      const x = Math.round(at(time)) + 0.5;
      pen.moveTo(x, AXIS - 8);
      pen.lineTo(x, height);
      const needed = pen.measureText(text(time)).width;
      const start = Math.min(x + 3, width - needed);
      if (start < free) continue;
      pen.fillText(text(time), start, AXIS - 9);
      free = start + needed + APART / 2;
    }
    pen.stroke();
  }

  #drawMarks(pen, colour, { at, from, to, tall, height }) {
    for (const mark of this.data.marks) {
      if (mark.time < from || mark.time > to) continue;
      const row = mark.row ?? -1;
      const top = row < 0 ? AXIS : AXIS + row * tall;
      pen.fillStyle = colour(MARKS[mark.kind][0]);
      if (mark.from >= 0 && row >= 0 && mark.from !== row) {
        drawArrow(pen, at(mark.time), AXIS + (mark.from + 0.5) * tall, AXIS + (row + 0.5) * tall, Math.min(HEAD, tall));
        continue;
      }
      pen.fillRect(at(mark.time) - 1, top, 2, row < 0 ? height - AXIS : tall);
    }
  }
}

function drawRow(pen, row, top, tall, { from, to, at, left, colours }) {
  const gap = tall > 6 ? 2 : 0;
  let drawn = -1; // up to which pixel, so that spans too small to see cost nothing
  for (let index = Math.max(0, lastBefore(row.spans, from)); index < row.spans.length; index += 1) {
    const [start, stop, kind] = row.spans[index];
    if (start > to) break;
    if (stop < from) continue;
    const x = Math.max(left, at(start));
    const end = at(stop);
    if (end - drawn < 0.3) continue;
    pen.fillStyle = colours[kind];
    pen.fillRect(x, top + gap / 2, Math.max(0.6, Math.min(end, at(to)) - x), tall - gap);
    drawn = end;
  }
}

/** From one row to another: a dot where it begins, and a head where it ends. */
function drawArrow(pen, x, start, stop, head) {
  const way = Math.sign(stop - start);
  pen.fillRect(x - 0.75, Math.min(start, stop), 1.5, Math.abs(stop - start));
  pen.beginPath();
  pen.arc(x, start, head / 2, 0, 2 * Math.PI);
  pen.fill();
  pen.beginPath();
  pen.moveTo(x, stop + (way * head) / 2);
  pen.lineTo(x - head, stop - way * head);
  pen.lineTo(x + head, stop - way * head);
  pen.fill();
}

function lastBefore(spans, time) {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle][0] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Who worked, who waited and for whom, in sums: a row for the table beside a timeline. */
export function shares(rows, marks) {
  return rows.map((row, index) => {
    const sum = (kind) => row.spans.reduce((all, span) => all + (span[2] === kind ? span[1] - span[0] : 0), 0);
    const slow = marks.filter((mark) => mark.kind === "slow" && mark.row === index);
    return {
      name: row.name,
      work: sum("work") + sum("update"),
      wait: sum("wait"),
      slowest: slow.length,
      cost: slow.reduce((all, mark) => all + (mark.cost ?? 0), 0),
    };
  });
}

/** The result of shares() in one sentence. */
export function verdict(found) {
  const agents = found.filter((one) => one.name !== "root");
  const slowest = agents.reduce((best, one) => (one.cost > (best?.cost ?? 0) ? one : best), null);
  const work = agents.reduce((sum, one) => sum + one.work, 0);
  const wait = agents.reduce((sum, one) => sum + one.wait, 0);
  if (!work) return "No agent has worked yet.";
  const share = Math.round((100 * wait) / (work + wait));
  const text = `The agents worked ${100 - share} % of the time and waited ${share} %.`;
  if (!slowest || share < 5) return text;
  return `${text} They waited most for ${slowest.name}: in ${plural(slowest.slowest, "iteration")}, ${seconds(slowest.cost)} of all agents together.`;
}
