"use strict";
/* The two spaces side by side; pointing at a row highlights its partner on the other side. */

const MAX_WITHOUT_WEBGL = 3000;
const WAIT = 1000; // milliseconds between requests for a layout that is being computed

class Spaces {
  constructor(source, onPick, onSelect) {
    this.source = source;
    this.data = source.data;
    this.onSelect = onSelect;
    this.onChange = () => {};
    this.onDraw = () => {};
    this.plots = SIDES.map((side) => document.getElementById(`plot-${side}`));
    this.views = [...this.data.views];
    this.shown = this.data.shown;
    this.asked = null; // the query for other anchors, if they are shown
    this.questions = 0;
    this.lit = null;
    this.choice = null; // the selection: an area of a view, or a line of a legend
    this.selected = null; // masks of the selected rows
    this.dragging = "zoom";
    this.ranges = this.whole();
    const webgl = document.createElement("canvas").getContext("webgl");
    this.type = webgl ? "scattergl" : "scatter";
    // Without WebGL, drawing every point takes seconds, so only some are drawn.
    const rows = Math.max(...this.data.keys.map((keys) => keys.length));
    this.stride = webgl ? 1 : Math.ceil(rows / MAX_WITHOUT_WEBGL);
    this.colourings = colouringsOf(this.data, huesOf(this.data, this.views[this.shown].places));
    this.colouring = this.colourings[0];
    this.landmarks = new Landmarks(this.plots, this.data);
    this.listViews();
    this.listenToControls();
    keepDrawn(() => this.draw());
    this.plots.forEach((plot, number) => this.listen(plot, number, onPick));
    new ResizeObserver(() => this.landmarks.draw(this.places(), this.selected)).observe(this.plots[0]);
  }

  whole() {
    return this.plots.map(() => ({ x: [-REACH, REACH], y: [-REACH, REACH] }));
  }

  isWhole() {
    return this.ranges.every(({ x }) => x[1] === REACH);
  }

  places() {
    return this.views[this.shown].places;
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

  listenToControls() {
    const colours = document.getElementById("colour");
    colours.replaceChildren(...this.colourings.map(({ name }) => new Option(name)));
    colours.addEventListener("change", () => this.paint(colours.value));
    document.getElementById("names").addEventListener("change", (event) => this.name(event.target.checked));
    document.getElementById("dragging").addEventListener("change", (event) => {
      this.dragging = event.target.value;
      this.draw();
    });
    document.getElementById("whole").addEventListener("click", () => this.see(this.whole()));
    document.querySelectorAll(".selected button").forEach((button) => {
      button.addEventListener("click", () => this.select(null));
    });
    document.getElementById("anchors")?.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(new URLSearchParams(new FormData(event.target)).toString());
    });
  }

  /* Show a view, after computing it if necessary. */
  async show(number) {
    const question = ++this.questions;
    const view = this.views[number];
    if (!view.places) {
      this.describe(`Computing ${view.description} This takes a minute or more for many rows.`);
      const places = await attempt(() => this.computed());
      if (places) view.places = places;
      if (question !== this.questions) return;
      this.describe(places ? "Done." : "");
    }
    if (view.places) this.shown = number;
    else this.listViews(); // reset the choice to the view shown
    this.see(this.whole());
  }

  async computed() {
    for (;;) {
      const { places } = await this.source.layout();
      if (places) return places;
      await pause(WAIT);
    }
  }

  /* Show a view for other anchors, replacing the previous such view. */
  async ask(asked) {
    const question = ++this.questions;
    const view = await attempt(() => this.source.view(asked));
    if (!view || question !== this.questions) return;
    this.views = [...this.data.views, view];
    this.asked = asked;
    this.shown = this.views.length - 1;
    this.listViews();
    this.see(this.whole());
  }

  see(ranges) {
    this.ranges = ranges;
    this.draw();
    this.onChange();
  }

  paint(name) {
    this.colouring = this.colourings.find((each) => each.name === name) ?? this.colourings[0];
    this.draw();
    this.onChange();
  }

  name(wanted) {
    this.landmarks.wanted = wanted;
    this.landmarks.draw(this.places(), this.selected);
    this.onChange();
  }

  /* Select rows: { number, view, corners } selects those of a side inside an area of a view, { colour, line } those of
     a line of a legend, { moving, view } a group that moves together; null clears the selection. */
  select(choice) {
    this.choice = choice;
    this.selected = choice && selectedRows(this.data, this.holding(choice));
    describeSelection(this.data, this.selected);
    this.onSelect(this.selected);
    this.draw();
    this.onChange();
  }

  selectMoving(group) {
    this.select(group === null ? null : { moving: group, view: this.views[this.shown].name });
  }

  holding(choice) {
    if ("line" in choice) return this.colourings.find(({ name }) => name === choice.colour).legend[choice.line].holds;
    const { places } = this.views.find(({ name }) => name === choice.view);
    if ("moving" in choice) {
      const rows = new Set(movingTogether(places, this.data.pairs)[choice.moving]);
      return (number, row) => row < this.data.pairs && rows.has(row);
    }
    const [xs, ys] = [places[2 * choice.number], places[2 * choice.number + 1]];
    return (number, row) => number === choice.number && isInside(xs[row], ys[row], choice.corners);
  }

  draw() {
    const places = this.places();
    const { value, scale, max } = this.colouring;
    this.plots.forEach((plot, number) => {
      const [xs, ys] = [places[2 * number], places[2 * number + 1]];
      const size = sizeOfPoints(xs.length / this.stride);
      const [faint, grey, coloured, values] = [[], [], [], []];
      for (let row = 0; row < xs.length; row += this.stride) {
        const own = value(number, row);
        if (this.selected && !this.selected[number][row]) faint.push(row);
        else if (own === null) grey.push(row);
        else {
          coloured.push(row);
          values.push(own);
        }
      }
      const trace = (rows, marker) => ({
        type: this.type, mode: "markers", hoverinfo: "none", customdata: rows, selectedpoints: null,
        x: rows.map((row) => xs[row]), y: rows.map((row) => ys[row]), marker: { size, ...marker },
      });
      const { x, y } = this.ranges[number];
      Plotly.react(
        plot,
        [
          trace(faint, { color: colour("line"), opacity: 0.5 }),
          trace(grey, { color: colour("unmatched"), opacity: 0.6 }),
          trace(coloured, { opacity: 0.8, color: values, colorscale: scale(), cmin: 0, cmax: max }),
        ],
        lookOfChart({ visible: false, range: [...x] }, { visible: false, range: [...y], scaleanchor: "x" }, {
          margin: { l: 0, r: 0, t: 0, b: 0 }, annotations: this.notes(number), selections: [],
          newselection: { line: { color: colour("ink"), width: 2 } },
          dragmode: this.dragging === "zoom" && matchMedia("(pointer: coarse)").matches ? false : this.dragging,
        }),
        CONFIG,
      );
    });
    this.landmarks.draw(places, this.selected);
    showLegend(this.colouring, this.choice, (choice) => this.select(choice));
    document.getElementById("view-description").textContent = this.views[this.shown].description ?? "";
    document.getElementById("whole").disabled = this.isWhole();
    this.onDraw(places, this.choice?.view === this.views[this.shown].name ? this.choice.moving : undefined);
  }

  listen(plot, number, onPick) {
    plot.on("plotly_hover", ({ points: [point] }) => this.light(this.source.entry(number, point.customdata)));
    plot.on("plotly_click", ({ points: [point] }) => onPick(this.source.entry(number, point.customdata)));
    plot.on("plotly_selected", (drawn) => {
      if (!drawn?.lassoPoints && !drawn?.range) return;
      const choice = { number, view: this.views[this.shown].name, corners: cornersOf(drawn) };
      setTimeout(() => this.select(choice)); // after Plotly has finished handling the event
    });
    plot.on("plotly_relayout", (change) => {
      if (!("xaxis.range[0]" in change)) return;
      const range = (axis) => [change[`${axis}axis.range[0]`], change[`${axis}axis.range[1]`]];
      const ranges = [...this.ranges];
      ranges[number] = { x: range("x"), y: range("y") };
      // Comparable views zoom together.
      if (this.shown > 0) ranges[1 - number] = ranges[number];
      this.see(ranges);
    });
    plot.on("plotly_doubleclick", () => this.see(this.whole()));
  }

  /* Highlight a row and its partner on the other side, if they are drawn. */
  light(entry) {
    this.lit = { number: SIDES.indexOf(entry.side), row: entry.place };
    this.plots.forEach((plot, number) => Plotly.relayout(plot, { annotations: this.notes(number) }));
    const parts = [pictured(entry.key, entry.text), entry.partner === null ? ` (${entry.side.toUpperCase()}) is unmatched` : " = "];
    if (entry.partner !== null) parts.push(pictured(entry.partner, entry.partner_text), ` (${sureness(entry)})`);
    if (entry.place === null) parts.push("; not among the rows shown");
    this.describe(...parts);
  }

  describe(...parts) {
    document.getElementById("pointed").replaceChildren(...parts);
  }

  notes(number) {
    const row = this.lit?.row ?? null;
    if (row === null || (this.lit.number !== number && row >= this.data.pairs)) return [];
    const places = this.places();
    return [{
      x: places[2 * number][row], y: places[2 * number + 1][row], text: asText(nameOf(this.data, number, row)), ay: -28, ax: 0,
      arrowhead: 6, arrowsize: 1.4, arrowcolor: colour("ink"), font: { color: colour("ink"), size: 15 },
      bgcolor: colour("card"), bordercolor: colour("ink"), borderpad: 3,
    }];
  }

  /* The state as named strings, without defaults. */
  look() {
    const state = {};
    if (this.shown >= this.data.views.length) state.anchors = this.asked;
    else if (this.shown !== this.data.shown) state.view = this.views[this.shown].name;
    if (this.colouring !== this.colourings[0]) state.colour = this.colouring.name;
    if (!this.landmarks.wanted) state.names = "off";
    if (!this.isWhole()) state.part = this.ranges.flatMap(({ x, y }) => [...x, ...y]).map(Math.round).join(" ");
    if (this.choice && "line" in this.choice) state.only = `${this.choice.line} ${this.choice.colour}`;
    else if (this.choice && "moving" in this.choice) state.moving = `${this.choice.moving} ${this.choice.view}`;
    else if (this.choice) state.area = [SIDES[this.choice.number], ...this.choice.corners.flat(), this.choice.view].join(" ");
    return state;
  }

  /* Restore what `look` returned. The address may come from anywhere, so what does not fit is ignored. */
  async restore(state) {
    document.getElementById("names").checked = this.landmarks.wanted = state.get("names") !== "off";
    this.colouring = this.colourings.find(({ name }) => name === state.get("colour")) ?? this.colourings[0];
    document.getElementById("colour").value = this.colouring.name;
    const named = this.views.findIndex(({ name }) => name === state.get("view"));
    const number = named < 0 ? this.data.shown : named;
    if (state.has("anchors") && this.source.view) await this.ask(state.get("anchors"));
    else if (number !== this.shown) await this.show(number);
    this.listViews();
    const part = (state.get("part") ?? "").split(" ").map(Number);
    this.ranges = part.length === 8 && part.every(Number.isFinite)
      ? [0, 4].map((from) => ({ x: part.slice(from, from + 2), y: part.slice(from + 2, from + 4) }))
      : this.whole();
    const [only, area, moving] = ["only", "area", "moving"].map((name) => state.get(name) ?? "");
    const choice = this.onlyIn(only) ?? this.areaIn(area) ?? this.movingIn(moving);
    if (choice || this.choice) this.select(choice ?? null);
    else if (state.size) this.draw();
  }

  onlyIn(text) {
    const [, line, colour] = text.match(/^(\d+) (.+)$/) ?? [];
    return this.colourings.find(({ name }) => name === colour)?.legend[line] ? { colour, line: Number(line) } : undefined;
  }

  movingIn(text) {
    const [, moving, view] = text.match(/^(\d+) (.+)$/) ?? [];
    const places = this.views.find(({ name }) => name === view)?.places;
    return places && movingTogether(places, this.data.pairs)[moving] ? { moving: Number(moving), view } : undefined;
  }

  areaIn(text) {
    const [, side, numbers, view] = text.match(/^([xy]) ((?:-?\d+ )+)(.+)$/) ?? [];
    if (!this.views.find(({ name, places }) => name === view && places)) return undefined;
    const coordinates = numbers.trim().split(" ").map(Number);
    const corners = Array.from({ length: Math.floor(coordinates.length / 2) }, (_, place) => coordinates.slice(2 * place, 2 * place + 2));
    return { number: SIDES.indexOf(side), view, corners };
  }
}
