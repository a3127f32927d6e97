"""How far one translation can be trusted: does the number that a run gives agree with what searches find?

    python benchmarks/trust.py --out benchmarks/results/trust-two-cores.json

A discovery is fitted to one part of a data set. Vectors of texts, words and images that it has not seen are translated
and search the index, which holds their own counterparts among others; *found* is how often these are among the first
ten. Some vectors are like those of the run, others are not: texts in another language or of another kind, rare words,
and classes of images that it never had. *trust* is the mean of the probability that the run gave beforehand; *error*
the mean difference between it and what was found, in ten equal groups (expected calibration error); *AUROC* how well it
ranks the found before the others. *unfamiliar* vectors have a familiarity below 0.02. *kept* are those for which a
service would not fall back: familiar, and with a probability of at least 0.9.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery, Embeddings, read_embeddings
from setting import add_data_option, auroc, describe_machine, markdown_header, markdown_row, new_parser, write_json

TESTED = 1000
GROUPS = 10
UNFAMILIAR, TRUSTED = 0.02, 0.9
COLUMNS = ("", "vectors", "found", "trust", "error", "AUROC", "unfamiliar", "kept", "found of the kept")


class Case(NamedTuple):
    """Spaces to fit, the number of known pairs (the first rows of X), and sets of rows of both that are tested."""

    x: Embeddings
    y: Embeddings
    known: int
    tested: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]


def rows_of(space: Embeddings, keys: list[str]) -> NDArray[np.float32]:
    """Vectors of keys."""
    return np.array(space.vectors[space.rows(keys)], dtype=np.float32)


def texts(data: Path, rows: int) -> Case:
    """Package descriptions by multilingual E5, into an index by MiniLM; the same in French; sentences of manuals."""
    new, old, french = (read_embeddings(data / "texts" / f"{name}.npz") for name in ("me5-en", "minilm-en", "me5-fr"))
    sentences = [read_embeddings(data / "sentences" / f"{name}-en.npz") for name in ("me5", "minilm")]
    keys = np.random.default_rng(0).permutation(list(new.keys)).tolist()
    tested, others = keys[rows : rows + TESTED], sentences[0].keys[:TESTED]
    return Case(
        new.take(new.rows(keys[:rows])),
        old.take(old.rows(keys[:rows])),
        100,
        {
            "texts like those of the run": (rows_of(new, tested), rows_of(old, tested)),
            "the same texts in French": (rows_of(french, tested), rows_of(old, tested)),
            "another kind of text": (rows_of(sentences[0], list(others)), rows_of(sentences[1], list(others))),
        },
    )


def words(data: Path, rows: int) -> Case:
    """Frequent words of GloVe, into FastText; rare words."""
    x, y = (read_embeddings(data / "words" / f"{name}.npz") for name in ("glove-6b-100", "fasttext-wiki-300"))
    keys = [key for key in x.keys if key in y.row_of]
    frequent, rare = np.random.default_rng(0).permutation(keys[: rows + TESTED]).tolist(), keys[-TESTED:]
    fitted, tested = frequent[:rows], frequent[rows:]
    return Case(
        x.take(x.rows(fitted)),
        y.take(y.rows(fitted)),
        100,
        {
            "words like those of the run": (rows_of(x, tested), rows_of(y, tested)),
            "rare words": (rows_of(x, rare), rows_of(y, rare)),
        },
    )


def images(data: Path, rows: int) -> Case:
    """Images of seven classes by one ViT, into another; images of the other three."""
    x, y = (read_embeddings(data / "images" / f"cifar10-vit-{name}-128.npz") for name in "ab")
    lines = (line.split("\t") for line in (data / "images" / "labels.tsv").read_text().splitlines())
    label = {line[0]: line[1] for line in lines}
    keys = np.random.default_rng(0).permutation(list(x.keys)).tolist()
    classes = sorted({label[key] for key in keys})[:7]
    like, unlike = ([key for key in keys if (label[key] in classes) is inside] for inside in (True, False))
    fitted, tested, others = like[:rows], like[rows : rows + TESTED], unlike[:TESTED]
    return Case(
        x.take(x.rows(fitted)),
        y.take(y.rows(fitted)),
        200,
        {
            "images like those of the run": (rows_of(x, tested), rows_of(y, tested)),
            "other classes": (rows_of(x, others), rows_of(y, others)),
        },
    )


CASES = {"texts": texts, "words": words, "images": images}


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of unit length."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measure(
    run: AnchorDiscovery, index: NDArray[np.float32], queries: NDArray[np.float32], own: NDArray[np.float32]
) -> dict[str, Any]:
    """How trust in queries (q, dx) agrees with what they find among their own rows (q, dy) and an index (m, dy)."""
    similarity = run.translate(queries) @ unit(np.concatenate([own, index])).T
    mine = np.diagonal(similarity)[:, None]
    found = (similarity > mine).sum(axis=1) < 10
    trust = run.trust(queries)
    error = sum(
        len(group) * abs(trust.probability[group].mean() - found[group].mean())
        for group in np.array_split(np.argsort(trust.probability, kind="stable"), GROUPS)
    )
    familiar = trust.familiarity >= UNFAMILIAR
    kept = familiar & (trust.probability >= TRUSTED)
    return {
        "vectors": len(queries),
        "found": float(found.mean()),
        "trust": float(trust.probability.mean()),
        "error": float(error / len(queries)),
        "auroc": auroc(trust.probability[found].tolist(), trust.probability[~found].tolist()),
        "unfamiliar": float(1 - familiar.mean()),
        "kept": float(kept.mean()),
        "found_kept": float(found[kept].mean()) if kept.any() else None,
    }


def main() -> None:
    """Fit each case, and print a row for each set."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--rows", type=int, default=3000, help="rows that a discovery is fitted to (3000)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="write the results as JSON, beside those of other cases in the file")
    arguments = parser.parse_args()
    print(f"{describe_machine(arguments.device)}\n\n{markdown_header(COLUMNS)}", flush=True)
    results = json.loads(arguments.out.read_text())["sets"] if arguments.out and arguments.out.exists() else {}
    for name in arguments.cases:
        case = CASES[name](arguments.data, arguments.rows)
        known = np.stack([np.arange(case.known)] * 2, axis=1)
        run = AnchorDiscovery(device=arguments.device).fit(case.x, case.y, known)
        index = np.array(case.y.vectors, dtype=np.float32)
        for label, (queries, own) in case.tested.items():
            results[label] = row = measure(run, index, queries, own)
            figures = (f"{value:.3f}" if value is not None else "" for value in list(row.values())[1:])
            print(markdown_row((label, str(row["vectors"]), *figures)), flush=True)
    if arguments.out:
        write_json(arguments.out, {"rows": arguments.rows, "sets": results})


if __name__ == "__main__":
    main()
