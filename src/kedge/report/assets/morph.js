"use strict";
/* A slider that morphs the picture of X into that of Y: each pair moves from the place of X's row to that of Y's. */

const TRAILS = 12; // number of trails, for the rows that move most
const TRIP = 2500; // milliseconds

class Morph {
  constructor(source, onPick, onGroup) {
    this.source = source;
    this.onPick = onPick;
    this.onGroup = onGroup;
    this.group = null; // the number of the group that is selected
    this.panel = document.getElementById("morph");
    this.canvas = this.panel.querySelector("canvas");
    this.slider = this.panel.querySelector("input");
    this.panel.hidden = !source.data.pairs;
    this.begun = 0; // start time of the running animation
    this.slider.addEventListener("input", () => {
      this.begun = 0; // moving the slider stops the animation
      this.draw();
    });
    this.panel.querySelector("button").addEventListener("click", () => this.play());
    new ResizeObserver(() => this.draw()).observe(this.canvas); // fires on opening too
  }

  /* Show the places of a view, and which of its groups is selected, if any. */
  show(places, group = null) {
    this.places = places;
    this.group = group;
    this.draw();
  }

  /* List the rows that move most in this view, and the groups that move together. */
  rank() {
    this.ranked = this.places;
    const [x1, y1, x2, y2] = this.places;
    const distances = Array.from({ length: this.source.data.pairs }, (_, row) => Math.hypot(x2[row] - x1[row], y2[row] - y1[row]));
    this.far = [...distances.keys()].sort((one, other) => distances[other] - distances[one]).slice(0, TRAILS);
    this.panel.querySelector(".hits").replaceChildren(...this.far.map((row) => {
      const item = document.createElement("li");
      item.append(keyButton(this.source.entry(0, row), this.onPick));
      return item;
    }));
    this.groups = movingTogether(this.places, this.source.data.pairs);
    document.getElementById("moving").hidden = !this.groups.length;
    const list = this.panel.querySelector(".legend");
    list.replaceChildren(...groupButtons(this.source.data, this.groups, this.onGroup));
  }

  /* Show which group is selected. */
  mark() {
    this.panel.querySelectorAll(".legend button").forEach((button, group) => {
      button.setAttribute("aria-pressed", group === this.group);
    });
  }

  /* Animate to the end, or from there back to the start; jump at once if the user prefers reduced motion. */
  play() {
    const from = Number(this.slider.value);
    const to = from < 100 ? 100 : 0;
    const begun = performance.now();
    this.begun = begun;
    const step = (now) => {
      if (this.begun !== begun) return;
      const share = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1 : Math.min(1, Math.max(0, now - begun) / TRIP);
      this.slider.value = from + share * (to - from);
      this.draw();
      if (share < 1) requestAnimationFrame(step);
    };
    step(begun);
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !this.places) return; // the panel is closed
    if (this.ranked !== this.places) this.rank();
    this.mark();
    const share = Number(this.slider.value) / 100;
    this.slider.setAttribute("aria-valuetext", `${this.slider.value} % of the way from X to Y`);
    const [x1, y1, x2, y2] = this.places;
    const scale = Math.min(width, height) / 2 / REACH;
    const at = (row, part) => [scale * (x1[row] + part * (x2[row] - x1[row])), -scale * (y1[row] + part * (y2[row] - y1[row]))];
    [this.canvas.width, this.canvas.height] = [width, height].map((size) => size * devicePixelRatio);
    const pen = this.canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.translate(width / 2, height / 2);
    const size = sizeOfPoints(this.source.data.pairs);
    const point = (row) => {
      const [across, down] = at(row, share);
      pen.fillRect(across - size / 2, down - size / 2, size, size);
    };
    pen.fillStyle = colour("unmatched");
    for (let row = 0; row < this.source.data.pairs; row++) point(row);
    pen.fillStyle = pen.strokeStyle = colour("second");
    for (const row of this.groups[this.group] ?? this.far) {
      pen.beginPath();
      pen.moveTo(...at(row, 0));
      pen.lineTo(...at(row, share));
      pen.stroke();
      point(row);
    }
  }
}
