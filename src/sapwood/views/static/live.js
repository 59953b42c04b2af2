// What the server tells while a page is open, and how the page comes back when the server was away.

import { command } from "./words.js";

export const API = "api/v1"; // relative: a proxy may serve the pages below a path
const FIRST_PAUSE = 500; // milliseconds until the next try; doubled each time
const LONGEST_PAUSE = 10_000;
const EXPIRED = [401, 403];

/** An answer that is no good, with what can be done about it. */
export class AnswerError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `the server answers ${status}`);
    this.status = status;
    this.hint = problem.hint ?? "";
    this.expired = EXPIRED.includes(status);
  }
}

/** Ask the server. */
export async function ask(path, signal) {
  let answer;
  try {
    answer = await fetch(API + path, { signal, headers: { accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new AnswerError(0, { detail: "the server does not answer", hint: `look whether the cluster is up: ${command("top")}` });
  }
  if (answer.ok) return answer.json();
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // it is no JSON: the status has to do
  }
  throw new AnswerError(answer.status, problem);
}

/** A stream of what happens, which is opened again when it breaks. */
export class Live {
  /**
   * @param {string} path With what is wanted in its query.
   * @param {Record<string, (value: object) => void>} takers Of each kind of message.
   * @param {(state: string, error?: AnswerError) => void} told How the stream is: live, away or expired.
   * @param {Record<string, object>} first What came with the page already, of each kind.
   */
  constructor(path, takers, told, first = {}) {
    this.path = path;
    this.takers = takers;
    this.told = told;
    this.pause = FIRST_PAUSE;
    this.closed = false;
    for (const [kind, value] of Object.entries(first)) this.takers[kind]?.(value);
    this.open();
  }

  open() {
    this.source = new EventSource(API + this.path);
    this.source.addEventListener("open", () => {
      this.pause = FIRST_PAUSE;
      this.told("live");
    });
    for (const [kind, take] of Object.entries(this.takers)) {
      this.source.addEventListener(kind, (message) => take(JSON.parse(message.data)));
    }
    this.source.addEventListener("error", () => this.again());
  }

  async again() {
    this.source.close();
    if (this.closed) return;
    let error = null;
    try {
      await ask("/whoami"); // a stream does not say why it was refused
    } catch (found) {
      error = found;
    }
    if (this.closed) return;
    if (error?.expired) {
      this.told("expired", error);
      return;
    }
    this.told("away");
    this.timer = setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(LONGEST_PAUSE, this.pause * 2);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.source.close();
  }
}
