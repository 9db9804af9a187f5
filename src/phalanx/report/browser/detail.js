// One duel (pair, demonstration, answer) in full.

import { element, named, number, score, textBlock, visible } from "./text.js";

const STATUS = {
  decided: "Decided", tie: "Tie", no_quorum: "Too few readable judgments",
  unanswered: "A response is missing", kept: "Kept for training", dropped: "Not trained on",
  right: "Right", wrong: "Wrong", unreadable: "No answer could be read",
};

const DROPPED = {
  tie: "tied", identical: "identical responses", empty: "an empty response",
  unscored: "not scored", truncated: "truncated", margin: "margin too small",
  margin_rank: "not among the widest margins", length: "chosen much longer",
};

/** Words for a status or the reason why a pair was dropped; unknown ones as they are. */
export function words(of, name) {
  const known = of === "status" ? STATUS : DROPPED;
  return known[name] ?? visible(name.replaceAll("_", " "));
}

/** The article of one row. `missing` says where texts are whole that this file has cut. */
export function article(table, row, detail, missing) {
  const parts = [];
  for (const [role, text] of detail.history ?? []) {
    parts.push(element("h5", {}, `Earlier turn: ${visible(role)}`),
               textBlock(`Turn of the ${visible(role)}`, text, missing));
  }
  parts.push(element("h5", {}, "Instruction"), textBlock("Instruction", detail.instruction, missing));
  if (detail.answer) {
    parts.push(element("p", { class: "small muted" }, "Reference answer, which no member saw: ",
                       element("bdi", {}, visible(whole(detail.answer)))));
  }
  const winner = table.get("winner", row);
  const sides = detail.sides.map((side, place) => sideOf(side, place, winner, detail, missing));
  parts.push(element("div", { class: "pair" }, sides));
  for (const line of result(table, row, detail)) parts.push(element("p", {}, line));
  if (detail.judgments.length) parts.push(...judged(detail, missing));
  for (const one of detail.people ?? []) {
    const choice = { left: detail.sides[0]?.name, right: detail.sides[1]?.name }[one.verdict];
    parts.push(element("p", { class: "small" }, named(one.person), ", a person: ",
                       choice ? named(choice) : visible(one.verdict), one.note ? `: ${visible(one.note)}` : ""));
  }
  return parts;
}

function sideOf(side, place, winner, detail, missing) {
  const won = winner === (place ? "right" : "left") && table_judged(detail);
  const notes = side.notes.map((note) => `, ${visible(whole(note))}`).join("");
  return element("div", { class: "side" },
    element("h5", {}, named(side.name), won ? ", won" : "", element("span", { class: "muted" }, notes)),
    won ? wonBlock(side, missing) : textBlock(`Response of ${visible(side.name)}`, side.text, missing));
}

const table_judged = (detail) => detail.outcome !== null;

function wonBlock(side, missing) {
  const block = textBlock(`Response of ${visible(side.name)}, which won`, side.text, missing);
  (block.matches(".text") ? block : block.querySelector(".text")).classList.add("won");
  return block;
}

function result(table, row, detail) {
  const lines = [];
  const outcome = detail.outcome;
  if (outcome) {
    const line = [words("status", outcome.status ?? "not judged yet")];
    if (outcome.winner) {
      line.push(" for ", named(detail.sides[outcome.winner === "left" ? 0 : 1].name));
    }
    if (outcome.scores[0] !== null) {
      line.push(`, ${score(outcome.scores[0])} to ${score(outcome.scores[1])}`);
    }
    if (outcome.agreement !== null) {
      line.push(`; ${Math.round(100 * outcome.agreement)} % of the judges' weight is on that side`);
    }
    if (outcome.num_missing) line.push(`; ${outcome.num_missing} of the judgments unreadable`);
    if (outcome.reason) line.push(` (${visible(whole(outcome.reason))})`);
    lines.push([...line, "."]);
  } else {
    lines.push([`${words("status", table.get("status", row))}.`]);
  }
  const pair = detail.pair;
  if (pair && pair.dropped) {
    lines.push([`${outcome ? "No pair was made" : "Dropped"}: ${words("pair", pair.dropped)}.`]);
  } else if (pair && pair.margin !== undefined) {
    lines.push([`${outcome ? "Made a preference pair: margin" : "Margin"} ${score(pair.margin)}, ` +
                `weight ${score(pair.weight)} in training.`]);
  }
  return lines;
}

function judged(detail, missing) {
  const weighed = detail.judgments.some((judgment) => judgment.weight !== null);
  const head = ["judge", ...detail.sides.map((side) => side.name)].map((name) =>
    element("th", { scope: "col" }, named(name)));
  if (weighed) head.push(element("th", { scope: "col" }, "weight"));
  head.push(element("th", { scope: "col", class: "left" }, "notes"));
  const rows = detail.judgments.map((one) => element("tr", {},
    element("th", { scope: "row" }, named(one.judge)),
    one.scores.map((value) => element("td", {}, value === null ? "unreadable" : score(value))),
    weighed ? element("td", {}, score(one.weight)) : null,
    element("td", { class: "left" }, notesOf(one))));
  const said = detail.judgments.flatMap((one) => one.said.flatMap(([slot, text]) => [
    element("h5", {}, named(one.judge), `, ${visible(slot)}`),
    textBlock(`What ${visible(one.judge)} said of ${visible(slot)}`, text, missing)]));
  return [
    element("h5", {}, "Judgments"),
    element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Judgments" },
      element("table", {}, element("thead", {}, element("tr", {}, head)),
              element("tbody", {}, rows))),
    element("details", { open: detail.judgments.length < 4 },
      element("summary", { class: "small" }, "What the judges said"),
      element("div", { class: "inside" }, said))];
}

function notesOf(judgment) {
  const notes = [judgment.reason ? visible(whole(judgment.reason)) : "",
                 judgment.flipped ? "changed with the order" : "",
                 ...judgment.flags.map((flag) => visible(String(flag).replaceAll("_", " ")))];
  return notes.filter((note) => note).join("; ") || "\u2013";
}

/** A short text that a report file may have cut in the middle. */
function whole(text) {
  return Array.isArray(text) ? `${text[0]} [\u2026 ${number(text[1])} characters \u2026] ${text[2]}` : text;
}
