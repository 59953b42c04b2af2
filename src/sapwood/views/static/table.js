// Tables that can be sorted and searched; their rows are changed in place.

import { h } from "./words.js";

const collator = new Intl.Collator("en", { numeric: true });
const ROWS = 200; // shown at once; more on request, so that a page with 1,000 nodes stays quick

/** A table of rows; only what has changed is drawn again. */
export class Table {
  /**
   * @param {string} caption What it is.
   * @param {{name: string, cell: (row: object) => (string|Node), sort?: (row: object) => (string|number), number?: boolean, optional?: boolean}[]} columns
   * @param {{key: (row: object) => string, empty: (string|Node), search?: boolean}} options
   */
  constructor(caption, columns, { key, empty, search = false }) {
    this.columns = columns;
    this.key = key;
    this.rows = [];
    this.drawn = new Map();
    this.sorted = null;
    this.wanted = "";
    this.limit = ROWS;
    this.body = h("tbody");
    this.heads = columns.map((column, index) =>
      h("th", { scope: "col", class: classOf(column) }, h("button", { type: "button", onclick: () => this.sort(index) }, column.name)),
    );
    this.table = h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.empty = h("p", { class: "empty", hidden: true }, h("strong", {}, caption), h("br"), empty);
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.showMore() });
    this.field = search
      ? h("input", {
          type: "search",
          placeholder: "Search",
          "aria-label": `Search in: ${caption}`,
          oninput: (event) => {
            this.wanted = event.target.value.toLowerCase();
            this.draw();
          },
        })
      : null;
    this.element = h("div", { class: "table" }, this.field, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption, hidden: true }, this.table), this.more, this.empty);
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  sort(index) {
    this.sorted = this.sorted?.index === index && !this.sorted.down ? { index, down: true } : { index, down: false };
    this.heads.forEach((head, at) => {
      if (at === index) head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.draw();
  }

  showMore() {
    this.limit += 5 * ROWS;
    this.draw();
  }

  draw() {
    let rows = this.rows;
    if (this.wanted) {
      rows = rows.filter((row) => this.columns.some((column) => plain(column.cell(row)).toLowerCase().includes(this.wanted)));
    }
    if (this.sorted) {
      const column = this.columns[this.sorted.index];
      const value = column.sort ?? ((row) => plain(column.cell(row)));
      const sign = this.sorted.down ? -1 : 1;
      rows = [...rows].sort((one, other) => sign * compare(value(one), value(other)));
    }
    const left = rows.length - this.limit;
    rows = rows.slice(0, this.limit);
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${left} left)`;
    const seen = new Set();
    rows.forEach((row, index) => {
      const key = this.key(row);
      seen.add(key);
      let line = this.drawn.get(key);
      if (!line) {
        line = h("tr", {}, this.columns.map((column, at) => h(at ? "td" : "th", at ? { class: classOf(column) } : { scope: "row", class: classOf(column) })));
        this.drawn.set(key, line);
      }
      this.columns.forEach((column, at) => refresh(line.children[at], column.cell(row)));
      if (this.body.children[index] !== line) this.body.insertBefore(line, this.body.children[index] ?? null);
    });
    for (const [key, line] of this.drawn) {
      if (!seen.has(key)) {
        line.remove();
        this.drawn.delete(key);
      }
    }
    this.empty.hidden = this.rows.length > 0;
    this.table.parentNode.hidden = !this.rows.length;
    if (this.field) this.field.hidden = !this.rows.length;
  }
}

function classOf(column) {
  return [column.number ? "number" : "", column.optional ? "optional" : ""].join(" ").trim() || null;
}

function plain(cell) {
  return cell instanceof Node ? cell.textContent : String(cell ?? "");
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return collator.compare(one, other);
}

function refresh(cell, content) {
  if (content instanceof Node) {
    if (cell.innerHTML !== content.outerHTML) cell.replaceChildren(content);
  } else if (cell.textContent !== String(content ?? "")) {
    cell.textContent = String(content ?? "");
  }
}
