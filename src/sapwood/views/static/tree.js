// The drawing of a tree: a tile a place, with its state and its load. Many siblings are one tile.

import { View } from "./view.js";
import { folded, h, plural, sign, sorted, svg, tone } from "./words.js";

const MANY = 60; // places above which siblings are folded
const FEW = 12; // siblings that are never folded
const GROUPS = 24; // tiles at most that the siblings of a place are folded into
const TILE = { width: 148, height: 40, gap: 8, indent: 26 };
const LEAST = 32; // pixels of a tile: below that, the drawing is wider than its home
const CELL = 6; // of a member in the tile of a group, pixels

/** A drawing that keeps what the user has unfolded while what it shows changes. */
export class TreeDrawing extends View {
  /**
   * @param {HTMLElement} home Where it is drawn.
   * @param {string} title What it is, for those who do not see it.
   */
  constructor(home, title) {
    super();
    this.home = home;
    this.title = title;
    this.open = new Set();
    this.tiles = new Map();
    this.root = null;
    this.canvas = svg("svg", { role: "group", "aria-label": title, class: "tree" });
    this.lines = svg("path", { class: "edges" });
    this.canvas.append(this.lines);
    home.append(this.canvas);
    this.width = 0;
    this.observe(home, () => {
      if (this.root && home.clientWidth !== this.width) this.draw();
    });
  }

  /** Show a tree: {id, name, state, load, detail, href, children}. */
  show(root) {
    this.root = root;
    this.draw();
  }

  draw() {
    this.width = this.home.clientWidth || 640;
    const shown = foldedTree(this.root, this.open);
    const placed = [];
    const edges = [];
    const height = place(shown, 0, 0, this.width, placed, edges);
    this.canvas.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    set(this.canvas, "width", this.width);
    set(this.canvas, "height", height);
    set(this.lines, "d", edges.join(""));
    const seen = new Set();
    for (const tile of placed) {
      seen.add(tile.vertex.id);
      let drawn = this.tiles.get(tile.vertex.id);
      if (drawn && drawn.folds !== Boolean(tile.vertex.members)) {
        drawn.group.remove(); // the tree was small before, or is so now
        drawn = null;
      }
      if (!drawn) {
        const { id } = tile.vertex;
        drawn = new Tile(tile.vertex, () => this.toggle(id));
        this.tiles.set(tile.vertex.id, drawn);
      }
      if (drawn.group.parentNode !== this.canvas) this.canvas.append(drawn.group);
      drawn.update(tile);
    }
    for (const [id, drawn] of this.tiles) {
      if (!seen.has(id)) {
        drawn.group.remove();
        this.tiles.delete(id);
      }
    }
  }

  toggle(id) {
    if (!this.open.delete(id)) this.open.add(id);
    this.draw();
    this.tiles.get(id)?.group.focus();
  }
}

function set(element, name, value) {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** The number of places of a tree. */
export function placesOf(root) {
  return 1 + (root.children ?? []).reduce((sum, child) => sum + placesOf(child), 0);
}

/** A tree in which many leaves of one place are groups, unless they are unfolded. */
export function foldedTree(root, open, many = placesOf(root) > MANY) {
  const children = root.children ?? [];
  let inner = children.filter((child) => child.children?.length);
  let leaves = children.filter((child) => !child.children?.length);
  if (many) {
    inner = inner.map((child) => foldedBranch(child, open));
    if (inner.length > MANY) inner = groupsOf(root, inner, open);
    if (leaves.length > FEW) leaves = groupsOf(root, leaves, open);
  } else {
    inner = inner.map((child) => foldedTree(child, open, many));
  }
  return { ...root, children: [...inner, ...leaves] };
}

/** An inner place of a large tree as one tile with a square for each place below it, unless it is unfolded. */
function foldedBranch(branch, open) {
  const members = below(branch);
  if (open.has(branch.id)) return { ...foldedTree(branch, open, true), members, isOpen: true };
  const load = meanLoad(members);
  return { ...branch, state: worstOf([branch, ...members]), load, detail: counted(members), members, isOpen: false, children: [] };
}

function meanLoad(places) {
  const loads = places.map((one) => one.load).filter((load) => load !== null && load !== undefined);
  return loads.length ? loads.reduce((sum, load) => sum + load, 0) / loads.length : null;
}

function counted(places) {
  const states = new Map();
  for (const one of places) states.set(one.state, (states.get(one.state) ?? 0) + 1);
  return [...states].map(([state, number]) => `${number} ${state}`).join(", ");
}

function below(vertex) {
  return (vertex.children ?? []).flatMap((child) => [child, ...below(child)]);
}

function worstOf(places) {
  const worst = ["bad", "poor", "busy", "none", "good"].find((one) => places.some((each) => tone(each.state) === one));
  return places.find((one) => tone(one.state) === worst).state;
}

function groupsOf(root, leaves, open) {
  const byName = new Map(leaves.map((leaf) => [leaf.name, leaf]));
  const names = sorted(byName.keys());
  const length = Math.ceil(names.length / Math.min(GROUPS, Math.ceil(names.length / FEW)));
  const groups = [];
  for (let from = 0; from < names.length; from += length) {
    const members = names.slice(from, from + length).map((name) => byName.get(name));
    const id = `${root.id}/${members[0].id}+`;
    groups.push({
      id,
      name: folded(members.map((one) => one.name)),
      noun: root.noun,
      state: worstOf(members),
      load: meanLoad(members),
      detail: counted(members),
      members,
      isOpen: open.has(id),
      children: open.has(id) ? members : [],
    });
  }
  return groups;
}

/** Place a vertex and what is below it; return the height that they take. */
function place(vertex, x, y, width, placed, edges) {
  const wide = Math.max(LEAST, Math.min(TILE.width, width));
  const own = tileHeight(vertex, wide);
  placed.push({ vertex, x, y, width: wide, height: own });
  const children = vertex.children ?? [];
  if (!children.length) return own;
  const left = x + TILE.indent;
  const room = width - TILE.indent;
  const stem = x + TILE.indent / 2;
  let below = y + own + TILE.gap;
  let last = y + own;
  const branch = (top) => {
    edges.push(`M${stem} ${top}H${left}`);
    last = top;
  };
  let row = [];
  const flush = () => {
    if (!row.length) return;
    const columns = Math.max(1, Math.floor((room + TILE.gap) / (TILE.width + TILE.gap)));
    for (let from = 0; from < row.length; from += columns) {
      const line = row.slice(from, from + columns);
      const each = Math.max(LEAST, Math.min(TILE.width, (room - (columns - 1) * TILE.gap) / columns));
      const tall = Math.max(...line.map((child) => tileHeight(child, each)));
      branch(below + 20);
      line.forEach((child, column) => {
        const at = left + column * (each + TILE.gap);
        if (column) edges.push(`M${at - TILE.gap} ${below + 20}H${at}`);
        placed.push({ vertex: child, x: at, y: below, width: each, height: tileHeight(child, each) });
      });
      below += tall + TILE.gap;
    }
    row = [];
  };
  for (const child of children) {
    if (child.children?.length) {
      flush();
      branch(below + 20);
      below += place(child, left, below, room, placed, edges) + TILE.gap;
    } else {
      row.push(child);
    }
  }
  flush();
  edges.push(`M${stem} ${y + own}V${last}`);
  return below - y - TILE.gap;
}

function tileHeight(vertex, width) {
  if (!vertex.members || vertex.isOpen) return TILE.height;
  const columns = Math.floor((width - 16) / (CELL + 1));
  return TILE.height + 4 + Math.ceil(vertex.members.length / columns) * (CELL + 1);
}

class Tile {
  constructor(vertex, toggle) {
    this.rect = svg("rect", { rx: 5, class: "tile" });
    this.sign = svg("text", { x: 8, y: 16, class: "sign", "aria-hidden": "true" });
    this.name = svg("text", { x: 22, y: 16, class: "name" });
    this.detail = svg("text", { x: 8, y: 29, class: "detail" });
    this.track = svg("rect", { x: 8, y: 33, height: 3, class: "track" });
    this.load = svg("rect", { x: 8, y: 33, height: 3, class: "load" });
    this.tip = svg("title", {});
    this.cells = [];
    const parts = [this.tip, this.rect, this.sign, this.name, this.detail, this.track, this.load];
    const folds = Boolean(vertex.members);
    this.folds = folds;
    this.group = folds
      ? svg("g", { tabindex: 0, role: "button", class: "place" }, parts)
      : svg(vertex.href ? "a" : "g", { href: vertex.href, class: "place" }, parts);
    if (folds) {
      this.group.addEventListener("click", toggle);
      this.group.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          toggle();
        }
      });
    }
  }

  update({ vertex, x, y, width, height }) {
    set(this.group, "transform", `translate(${x},${y})`);
    set(this.group, "class", `place ${tone(vertex.state)}`);
    set(this.rect, "width", width);
    set(this.rect, "height", height);
    write(this.sign, vertex.members ? (vertex.isOpen ? "▾" : "▸") : sign(vertex.state));
    const room = Math.floor((width - 28) / 7.2);
    write(this.name, shortened(vertex.name, room));
    write(this.detail, shortened(vertex.detail ?? vertex.state, Math.floor((width - 14) / 5.6)));
    const known = vertex.load !== null && vertex.load !== undefined;
    set(this.track, "width", known ? width - 16 : 0);
    set(this.load, "width", known ? Math.max(0, Math.min(1, vertex.load)) * (width - 16) : 0);
    const load = known ? `, load ${Math.round(vertex.load * 100)} % of its cores` : "";
    const text = `${vertex.name}: ${vertex.state}, ${vertex.detail ?? ""}${load}`;
    write(this.tip, text);
    set(this.group, "aria-label", vertex.members ? `${text}. ${plural(vertex.members.length, vertex.noun ?? "node")}` : text);
    if (this.folds) set(this.group, "aria-expanded", vertex.isOpen);
    this.#drawCells(vertex.members && !vertex.isOpen ? vertex.members : [], width);
  }

  #drawCells(members, width) {
    const columns = Math.floor((width - 16) / (CELL + 1));
    while (this.cells.length > members.length) this.cells.pop().remove();
    members.forEach((one, index) => {
      let cell = this.cells[index];
      if (!cell) {
        cell = svg("rect", { width: CELL, height: CELL });
        this.cells.push(cell);
        this.group.append(cell);
      }
      set(cell, "x", 8 + (index % columns) * (CELL + 1));
      set(cell, "y", TILE.height + Math.floor(index / columns) * (CELL + 1));
      const level = Math.max(0, Math.min(4, Math.floor((one.load ?? 0) * 5)));
      set(cell, "class", tone(one.state) === "good" ? `cell level${level}` : `cell ${tone(one.state)}`);
    });
  }
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function shortened(text, room) {
  return text.length > room ? `${text.slice(0, Math.max(1, room - 1))}…` : text;
}

/** What the signs and colours of a tree mean. */
export function treeLegend() {
  const item = (state, text) => h("li", { class: tone(state) }, h("span", { class: "badge " + tone(state), "aria-hidden": "true" }, sign(state)), ` ${text}`);
  return h(
    "ul",
    { class: "legend", "aria-label": "What the signs mean" },
    item("ready", "ready"),
    item("starting", "starting or draining"),
    item("disconnected", "disconnected or closed"),
    item("lost", "lost"),
    h("li", {}, h("span", { class: "bar-sample", "aria-hidden": "true" }), " load, as a share of the cores"),
    h("li", {}, "▸ several, folded"),
  );
}
