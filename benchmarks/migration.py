"""Queries of a new model in an index of the old one: what kedge finds, and what known pairs alone would give.

    python benchmarks/migration.py --data DIR                      the table of pairs and known pairs
    python benchmarks/migration.py --data DIR --suggested          pairs that `kedge suggest` names, against random ones

The index holds texts by the old model, 15,000 if there are that many. X holds texts by the new model: 4,000 that the
index lacks, and the known pairs, which it has. Queries are 2,000 other texts of the index by the new model: does each
find its own text first, and how many of the ten that the old model's own vector finds?
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kedge import AnchorDiscovery, Embeddings, read_embeddings
from kedge.geometry import denormalise, normalise, unit
from kedge.tasks import suggest
from rival_methods import FROM_PAIRS, FromPairs
from setting import add_data_option, describe_machine, new_parser, self_recall_and_overlap

INDEX, LACKED, QUERIES = 15_000, 4000, 2000
KNOWN = (15, 100, 1000, 5000)
MORE = (30, 100, 300, 1000)
PAIRS = {
    "MiniLM <- BGE": ("minilm-en", "bge-en"),
    "MiniLM <- mE5": ("minilm-en", "me5-en"),
    "mE5 <- MiniLM": ("me5-en", "minilm-en"),
}


@dataclass(frozen=True)
class Setting:
    """An index of the old model (m, dy), X of the new one (n, dx) with its known pairs (k, 2), and queries."""

    x: Embeddings
    index: Embeddings
    known: NDArray[np.int64]
    queries: NDArray[np.float32]
    own: NDArray[np.int64]

    @classmethod
    def make(cls, data: Path, name: str, known: int, state: int) -> Setting:
        """Draw one."""
        old, new = (_read(data, file) for file in PAIRS[name])
        chance = np.random.default_rng(state)
        both = chance.permutation([key for key in new.keys if key in old.row_of]).tolist()
        queries, both = both[:QUERIES], both[QUERIES:]
        lacked = chance.permutation([key for key in new.keys if key not in old.row_of]).tolist()[:LACKED]
        if len(lacked) < LACKED:  # the index has to do without some of its texts
            count = min(LACKED, len(both) - known)
            both, lacked = both[: len(both) - count], both[len(both) - count :]
        others = chance.permutation([key for key in old.keys if key not in new.row_of]).tolist()
        pairs = both[:known]
        x = new.take(new.rows([*lacked, *pairs]))
        index = old.take(old.rows([*queries, *both, *others][:INDEX]))
        rows = np.stack([x.rows(pairs), index.rows(pairs)], axis=1)
        return cls(x, index, rows, new.vectors[new.rows(queries)], index.rows(queries))

    def with_more(self, old: Embeddings, keys: list[str]) -> Setting:
        """The same when rows of X with these keys were encoded by the old model too, and put into the index."""
        index = old.take(old.rows([*self.index.keys, *keys]))
        pairs = np.stack([self.x.rows(keys), index.rows(keys)], axis=1)
        return replace(self, index=index, known=np.concatenate([self.known, pairs]))

    def scores(self, translated: NDArray[np.float32]) -> tuple[float, float]:
        """How many queries find their own text first, and the share of ten that the old model's own vectors find."""
        queries, index = (unit(torch.from_numpy(np.array(rows))) for rows in (translated, self.index.vectors))
        return self_recall_and_overlap(queries, index, torch.from_numpy(self.own))


def main() -> None:
    """Run what was asked for."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", default=list(PAIRS), choices=list(PAIRS), metavar="PAIR")
    parser.add_argument("--known", nargs="+", type=int, default=KNOWN)
    parser.add_argument(
        "--suggested", action="store_true", help="more pairs for runs with 15: suggested and random ones"
    )
    parser.add_argument("--more", nargs="+", type=int, default=MORE, help="how many more pairs")
    parser.add_argument("--states", type=int, default=1, help="draws of the texts (1)")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    print(describe_machine(arguments.device))
    if arguments.suggested:
        compare_suggestions(arguments)
        return
    print(f"{'old <- new':<15}{'known':>6}  {'by':<22}{'self-recall@1':>14}{'overlap@10':>11}{'seconds':>9}")
    for name in arguments.pairs:
        for known in arguments.known:
            rows: dict[str, list[tuple[float, float, float]]] = {}
            for state in range(arguments.states):
                setting = Setting.make(arguments.data, name, known, state)
                for method, translated, seconds in translations(setting, arguments.device):
                    rows.setdefault(method, []).append((*setting.scores(translated), seconds))
            for method, found in rows.items():
                own, overlap, seconds = np.mean(found, axis=0)
                print(f"{name:<15}{known:>6}  {method:<22}{own:>14.3f}{overlap:>11.3f}{seconds:>9.1f}", flush=True)


def compare_suggestions(arguments: argparse.Namespace) -> None:
    """Runs with 15 known pairs, and with more: rows of X that are named, or drawn, and encoded by the old model too."""
    print(f"{'old <- new':<15}{'more':>6}  {'chosen':<12}{'self-recall@1':>14}{'overlap@10':>11}  map")
    for name in arguments.pairs:
        for state in range(arguments.states):
            setting = Setting.make(arguments.data, name, 15, state)
            first = AnchorDiscovery(device=arguments.device).fit(setting.x, setting.index, setting.known)
            _print_scores(name, 0, "", setting, first)
            free = np.setdiff1d(np.arange(len(setting.x)), setting.known[:, 0])
            drawn = np.random.default_rng(state).permutation(free)
            named = [found.key for found in suggest(first, setting.x, setting.index, max(arguments.more), side="x")]
            for more in arguments.more:
                choices = {"suggested": named[:more], "random": [setting.x.keys[row] for row in drawn[:more]]}
                for chosen, keys in choices.items():
                    enlarged = setting.with_more(_read(arguments.data, PAIRS[name][0]), keys)
                    discovery = AnchorDiscovery(device=arguments.device).fit(enlarged.x, enlarged.index, enlarged.known)
                    _print_scores(name, more, chosen, enlarged, discovery)


def _print_scores(name: str, more: int, chosen: str, setting: Setting, discovery: AnchorDiscovery) -> None:
    own, overlap = setting.scores(discovery.translate(setting.queries))
    kind = discovery.map_scores_["map"]["kind"]
    shown = f"{kind} ({discovery.health_.map.verdict})"
    print(f"{name:<15}{more:>6}  {chosen:<12}{own:>14.3f}{overlap:>11.3f}  {shown}", flush=True)


def translations(setting: Setting, device: str) -> Iterator[tuple[str, NDArray[np.float32], float]]:
    """The queries translated by each method, and how long it took to learn."""
    began = time.perf_counter()
    discovery = AnchorDiscovery(device=device).fit(setting.x, setting.index, setting.known)
    kind = discovery.map_scores_["map"]["kind"]
    print(f"  map {discovery.health_.map.verdict} ({discovery.health_.map.score:.2f}), {kind}")
    yield "kedge", discovery.translate(setting.queries), time.perf_counter() - began
    for method, learn in FROM_PAIRS.items():
        began = time.perf_counter()
        translate = known_alone(setting, learn)
        yield method, translate(setting.queries), time.perf_counter() - began


# -- what known pairs alone give ------------------------------------------------------------------


def known_alone(setting: Setting, learn: FromPairs) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """A translation learned from the known pairs, of unit rows that are centered by all rows of either space."""
    x, y = (unit(torch.from_numpy(np.array(space.vectors))) for space in (setting.x, setting.index))
    center_x, center_y = x.mean(dim=0), y.mean(dim=0)
    source = normalise(x[torch.from_numpy(setting.known[:, 0])], center_x)
    target = normalise(y[torch.from_numpy(setting.known[:, 1])], center_y)
    apply = learn(source, target)
    return lambda vectors: denormalise(unit(apply(normalise(torch.from_numpy(vectors), center_x))), center_y).numpy()


@cache
def _read(data: Path, file: str) -> Embeddings:
    return read_embeddings(data / "texts" / f"{file}.npz")


if __name__ == "__main__":
    main()
