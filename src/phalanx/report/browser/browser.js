// The browser of duels: filters, a list of pages, and one duel in full beside it.
// `source` has `kinds` [{kind, count}], `missing` (where cut texts are whole), and gives
// facts(kind), detail(kind, row, table) and search(kind, words, table, say), each a promise.

import { article, words } from "./detail.js";
import { element, named, number, score, visible } from "./text.js";
import { dispute, JUDGED, ORDERS, select, Table } from "./table.js";

const PAGE = 50;
const KINDS = {
  duels: ["duels", "duel"], pairs: ["preference pairs", "pair"],
  demonstrations: ["demonstrations", "demonstration"],
  contests: ["verdicts of contests", "verdict"], answers: ["measured answers", "answer"],
};
const EMPTY = { member: "", against: "", outcome: "", judged: "", pair: "", domain: "",
                iteration: "", texts: "", least: "", most: "", words: "", order: "run" };

/** [kind, id] in the page's address; empty where it names no row. */
function linked() {
  try {
    return decodeURIComponent(location.hash).match(/^#(\w+)\/(.+)$/s)?.slice(1) ?? ["", ""];
  } catch {
    return ["", ""]; // a broken %-sequence that somebody sent
  }
}

export function mount(root, source) {
  const browser = new Browser(root, source);
  browser.started = browser.start();
  return browser;
}

class Browser {
  constructor(root, source) {
    this.root = root;
    this.source = source;
    this.kind = source.kinds[0].kind;
    this.wanted = { ...EMPTY };
    this.failed = false; // whether the last reading of rows failed
    this.table = null;
    this.rows = [];
    this.page = 0;
    this.open = null;
    // Each counts what was asked of its kind: an answer that a later one has overtaken is not shown.
    this.loads = 0;
    this.choices = 0;
    this.openings = 0;
    this.searched = { of: null, words: "", rows: null }; // the last search, of one table
    this.state = element("p", { class: "small", role: "status", "aria-live": "polite" });
    this.form = element("form", { class: "filters", role: "search", "aria-label": "Choose duels",
                                  onsubmit: (event) => event.preventDefault() });
    this.list = element("ul", { class: "rows", "aria-label": "Found",
                                onkeydown: (event) => this.onListKey(event) });
    this.pager = element("div", { class: "pager" });
    this.detail = element("article", { class: "detail", tabindex: -1, "aria-label": "The chosen one",
                                       hidden: true });
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.open !== null) this.close();
    });
  }

  async start() {
    this.panes = element("div", { class: "panes" },
      element("div", { class: "found" }, this.list, this.pager), this.detail);
    this.root.replaceChildren(this.form, this.state, this.panes);
    const [kind, id] = linked();
    if (this.source.kinds.some((one) => one.kind === kind)) this.kind = kind;
    await this.load();
    if (this.table === null || id === "" || this.kind !== kind) return;
    const row = this.table.columns.id.indexOf(id);
    if (row >= 0) await this.show(row);
    else this.state.textContent += `. None of them has the id of the address, ${visible(id)}`;
  }

  /** The rows of the kind; null where they cannot be had, or others were asked for meanwhile. */
  async read() {
    const mine = ++this.loads;
    try {
      const table = new Table(await this.source.facts(this.kind));
      if (mine !== this.loads) return null;
      this.failed = false;
      return table;
    } catch (error) {
      if (mine !== this.loads) return null;
      this.failed = true;
      this.state.textContent = `Nothing can be shown: ${visible(error.message)}`;
      return null;
    }
  }

  /** Read the rows of the kind, and lay out the filters that make sense for it. */
  async load() {
    this.state.textContent = "Reading\u2026";
    const table = await this.read();
    if (table === null) return;
    this.table = table;
    this.layOut();
    await this.apply();
  }

  /** Other rows came: the filters, the page and what is open stay. */
  async refresh() {
    await this.started; // what the address names is opened first
    const table = await this.read();
    if (table === null) return;
    const before = this.table;
    const opened = this.open;
    this.table = table;
    if (before === null || !this.form.contains(document.activeElement)) this.layOut();
    if (opened !== null) {
      const row = table.columns.id.indexOf(before.get("id", opened));
      this.open = row < 0 ? null : row;
      const changed = row >= 0 && !before.sameRow(opened, table, row);
      if (changed) await this.show(row, false);
    }
    await this.apply(this.page);
  }

  layOut() {
    const table = this.table;
    const duels = table.kind === "duels";
    const outcomes = table.names("status").map((name) => [name, words("status", name)]);
    if (table.columns.winner.names.some((name) => name) && (duels || table.kind === "contests")) {
      outcomes.unshift(["won", "Won by the member"], ["lost", "Lost by the member"]);
    }
    const two = table.columns.right.names.some((name) => name);
    const names = table.members.map((name) => [name, visible(name)]);
    const fields = [];
    if (this.source.kinds.length > 1) {
      fields.push(this.choice("kind", "Show", this.source.kinds.map(({ kind, count }) =>
        [kind, `${KINDS[kind][0]} (${number(count)})`]), null));
    }
    fields.push(this.choice("member", "Member", names));
    if (two) fields.push(this.choice("against", "Against", names));
    fields.push(this.choice("outcome", "Outcome", outcomes));
    if (duels) {
      fields.push(this.choice("judged", "Judges",
        Object.entries(JUDGED).map(([name, [label]]) => [name, label])));
    }
    const pairs = table.names("pair");
    if (pairs.length && table.kind !== "answers") {
      fields.push(this.choice("pair", duels ? "Pair" : "Training", pairs.map((name) =>
        [name, name === "made" ? (duels ? "made" : "kept") : `no: ${words("pair", name)}`])));
    }
    const domains = table.names("domain");
    if (domains.length > 1) {
      fields.push(this.choice("domain", "Domain", domains.map((name) => [name, visible(name)])));
    }
    const iterations = table.iterations();
    if (iterations.length > 1) {
      fields.push(this.choice("iteration", "Iteration", iterations.map((n) => [String(n), String(n)])));
    }
    if (this.source.partial) {
      fields.push(this.choice("texts", "Texts", [["here", "in this file"]]));
    }
    const orders = Object.entries(ORDERS).filter(([name]) => duels || !["disputed", "close"].includes(name));
    fields.push(
      this.input("least", "Longest response from", { type: "number", min: 0, step: 100,
                                                     placeholder: "characters" }),
      this.input("most", "to", { type: "number", min: 0, step: 100, placeholder: "characters" }),
      this.input("words", "Words in any text", { type: "search", autocomplete: "off" }),
      this.choice("order", "Order", orders.map(([name, [label]]) => [name, label]), null),
      element("button", { type: "button", onclick: () => this.reset() }, "Show all"));
    this.form.replaceChildren(...fields);
  }

  choice(name, label, options, all = "any") {
    const id = `duels-${name}`;
    const value = name === "kind" ? this.kind : this.wanted[name];
    const made = options.map(([key, text]) =>
      element("option", { value: key, selected: key === value }, text));
    if (all !== null) made.unshift(element("option", { value: "" }, all));
    return element("div", { class: "field" }, element("label", { for: id }, label),
      element("select", { id, onchange: (event) => this.want(name, event.target.value) }, made));
  }

  input(name, label, attributes) {
    const id = `duels-${name}`;
    let waiting = 0;
    const later = (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.want(name, event.target.value.trim()), 150);
    };
    return element("div", { class: "field" }, element("label", { for: id }, label),
      element("input", { id, value: this.wanted[name], ...attributes, oninput: later }));
  }

  async want(name, value) {
    if (name === "kind") {
      this.kind = value;
      this.wanted = { ...EMPTY };
      this.close(false);
      await this.load();
      this.root.querySelector("#duels-kind")?.focus();
      return;
    }
    this.wanted[name] = value;
    await this.apply();
  }

  async reset() {
    this.wanted = { ...EMPTY };
    this.layOut();
    await this.apply();
  }

  /** Rows of the table that have the words, or null for all; one search serves every filter. */
  async search(table, words, mine) {
    if (!words) return null;
    const last = this.searched;
    if (last.of === table && last.words === words) return last.rows;
    this.state.textContent = "Searching\u2026";
    const rows = this.source.search(table.kind, words, table, (part) => {
      if (mine === this.choices) this.state.textContent = `Searching\u2026 ${part}`;
    });
    this.searched = { of: table, words, rows };
    try {
      return await rows;
    } catch (error) {
      if (this.searched.rows === rows) this.searched = { of: null, words: "", rows: null };
      throw error;
    }
  }

  async apply(page = 0) {
    const mine = ++this.choices;
    const table = this.table;
    if (table === null) return;
    let found;
    try {
      found = await this.search(table, this.wanted.words, mine);
    } catch (error) {
      if (mine === this.choices) this.state.textContent = `The search failed: ${visible(error.message)}`;
      return;
    }
    if (mine !== this.choices || table !== this.table) return;
    this.rows = select(table, this.wanted, found);
    if (this.wanted.texts) this.rows = this.rows.filter((row) => this.source.has(row));
    this.page = Math.min(page, this.lastPage());
    this.say();
    this.layRows();
  }

  lastPage() {
    return Math.max(0, Math.ceil(this.rows.length / PAGE) - 1);
  }

  say() {
    const { rows, total } = this.table;
    const [many, one] = KINDS[this.table.kind];
    const of = `${number(rows)} ${rows === 1 ? one : many}`;
    let text = this.rows.length === rows ? of : `${number(this.rows.length)} of ${of}`;
    if (rows < total) text += `, the last of ${number(total)}; ${this.source.missing}`;
    if (this.wanted.words && this.source.searchNote) text += `. ${this.source.searchNote}`;
    this.state.textContent = text;
  }

  layRows() {
    const first = this.page * PAGE;
    const shown = this.rows.slice(first, first + PAGE);
    const focused = this.list.contains(document.activeElement)
      ? document.activeElement.dataset.id : undefined;
    this.list.replaceChildren(...shown.map((row, place) => this.line(row, place === 0)));
    if (!shown.length) {
      this.list.append(element("li", { class: "muted none" }, "Nothing fits all of these."));
    }
    const turn = (label, to, disabled) => element("button", { type: "button", disabled,
      onclick: () => this.turn(to) }, label);
    this.pager.replaceChildren(
      turn("Earlier", this.page - 1, this.page === 0),
      element("span", { class: "small muted" },
        shown.length ? `${number(first + 1)} to ${number(first + shown.length)}` : ""),
      turn("Later", this.page + 1, this.page >= this.lastPage()));
    this.pager.hidden = this.lastPage() === 0;
    this.markOpen();
    if (focused !== undefined) {
      const buttons = [...this.list.querySelectorAll("button")];
      this.focusOn(buttons.find((one) => one.dataset.id === focused) ?? buttons[0], buttons);
    }
  }

  turn(page) {
    this.page = Math.max(0, Math.min(page, this.lastPage()));
    this.layRows();
    this.list.querySelector("button")?.focus();
  }

  line(row, first) {
    const table = this.table;
    const winner = table.get("winner", row);
    const side = (name) => element(winner === name && table.kind !== "pairs" ? "strong" : "span", {},
                                   named(table.get(name, row)));
    const who = [side("left")];
    if (table.get("right", row)) who.push(" \u2013 ", side("right"));
    return element("li", {}, element("button", { type: "button", "data-row": row,
      "data-id": table.get("id", row), tabindex: first ? 0 : -1, onclick: () => this.show(row) },
      element("span", { class: "who" }, who),
      element("span", { class: "facts" }, this.facts(row)),
      element("span", { class: "head", dir: "auto" }, visible(table.get("head", row)))));
  }

  /** What is worth knowing of a row before it is opened. */
  facts(row) {
    const table = this.table;
    const parts = [];
    const status = table.get("status", row);
    if (status === "decided" && table.get("score_left", row) !== null) {
      parts.push(`${score(table.get("score_left", row))} to ${score(table.get("score_right", row))}`);
    } else parts.push(words("status", status || "not judged yet").toLowerCase());
    if (dispute(table, row) > 0) {
      parts.push(`judges ${["for_left", "for_right", "for_tie"]
        .map((column) => table.get(column, row)).filter((votes, place) => place < 2 || votes)
        .join(":")}`);
    }
    if (table.get("unread", row)) parts.push(`${table.get("unread", row)} unreadable`);
    if (table.get("flipped", row)) parts.push(`${table.get("flipped", row)} changed with the order`);
    const pair = table.get("pair", row);
    if (pair && pair !== "made" && pair !== status) parts.push(`no pair: ${words("pair", pair)}`);
    parts.push(`iteration ${table.get("iteration", row)}`);
    if (this.source.partial && !this.source.has(row)) parts.push("texts left out");
    return parts.join(", ");
  }

  onListKey(event) {
    const buttons = [...this.list.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (event.key === "PageDown" || event.key === "PageUp") {
      event.preventDefault();
      this.turn(this.page + (event.key === "PageDown" ? 1 : -1));
    } else if (to !== undefined && at >= 0) {
      event.preventDefault();
      this.focusOn(buttons[Math.max(0, Math.min(to, buttons.length - 1))], buttons);
    }
  }

  focusOn(button, buttons) {
    for (const one of buttons) one.tabIndex = one === button ? 0 : -1;
    button?.focus();
  }

  /** Show a row in full; without `moves` where it was shown before, and focus and place stay. */
  async show(row, moves = true) {
    const mine = ++this.openings;
    const table = this.table;
    this.open = row;
    this.markOpen();
    const id = table.get("id", row);
    let parts;
    try {
      const detail = await this.source.detail(table.kind, row, table);
      if (mine !== this.openings) return;
      parts = article(table, row, detail, this.source.missing);
    } catch (error) {
      if (mine !== this.openings) return;
      parts = [element("p", { class: "notice" }, visible(error.message))];
    }
    const domain = table.get("domain", row);
    const where = `iteration ${table.get("iteration", row)}${domain ? `, ${visible(domain)}` : ""}`;
    this.detail.hidden = false;
    this.panes.classList.add("opened");
    this.detail.replaceChildren(
      element("div", { class: "bar" },
        element("h4", {}, named(table.get("left", row)),
          table.get("right", row) ? " against " : "", named(table.get("right", row)),
          element("span", { class: "muted" }, `, ${where}`)),
        element("button", { type: "button", onclick: () => this.close() }, "Close")),
      ...parts, element("p", { class: "small muted" }, "id: ", element("code", {}, visible(id))));
    if (!moves) return;
    history.replaceState(null, "", `#${table.kind}/${encodeURIComponent(id)}`);
    this.detail.focus({ preventScroll: !this.isNarrow() });
    if (this.isNarrow()) this.detail.scrollIntoView();
    else this.detail.scrollTop = 0;
  }

  isNarrow() {
    return getComputedStyle(this.panes).gridTemplateColumns.split(" ").length === 1;
  }

  markOpen() {
    for (const button of this.list.querySelectorAll("button")) {
      if (Number(button.dataset.row) === this.open) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  close(refocus = true) {
    const row = this.open;
    this.open = null;
    this.openings += 1;
    this.detail.hidden = true;
    this.panes.classList.remove("opened");
    this.markOpen();
    history.replaceState(null, "", location.pathname + location.search);
    const buttons = [...this.list.querySelectorAll("button")];
    if (refocus) this.focusOn(buttons.find((b) => Number(b.dataset.row) === row) ?? buttons[0], buttons);
  }
}
