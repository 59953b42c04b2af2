// Lines over time, and bars of progress.

import { ticks } from "./timeline.js";
import { View } from "./view.js";
import { h, seconds, svg } from "./words.js";

const SIZE = { height: 150, right: 10, top: 8, bottom: 20 };
const LABEL = { letter: 7.2, gap: 6, between: 20, share: 0.5 }; // pixels, and the most of a chart that labels of values take
const SHORTEST = 0.01; // seconds that a chart is wide at least

/** A chart of one or several lines over time. */
export class Chart extends View {
  /**
   * @param {HTMLElement} home Where it is drawn.
   * @param {string} title What it shows.
   * @param {(value: number) => string} format Its figures.
   */
  constructor(home, title, format) {
    super();
    this.home = home;
    this.title = title;
    this.format = format;
    this.picture = svg("svg", { role: "img", class: "chart" });
    this.figure = h("figure", {}, h("figcaption", {}, title), this.picture);
    home.append(this.figure);
    this.observe(this.figure, () => this.draw());
  }

  /** Show [{name, points: [[seconds, value]]}]; `label` makes words of a time. */
  show(series, label = seconds) {
    this.series = series;
    this.label = label;
    this.draw();
  }

  draw() {
    const series = (this.series ?? []).filter((one) => one.points.length);
    const width = this.figure.clientWidth;
    if (!width) return; // it is hidden: the observer calls when it is not
    this.picture.setAttribute("viewBox", `0 0 ${width} ${SIZE.height}`);
    this.picture.setAttribute("width", width);
    this.picture.setAttribute("height", SIZE.height);
    if (!series.length) {
      this.picture.setAttribute("aria-label", `${this.title}: nothing yet`);
      this.picture.replaceChildren(svg("text", { x: 12, y: 40, class: "detail" }, "No data yet."));
      return;
    }
    const points = series.flatMap((one) => one.points);
    const times = points.map((point) => point[0]);
    const values = points.map((point) => point[1]);
    const first = Math.min(...times);
    const last = Math.max(...times, first + SHORTEST);
    const low = Math.min(0, ...values);
    let high = Math.max(...values);
    if (high === low) high = low + 1;
    const right = Math.max(1, width - SIZE.right);
    const bottom = SIZE.height - SIZE.bottom;
    const scale = labelled(ticks(low, high, 3), (value) => this.format(Number(value.toPrecision(9))));
    const space = Math.max(...scale.map((tick) => tick.width)) + LABEL.gap;
    const left = space <= width * LABEL.share ? space : 0; // else there is no room for labels
    const pixels = Math.max(1, right - left);
    const x = (time) => left + ((time - first) / (last - first)) * pixels;
    const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - SIZE.top);
    const parts = [];
    for (const { value, text } of scale) {
      const at = y(value);
      parts.push(svg("path", { d: `M${left} ${at}H${right}`, class: "grid" }));
      if (left) parts.push(svg("text", { x: left - LABEL.gap, y: at + 4, class: "detail end" }, text));
    }
    const wide = Math.max(letters(this.label(first)), letters(this.label(last))) + LABEL.between;
    let free = left;
    for (const { value, text, width: needed } of labelled(ticks(first, last, Math.floor(pixels / wide)), this.label)) {
      const isLast = x(value) + needed > width;
      const at = isLast ? width - needed : x(value);
      if (at < free) continue;
      parts.push(svg("text", { x: isLast ? width : at, y: SIZE.height - 5, class: isLast ? "detail end" : "detail" }, text));
      free = at + needed + LABEL.gap;
    }
    series.forEach((one, index) => {
      const path = thinned(one.points, pixels).map(([time, value], at) => `${at ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`);
      const isDot = path.length === 1;
      if (isDot) path.push("h0.1");
      parts.push(svg("path", { d: path.join(""), class: `curve curve${index % 6}${isDot ? " dot" : ""}` }));
    });
    this.picture.setAttribute("aria-label", `${this.title}: ${series.map((one) => `${one.name} ${this.format(one.points.at(-1)[1])}`).join(", ")} now`);
    this.picture.replaceChildren(...parts);
  }
}

const letters = (text) => text.length * LABEL.letter;

/** Values with their words, and how wide these are; words that the next value has as well are left out. */
function labelled(values, format) {
  const texts = values.map((value) => format(value));
  return values.map((value, at) => ({ value, text: texts[at] === texts[at + 1] ? "" : texts[at], width: letters(texts[at]) }));
}

/** Points of which no two share a pixel, except the least and the greatest there. */
function thinned(points, pixels) {
  if (points.length <= pixels * 2) return points;
  const each = Math.ceil(points.length / pixels);
  const kept = [];
  for (let from = 0; from < points.length; from += each) {
    const part = points.slice(from, from + each);
    const ordered = [...part].sort((one, other) => one[1] - other[1]);
    const both = [ordered[0], ordered.at(-1)].sort((one, other) => one[0] - other[0]);
    kept.push(...both);
  }
  return kept;
}

/** How far something is, as a bar and as words. */
export function progressBar(done, planned, text) {
  const bar = h("progress", planned ? { max: planned, value: Math.min(done, planned), "aria-label": text } : { "aria-label": text });
  return h("div", { class: "progress" }, bar, h("span", {}, text));
}
