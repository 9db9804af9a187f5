// The live page: sections are put in place as they change, without moving what is being read.

import { mount } from "./browser.js";

const run = document.body.dataset.run;
const byId = (id) => document.getElementById(id);
let browser = null;
let browsed = "";

// ---- sections -----------------------------------------------------------------------------------

/** Make `old` like `fresh`, keeping the elements themselves: focus, scroll and what is open stay. */
function become(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) {
      old.removeAttribute(name);
    }
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, place) => {
    if (place < before.length) become(before[place], child);
    else old.append(child);
  });
  for (const child of before.slice(after.length)) child.remove();
}

function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
}

function place(contents, changed) {
  const home = byId("sections");
  const wanted = new Set(contents.map(([id]) => id));
  for (const section of [...home.children]) if (!wanted.has(section.id)) section.remove();
  contents.forEach(([id], at) => {
    let section = [...home.children].find((one) => one.id === id);
    if (id in changed) {
      const fresh = document.importNode(parsed(changed[id]), true);
      if (section) become(section, fresh);
      else section = fresh;
    }
    section = [...home.children].find((one) => one.id === id) ?? section;
    if (section && home.children[at] !== section) home.insertBefore(section, home.children[at] ?? null);
  });
  const links = contents.map(([id, title]) => {
    const link = document.createElement("a");
    link.href = `#${id}`;
    link.textContent = title;
    return link;
  });
  const nav = byId("contents");
  const old = [...nav.querySelectorAll("a:not(#to-duels)")];
  if (old.map((a) => a.textContent).join() !== links.map((a) => a.textContent).join()) {
    for (const link of old) link.remove();
    nav.prepend(...links.flatMap((link) => [link, " "]));
  }
}

// ---- the browser of duels -----------------------------------------------------------------------

class Live {
  constructor(kinds) {
    this.kinds = kinds.map(([kind, count]) => ({ kind, count }));
    this.missing = "";
    this.searchNote = "";
    this.partial = false;
  }

  async #get(path) {
    let answer;
    try {
      answer = await fetch(`/run/${run}/${path}`);
    } catch {
      throw new Error("phalanx serve does not answer; is it still running?");
    }
    if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
    return answer.json();
  }

  facts(kind) {
    return this.#get(`rows/${kind}`);
  }

  detail(kind, row, table) {
    return this.#get(`detail/${kind}?id=${encodeURIComponent(table.get("id", row))}`);
  }

  async search(kind, words, table) {
    const ids = new Set(await this.#get(`search/${kind}?words=${encodeURIComponent(words)}`));
    const found = new Set();
    table.columns.id.forEach((id, row) => ids.has(id) && found.add(row));
    return found;
  }
}

function browse(kinds, stamp) {
  const now = JSON.stringify([kinds, stamp]);
  if (!run || !kinds.length || (now === browsed && !browser?.failed)) return;
  browsed = now;
  byId("duels").hidden = false;
  byId("to-duels").hidden = false;
  if (browser === null) {
    browser = mount(byId("duel-browser"), new Live(kinds));
  } else {
    browser.source.kinds = kinds.map(([kind, count]) => ({ kind, count }));
    browser.refresh();
  }
}

// ---- what comes ---------------------------------------------------------------------------------

const AGAIN = 3000; // milliseconds until a refused stream is asked for again
let events = null;
let saidPhase = "";

/** Listen while the page is seen: a browser has six connections to a server, and every stream keeps
 * one, so that hidden tabs would leave none for the seventh. Who comes back gets what is new. */
function follow() {
  if (document.hidden) {
    events?.close();
    events = null;
  } else if (events === null) {
    events = new EventSource(document.body.dataset.events);
    events.addEventListener("shown", (event) => show(JSON.parse(event.data)));
    events.addEventListener("error", lose);
  }
}

function lose() {
  byId("lost").hidden = false;
  byId("dot").classList.remove("on");
  if (events?.readyState !== EventSource.CLOSED) return; // the browser tries again itself
  events = null;
  setTimeout(follow, AGAIN);
}

function show(news) {
  byId("lost").hidden = true;
  if (news.trouble) { // what was shown before stays
    byId("state").parentElement.hidden = false;
    byId("state").textContent = byId("said").textContent = news.trouble;
    byId("dot").classList.remove("on");
    return;
  }
  byId("state").parentElement.hidden = !news.state;
  byId("state").textContent = news.state;
  byId("subtitle").textContent = news.subtitle;
  byId("dot").classList.toggle("on", news.going);
  if (news.heading) byId("main").ownerDocument.querySelector("h1 bdi").textContent = news.heading;
  // Read out when a phase begins or the run ends, not at every number.
  const phase = news.state.replace(/[\d,]+ of [\d,]+|: [\d,]+/g, "");
  if (phase !== saidPhase) byId("said").textContent = news.state;
  saidPhase = phase;
  if (news.contents.length) place(news.contents, news.changed);
  browse(news.kinds, news.rows);
}

document.addEventListener("visibilitychange", follow);
follow();
