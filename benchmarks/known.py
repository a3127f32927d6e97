"""Many known pairs: what discovery adds to maps that are fitted to the known pairs alone, and never takes away.

    python benchmarks/known.py --data DIR --device cuda

An index of the old model (Y) and vectors of the new one (X) have k known pairs and nothing else in common: 2,000 rows
of X are not in Y, 2,000 of Y not in X. Then 1,000 new vectors that X had not, but whose own rows are in the index, are
translated and searched by plain cosine over Y's vectors: the share that finds its own row first (self-recall@1) and the
overlap of the ten nearest with those of the own row's vector. Ridge is the best of three strengths, in hindsight.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from kedge import AnchorDiscovery, Embeddings
from kedge.geometry import center_of, denormalise, moments_of, nearest_rotation, normalise, ridge, unit
from paper.pairs_of_spaces import PAIR_NAMES, load_pair
from setting import (
    add_data_option,
    describe_machine,
    markdown_header,
    markdown_row,
    new_parser,
    self_recall_and_overlap,
)

APART, QUERIES = 2000, 1000
RIDGES = (0.01, 0.1, 1.0)


def main() -> None:
    """One row per pair of encoders and number of known pairs."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", choices=PAIR_NAMES, default=["texts", "medium", "vit"])
    parser.add_argument("--known", nargs="+", type=int, default=[15, 100, 1000, 4000])
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    columns = ("pair", "known", "kedge", "Procrustes", "ridge", "least squares", "kedge's map", "verdict", "seconds")
    print(f"{describe_machine(arguments.device)}: self-recall@1 / overlap@10\n")
    print(markdown_header(columns), flush=True)
    for name in arguments.pairs:
        pair = load_pair(arguments.data, name)
        for known in arguments.known:
            if known + 2 * APART + QUERIES <= len(pair.x):
                print(markdown_row(row(arguments, pair.x, pair.y, name, known)), flush=True)


def row(arguments: argparse.Namespace, x: Embeddings, y: Embeddings, name: str, known: int) -> list[str]:
    """The cells for one number of known pairs."""
    order = np.random.default_rng(arguments.random_state).permutation(len(x))
    both, only_x, only_y, asked = np.split(order[: known + 2 * APART + QUERIES], np.cumsum([known, APART, APART]))
    space_x, space_y = x.take(np.concatenate([both, only_x])), y.take(np.concatenate([both, only_y, asked]))
    seeds = np.stack([np.arange(known)] * 2, axis=1)
    began = time.perf_counter()
    found = AnchorDiscovery(device=arguments.device, random_state=arguments.random_state).fit(space_x, space_y, seeds)
    seconds = time.perf_counter() - began
    queries, index = x.vectors[asked], unit(torch.from_numpy(space_y.vectors.copy()))
    own = torch.arange(known + APART, len(space_y))
    center_x, center_y = (center_of(torch.from_numpy(space.vectors.copy())) for space in (space_x, space_y))
    pairs_x, pairs_y = (
        normalise(torch.from_numpy(space.vectors[:known].copy()), center)
        for space, center in ((space_x, center_x), (space_y, center_y))
    )
    moments = moments_of(pairs_x, pairs_y)
    rows = normalise(torch.from_numpy(queries.copy()), center_x)

    def translated_by(matrix: torch.Tensor) -> tuple[float, float]:
        return self_recall_and_overlap(denormalise(unit(rows @ matrix.float()), center_y), index, own)

    cells = [
        self_recall_and_overlap(torch.from_numpy(found.translate(queries)), index, own),
        translated_by(nearest_rotation(moments.cross)),
    ]
    cells.append(max(translated_by(ridge(moments.source, moments.cross, strength)) for strength in RIDGES))
    cells.append(translated_by(ridge(moments.source, moments.cross)))
    shown = [f"{first:.3f} / {overlap:.3f}" for first, overlap in cells]
    kind = str(found.map_scores_["map"]["kind"])
    return [name, str(known), *shown, kind, found.health_.pairs.verdict, f"{seconds:.1f}"]


if __name__ == "__main__":
    main()
