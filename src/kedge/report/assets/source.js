"use strict";
/* Where the page gets its data: packed inside the file, or, on a live page, from the server.
   Both sources have the same methods: `find(text)` returns entries {side, row, key, place, partner, confidence, text,
   partner_text} (`place` is the index among the rows drawn, or null; the texts are null if there are none), and
   `neighbours(entry)` a list of entries for X and one for Y, with `percent`. */

const SIDES = ["x", "y"];
const MAX_HITS = 12;
const REACH = 4095 * 1.06; // coordinates are whole numbers of at most 4095
const fold = (text) => text.normalize("NFKC").toLocaleLowerCase();

/* Unpack the base64 content of a script element of type application/gzip; some of them come after the scripts. */
async function unpacked(name) {
  if (document.readyState === "loading" && !document.getElementById(name)) {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  }
  const letters = atob(document.getElementById(name).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place++) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

class PackedSource {
  constructor(data) {
    this.data = data;
  }

  /* Entries whose keys match: first exactly, then up to case and Unicode form, then as a prefix, then anywhere; then those
     whose texts do. X and Y alternate, so that neither crowds out the other. */
  async find(text) {
    this.folded ??= this.data.keys.map((keys) => keys.map(fold));
    this.foldedTexts ??= this.data.texts?.map((texts) => texts.map((each) => fold(each ?? "")));
    const typed = text.trim();
    const sought = fold(typed);
    const hits = [];
    this.folded.forEach((keys, number) => {
      const counts = [0, 0, 0, 0, 0];
      keys.forEach((key, row) => {
        const place = sought ? key.indexOf(sought) : -1;
        if (place < 0 && !(sought && this.foldedTexts?.[number][row].includes(sought))) return;
        const exact = this.data.keys[number][row] === typed;
        const fit = exact ? 0 : key === sought ? 1 : place === 0 ? 2 : place > 0 ? 3 : 4;
        counts[fit] += 1;
        if (counts[fit] <= MAX_HITS) hits.push({ fit, count: counts[fit], number, row });
      });
    });
    hits.sort((one, other) => one.fit - other.fit || one.count - other.count || one.number - other.number);
    return hits.slice(0, MAX_HITS).map(({ number, row }) => this.entry(number, row));
  }

  /* The entry of a key of X or Y, or undefined if it is not on the page. */
  async lookUp(side, key) {
    const number = SIDES.indexOf(side);
    this.rows ??= this.data.keys.map((keys) => new Map(keys.map((each, row) => [each, row])));
    return this.rows[number].has(key) ? this.entry(number, this.rows[number].get(key)) : undefined;
  }

  /* Neighbours are most of the data and are only unpacked on first use. */
  async neighbours(entry) {
    this.near ??= unpacked("near").then(JSON.parse);
    const { within, across } = await this.near;
    const own = SIDES.indexOf(entry.side);
    const lists = [];
    lists[own] = this.listed(within[own], entry, own);
    lists[1 - own] = this.listed(across[own], entry, 1 - own);
    return lists;
  }

  listed(near, entry, number) {
    const count = near.rows.length / this.data.keys[SIDES.indexOf(entry.side)].length;
    const from = entry.row * count;
    return near.rows.slice(from, from + count).map((row, place) => (
      { ...this.entry(number, row), percent: near.percent[from + place] }
    ));
  }

  entry(number, row) {
    const partner = row < this.data.pairs ? this.data.keys[1 - number][row] : null;
    const confidence = partner === null ? null : this.data.confidence[row] ?? null; // a seed has none
    const text = this.data.texts?.[number][row] ?? null;
    const partner_text = partner === null ? null : this.data.texts?.[1 - number][row] ?? null;
    return { side: SIDES[number], row, key: this.data.keys[number][row], place: row, partner, confidence, text, partner_text };
  }
}

class LiveSource {
  constructor(data) {
    this.data = data;
  }

  async find(text) {
    return text.trim() ? (await this.ask("keys", { text })).hits : [];
  }

  async lookUp(side, key) {
    return (await this.ask("key", { side, key })).entry;
  }

  async neighbours(entry) {
    return (await this.ask("near", { side: entry.side, row: entry.row })).lists;
  }

  /* What a row of X finds with the new model, and, translated, in the old index. */
  async results(entry) {
    return this.ask("results", { row: entry.row });
  }

  /* The places of the rows drawn, relative to the anchors chosen in a form. */
  async view(form) {
    return this.ask("view", form);
  }

  /* The places of the rows drawn in a slow layout; null until it is computed. */
  async layout() {
    return this.ask("layout", {});
  }

  async ask(what, parameters) {
    const answer = await fetch(`/${what}?${new URLSearchParams(parameters)}`).catch(() => {
      throw new Error("kedge explore has stopped; start it again and reload this page.");
    });
    const result = await answer.json();
    if (!answer.ok) throw new Error(result.error);
    return result;
  }

  entry(number, place) {
    const entry = PackedSource.prototype.entry.call(this, number, place);
    return { ...entry, row: this.data.rows[number][place] };
  }
}

async function openSource() {
  if (!document.getElementById("contents")) return new LiveSource(await (await fetch("/contents.json")).json());
  return new PackedSource(JSON.parse(await unpacked("contents")));
}

/* Load the library that draws the charts; a live page has loaded it already. */
async function loadPlotly() {
  if ("Plotly" in window) return;
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly");
  document.head.append(library);
}
