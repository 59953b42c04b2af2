// The dashboard: which page is shown, what keeps it live, and what stands above it.

import { API, Live } from "./live.js";
import { PAGES, pageOf } from "./pages.js";
import { destroyViews } from "./view.js";
import { command, h } from "./words.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const links = new Map();
let stream = null;
let current = null;
let first = JSON.parse(document.getElementById("first").textContent);

for (const [name, page] of Object.entries(PAGES)) {
  if (!page.title) continue;
  const link = h("a", { href: `#/${name}` }, page.title);
  links.set(name, link);
  document.getElementById("pages").append(h("li", {}, link));
}

function tell(state, error) {
  live.textContent = { live: "● live", away: "○ the server does not answer; trying again …", expired: "✕ not signed in" }[state];
  if (state !== "expired") {
    document.getElementById("expired")?.remove();
    return;
  }
  if (document.getElementById("expired")) return;
  main.prepend(
    h(
      "div",
      { class: "notice bad", role: "alert", id: "expired" },
      h("strong", {}, "You are not signed in, or no longer. "),
      `The server says: ${error.message}. `,
      "Run ",
      h("code", {}, command("dashboard")),
      " where the cluster is: it prints a new link. Or ",
      h("a", { href: "login" }, "paste a credential"),
      ".",
    ),
  );
}

function show() {
  stream?.close();
  current?.close?.();
  destroyViews();
  const [, name = "overview", ...rest] = location.hash.split("/").map(decodeURIComponent);
  const key = rest.length && PAGES[name]?.one ? PAGES[name].one : name;
  const page = pageOf(key);
  for (const [each, link] of links) {
    if (each === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  const title = page.heading(rest.join("/"));
  document.title = `${title} · Sapwood`;
  const twin = page.twin(encodeURIComponent(rest.join("/")));
  main.append(h("a", { class: "twin", href: API + twin, target: "_blank", rel: "noopener" }, "this page as JSON"), h("h2", {}, title));
  current = page.draw(main, rest.join("/"));
  const { topics, ...takers } = current.live;
  const about = rest.length ? `&about=${encodeURIComponent(rest.join("/"))}` : "";
  stream = new Live(`/live?topics=${topics}${about}`, { ...takers, cluster: named }, tell, first);
  first = {};
}

function named(cluster) {
  document.getElementById("cluster").textContent = cluster.name === "default" ? "" : cluster.name;
}

addEventListener("hashchange", () => {
  show();
  main.focus();
});
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", (event) => event.persisted && show());
show();
