"use strict";
/* Suggestions of groups that move together when X's picture turns into Y's. */

const CELLS = 6; // across and down, in the grid that places are compared by
const MIN_MOVERS = 5;
const MAX_MOVING_GROUPS = 6;
const NAMED_MOVERS = 3;

/* Groups of pairs that begin in one cell of the picture and end in one cell, among the quarter that moves most and by
   at least half a cell; the largest groups first, and in each the rows that move most first. */
function movingTogether([x1, y1, x2, y2], pairs) {
  const far = Array.from({ length: pairs }, (_, row) => Math.hypot(x2[row] - x1[row], y2[row] - y1[row]));
  const cell = (place) => Math.floor((place / REACH + 1) / 2 * CELLS);
  const groups = new Map();
  const movers = [...far.keys()].sort((one, other) => far[other] - far[one] || one - other).slice(0, Math.ceil(pairs / 4));
  for (const row of movers.filter((each) => far[each] >= REACH / CELLS)) {
    const route = [x1, y1, x2, y2].map((places) => cell(places[row])).join(" ");
    if (!groups.has(route)) groups.set(route, []);
    groups.get(route).push(row);
  }
  return [...groups.values()]
    .filter((rows) => rows.length >= MIN_MOVERS)
    .sort((one, other) => other.length - one.length) // equally large ones stay in the order of their first rows
    .slice(0, MAX_MOVING_GROUPS);
}

/* A button for each group, which names the rows that move most. */
function groupButtons(data, groups, onChoose) {
  return groups.map((rows, group) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    const line = document.createElement("span"); // so that the gaps between a legend's parts stay out of it
    button.type = "button";
    line.append(`${rows.length.toLocaleString("en")} pairs: `);
    for (const row of rows.slice(0, NAMED_MOVERS)) line.append(isolated(shortened(nameOf(data, 0, row))), ", ");
    line.append("...");
    button.append(line);
    button.addEventListener("click", () => onChoose(button.getAttribute("aria-pressed") === "true" ? null : group));
    item.append(button);
    return item;
  });
}
