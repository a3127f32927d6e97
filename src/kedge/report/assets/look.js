"use strict";
/* The address bar keeps what is looked at, so that a look can be sent. Each part of the page gives what it shows as text by
   name, and shows again what such text says. */

class Look {
  constructor() {
    this.parts = [];
    this.read();
    addEventListener("hashchange", async () => {
      if (this.read()) for (const part of this.parts) await part.restore(this.kept);
    });
    // Links within the page would take the place of the look.
    document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener("click", (event) => {
      if (!this.kept.size) return;
      const goal = document.querySelector(link.getAttribute("href"));
      event.preventDefault();
      goal.tabIndex = -1;
      goal.focus({ preventScroll: true });
      goal.scrollIntoView();
    }));
  }

  /* Whether the address holds a look: names and values, and not the name of a part of the page. */
  read() {
    const text = location.hash.slice(1);
    this.kept = new URLSearchParams(text.includes("=") ? text : "");
    return this.kept.size > 0;
  }

  async add(...parts) {
    for (const part of parts) await part.restore(this.kept);
    this.parts.push(...parts);
  }

  /* From now on keep what changes, a moment after it does: browsers do not like to be told too often. */
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
    const told = this.parts.flatMap((part) => Object.entries(part.look())).filter(([, value]) => value);
    const had = this.kept.size > 0;
    this.kept = new URLSearchParams(told);
    if (had || told.length) history.replaceState(null, "", `${location.href.split("#")[0]}${told.length ? `#${this.kept}` : ""}`);
  }
}
