// Text of models and files: shown, never interpreted. Everything enters the page by textContent.

const LONG = 8000; // characters of a text that are shown at once
const HEAD = 6000;
const TAIL = 1000;

// Controls, marks that turn the direction of what follows, separators and tags that nobody sees, and
// halves of broken surrogate pairs. Joiners stay: emoji and whole scripts are written with them.
// eslint-disable-next-line no-control-regex
const UNSEEN = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\u{e0000}-\\u{e007f}]|\\p{Surrogate}", "gu");

/** The text with everything that cannot be seen, or that would turn other text, made visible. */
export function visible(text) {
  return text.replace(/\r\n?/g, "\n").replace(UNSEEN, (one) => {
    const code = one.codePointAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    if (code >= 0xd800 && code <= 0xdfff) return "\ufffd";
    return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/** An element with attributes and children; children that are text are only ever text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** A name of a member or judge: isolated, so that its direction is its own. */
export function named(name) {
  return element("bdi", {}, visible(String(name)));
}

/** Python's len(): characters, not halves of pairs. */
export function numCharacters(text) {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at++) {
    const code = text.charCodeAt(at);
    if (code >= 0xd800 && code <= 0xdbff) {
      const next = text.charCodeAt(at + 1);
      if (next >= 0xdc00 && next <= 0xdfff) (count -= 1), (at += 1);
    }
  }
  return count;
}

/** A block of somebody's text. `text` is a string, or [beginning, number left out, end]. */
export function textBlock(label, text, missing) {
  const block = element("div", { class: "text", tabindex: 0, dir: "auto", role: "group",
                                 "aria-label": label });
  if (Array.isArray(text)) {
    const [head, count, tail] = text;
    block.append(visible(head), mark(`${number(count)} characters are not in this file; ${missing}`),
                 visible(tail));
    return block;
  }
  if (text === "") block.append(element("span", { class: "muted" }, "(empty)"));
  if (text.length <= LONG) {
    block.append(visible(text));
    return block;
  }
  const head = uncut(text, HEAD);
  const tail = uncut(text, text.length - TAIL);
  const hidden = numCharacters(text.slice(head, tail));
  const all = element("button", { type: "button", onclick: () => {
    block.replaceChildren(visible(text));
    block.focus();
  } }, `Show all ${number(numCharacters(text))} characters`);
  block.append(visible(text.slice(0, head)), mark(`${number(hidden)} characters are not shown`),
               visible(text.slice(tail)));
  return element("div", {}, block, all);
}

/** A place to cut at that is not inside a pair of halves of one character. */
function uncut(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at + 1 : at;
}

function mark(sentence) {
  return element("span", { class: "cut" }, `\n[\u2026 ${sentence} \u2026]\n`);
}

/** 12,345 */
export function number(value) {
  return value.toLocaleString("en-GB");
}

/** A score as it is written elsewhere: two decimals, a proper minus. */
export function score(value) {
  return value === null || value === undefined ? "\u2013" : value.toFixed(2).replace("-", "\u2212");
}
