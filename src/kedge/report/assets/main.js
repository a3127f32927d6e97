"use strict";
/* Assemble the page once its data are loaded. */

const FRAME = 20; // milliseconds after which a browser has painted what was drawn

/* Return the result of an action; if it fails, show the error on the page and return undefined. */
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

/* Let the browser respond to the user before the next piece of work. */
function pause(milliseconds = 0) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

async function start() {
  const source = await openSource();
  const look = new Look();
  const search = new Search(source);
  const table = new FoundTable(source, (side, key) => search.showKey(side, key));
  await look.add(search, table);
  performance.mark("searchable");
  const wipe = sketch(source.data);
  await pause(FRAME);
  performance.mark("drawn");
  await loadPlotly();
  const spaces = new Spaces(source, (entry) => search.show(entry), (selected) => table.follow(selected));
  search.onShow = (entry) => spaces.light(entry);
  if (search.shown) spaces.light(search.shown);
  const morph = new Morph(source, (entry) => search.show(entry), (group) => spaces.selectMoving(group));
  spaces.onDraw = (places, group) => morph.show(places, group);
  morph.show(spaces.places());
  wipe();
  performance.mark("live");
  await look.add(spaces);
  look.follow();
  for (const draw of [drawReliability, drawConvergence, drawConfidence]) {
    await pause();
    draw(source.data);
  }
  document.documentElement.dataset.ready = "";
}

attempt(start);
