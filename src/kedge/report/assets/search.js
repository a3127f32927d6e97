"use strict";
/* Search for a key or text, and show the neighbours of a row in both spaces. */

class Search {
  constructor(source) {
    this.source = source;
    this.input = document.getElementById("key");
    this.asked = 0; // number of requests so far, to ignore late answers to older ones
    this.wanted = 0;
    this.shown = null;
    this.onShow = () => {};
    this.onChange = () => {};
    this.input.addEventListener("input", () => {
      this.suggest();
      this.onChange();
    });
    document.getElementById("search-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      const [first] = await this.suggest();
      if (first) this.show(first);
    });
  }

  setStatus(...text) {
    document.getElementById("hits-status").replaceChildren(...text);
  }

  async suggest() {
    const number = ++this.asked;
    const hits = await attempt(() => this.source.find(this.input.value));
    if (!hits || number !== this.asked) return [];
    const count = hits.length < MAX_HITS ? (hits.length === 1 ? "1 match." : `${hits.length} matches.`) : `The first ${hits.length} matches.`;
    this.setStatus(!this.input.value.trim() ? "" : hits.length ? count : this.source.data.texts ? "No matching key or text." : "No matching key.");
    document.getElementById("hits").replaceChildren(...hits.map((entry) => {
      const item = document.createElement("li");
      const side = document.createElement("small");
      side.textContent = ` ${entry.side.toUpperCase()}`;
      item.append(keyButton(entry, (chosen) => this.show(chosen)), side);
      return item;
    }));
    return hits;
  }

  /* Show the neighbours of a key of X or Y that was chosen anywhere on the page. */
  async showKey(side, key) {
    const number = ++this.wanted;
    const found = await attempt(async () => ({ entry: await this.source.lookUp(side, key) }));
    if (!found || number !== this.wanted) return;
    if (found.entry) await this.show(found.entry);
    else {
      document.getElementById("neighbours").hidden = true;
      this.setStatus(isolated(key), " is not among the rows shown.");
    }
    document.getElementById("search").scrollIntoView();
  }

  async show(entry) {
    const number = ++this.wanted;
    const searching = entry.side === "x" ? this.source.results?.(entry) : null; // only on a live page
    const found = await attempt(() => Promise.all([this.source.neighbours(entry), searching]));
    if (!found || number !== this.wanted) return;
    const [lists, results] = found;
    this.shown = entry;
    document.getElementById("neighbours").hidden = false;
    document.getElementById("sought").replaceChildren(described(entry.key, entry.text), ` in ${entry.side.toUpperCase()}`);
    const partner = document.getElementById("partner");
    if (entry.partner === null) partner.textContent = "It is unmatched.";
    else partner.replaceChildren("Its partner: ", described(entry.partner, entry.partner_text), `, ${sureness(entry)}.`);
    SIDES.forEach((side, number) => this.list(`near-${side}`, lists[number], (near) => (
      side !== entry.side && near.key === entry.partner ? "partner" : ""
    )));
    const compared = document.getElementById("results");
    if (compared) compared.hidden = !results;
    if (results) {
      for (const [name, entries] of Object.entries(results)) this.list(`results-${name}`, entries, ({ both }) => (both ? "in both" : ""));
      const same = results.new.filter(({ both }) => both).length;
      document.getElementById("agreement").textContent = `The old index finds ${same} of the ${results.new.length} that the new model finds.`;
    }
    this.onShow(entry);
    this.onChange();
  }

  /* List entries with their cosines, and a mark on some. */
  list(name, entries, markOf) {
    document.getElementById(name).replaceChildren(...entries.map((entry) => {
      const item = document.createElement("li");
      item.append(keyButton(entry, (chosen) => this.show(chosen)), ` ${(entry.percent / 100).toFixed(2)}`);
      if (markOf(entry)) {
        const mark = document.createElement("span");
        mark.className = "mark";
        mark.textContent = markOf(entry);
        item.append(" ", mark);
      }
      return item;
    }));
  }

  look() {
    return { search: this.input.value, side: this.shown?.side, key: this.shown?.key };
  }

  async restore(state) {
    this.input.value = state.get("search") ?? "";
    if (this.input.value) await this.suggest();
    const side = SIDES.find((each) => each === state.get("side"));
    const entry = side && await attempt(() => this.source.lookUp(side, state.get("key") ?? ""));
    if (entry) await this.show(entry);
  }
}
