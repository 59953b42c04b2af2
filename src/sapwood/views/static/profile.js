// The start of the page of a profile, from the data in the file itself.

import { FlameGraph } from "./flame.js";
import { h } from "./words.js";

const found = JSON.parse(document.getElementById("data").textContent);
const place = h("section", { class: "card" });
document.querySelector("main").append(h("h1", {}, "Profile"), place);
new FlameGraph(place).show(found);
