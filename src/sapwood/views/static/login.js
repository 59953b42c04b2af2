"use strict";
// The ticket is behind "#": browsers send that part of an address to nobody.

const said = document.getElementById("said");

async function login(body) {
  said.textContent = "";
  try {
    const answer = await fetch("api/v1/login", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (answer.ok) {
      location.replace("./");
      return;
    }
    const problem = await answer.json();
    said.textContent = problem.detail + (problem.hint ? ". " + problem.hint : "");
  } catch (error) {
    said.textContent = "The server does not answer: " + error.message;
  }
}

document.getElementById("form").addEventListener("submit", (event) => {
  event.preventDefault();
  login({ credential: document.getElementById("credential").value.trim() });
});

const ticket = location.hash.slice(1);
if (ticket) {
  history.replaceState(null, "", "login");
  login({ ticket: ticket });
}
