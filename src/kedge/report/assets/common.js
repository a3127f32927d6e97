"use strict";
// Small multiples of many spaces: one canvas per space, all with the same axes, and one group highlighted in all.
const data = JSON.parse(document.getElementById("data").textContent);
const canvases = [...document.querySelectorAll("canvas[data-space]")];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let lit = -1;

function place(canvas, group) {
  const at = data.points[Number(canvas.dataset.space)][group];
  return at && [(0.5 + 0.47 * at[0]) * canvas.width, (0.5 - 0.47 * at[1]) * canvas.height];
}

function draw(canvas) {
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  data.keys.forEach((keys, group) => {
    const at = place(canvas, group);
    if (!at) return;
    pen.fillStyle = colour(keys.filter((key) => key !== null).length > 1 ? `--group-${data.colours[group]}` : "--unmatched");
    pen.fillRect(at[0] - 2, at[1] - 2, 4, 4);
  });
  const own = lit >= 0 && place(canvas, lit);
  const key = lit >= 0 ? data.keys[lit][Number(canvas.dataset.space)] : null;
  canvas.parentElement.querySelector("output").textContent = key ?? "";
  if (!own) return;
  pen.strokeStyle = colour("--second");
  pen.lineWidth = 4;
  pen.beginPath();
  pen.arc(own[0], own[1], 11, 0, 2 * Math.PI);
  pen.stroke();
}

function list() {
  const [from, to] = ["from", "to"].map((end) => Number(document.getElementById(end).value));
  const near = (lit >= 0 && data.near[`${from},${to}`]?.[lit]) || [];
  const shown = near.map((group) => {
    const item = document.createElement("li");
    item.textContent = data.keys[group][to];
    if (group === lit) item.append(" (its group)");
    return item;
  });
  document.getElementById("near").replaceChildren(...shown);
}

function light(group) {
  if (group === lit) return;
  lit = group;
  list();
  document.getElementById("found").textContent = lit < 0 ? "" : `probability ${data.probability[lit].toFixed(2)}`;
  canvases.forEach(draw);
}

canvases.forEach((canvas) => {
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = ((event.clientX - box.left) * canvas.width) / box.width;
    const y = ((event.clientY - box.top) * canvas.height) / box.height;
    let best = -1;
    let nearest = 400;
    data.keys.forEach((_, group) => {
      const at = place(canvas, group);
      if (!at) return;
      const distance = (at[0] - x) ** 2 + (at[1] - y) ** 2;
      if (distance < nearest) [best, nearest] = [group, distance];
    });
    if (best >= 0) light(best);
  });
});

document.getElementById("key").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  const exact = data.keys.findIndex((keys) => keys.some((key) => key !== null && key.toLowerCase() === wanted));
  const begins = data.keys.findIndex((keys) => keys.some((key) => key !== null && key.toLowerCase().startsWith(wanted)));
  light(wanted === "" ? -1 : exact >= 0 ? exact : begins);
  if (wanted && exact < 0 && begins < 0) document.getElementById("found").textContent = "not among the rows that are drawn";
});
["from", "to"].forEach((end) => document.getElementById(end).addEventListener("change", list));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => canvases.forEach(draw));
canvases.forEach(draw);
