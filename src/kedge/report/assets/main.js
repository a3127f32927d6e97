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

/* Let the browser answer to its user before the next piece of work. */
function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}

async function start() {
  const source = await openSource();
  const search = new Search(source);
  new FoundTable(source, (key) => search.showKey(key));
  performance.mark("searchable");
  await pause();
  await loadPlotly();
  const spaces = new Spaces(source, (entry) => search.show(entry));
  search.onShow = (entry) => spaces.light(entry);
  let asked = 0;
  document.getElementById("anchors")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const number = ++asked;
    const view = await attempt(() => source.view(new FormData(event.target)));
    if (view && number === asked) spaces.add(view);
  });
  performance.mark("drawn");
  for (const draw of [drawReliability, drawConvergence, drawSureness]) {
    await pause();
    draw(source.data);
  }
  document.documentElement.dataset.ready = "";
}

attempt(start);
