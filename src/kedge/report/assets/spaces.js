"use strict";
/* The two spaces side by side; what is pointed at on one side lights up on the other. */

const HUES = Array.from({ length: 13 }, (_, step) => [step / 12, `hsl(${30 * (step % 12)},62%,50%)`]);
const REACH = 4095 * 1.06; // the places are whole numbers up to 4095
const MOST_WITHOUT_WEBGL = 3000;

class Spaces {
  constructor(source, onPick) {
    this.source = source;
    this.data = source.data;
    this.plots = SIDES.map((side) => document.getElementById(`plot-${side}`));
    this.views = [...this.data.views];
    this.shown = this.views.length - 1;
    this.lit = null;
    this.ranges = this.whole();
    const webgl = document.createElement("canvas").getContext("webgl");
    this.type = webgl ? "scattergl" : "scatter";
    // Drawing every point without WebGL takes seconds: every so many are enough then.
    const most = Math.max(...this.data.keys.map((keys) => keys.length));
    this.stride = webgl ? 1 : Math.ceil(most / MOST_WITHOUT_WEBGL);
    this.hues = this.huesOf(this.views.at(-1).places);
    this.listViews();
    keepDrawn(() => this.draw());
    this.plots.forEach((plot, number) => this.listen(plot, number, onPick));
    document.getElementById("whole").addEventListener("click", () => this.seeWhole());
  }

  whole() {
    return this.plots.map(() => ({ x: [-REACH, REACH], y: [-REACH, REACH] }));
  }

  /* A pair's colour is the direction in which X's row lies, relative to the anchors found. */
  huesOf([xs, ys]) {
    return xs.slice(0, this.data.pairs).map((x, row) => (Math.atan2(ys[row], x) / (2 * Math.PI) + 1) % 1);
  }

  listViews() {
    const fieldset = document.getElementById("views");
    fieldset.querySelectorAll("label").forEach((label) => label.remove());
    this.views.forEach(({ name }, number) => {
      const label = document.createElement("label");
      const radio = document.createElement("input");
      radio.type = "radio";
      radio.name = "view";
      radio.checked = number === this.shown;
      radio.addEventListener("change", () => this.show(number));
      label.append(radio, name);
      fieldset.append(label);
    });
  }

  show(number) {
    this.shown = number;
    this.seeWhole();
  }

  seeWhole() {
    this.ranges = this.whole();
    this.draw();
  }

  /* Show one more view, in place of the last that was added. */
  add(view) {
    this.views = [...this.data.views, view];
    this.shown = this.views.length - 1;
    this.listViews();
    this.seeWhole();
  }

  draw() {
    const { places } = this.views[this.shown];
    this.plots.forEach((plot, number) => {
      const [xs, ys] = [places[2 * number], places[2 * number + 1]];
      const rows = (from, to) => {
        const some = [];
        for (let row = from; row < to; row += this.stride) some.push(row);
        return some;
      };
      const trace = (chosen, marker) => ({
        type: this.type, mode: "markers", hoverinfo: "none", customdata: chosen,
        x: chosen.map((row) => xs[row]), y: chosen.map((row) => ys[row]), marker,
      });
      const paired = rows(0, this.data.pairs);
      const alone = rows(this.data.pairs, xs.length);
      const size = xs.length / this.stride > 8000 ? 3 : 5;
      const { x, y } = this.ranges[number];
      Plotly.react(
        plot,
        [
          trace(alone, { size, color: colour("alone"), opacity: 0.6 }),
          trace(paired, {
            size, opacity: 0.8, color: paired.map((row) => this.hues[row]), colorscale: HUES, cmin: 0, cmax: 1,
          }),
        ],
        lookOfChart({ visible: false, range: [...x] }, { visible: false, range: [...y], scaleanchor: "x" }, {
          margin: { l: 0, r: 0, t: 0, b: 0 }, annotations: this.notes(number),
          dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
        }),
        CONFIG,
      );
    });
    document.getElementById("whole").disabled = this.ranges.every(({ x }) => x[1] === REACH);
  }

  listen(plot, number, onPick) {
    plot.on("plotly_hover", ({ points: [point] }) => this.light(this.source.entry(number, point.customdata)));
    plot.on("plotly_click", ({ points: [point] }) => onPick(this.source.entry(number, point.customdata)));
    plot.on("plotly_relayout", (change) => {
      if (!("xaxis.range[0]" in change)) return;
      const range = (axis) => [change[`${axis}axis.range[0]`], change[`${axis}axis.range[1]`]];
      this.ranges[number] = { x: range("x"), y: range("y") };
      // What can be compared is looked at in the same place.
      if (this.shown > 0) this.ranges[1 - number] = this.ranges[number];
      this.draw();
    });
    plot.on("plotly_doubleclick", () => this.seeWhole());
  }

  /* Light up a row, and its partner on the other side, if they are drawn. */
  light(entry) {
    this.lit = { number: SIDES.indexOf(entry.side), row: entry.place };
    this.plots.forEach((plot, number) => Plotly.relayout(plot, { annotations: this.notes(number) }));
    const told = document.getElementById("pointed");
    told.replaceChildren(isolated(entry.key), entry.partner === null ? ` (${entry.side.toUpperCase()}) has no match` : " = ");
    if (entry.partner !== null) told.append(isolated(entry.partner), ` (confidence ${entry.confidence.toFixed(2)})`);
    if (entry.place === null) told.append("; not among the rows drawn");
  }

  notes(number) {
    const row = this.lit?.row ?? null;
    if (row === null || (this.lit.number !== number && row >= this.data.pairs)) return [];
    const { places } = this.views[this.shown];
    return [{
      x: places[2 * number][row], y: places[2 * number + 1][row], text: asText(this.data.keys[number][row]), ay: -28, ax: 0,
      arrowhead: 6, arrowsize: 1.4, arrowcolor: colour("ink"), font: { color: colour("ink"), size: 15 },
      bgcolor: colour("card"), bordercolor: colour("ink"), borderpad: 3,
    }];
  }
}
