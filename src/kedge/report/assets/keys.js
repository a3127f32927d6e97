"use strict";
/* How keys are shown: as text, and on a live page with images, with a small picture before it. */

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

/* A key with its picture, if there is one. */
function pictured(key) {
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
  both.append(isolated(key));
  return both;
}

/* The confidence of a found pair; a seed was given, so it has none. */
function sureness({ confidence }) {
  return confidence === null ? "given as a seed" : `confidence ${confidence.toFixed(2)}`;
}

function keyButton(entry, onPick) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "key";
  button.append(pictured(entry.key));
  if (entry.text) {
    const text = document.createElement("small");
    text.className = "text";
    text.append(isolated(entry.text));
    button.append(" ", text);
  }
  button.addEventListener("click", () => onPick(entry));
  return button;
}
