"use strict";
/* Put the page together once its data are there. */

/* What an action gives; where it fails, say so on the page and give nothing. */
async function attempt(action) {
  const trouble = document.getElementById("trouble");
  try {
    const result = await action();
    trouble.hidden = true;
    return result;
  } catch (error) {
    trouble.hidden = false;
    trouble.textContent = error.message;
    return undefined;
  }
}

async function start() {
  const source = await openSource();
  const search = new Search(source);
  const spaces = new Spaces(source, (entry) => search.show(entry));
  search.onShow = (entry) => spaces.light(entry);
  new FoundTable(source, (key) => search.showKey(key));
  document.getElementById("anchors")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const view = await attempt(() => source.view(new FormData(event.target)));
    if (view) spaces.add(view);
  });
  for (const draw of [drawReliability, drawConvergence, drawSureness]) {
    await new Promise((resolve) => setTimeout(resolve)); // what is above can be used meanwhile
    draw(source.data);
  }
  document.documentElement.dataset.ready = "";
}

attempt(start);
