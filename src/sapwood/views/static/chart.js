// Lines over time, and bars of progress.

import { ticks } from "./timeline.js";
import { View } from "./view.js";
import { h, seconds, svg } from "./words.js";

const SIZE = { height: 150, left: 58, right: 10, top: 8, bottom: 20 };
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
    home.append(h("figure", {}, h("figcaption", {}, title), this.picture));
    this.observe(home, () => this.draw());
  }

  /** Show [{name, points: [[seconds, value]]}]; `label` makes words of a time. */
  show(series, label = seconds) {
    this.series = series;
    this.label = label;
    this.draw();
  }

  draw() {
    const series = (this.series ?? []).filter((one) => one.points.length);
    const width = this.home.clientWidth || 480;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${SIZE.height}`);
    this.picture.setAttribute("width", width);
    this.picture.setAttribute("height", SIZE.height);
    if (!series.length) {
      this.picture.setAttribute("aria-label", `${this.title}: nothing yet`);
      this.picture.replaceChildren(svg("text", { x: 12, y: 40, class: "detail" }, "Nothing yet."));
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
    const right = width - SIZE.right;
    const bottom = SIZE.height - SIZE.bottom;
    const x = (time) => SIZE.left + ((time - first) / (last - first)) * (right - SIZE.left);
    const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - SIZE.top);
    const parts = [];
    for (const value of ticks(low, high, 3)) {
      const at = y(value);
      parts.push(svg("path", { d: `M${SIZE.left} ${at}H${right}`, class: "grid" }));
      parts.push(svg("text", { x: SIZE.left - 6, y: at + 4, class: "detail end" }, this.format(Number(value.toPrecision(9)))));
    }
    for (const time of ticks(first, last, Math.floor((right - SIZE.left) / 84))) {
      parts.push(svg("text", { x: Math.min(x(time), right - 44), y: SIZE.height - 5, class: "detail" }, this.label(time)));
    }
    series.forEach((one, index) => {
      const path = thinned(one.points, right - SIZE.left).map(([time, value], at) => `${at ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`);
      parts.push(svg("path", { d: path.join(""), class: `curve curve${index % 6}` }));
    });
    this.picture.setAttribute("aria-label", `${this.title}: ${series.map((one) => `${one.name} ${this.format(one.points.at(-1)[1])}`).join(", ")} now`);
    this.picture.replaceChildren(...parts);
  }
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
