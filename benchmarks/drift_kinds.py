"""Does `kedge.drift` name what became of vectors, even of kinds that its limits were not set on?

    python benchmarks/drift_kinds.py --data DATA [--rows 576] [--out drift-kinds.json]

Most limits were set on MiniLM (`audit.py --only variants`, `model_variants.py`). Here vectors of images, words and
texts by other models are rounded, cut, rotated, and changed as training changes them. 64 of them (a canary) and all of
them are compared with the originals. Prints a line for each verdict that is not the expected one, and how many were
right.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kedge
from setting import add_data_option, markdown_header, markdown_row, new_parser, write_json

MODELS = {
    "ViT": "images/cifar10-vit-a-128.npz",
    "MobileNet": "images/cifar10-mobilenet-v2-1280.npz",
    "GloVe": "words/glove-6b-100.npz",
    "FastText Spanish": "words/fasttext-es-200.npz",
    "BGE": "texts/bge-en.npz",
}
CANARY = 64
PRECISION, TUNED = "same but for precision", "fine-tuned"
Rows = NDArray[np.float32]


def changes(base: Rows) -> Iterator[tuple[str, str, Rows]]:
    """What may become of vectors (n, d), what that should be called, and the vectors afterwards."""
    chance = np.random.default_rng(2)
    rows, dim = base.shape
    unit = base / np.linalg.norm(base, axis=1, keepdims=True)
    low, spread = base.min(axis=0), np.ptp(base, axis=0)
    rotation = np.linalg.qr(chance.standard_normal((dim, dim)))[0]
    yield "bfloat16, cut off", PRECISION, (base.view(np.uint32) & 0xFFFF0000).view(np.float32)
    yield "int8, one scale", PRECISION, np.round(base / np.abs(base).max() * 127)
    yield "a byte per dimension", PRECISION, np.round((base - low) / spread * 255)
    yield "4 bits per dimension", PRECISION, low + np.round((base - low) / spread * 15) / 15 * spread
    yield "binary", PRECISION, np.where(base > 0, 1, -1)
    yield "the first half", "shortened", base[:, : dim // 2]
    yield "rotated", "rotated", base @ rotation
    yield "rotated, int8", "rotated", np.round(unit @ rotation / np.abs(unit @ rotation).max() * 127)
    yield "dimensions in another order", "rotated", base[:, ::-1]
    for share in (0.1, 0.2, 0.3, 1.0):
        change = chance.standard_normal((dim, 8)) @ chance.standard_normal((8, dim))
        change *= share * dim**0.5 / np.linalg.norm(change)
        yield f"a change of rank 8, {share:.0%}", TUNED, unit + unit @ change
    for share in (0.2, 0.5):
        bent = np.tanh(3 * unit @ chance.standard_normal((dim, 4))) @ chance.standard_normal((4, dim))
        bent /= np.linalg.norm(bent, axis=1, keepdims=True)
        yield f"bent along 4 directions, {share:.0%}", TUNED, unit + share * bent
    # Among as many as a canary has.
    yield "ids mixed up", "shuffled", np.roll(base.reshape(-1, CANARY, dim), 1, axis=1).reshape(rows, dim)


def main() -> None:
    """Change, compare, print and write."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--rows", type=int, default=576, help="vectors that are compared, whole canaries of 64 (576)")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    arguments: argparse.Namespace = parser.parse_args()
    print(
        markdown_header(("vectors", "change", "items", "expected", "verdict", "cosine", "neighbours kept")), flush=True
    )
    results: list[dict[str, Any]] = []
    for model, file in MODELS.items():
        space = kedge.read_embeddings(arguments.data / file)
        drawn = np.random.default_rng(1).permutation(len(space))[: arguments.rows // CANARY * CANARY]
        base = np.array(space.vectors[drawn], dtype=np.float32)
        for change, expected, after in changes(base):
            for count in (CANARY, len(base)):
                found = kedge.drift(base[:count], np.asarray(after[:count], dtype=np.float32))
                figures = {"cosine": found.cosine, "overlap": found.overlap, "pairwise": found.pairwise}
                one = {"vectors": model, "change": change, "items": count, "expected": expected}
                results.append(one | {"verdict": found.verdict} | figures)
                if found.verdict != expected:
                    cosine = "" if found.cosine is None else f"{found.cosine:.4f}"
                    print(
                        markdown_row((*map(str, one.values()), found.verdict, cosine, f"{found.overlap:.2f}")),
                        flush=True,
                    )
    right = sum(one["verdict"] == one["expected"] for one in results)
    print(f"\n{right} of {len(results)} as expected")
    if arguments.out:
        write_json(arguments.out, results)


if __name__ == "__main__":
    main()
