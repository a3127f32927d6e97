"use strict";
/* Where the page gets what it shows: packed inside the file, or, live, from the server that serves it.
   Both answer alike: `find(text)` gives entries {side, row, key, place, partner, confidence} (`place` is the number among
   the rows drawn, or null), and `neighbours(entry)` a list of them for X and one for Y, with `percent`. */

const SIDES = ["x", "y"];
const MOST_HITS = 12;
const fold = (text) => text.normalize("NFKC").toLocaleLowerCase();

/* Unpack what a script element of type application/gzip holds in base64. */
async function unpacked(name) {
  const bytes = Uint8Array.from(atob(document.getElementById(name).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/* How well a folded key fits what was typed: 0 exactly, 1 at its beginning, 2 somewhere, 3 not at all. */
function misfit(key, text) {
  const place = key.indexOf(text);
  return place < 0 ? 3 : place > 0 ? 2 : key.length === text.length ? 0 : 1;
}

class PackedSource {
  constructor(data) {
    this.data = data;
    this.live = false;
  }

  async find(text) {
    this.folded ??= this.data.keys.map((keys) => keys.map(fold));
    const byFit = [[], [], []];
    const sought = fold(text.trim());
    if (!sought) return [];
    SIDES.forEach((side, number) => {
      this.folded[number].forEach((key, row) => {
        const fit = misfit(key, sought);
        if (fit < 3 && byFit[fit].length < 2 * MOST_HITS) byFit[fit].push(this.entry(number, row));
      });
    });
    return byFit.flat().slice(0, MOST_HITS);
  }

  /* The entry of a key of X, if it is here. */
  async lookUp(key) {
    this.rows ??= new Map(this.data.keys[0].map((each, row) => [each, row]));
    return this.rows.has(key) ? this.entry(0, this.rows.get(key)) : undefined;
  }

  async neighbours(entry) {
    const own = SIDES.indexOf(entry.side);
    const lists = [];
    lists[own] = this.listed(this.data.near.within[own], entry, own);
    lists[1 - own] = this.listed(this.data.near.across[own], entry, 1 - own);
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
    const confidence = partner === null ? null : this.data.confidence[row];
    return { side: SIDES[number], row, key: this.data.keys[number][row], place: row, partner, confidence };
  }
}

class LiveSource {
  constructor(data) {
    this.data = data;
    this.live = true;
  }

  async find(text) {
    return text.trim() ? (await this.ask("keys", { text })).hits : [];
  }

  async lookUp(key) {
    return (await this.ask("key", { key })).entry;
  }

  async neighbours(entry) {
    return (await this.ask("near", { side: entry.side, row: entry.row })).lists;
  }

  /* The places of the rows drawn, relative to the anchors that a form asks for. */
  async view(form) {
    return this.ask("view", form);
  }

  async ask(what, parameters) {
    const answer = await fetch(`/${what}?${new URLSearchParams(parameters)}`);
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error);
    return told;
  }

  entry(number, place) {
    const entry = PackedSource.prototype.entry.call(this, number, place);
    return { ...entry, row: this.data.rows[number][place] };
  }
}

async function openSource() {
  if (!document.getElementById("contents")) return new LiveSource(await (await fetch("/contents.json")).json());
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly");
  document.head.append(library);
  return new PackedSource(JSON.parse(await unpacked("contents")));
}
