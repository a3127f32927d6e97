"use strict";
/* What all charts have in common, and the charts without controls: convergence, confidence, reliability. */

const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false };
const PRINTED = { width: 330, height: 300 }; // half of a sheet of paper, in pixels
const redrawings = []; // functions that redraw everything in the current colours
const MAX_LETTERS = 60;
let printing = false;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/* Escape keys and names, since Plotly would read markup in them, and keep them short. */
function asText(key) {
  return shortened(visible(key), MAX_LETTERS).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function lookOfAxis(title, more) {
  return {
    title: { text: title }, color: colour("soft"), gridcolor: colour("line"), linecolor: colour("line"),
    zeroline: false, automargin: true, ...more,
  };
}

function lookOfChart(xaxis, yaxis, more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), size: 13 },
    margin: { l: 50, r: 12, t: 12, b: 44 }, xaxis, yaxis, showlegend: false, hovermode: "closest",
    hoverlabel: { bgcolor: colour("card"), font: { color: colour("ink") } }, ...(printing ? PRINTED : {}), ...more,
  };
}

/* Draw now, and again when the colours change. */
function keepDrawn(draw) {
  redrawings.push(draw);
  draw();
}

function redrawAll() {
  redrawings.forEach((draw) => draw());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
for (const [event, begins] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    printing = begins;
    document.documentElement.classList.toggle("printing", printing);
    document.querySelector("#cite details").open = printing;
    redrawAll();
    if (!printing) document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot));
  });
}

function drawConvergence({ convergence }) {
  const plots = convergence.map(({ title, curves }, number) => {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const plot = document.createElement("div");
    caption.id = `convergence-${number}`;
    const last = curves.at(-1).values.at(-1);
    caption.textContent = last === null ? title : `${title} (last: ${last.toPrecision(3)})`;
    plot.className = "plot";
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-labelledby", caption.id);
    figure.append(caption, plot);
    return plot;
  });
  document.getElementById("convergence").append(...plots.map((plot) => plot.parentElement));
  convergence.forEach(({ axis, curves }, number) => keepDrawn(() => Plotly.react(
    plots[number],
    curves.map(({ attempt, values }, position) => ({
      x: values.map((_, round) => round + 1), y: values, name: asText(attempt), mode: "lines+markers",
      line: { color: colour(["accent", "second", "third"][position % 3]) }, marker: { size: 5 },
    })),
    lookOfChart(
      lookOfAxis("round", { rangemode: "tozero" }),
      lookOfAxis(axis, { rangemode: "tozero" }),
      { showlegend: curves.length > 1, legend: { orientation: "h", y: 1.15 } },
    ),
    CONFIG,
  )));
}

function drawConfidence({ confidence_charts: charts }) {
  if (!charts) return;
  const { counts, edges, kept, precision } = charts;
  const width = edges[1] - edges[0];
  keepDrawn(() => Plotly.react(
    "histogram",
    [{
      type: "bar", x: edges.slice(0, -1).map((edge) => edge + width / 2), y: counts, width,
      marker: { color: colour("accent") }, hovertemplate: "%{y} pairs near %{x:.3f}<extra></extra>",
    }],
    lookOfChart(lookOfAxis("confidence"), lookOfAxis("pairs"), { bargap: 0.05 }),
    CONFIG,
  ));
  keepDrawn(() => Plotly.react(
    "precision",
    [{
      x: kept, y: precision, mode: kept.length > 1 ? "lines" : "markers", line: { color: colour("accent"), width: 3 },
      hovertemplate: "the %{x} most confident: %{y:.1%}<extra></extra>",
    }],
    lookOfChart(
      lookOfAxis("pairs kept, most confident first", { rangemode: "tozero" }),
      lookOfAxis("expected precision", { range: [Math.min(0.9, precision.at(-1) - 0.02), 1.004], tickformat: ".0%" }),
    ),
    CONFIG,
  ));
}

function drawReliability({ reliability }) {
  if (!reliability || !document.getElementById("reliability")) return;
  const { bins, error } = reliability;
  if (!bins.length) {
    document.getElementById("reliability").parentElement.remove(); // no pair could be judged
    return;
  }
  const caption = document.getElementById("reliability-caption");
  caption.textContent += ` On the dotted line it would be exact; on average it is off by ${error.toFixed(3)}.`;
  keepDrawn(() => Plotly.react(
    "reliability",
    [
      { x: [0, 1], y: [0, 1], mode: "lines", line: { color: colour("soft"), dash: "dot" }, hoverinfo: "skip" },
      {
        x: bins.map((bin) => bin[0]), y: bins.map((bin) => bin[1]), customdata: bins.map((bin) => bin[4]),
        mode: "lines+markers", line: { color: colour("accent") },
        marker: { size: bins.map((bin) => 6 + 2 * Math.log10(bin[4])) },
        error_y: {
          type: "data", symmetric: false, color: colour("soft"),
          array: bins.map((bin) => bin[3] - bin[1]), arrayminus: bins.map((bin) => bin[1] - bin[2]),
        },
        hovertemplate: "%{customdata} pairs: confidence %{x:.1%}, right %{y:.1%}<extra></extra>",
      },
    ],
    lookOfChart(
      lookOfAxis("confidence", { tickformat: ".0%", range: [Math.min(0.45, bins[0][0] - 0.05), 1.01] }),
      lookOfAxis("share that is right", { tickformat: ".0%", range: [Math.min(0.45, ...bins.map((bin) => bin[2] - 0.05)), 1.02] }),
    ),
    CONFIG,
  ));
}
