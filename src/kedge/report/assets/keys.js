"use strict";
/* Keys as people see them: text, and where they name the image files of a live page, a small picture before it. */

const PICTURED = "images" in document.documentElement.dataset;

/* A key as text of its own direction: nothing in it is markup, and right-to-left stays inside. What could not be seen
   is spelt out. */
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

/* A key with its picture, where there is one. */
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

/* How sure a pair is that was found; one that was given is not a finding. */
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
