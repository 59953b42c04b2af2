// What a view holds outside of its own elements: listeners and observers, removed when its page is left.

const openViews = new Set();

/** A drawing that listens to more than its own elements. */
export class View {
  #ends = [];

  constructor() {
    openViews.add(this);
  }

  /** Listen to something that may outlive the drawing. */
  listen(target, kind, act) {
    target.addEventListener(kind, act);
    this.#ends.push(() => target.removeEventListener(kind, act));
  }

  /** Call a function when the size of an element changes. */
  observe(element, act) {
    const observer = new ResizeObserver(act);
    observer.observe(element);
    this.#ends.push(() => observer.disconnect());
  }

  /** Stop listening; the elements may be removed. */
  destroy() {
    while (this.#ends.length) this.#ends.pop()();
    openViews.delete(this);
  }
}

/** Destroy all views: their page is left. */
export function destroyViews() {
  for (const view of [...openViews]) view.destroy();
}
