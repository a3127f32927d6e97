"use strict";
/* Type a key, see its neighbours in both spaces. */

/* A key as text of its own direction: nothing in it is markup, and right-to-left stays inside. What could not be seen
   is spelt out. */
function isolated(key) {
  const element = document.createElement("bdi");
  element.textContent = visible(key);
  return element;
}

function visible(key) {
  if (/[\p{L}\p{N}\p{P}\p{S}]/u.test(key)) return key;
  const spelt = (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `"${key.split("").map((letter) => (letter === " " ? " " : spelt(letter))).join("")}"`;
}

function keyButton(entry, onPick) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "key";
  button.append(isolated(entry.key));
  button.addEventListener("click", () => onPick(entry));
  return button;
}

class Search {
  constructor(source) {
    this.source = source;
    this.input = document.getElementById("key");
    this.asked = 0; // how often; an answer to an older question comes too late
    this.wanted = 0;
    this.onShow = () => {};
    this.input.addEventListener("input", () => this.suggest());
    document.getElementById("search-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      const [first] = await this.suggest();
      if (first) this.show(first);
    });
  }

  tell(...text) {
    document.getElementById("hits-told").replaceChildren(...text);
  }

  async suggest() {
    const number = ++this.asked;
    const hits = await attempt(() => this.source.find(this.input.value));
    if (!hits || number !== this.asked) return [];
    const count = hits.length < MOST_HITS ? hits.length : `The first ${hits.length}`;
    this.tell(!this.input.value.trim() ? "" : hits.length ? `${count} fit.` : "No key fits.");
    document.getElementById("hits").replaceChildren(...hits.map((entry) => {
      const item = document.createElement("li");
      const side = document.createElement("small");
      side.textContent = ` ${entry.side.toUpperCase()}`;
      item.append(keyButton(entry, (chosen) => this.show(chosen)), side);
      return item;
    }));
    return hits;
  }

  /* The neighbours of a key of X, wherever on the page it was chosen. */
  async showKey(key) {
    const number = ++this.wanted;
    const found = await attempt(async () => ({ entry: await this.source.lookUp(key) }));
    if (!found || number !== this.wanted) return;
    if (found.entry) await this.show(found.entry);
    else {
      document.getElementById("neighbours").hidden = true;
      this.tell(isolated(key), " is not among the rows drawn.");
    }
    document.getElementById("search").scrollIntoView();
  }

  async show(entry) {
    const number = ++this.wanted;
    const lists = await attempt(() => this.source.neighbours(entry));
    if (!lists || number !== this.wanted) return;
    document.getElementById("neighbours").hidden = false;
    document.getElementById("sought").replaceChildren(isolated(entry.key), ` in ${entry.side.toUpperCase()}`);
    const partner = document.getElementById("partner");
    if (entry.partner === null) partner.textContent = "No match was found for it.";
    else partner.replaceChildren("Its partner: ", isolated(entry.partner), `, confidence ${entry.confidence.toFixed(2)}.`);
    SIDES.forEach((side, number) => {
      document.getElementById(`near-${side}`).replaceChildren(...lists[number].map((near) => {
        const item = document.createElement("li");
        item.append(keyButton(near, (chosen) => this.show(chosen)), ` ${(near.percent / 100).toFixed(2)}`);
        if (side !== entry.side && near.key === entry.partner) {
          const mark = document.createElement("span");
          mark.className = "mark";
          mark.textContent = "partner";
          item.append(" ", mark);
        }
        return item;
      }));
    });
    this.onShow(entry);
  }
}
