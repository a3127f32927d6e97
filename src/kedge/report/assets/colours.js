"use strict";
/* What the colours of the points mean. A colouring has a name, a `value(number, row)` for every row drawn (null where it
   is grey), colours for the values from 0 to `most`, and the lines of its legend, each with the rows it `holds`. */

const inHue = (degrees) => `hsl(${degrees},62%,50%)`;
const HUES = Array.from({ length: 13 }, (_, step) => [step / 12, inHue(30 * (step % 12))]);
const MOST_KINDS = 10; // the kind after them stands for all others

/* A pair's colour is the direction in which X's row lies, relative to the anchors found. */
function huesOf(data, [xs, ys]) {
  return xs.slice(0, data.pairs).map((x, row) => (Math.atan2(ys[row], x) / (2 * Math.PI) + 1) % 1);
}

function sizeOfPoints(count) {
  return count > 8000 ? 3 : 5; // pixels across
}

function colouringsOf(data, hues) {
  const paired = (number, row) => row < data.pairs;
  const alone = { text: "in no pair", colours: () => [colour("alone")], holds: (number, row) => !paired(number, row) };
  const least = data.confidence.reduce((lowest, each) => Math.min(lowest, each), 0.99);
  const sureness = () => [colour("unsurest"), colour("surest")];
  return [
    {
      name: "partner", most: 1, scale: () => HUES,
      value: (number, row) => (paired(number, row) ? hues[row] : null),
      legend: [{ text: "in a pair: partners have the same colour", colours: () => HUES.map(([, hue]) => hue), holds: paired }, alone],
    },
    {
      name: "confidence", most: 1, scale: () => sureness().map((shade, place) => [place, shade]),
      value: (number, row) => (paired(number, row) ? (data.confidence[row] - least) / (1 - least) : null),
      legend: [{ text: `confidence from ${least.toFixed(2)} to 1`, colours: sureness, holds: paired }, alone],
    },
    { name: "match", ...inKinds(["has a match", "has none"], (number, row) => Number(!paired(number, row))) },
    ...data.kinds.map(({ name, names, of }) => {
      const none = of.some((kinds) => kinds.includes(-1))
        ? [{ text: `no ${name}`, colours: alone.colours, holds: (number, row) => of[number][row] < 0 }]
        : [];
      const { legend, ...how } = inKinds(names, (number, row) => (of[number][row] < 0 ? null : of[number][row]));
      return { name, ...how, legend: [...legend, ...none] };
    }),
  ];
}

/* A colouring by the number of a row's kind. */
function inKinds(names, value) {
  const shade = (kind) => colour(kind < MOST_KINDS ? `kind-${kind}` : "soft");
  const most = Math.max(1, names.length - 1);
  return {
    most, value,
    scale: () => Array.from({ length: most + 1 }, (_, kind) => [kind / most, shade(Math.min(kind, names.length - 1))]),
    legend: names.map((text, kind) => ({
      text, colours: () => [shade(kind)], holds: (number, row) => value(number, row) === kind,
    })),
  };
}

/* The legend as buttons: each selects the rows that have its colour. */
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
