"""Queries of a new model in an index of the old one: what kedge finds, and what known pairs alone would give.

    python benchmarks/migration.py --data DIR                      the table of pairs and known pairs
    python benchmarks/migration.py --data DIR --suggested          pairs that `kedge suggest` names, against random ones

The index holds texts by the old model, 15,000 where there are so many. X holds texts by the new one that the index
lacks, 4,000 of them, and as many that it has as pairs are known. Queries are 2,000 other texts of the index by the new
model: does each find its own text first, and how many of the ten that the old model's own vector finds?
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
from kedge.geometry import denormalise, moments_of, nearest_rotation, normalise, ridge, unit
from kedge.tasks import suggest
from setting import add_data_option, describe_machine, new_parser, self_recall_and_overlap

INDEX, LACKED, QUERIES = 15_000, 4000, 2000
KNOWN = (15, 100, 1000, 5000)
MORE = (30, 100, 300, 1000)
PAIRS = {
    "MiniLM <- BGE": ("minilm-en", "bge-en"),
    "MiniLM <- mE5": ("minilm-en", "me5-en"),
    "mE5 <- MiniLM": ("me5-en", "minilm-en"),
}
_PENALTIES = (0.0, 0.001, 0.01, 0.1, 1.0)
_RANKS = (32, 64, 128)
_HELD_OUT = 0.1  # of the known pairs, to choose penalties, ranks and when to stop
_STEPS, _PATIENCE = 2000, 10


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
    for method, learn in RIVALS.items():
        began = time.perf_counter()
        translate = known_alone(setting, learn)
        yield method, translate(setting.queries), time.perf_counter() - began


# -- what known pairs alone give ------------------------------------------------------------------

Learn = Callable[[torch.Tensor, torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]


def known_alone(setting: Setting, learn: Learn) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """A translation learned from the known pairs, of unit rows that are centered by all rows of either space."""
    x, y = (unit(torch.from_numpy(np.array(space.vectors))) for space in (setting.x, setting.index))
    center_x, center_y = x.mean(dim=0), y.mean(dim=0)
    source = normalise(x[torch.from_numpy(setting.known[:, 0])], center_x)
    target = normalise(y[torch.from_numpy(setting.known[:, 1])], center_y)
    apply = learn(source, target)
    return lambda vectors: denormalise(unit(apply(normalise(torch.from_numpy(vectors), center_x))), center_y).numpy()


def by_rotation(source: torch.Tensor, target: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Procrustes."""
    matrix = nearest_rotation(moments_of(source.double(), target.double()).cross).float()
    return lambda rows: rows @ matrix


def by_ridge(source: torch.Tensor, target: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Least squares with the penalty that does best on held-out pairs."""

    def fit(penalty: float, fitted: slice) -> torch.Tensor:
        moments = moments_of(source[fitted].double(), target[fitted].double())
        return ridge(moments.source, moments.cross, penalty).float()

    test, rest = _parts(len(source))
    best = max(_PENALTIES, key=lambda penalty: _cosine(source[test] @ fit(penalty, rest), target[test]))
    matrix = fit(best, slice(None))
    return lambda rows: rows @ matrix


def by_low_rank(source: torch.Tensor, target: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A rotation and an affine correction of low rank, U V' + t, by gradient (the low-rank adapter)."""
    rotation = nearest_rotation(moments_of(source.double(), target.double()).cross).float()

    def start(rank: int) -> tuple[list[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        left = 0.01 * torch.randn(source.shape[1], rank, generator=generator)
        parts = [left.requires_grad_(), torch.zeros(rank, target.shape[1]).requires_grad_()]
        shift = torch.zeros(target.shape[1]).requires_grad_()
        return [*parts, shift], lambda rows: rows @ rotation + rows @ parts[0] @ parts[1] + shift

    return _best_trained(source, target, [start(rank) for rank in _RANKS])


def by_residual_mlp(source: torch.Tensor, target: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A rotation and a correction by one hidden layer of 256, by gradient (the residual adapter)."""
    rotation = nearest_rotation(moments_of(source.double(), target.double()).cross).float()
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(source.shape[1], 256), torch.nn.GELU(), torch.nn.Linear(256, target.shape[1])
    )
    torch.nn.init.zeros_(network[2].weight)
    torch.nn.init.zeros_(network[2].bias)
    return _best_trained(source, target, [(list(network.parameters()), lambda rows: rows @ rotation + network(rows))])


RIVALS: dict[str, Learn] = {
    "Procrustes": by_rotation,
    "ridge": by_ridge,
    "low-rank affine": by_low_rank,
    "residual MLP": by_residual_mlp,
}


def _best_trained(
    source: torch.Tensor,
    target: torch.Tensor,
    candidates: list[tuple[list[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Train all until held-out pairs get no closer; the best of them, at its best."""
    test, rest = _parts(len(source))
    best_score, best = -1.0, candidates[0]
    for parameters, apply in candidates:
        optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-4)
        generator = torch.Generator().manual_seed(0)
        reached, kept, waited = -1.0, [part.detach().clone() for part in parameters], 0
        for step in range(_STEPS):
            if step % 25 == 0:
                with torch.no_grad():
                    score = _cosine(apply(source[test]), target[test])
                if score > reached:
                    reached, kept, waited = score, [part.detach().clone() for part in parameters], 0
                elif (waited := waited + 1) > _PATIENCE:
                    break
            rows = torch.randint(len(source[rest]), (min(512, len(source[rest])),), generator=generator)
            loss = -_cosine_of(apply(source[rest][rows]), target[rest][rows]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            for part, value in zip(parameters, kept, strict=True):
                part.copy_(value)
        if reached > best_score:
            best_score, best = reached, (parameters, apply)

    def translate(rows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return best[1](rows)

    return translate


def _parts(count: int) -> tuple[slice, slice]:
    """Pairs to test on, and the rest; the pairs are in random order."""
    held_out = max(2, int(_HELD_OUT * count))
    return slice(0, held_out), slice(held_out, None)


def _cosine_of(rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(rows, targets, dim=1)


def _cosine(rows: torch.Tensor, targets: torch.Tensor) -> float:
    return float(_cosine_of(rows, targets).mean())


@cache
def _read(data: Path, file: str) -> Embeddings:
    return read_embeddings(data / "texts" / f"{file}.npz")


if __name__ == "__main__":
    main()
