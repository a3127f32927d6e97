"use strict";
/* Sketch the points at once, since the library that makes them interactive takes a while to load. */

const SHADES = 36; // points of one shade are drawn together

/* Draw both spaces on plain canvases; returns a function that removes them. */
function sketch(data) {
  const { places } = data.views[data.shown];
  const hues = huesOf(data, places);
  const canvases = SIDES.map((side, number) => {
    const plot = document.getElementById(`plot-${side}`);
    const canvas = document.createElement("canvas");
    canvas.className = "sketch";
    canvas.setAttribute("aria-hidden", "true");
    const [width, height] = [plot.clientWidth, plot.clientHeight];
    [canvas.width, canvas.height] = [width, height].map((size) => size * devicePixelRatio);
    const pen = canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.translate(width / 2, height / 2);
    const [xs, ys] = [places[2 * number], places[2 * number + 1]];
    const shades = Array.from({ length: SHADES + 1 }, () => new Path2D()); // the last is for unmatched rows
    const [scale, radius] = [Math.min(width, height) / 2 / REACH, sizeOfPoints(xs.length) / 2];
    xs.forEach((x, row) => {
      const shade = shades[row < data.pairs ? Math.floor(hues[row] * SHADES) : SHADES];
      const [across, down] = [scale * x, -scale * ys[row]];
      shade.moveTo(across + radius, down);
      shade.arc(across, down, radius, 0, 2 * Math.PI);
    });
    shades.reverse().forEach((shade, before) => {
      pen.globalAlpha = before ? 0.8 : 0.6;
      pen.fillStyle = before ? inHue((360 * (SHADES - before + 0.5)) / SHADES) : colour("unmatched");
      pen.fill(shade);
    });
    plot.after(canvas);
    return canvas;
  });
  return () => canvases.forEach((canvas) => canvas.remove());
}
