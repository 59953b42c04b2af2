// A flame graph of a profile: a row for each depth, wide where samples are many, and the functions as a table.

import { Table } from "./table.js";
import { count, h, plural, seconds } from "./words.js";

const LEAST_PART = 0.001; // of the width: narrower frames are not drawn
const ROW_HEIGHT = 20; // pixels
const MOST_FUNCTIONS = 200; // of the table

const shortName = (frame) => (frame.file ? `${frame.function} (${frame.file.split("/").at(-1)})` : frame.function);

/** The stacks of a profile as a tree of {name, samples, own, children}. */
export function flameTree(profile) {
  const node = (name, file) => ({ name, file, samples: 0, own: 0, children: new Map() });
  const root = node("all user code", "");
  for (const { frames, samples } of profile.stacks) {
    let at = root;
    at.samples += samples;
    for (const frame of frames) {
      const name = shortName(frame);
      if (!at.children.has(name)) at.children.set(name, node(name, frame.file));
      at = at.children.get(name);
      at.samples += samples;
    }
    at.own += samples;
  }
  if (profile.others) {
    const rest = node("other stacks", "");
    rest.samples = rest.own = profile.others;
    root.samples += profile.others;
    root.children.set(rest.name, rest);
  }
  return root;
}

/** How often each function was innermost, and how often it was in a stack. */
export function hotFunctions(profile) {
  const rows = new Map();
  const row = (frame) => {
    const name = shortName(frame);
    if (!rows.has(name)) rows.set(name, { name, own: 0, all: 0 });
    return rows.get(name);
  };
  for (const { frames, samples } of profile.stacks) {
    for (const one of new Set(frames.map(row))) one.all += samples;
    row(frames.at(-1)).own += samples;
  }
  return [...rows.values()].sort((one, other) => other.own - one.own);
}

/** A flame graph; a frame that is chosen fills the width. */
export class FlameGraph {
  /** @param {HTMLElement} home Where it is drawn. */
  constructor(home) {
    this.sentence = h("p", {});
    this.said = h("p", { class: "said" }, "Point at a frame to see what it is. Click it to see it as wide as possible.");
    this.drawing = h("div", { class: "flame", role: "group", "aria-label": "Flame graph" });
    this.hot = new Table("Functions of the profile", HOT, { key: (row) => row.name, empty: "No user code was seen.", search: true });
    home.append(this.sentence, this.drawing, this.said, h("details", {}, h("summary", {}, "Functions as a table"), this.hot.element));
  }

  /** Show a ProfileResult. */
  show(profile) {
    this.root = flameTree(profile);
    const all = this.root.samples;
    const idle = profile.idle ? ` In ${Math.round((100 * profile.idle) / (all + profile.idle))} % of all samples a runner executed no user code.` : "";
    this.sentence.textContent = `${plural(all, "sample")} of ${plural(profile.agents, "agent")} in ${seconds(profile.seconds)}.${idle}`;
    this.hot.show(hotFunctions(profile).slice(0, MOST_FUNCTIONS).map((row) => ({ ...row, whole: all })));
    this.#draw([this.root]);
  }

  #draw(way) {
    const whole = way.at(-1);
    const blocks = way.slice(0, -1).map((node, depth) => this.#block(node, { left: 0, part: 1, depth, way: way.slice(0, depth + 1) }));
    let deepest = way.length;
    const add = (node, left, depth, path) => {
      const part = node.samples / whole.samples;
      if (!(part >= LEAST_PART)) return;
      deepest = Math.max(deepest, depth + 1);
      blocks.push(this.#block(node, { left, part, depth, way: path }));
      let at = left;
      for (const child of node.children.values()) {
        add(child, at, depth + 1, [...path, child]);
        at += child.samples / whole.samples;
      }
    };
    add(whole, 0, way.length - 1, way);
    this.drawing.replaceChildren(...blocks);
    this.drawing.style.height = `${deepest * ROW_HEIGHT}px`;
  }

  #block(node, { left, part, depth, way }) {
    const share = Math.round((1000 * node.samples) / this.root.samples) / 10;
    const text = `${node.name}: ${plural(node.samples, "sample")}, ${share} % (${node.own} in the function itself)`;
    const say = () => {
      this.said.textContent = node.file ? `${text}, ${node.file}` : text;
    };
    const block = h("button", { type: "button", title: text, "aria-label": text, onclick: () => this.#draw(way), onpointerenter: say, onfocus: say }, node.name);
    block.style.left = `${100 * left}%`;
    block.style.width = `${100 * part}%`;
    block.style.top = `${depth * ROW_HEIGHT}px`;
    block.style.background = colourOf(node.name);
    return block;
  }
}

/** The same warm colour for a function each time. */
function colourOf(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) % 997;
  return `hsl(${20 + (hash % 40)} ${60 + (hash % 30)}% ${66 + (hash % 14)}%)`;
}

const percent = (part, row) => `${((100 * part) / row.whole).toFixed(1)} %`;

const HOT = [
  { name: "function", cell: (row) => row.name },
  { name: "itself", cell: (row) => percent(row.own, row), sort: (row) => row.own, number: true },
  { name: "with callees", cell: (row) => percent(row.all, row), sort: (row) => row.all, number: true },
  { name: "samples", cell: (row) => count(row.all), sort: (row) => row.all, number: true, optional: true },
];
