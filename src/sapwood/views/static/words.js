// Figures, times and names in the words of the command line; and how elements are made.

const COUNT_SUFFIXES = ["", " k", " M", " G", " T", " P"];
const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SVG = "http://www.w3.org/2000/svg";

function threeDigits(value) {
  if (value >= 99.95) return value.toFixed(0);
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** A command about this cluster, as it can be typed on the machine of its head. */
export function command(words) {
  const name = document.documentElement.dataset.cluster ?? "default";
  return name === "default" ? `sapwood ${words}` : `sapwood ${words} --cluster ${name}`;
}

/** A duration with three significant digits and its unit: 420 µs, 1.50 s, 1 h 02 min. */
export function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (value === 0) return "0 s";
  if (value < 0) return `-${seconds(-value)}`;
  if (value < 0.0009995) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 0.9995) return `${threeDigits(value * 1e3)} ms`;
  if (value < 100) return `${threeDigits(value)} s`;
  const minutes = Math.floor(Math.round(value) / 60);
  const two = (number) => String(number).padStart(2, "0");
  if (minutes < 60) return `${minutes} min ${two(Math.round(value) % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

/** A number of things, or of things per second, with a decimal suffix: 950, 273 k, 8.12 M. */
export function count(value) {
  let power = 0;
  let scaled = Number(value);
  while (Math.abs(scaled) >= 999.5 && power < COUNT_SUFFIXES.length - 1) {
    scaled /= 1000;
    power += 1;
  }
  const whole = power === 0 && Number.isInteger(scaled);
  return (whole ? scaled.toFixed(0) : threeDigits(scaled)) + COUNT_SUFFIXES[power];
}

/** A number of bytes: 69.9 MiB. */
export function size(bytes) {
  let power = 0;
  let scaled = Number(bytes);
  while (scaled >= 1024 && power < SIZE_UNITS.length - 1) {
    scaled /= 1024;
    power += 1;
  }
  return `${power === 0 ? scaled.toFixed(0) : scaled.toFixed(1)} ${SIZE_UNITS[power]}`;
}

/** A metric of a program with seven significant digits. */
export function metric(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(7))) : String(value);
}

/** A time of day, with its date if that is another than today's. Seconds since 1970. */
export function moment(time) {
  if (!time) return "";
  const then = new Date(time * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
  if (then.toDateString() === new Date().toDateString()) return clock;
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${clock}`;
}

/** How many of something: 1 node, 3 nodes, 2 processes. */
export function plural(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

const natural = new Intl.Collator("en", { numeric: true }).compare;

/** Names in the order in which people count: n2 before n10. */
export function sorted(names) {
  return [...names].sort(natural);
}

/** Names as a folded set: n[1-3,7],login. */
export function folded(names) {
  const families = new Map();
  for (const name of sorted(names)) {
    const [, head, digits] = /^(.*?)(\d*)$/.exec(name);
    if (!families.has(head)) families.set(head, []);
    families.get(head).push(digits);
  }
  const parts = [];
  for (const [head, all] of families) {
    const runs = [];
    for (const digits of all) {
      const last = runs.at(-1);
      if (last && digits && Number(digits) === Number(last[1]) + 1) last[1] = digits;
      else runs.push([digits, digits]);
    }
    const text = runs.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(",");
    parts.push(/[-,]/.test(text) ? `${head}[${text}]` : head + text);
  }
  return parts.join(",");
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** An element of the page. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** A state as a sign, a word and a colour, so that none of them is needed alone. */
export function badge(state, text = state) {
  return h("span", { class: `badge ${tone(state)}` }, h("span", { "aria-hidden": "true" }, sign(state)), ` ${text}`);
}

const TONES = {
  good: ["ready", "up", "done", "attached", "detached", "running", "idle"],
  busy: ["starting", "delayed", "requested", "building", "preparing", "draining", "resuming", "degraded", "releasing"],
  poor: ["disconnected", "suspect", "broken", "closed", "cancelled", "stopped", "partial"],
  bad: ["lost", "failed", "error", "refused"],
};
const SIGNS = { good: "●", busy: "◐", poor: "▲", bad: "✕", none: "○" };

/** How good a state is: good, busy, poor, bad or none. */
export function tone(state) {
  return Object.keys(TONES).find((name) => TONES[name].includes(state)) ?? "none";
}

/** The sign of a state. */
export function sign(state) {
  return SIGNS[tone(state)];
}
