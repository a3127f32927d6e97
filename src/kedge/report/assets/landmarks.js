"use strict";
/* Names that stay on the picture: anchors that were found first, then the most confident pairs, and seeds last, as many
   as fit without touching. Zooming in moves points apart and makes room for more. */

const MAX_LANDMARKS = 24;
const MAX_TRIED = 5000;
const LANDMARK = { height: 16, above: 19, apart: 22 }; // in pixels

class Landmarks {
  constructor(plots, data) {
    this.plots = plots;
    this.data = data;
    this.wanted = true;
    this.layers = plots.map((plot) => plot.parentElement.querySelector(".landmarks"));
    this.candidates = this.inOrder();
    this.measure = document.createElement("canvas").getContext("2d");
  }

  /* Candidate rows with the sides they are on: pairs on both sides, or all rows if there are no pairs. */
  inOrder() {
    const { keys, pairs, anchors } = this.data;
    const rowOf = new Map(keys[0].slice(0, pairs).map((key, row) => [key, row]));
    const found = anchors.filter(([, , , kind]) => kind === "found");
    const first = found.map(([key]) => rowOf.get(key)).filter((row) => row !== undefined);
    const rows = new Set([...first, ...Array(pairs).keys()]);
    if (pairs) return [...rows].map((row) => ({ row, sides: [0, 1] }));
    return keys.flatMap((each, number) => each.map((_, row) => ({ row, sides: [number] })));
  }

  /* If rows are selected, only they get names. */
  draw(places, selected) {
    this.measure.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const frames = this.plots.map(({ _fullLayout: { xaxis, yaxis, width, height } }) => ({
      width, height, left: xaxis.range[0], right: xaxis.range[1], low: yaxis.range[0], high: yaxis.range[1],
    }));
    const taken = [[], []];
    let tried = 0;
    for (const { row, sides } of this.wanted ? this.candidates : []) {
      if (selected && !selected[sides[0]][row]) continue;
      const boxes = sides.map((number) => this.boxOf(row, number, frames[number], places));
      if (!boxes.some(Boolean)) continue;
      if (++tried > MAX_TRIED || Math.max(...taken.map((each) => each.length)) >= MAX_LANDMARKS) break;
      if (boxes.some((box) => box && taken[box.number].some((other) => touch(box, other)))) continue;
      boxes.forEach((box) => box && taken[box.number].push(box));
    }
    this.layers.forEach((layer, number) => layer.replaceChildren(...taken[number].map((box) => {
      const name = document.createElement("span");
      name.textContent = box.text;
      name.style.left = `${box.x}px`;
      name.style.top = `${box.y}px`;
      return name;
    })));
  }

  /* The box of a row's name, centered above its point; undefined if it would not be fully visible. */
  boxOf(row, number, { width, height, left, right, low, high }, places) {
    const x = (places[2 * number][row] - left) / (right - left) * width;
    const y = (high - places[2 * number + 1][row]) / (high - low) * height;
    if (x < 0 || x > width || y < LANDMARK.above || y > height) return undefined;
    const text = shortened(visible(nameOf(this.data, number, row)));
    const half = this.measure.measureText(text).width / 2 + 3;
    return x < half || x > width - half ? undefined : { number, text, x, y, half };
  }
}

function touch(one, other) {
  return Math.abs(one.x - other.x) < one.half + other.half + LANDMARK.apart
    && Math.abs(one.y - other.y) < LANDMARK.height + LANDMARK.apart;
}
