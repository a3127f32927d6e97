"use strict";
/* Selected rows: those inside an area drawn on a picture, or of one colour. */

const MAX_CORNERS = 60;

/* Masks over the rows of X and of Y, 1 if selected; a pair is selected if either of its rows is. */
function selectedRows({ keys, pairs }, holds) {
  const [left, right] = keys.map((each, number) => Uint8Array.from(each, (_, row) => Number(holds(number, row))));
  for (let row = 0; row < pairs; row++) left[row] = right[row] = left[row] | right[row];
  return [left, right];
}

/* Whether a point is inside an area: a ray from it to the left crosses the border an odd number of times. */
function isInside(x, y, corners) {
  let inside = false;
  for (let here = 0, before = corners.length - 1; here < corners.length; before = here++) {
    const [[x1, y1], [x2, y2]] = [corners[here], corners[before]];
    if (y1 > y !== y2 > y && x > x1 + (y - y1) / (y2 - y1) * (x2 - x1)) inside = !inside;
  }
  return inside;
}

/* The corners of a lasso or box, rounded to whole numbers and few enough to fit in an address. */
function cornersOf({ lassoPoints, range }) {
  const [xs, ys] = lassoPoints
    ? [lassoPoints.x, lassoPoints.y]
    : [[range.x[0], range.x[1], range.x[1], range.x[0]], [range.y[0], range.y[0], range.y[1], range.y[1]]];
  const stride = Math.ceil(xs.length / MAX_CORNERS);
  return xs.map((x, place) => [Math.round(x), Math.round(ys[place])]).filter((_, place) => place % stride === 0);
}

/* Describe the selection at the picture and at the table; the lines have a button to clear it. */
function describeSelection({ keys, pairs }, selected) {
  const count = (rows) => rows.reduce((sum, each) => sum + each, 0);
  const counted = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
  document.querySelectorAll(".selected").forEach((line) => {
    line.hidden = !selected;
    if (!selected) return;
    const both = count(selected[0].slice(0, pairs));
    const unmatched = count(selected[0]) + count(selected[1]) - 2 * both;
    const of = keys.some((each) => each.length > pairs) ? ` and ${counted(unmatched, "unmatched row", "unmatched rows")}` : "";
    line.querySelector("span").textContent = `${counted(both, "pair", "pairs")}${of} selected`;
  });
}
