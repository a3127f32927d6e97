"""Maps with and without soft pairs and coloured rotations, on pairs that were not seen, from one discovery each.

    python benchmarks/maps.py --data DIR [--pairs easy vit texts ...] [--shares 1 0.5 0.1 0] [--seeds 15 100]

Both maps of a discovery are chosen twice from what it found: from all candidates, and from those that need neither.
Rows that were not in the spaces are translated by each: how many come to their counterpart first among as many, and how
many of the ten nearest to the counterpart do they find?
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kedge import AnchorDiscovery
from kedge.estimators import findings as reading
from kedge.geometry import unit
from kedge.models import maps
from setting import add_data_option, describe_machine, new_parser, self_recall_and_overlap
from shared import SEEDS, SHARES, Case, draw

PAIRS = ("easy", "medium", "glove", "vit", "texts", "texts-fr", "upgrade")


def main() -> None:
    """A line for every run and direction."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", default=PAIRS)
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[s for s in SEEDS if s])
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    print(describe_machine(arguments.device))
    print(
        f"{'pair':<10}{'share':>6}{'seeds':>6}{'direction':>11}  {'first':>14}  {'overlap@10':>14}  map now (verdict)"
    )
    for pair in arguments.pairs:
        for share in arguments.shares:
            for seeds in arguments.seeds:
                task = draw(arguments.data, Case("shares", pair, share, seeds, 0))
                assert task.unseen is not None
                with both_choices() as before:
                    discovery = AnchorDiscovery(n_anchors=100, device=arguments.device)
                    discovery.fit(task.x, task.y, task.seeds)
                left, right = discovery.x_.normalise(task.unseen[0]), discovery.y_.normalise(task.unseen[1])
                verdict = discovery.health_.map.verdict
                for direction, rows, targets, old, name in (
                    ("x to y", left, right, before[0], "map"),
                    ("y to x", right, left, before[1], "map_back"),
                ):
                    now = getattr(discovery, name + "_")
                    (first, overlap), (was_first, was_overlap) = (scores(rows @ m, targets) for m in (now, old))
                    kind = discovery.map_scores_[name]["kind"]
                    print(
                        f"{pair:<10}{share:>6g}{seeds:>6}{direction:>11}  {was_first:>5.3f} -> {first:>5.3f}  "
                        f"{was_overlap:>5.3f} -> {overlap:>5.3f}  {kind} ({verdict})",
                        flush=True,
                    )


@contextmanager
def both_choices() -> Iterator[list[NDArray[np.float32]]]:
    """While it lasts, every choice of a map is made a second time, as if there were no new candidates, and listed."""
    choose_map, all_maps = reading.choose_map, maps._Maker.maps
    chosen: list[NDArray[np.float32]] = []

    def plain(maker: Any, moments: Any) -> Iterator[tuple[str, torch.Tensor]]:
        return (found for found in all_maps(maker, moments) if found[0] != "coloured rotation")

    def choose(*arguments: Any) -> maps.ChosenMap:
        maps._Maker.maps = plain  # type: ignore[method-assign]
        chosen.append(choose_map(*arguments[:5]).matrix.cpu().numpy())
        maps._Maker.maps = all_maps  # type: ignore[method-assign]
        return choose_map(*arguments)

    reading.choose_map = choose  # type: ignore[assignment]
    try:
        yield chosen
    finally:
        reading.choose_map, maps._Maker.maps = choose_map, all_maps  # type: ignore[method-assign]


def scores(translated: NDArray[np.float32], targets: NDArray[np.float32]) -> tuple[float, float]:
    """Of rows (u, d) that belong to targets (u, d) by number."""
    rows, index = unit(torch.from_numpy(translated)), torch.from_numpy(targets)
    return self_recall_and_overlap(rows, index, torch.arange(len(rows)))


if __name__ == "__main__":
    sys.exit(main())
