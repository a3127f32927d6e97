"use strict";
/* The address bar keeps the state of the page, so that it can be shared as a link. Each part of the page returns its
   state as named strings, and restores it from them. */

class Look {
  constructor() {
    this.parts = [];
    this.read();
    addEventListener("hashchange", async () => {
      if (this.read()) for (const part of this.parts) await part.restore(this.kept);
    });
    // Links within the page would replace the state.
    document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener("click", (event) => {
      if (!this.kept.size) return;
      const goal = document.querySelector(link.getAttribute("href"));
      event.preventDefault();
      goal.tabIndex = -1;
      goal.focus({ preventScroll: true });
      goal.scrollIntoView();
    }));
  }

  /* Whether the address holds a state: names and values, rather than the name of a section. */
  read() {
    const text = location.hash.slice(1);
    this.kept = new URLSearchParams(text.includes("=") ? text : "");
    return this.kept.size > 0;
  }

  async add(...parts) {
    for (const part of parts) await part.restore(this.kept);
    this.parts.push(...parts);
  }

  /* From now on save changes with a short delay, since browsers limit how often the address may change. */
  follow() {
    let waiting;
    for (const part of this.parts) {
      part.onChange = () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => this.write(), 200);
      };
    }
  }

  write() {
    const state = this.parts.flatMap((part) => Object.entries(part.look())).filter(([, value]) => value);
    const had = this.kept.size > 0;
    this.kept = new URLSearchParams(state);
    if (had || state.length) history.replaceState(null, "", `${location.href.split("#")[0]}${state.length ? `#${this.kept}` : ""}`);
  }
}
