"use strict";
// Texts of models are put on the page by textContent alone.
const SHOWN = 4000; // characters of a text before it is cut, with a way to the whole
const KEYS = {
  1: "first", ArrowLeft: "first", 2: "second", ArrowRight: "second", t: "tie", 0: "tie",
  s: "skip", b: "back", Backspace: "back",
};
const token = document.querySelector("meta[name=phalanx-token]").content;
const at = (id) => document.getElementById(id);
let state = null;
let busy = false;

// What commands a terminal or turns the direction of what follows would not be seen for what it is.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const printable = (text) => text.replace(/\r\n/g, "\n").replace(UNSEEN, "\ufffd");

function put(id, text) {
  const place = at(id);
  const whole = printable(text);
  place.textContent = whole.length > SHOWN ? whole.slice(0, SHOWN) : whole;
  if (whole.length > SHOWN) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "more";
    more.textContent = `Cut here: show all ${whole.length.toLocaleString("en")} characters`;
    more.addEventListener("click", () => { place.textContent = whole; });
    place.append(more);
  }
}

function show(found) {
  state = found;
  at("progress").max = found.total;
  at("progress").value = found.num_done;
  at("place").textContent = found.done
    ? `${found.person}: ${found.num_done} of ${found.total} labelled`
    : `${found.person}: ${found.place} of ${found.total}, ${found.num_done} labelled`;
  at("duel").hidden = found.done;
  at("end").hidden = !found.done;
  at("why").textContent = found.why || "";
  for (const button of document.querySelectorAll("footer button")) {
    const choice = button.dataset.choice;
    button.disabled = choice === "back" ? found.place === 1 : found.done;
    button.setAttribute("aria-pressed", String(!found.done && found.said === choice));
    button.classList.toggle("said", !found.done && found.said === choice);
  }
  if (!found.done) {
    put("instruction", found.instruction);
    put("first", found.first);
    put("second", found.second);
    window.scrollTo(0, 0);
  }
}

async function load(path, options) {
  if (busy) return;
  busy = true;
  try {
    const answer = await fetch(path, options);
    const kind = answer.headers.get("content-type") || "";
    if (kind.startsWith("application/json")) show(await answer.json());
    else at("why").textContent = await answer.text();
  } catch (error) {
    at("why").textContent = "The server has ended; what you labelled is recorded.";
  } finally {
    busy = false;
  }
}

function say(choice) {
  if (state === null || (choice === "back" ? state.place === 1 : state.done)) return;
  load("say", {
    method: "POST",
    headers: { "content-type": "application/json", "x-phalanx-token": token },
    body: JSON.stringify({ choice, place: state.place }),
  });
}

for (const button of document.querySelectorAll("footer button")) {
  button.addEventListener("click", () => say(button.dataset.choice));
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const choice = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (choice) {
    event.preventDefault();
    say(choice);
  }
});
load("state");
