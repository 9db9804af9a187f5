// The source of a report file: what is browsed stands in the file, deflated and in base64.

import { mount } from "./browser.js";

async function unpacked(element) {
  const packed = Uint8Array.from(atob(element.textContent.trim()), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

class Embedded {
  constructor(root) {
    this.kinds = [{ kind: root.dataset.kind, count: Number(root.dataset.count) }];
    this.missing = root.dataset.missing;
    this.searchNote = root.dataset.note;
    this.size = Number(root.dataset.size);
    this.stride = Number(root.dataset.stride); // of how many rows one has texts here
    this.first = (this.kinds[0].count - 1) % this.stride;
    this.texted = Number(root.dataset.texts); // rows with texts
    this.parts = [...document.querySelectorAll("script.duel-texts")];
    this.texts = new Map();
  }

  facts() {
    return unpacked(document.getElementById("duel-facts"));
  }

  /** The details of one part of the file, a list; the part is unpacked once. */
  part(number) {
    if (!this.texts.has(number)) this.texts.set(number, unpacked(this.parts[number]));
    return this.texts.get(number);
  }

  async detail(kind, row) {
    if (!this.has(row)) throw new Error(`The texts of this one are not in this file; ${this.missing}.`);
    const place = (row - this.first) / this.stride;
    return (await this.part(Math.floor(place / this.size)))[place % this.size];
  }

  /** Whether this file has the texts of a row. */
  has(row) {
    const place = (row - this.first) / this.stride;
    return Number.isInteger(place) && place >= 0 && place < this.texted;
  }

  /** Whether texts are left out at all. */
  get partial() {
    return this.texted < this.kinds[0].count;
  }

  async search(kind, words, table, say) {
    const needle = words.toLowerCase();
    const found = new Set();
    for (let number = 0; number < this.parts.length; number++) {
      (await this.part(number)).forEach((detail, place) => {
        if (textsOf(detail).some((text) => text.toLowerCase().includes(needle))) {
          found.add(this.first + this.stride * (number * this.size + place));
        }
      });
      if (number % 10 === 9) say(`${Math.round((100 * number) / this.parts.length)} %`);
    }
    return found;
  }
}

function textsOf(detail) {
  const texts = [detail.instruction, ...detail.sides.map((side) => side.text),
                 ...detail.judgments.flatMap((one) => one.said.map(([, text]) => text))];
  return texts.map((text) => (Array.isArray(text) ? `${text[0]}\n${text[2]}` : text));
}

const root = document.getElementById("duel-browser");
if (root && typeof DecompressionStream === "undefined") {
  root.textContent = "This browser is too old to unpack the duels of this file; open it in a newer one.";
} else if (root) {
  mount(root, new Embedded(root));
}
