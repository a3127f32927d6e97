"use strict";
/* How keys are shown: as text, and on a live page with images, with a small picture before it. */

const SHORT_LETTERS = 24;
const PICTURED = "images" in document.documentElement.dataset;

/* A key as plain text with its own writing direction, so that right-to-left text does not affect what surrounds it.
   Keys of invisible characters are spelt out. */
function isolated(key) {
  const element = document.createElement("bdi");
  element.textContent = visible(key);
  return element;
}

function visible(key) {
  if (/[\p{L}\p{N}\p{P}\p{S}]/u.test(key)) return key;
  const spelt = (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `"${key.split("").map((letter) => (letter === " " ? " " : spelt(letter))).join("")}"`;
}

/* A key, or a text in its place, with the picture of the key, if there is one. */
function pictured(key, text) {
  const both = document.createDocumentFragment();
  if (PICTURED) {
    const image = new Image();
    image.className = "thumbnail";
    image.alt = "";
    image.loading = "lazy";
    image.src = `/image?${new URLSearchParams({ key })}`;
    image.addEventListener("error", () => image.remove());
    both.append(image);
  }
  both.append(isolated(text ?? key));
  return both;
}

/* A key with its picture and, if the row has a text, that. */
function described(key, text) {
  const both = pictured(key);
  if (text) {
    const beside = document.createElement("small");
    beside.className = "text";
    beside.append(isolated(text));
    both.append(" ", beside);
  }
  return both;
}

/* What to call a row on the picture, where there is no room for both: its text, or its key if it has none. */
function nameOf({ keys, texts }, number, row) {
  return texts?.[number][row] ?? keys[number][row];
}

function shortened(name, most = SHORT_LETTERS) {
  const letters = Array.from(name.replace(/\s+/g, " "));
  return letters.length > most ? `${letters.slice(0, most).join("")}...` : letters.join("");
}

/* The confidence of a found pair; a seed was given, so it has none. */
function sureness({ confidence }) {
  return confidence === null ? "given as a seed" : `confidence ${confidence.toFixed(2)}`;
}

function keyButton(entry, onPick) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "key";
  button.append(described(entry.key, entry.text));
  button.addEventListener("click", () => onPick(entry));
  return button;
}
