"use strict";
/* What the colours of the points mean. A colouring has a name, a `value(number, row)` for every row drawn (null if it
   is grey), colours for the values from 0 to `max`, and the lines of its legend, each with the rows it `holds`. */

const inHue = (degrees) => `hsl(${degrees},62%,50%)`;
const HUES = Array.from({ length: 13 }, (_, step) => [step / 12, inHue(30 * (step % 12))]);
const MAX_GROUPS = 10; // a further group stands for all others

/* The hue of a pair is the direction of X's row, relative to the anchors found. */
function huesOf(data, [xs, ys]) {
  return xs.slice(0, data.pairs).map((x, row) => (Math.atan2(ys[row], x) / (2 * Math.PI) + 1) % 1);
}

function sizeOfPoints(count) {
  return count > 8000 ? 3 : 5; // pixels across
}

function colouringsOf(data, hues) {
  const paired = (number, row) => row < data.pairs;
  const unmatched = { text: "unmatched", colours: () => [colour("unmatched")], holds: (number, row) => !paired(number, row) };
  const found = (number, row) => row < data.confidence.length; // the other pairs are seeds
  const seed = { text: "seed (given, so it has no confidence)", colours: () => [colour("third")], holds: (number, row) => paired(number, row) && !found(number, row) };
  const lowest = data.confidence.reduce((low, each) => Math.min(low, each), 0.99);
  const shades = () => [colour("least-confident"), colour("most-confident")];
  return [
    {
      name: "partner", max: 1, scale: () => HUES,
      value: (number, row) => (paired(number, row) ? hues[row] : null),
      legend: [{ text: "in a pair (partners have the same colour)", colours: () => HUES.map(([, hue]) => hue), holds: paired }, unmatched],
    },
    {
      // Found pairs have values from 0 to 1, and seeds have 2, beyond the shades of confidence.
      name: "confidence", max: 2, scale: () => [...shades(), colour("third")].map((shade, place) => [place / 2, shade]),
      value: (number, row) => (found(number, row) ? (data.confidence[row] - lowest) / (1 - lowest) : paired(number, row) ? 2 : null),
      legend: [
        { text: `confidence from ${lowest.toFixed(2)} to 1`, colours: shades, holds: found },
        ...(data.pairs > data.confidence.length ? [seed] : []),
        unmatched,
      ],
    },
    { name: "match", ...inGroups(["matched", "unmatched"], (number, row) => Number(!paired(number, row))) },
    ...data.groups.map(({ name, names, of }) => {
      const none = of.some((groups) => groups.includes(-1))
        ? [{ text: `no ${name}`, colours: unmatched.colours, holds: (number, row) => of[number][row] < 0 }]
        : [];
      const { legend, ...how } = inGroups(names, (number, row) => (of[number][row] < 0 ? null : of[number][row]));
      return { name, ...how, legend: [...legend, ...none] };
    }),
  ];
}

/* A colouring by group number. */
function inGroups(names, value) {
  const shade = (group) => colour(group < MAX_GROUPS ? `group-${group}` : "soft");
  const max = Math.max(1, names.length - 1);
  return {
    max, value,
    scale: () => Array.from({ length: max + 1 }, (_, group) => [group / max, shade(Math.min(group, names.length - 1))]),
    legend: names.map((text, group) => ({
      text, colours: () => [shade(group)], holds: (number, row) => value(number, row) === group,
    })),
  };
}

/* Show the legend as buttons, each of which selects the rows of its colour. */
function showLegend({ name, legend }, chosen, onChoose) {
  document.getElementById("legend").replaceChildren(...legend.map(({ text, colours }, line) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    const swatch = document.createElement("span");
    const shades = colours();
    const pressed = chosen?.colour === name && chosen.line === line;
    swatch.className = shades.length > 1 ? "swatch wide" : "swatch";
    swatch.style.background = shades.length > 1 ? `linear-gradient(to right, ${shades.join(", ")})` : shades[0];
    button.type = "button";
    button.setAttribute("aria-pressed", pressed);
    button.append(swatch, isolated(text));
    button.addEventListener("click", () => {
      onChoose(pressed ? null : { colour: name, line });
      document.querySelectorAll("#legend button")[line].focus();
    });
    item.append(button);
    return item;
  }));
}
