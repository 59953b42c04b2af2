// The start of a report: one run, from the data in the file itself.

import { RunPage } from "./run.js";
import { h, moment } from "./words.js";

const data = JSON.parse(document.getElementById("data").textContent);
const home = document.querySelector("main");
home.append(h("h1", {}, data.program));
new RunPage(home).show(data);
home.append(h("p", { class: "empty" }, `Written at ${moment(data.written)} by Sapwood ${data.version}. This file needs no network.`));
