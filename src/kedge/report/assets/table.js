"use strict";
/* The results as a table to sort, filter and download. */

const ROWS_PER_PAGE = 25;
const MINUTE = 60_000;
const WORDS = new Intl.Collator(undefined, { numeric: true });

function isFigure(column) {
  return column === "confidence";
}

/* Texts of rows by side and key, if the store keeps texts. */
function textsOf({ keys, texts }) {
  return texts && Object.fromEntries(SIDES.map((side, number) => [side, new Map(keys[number].map((key, row) => [key, texts[number][row]]))]));
}

class FoundTable {
  constructor(source, onPick) {
    this.onPick = onPick;
    this.onChange = () => {};
    this.data = source.data;
    this.selected = null; // sets of selected keys of X and of Y
    this.texts = textsOf(source.data);
    this.folded = SIDES.map(() => new Map()); // what the filter looks through, by key of X and of Y
    this.tables = this.tablesOf(source.data);
    this.controls = document.getElementById("table-controls");
    this.controls.addEventListener("submit", (event) => event.preventDefault());
    this.controls.addEventListener("input", (event) => {
      if (event.target.name === "table") this.sorting = null;
      this.fill();
      this.onChange();
    });
    for (const [name, step] of [["before", -1], ["after", 1]]) {
      document.getElementById(name).addEventListener("click", () => this.turn(this.page + step));
    }
    document.getElementById("download").addEventListener("click", () => this.download());
    this.sorting = null;
    this.fill();
  }

  /* For each table the names of its columns and its rows. */
  tablesOf(data) {
    const judged = data.right ? ["truth"] : [];
    const verdict = (right) => (right === null ? "" : right ? "right" : "wrong");
    const pairs = data.confidence.map((confidence, row) => [
      data.keys[0][row], data.keys[1][row], confidence, ...(data.right ? [verdict(data.right[row])] : []),
    ]);
    const anchors = data.anchors.map((row) => [...row.slice(0, 4), ...row.slice(4).map(verdict)]);
    return {
      pairs: { columns: ["x", "y", "confidence", ...judged], rows: pairs },
      anchors: { columns: ["x", "y", "confidence", "kind", ...judged], rows: anchors },
      unmatched: {
        columns: ["x", "y"],
        rows: [...data.keys[0].slice(data.pairs).map((key) => [key, ""]), ...data.keys[1].slice(data.pairs).map((key) => ["", key])],
      },
    };
  }

  fill() {
    const form = new FormData(this.controls);
    this.table = this.tables[form.get("table")];
    const { columns, rows } = this.table;
    const confidence = columns.indexOf("confidence");
    const text = fold(form.get("text").trim());
    const min = Number(form.get("min"));
    this.controls.querySelector(".min-confidence").hidden = confidence < 0;
    this.chosen = rows.filter((row) => (
      (!this.selected || this.selected.some((keys, column) => keys.has(row[column])))
      && (confidence < 0 || row[confidence] >= min)
      && (!text || SIDES.some((_, column) => this.sought(column, row[column]).includes(text)))
    ));
    if (this.sorting) {
      const { column, direction } = this.sorting;
      const compare = isFigure(columns[column]) ? (a, b) => a - b : WORDS.compare;
      this.chosen.sort((one, other) => direction * compare(one[column], other[column]));
    }
    this.head(columns);
    this.turn(0);
  }

  /* A key and its text, as the filter compares them. */
  sought(column, key) {
    const folded = this.folded[column];
    if (!folded.has(key)) folded.set(key, fold(`${key}\n${this.texts?.[SIDES[column]].get(key) ?? ""}`));
    return folded.get(key);
  }

  head(columns) {
    const row = document.createElement("tr");
    columns.forEach((name, column) => {
      const cell = document.createElement("th");
      const button = document.createElement("button");
      const sorted = this.sorting?.column === column ? this.sorting.direction : 0;
      cell.scope = "col";
      cell.className = isFigure(name) ? "figure" : "";
      cell.setAttribute("aria-sort", { "-1": "descending", 0: "none", 1: "ascending" }[sorted]);
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => {
        // Confidence is sorted in descending order, all else in ascending order; a second press reverses the order.
        this.sorting = { column, direction: -sorted || (name === "confidence" ? -1 : 1) };
        this.fill();
        this.onChange();
        document.querySelectorAll("#table thead button")[column].focus();
      });
      cell.append(button);
      row.append(cell);
    });
    document.querySelector("#table thead").replaceChildren(row);
  }

  turn(page) {
    const pages = Math.max(1, Math.ceil(this.chosen.length / ROWS_PER_PAGE));
    this.page = Math.min(Math.max(page, 0), pages - 1);
    const from = this.page * ROWS_PER_PAGE;
    const shown = this.chosen.slice(from, from + ROWS_PER_PAGE);
    document.querySelector("#table tbody").replaceChildren(...shown.map((row) => this.line(row)));
    const count = this.chosen.length.toLocaleString("en");
    document.getElementById("range").textContent = shown.length
      ? `${(from + 1).toLocaleString("en")} to ${(from + shown.length).toLocaleString("en")} of ${count}`
      : "No rows.";
    document.getElementById("before").disabled = this.page === 0;
    document.getElementById("after").disabled = this.page === pages - 1;
  }

  line(row) {
    const line = document.createElement("tr");
    this.table.columns.forEach((name, column) => {
      const cell = document.createElement("td");
      const side = SIDES.includes(name) ? name : null;
      if (isFigure(name)) {
        cell.className = "figure";
        cell.textContent = row[column]?.toFixed(4) ?? ""; // a seed has no confidence
      } else if (side && row[column]) {
        cell.append(keyButton({ key: row[column], text: this.texts?.[side].get(row[column]) }, () => this.onPick(side, row[column])));
      } else cell.textContent = row[column];
      line.append(cell);
    });
    return line;
  }

  /* Show only selected rows, given as masks over the rows of X and of Y; null shows all again. */
  follow(selected) {
    this.selected = selected && selected.map((rows, number) => new Set(this.data.keys[number].filter((_, row) => rows[row])));
    this.fill();
  }

  look() {
    const { table, text, min } = Object.fromEntries(new FormData(this.controls));
    const { column, direction } = this.sorting ?? {};
    const sort = this.sorting ? `${direction < 0 ? "-" : ""}${this.table.columns[column]}` : "";
    return { table: table === "pairs" ? "" : table, with: text, min, sort };
  }

  async restore(state) {
    const { table, text, min } = this.controls.elements;
    table.value = state.get("table") ?? "pairs";
    if (!table.value) table.value = "pairs"; // the address named an unknown table
    text.value = state.get("with") ?? "";
    min.value = state.get("min") ?? "";
    const [, down, name] = (state.get("sort") ?? "").match(/^(-?)(.+)$/) ?? [];
    const column = this.tables[table.value].columns.indexOf(name);
    this.sorting = column < 0 ? null : { column, direction: down ? -1 : 1 };
    this.fill();
  }

  /* Download the rows of all pages; tabs, line breaks and backslashes in keys are escaped, as in all our TSV files. */
  download() {
    const escapes = { "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r" };
    const cell = (value) => String(value ?? "").replace(/[\\\t\n\r]/g, (letter) => escapes[letter]);
    const lines = [this.table.columns, ...this.chosen].map((row) => `${row.map(cell).join("\t")}\n`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "text/tab-separated-values" }));
    link.download = `${new FormData(this.controls).get("table")}-shown.tsv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), MINUTE);
  }
}
