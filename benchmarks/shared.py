"""Spaces that share all, some or no items: the two verdicts, the overlap, and confidence.

    python benchmarks/shared.py --data DIR --jobs 8 --out shared.jsonl          all runs; half an hour on 16 cores
    python benchmarks/shared.py --data DIR --pairs easy --states 1 --kinds shares   a few; many minutes on two cores
    python benchmarks/shared.py --data DIR --pairs easy texts --states 1 --rows 1000 --json FILE    smaller

Two spaces of up to 4,000 rows each share all, half, a tenth or none of their items (but for the seeds), with seeds and
without. There are also spaces on which a verdict must fail: noise, unrelated spaces, wrong seeds, and some made to
provoke false confidence. 2,000 further items that neither side has seen try the map. It is *right* if at least half as
many of them find their counterpart first as with a run that was given all true pairs of as many rows. The pairs are
*right* if at least half of the listed ones are, and three tenths of the rows that have a counterpart find it. All runs
count, except those with all pairs known, which are the standard for the others. For the map, the runs made to provoke
false confidence do not count either, since they have no unseen items.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery
from kedge.tasks import reliability
from layouts import shared_calibration, shared_overlap, shared_runs, shared_verdicts
from paper.pairs_of_spaces import load_pair
from setting import add_data_option, add_run_options, new_parser, run_cases, split_rows
from stored import Record, add_json_option, commit_of_kedge

MAX_ITEMS, ROWS, UNSEEN = 10_000, 4000, 2000
SHARES, SEEDS = (1.0, 0.5, 0.1, 0.0), (15, 100, 0)
PAIRS = ("easy", "medium", "glove", "vit", "mobilenet", "texts", "texts-fr", "upgrade")
# The names seed the draws: with others the documentation's figures would be of other spaces.
NOISE = ("gauss-3", "gauss-5", "gauss-20", "gauss-100", "clusters", "strangers", "strangers-2")
PROVOKED = ("garbage", "repeated", "classes", "mirrored")

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """One run: a kind of spaces, the share of items in both, the number of seeds."""

    kind: str
    pair: str
    share: float
    seeds: int
    state: int
    rows: int = ROWS


@dataclass(frozen=True)
class Task:
    """Two spaces, the row of Y (n,) for each of X (-1: none), seeds (s, 2), and unseen rows (u,) of either, if any."""

    x: Matrix
    y: Matrix
    truth: NDArray[np.int64]
    seeds: NDArray[np.int64]
    unseen: tuple[Matrix, Matrix] | None = None


def main() -> None:
    """Run the cases and print what the answers were worth."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    kinds = ("shares", "wrong", "noise", "provoked")
    parser.add_argument("--pairs", nargs="+", default=PAIRS)
    parser.add_argument("--kinds", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, help="numbers of seeds, where items are shared")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of either real space, at most ({ROWS})")
    add_json_option(parser)
    add_run_options(parser, states=2)
    arguments = parser.parse_args()
    cases = grid(arguments.pairs, arguments.kinds, arguments.states, arguments.seeds)
    if arguments.json and not arguments.out:
        arguments.out = arguments.json.with_suffix(".jsonl")
    results = run_cases(run, [replace(case, rows=arguments.rows) for case in cases], arguments)
    record = Record(arguments.json, {}, arguments.device)
    rows = []
    for case, result in results.items():
        about = asdict(case)
        measured = {name: value for name, value in result.items() if name not in about}
        rows.append(record.row(about, lambda measured=measured: measured))
    report(rows)


def grid(pairs: Sequence[str], kinds: Sequence[str], states: int, numbers: Sequence[int] = SEEDS) -> list[Case]:
    """All cases; the longest first."""
    cases = []
    for state in range(states):
        if "shares" in kinds:
            cases += [Case("shares", p, share, seeds, state) for seeds in numbers for p in pairs for share in SHARES]
            cases += [Case("all known", pair, 1.0, -1, state) for pair in pairs]
        if "wrong" in kinds:
            cases += [Case("wrong", pair, share, 15, state) for pair in pairs for share in (1.0, 0.0)]
        if "noise" in kinds:
            cases += [Case("noise", name, 0.0, seeds, state) for name in NOISE for seeds in (15, 0)]
        if "provoked" in kinds:
            cases += [Case("provoked", name, 1.0, seeds, state) for name in PROVOKED for seeds in (15, 0)]
    return sorted(cases, key=lambda case: case.seeds != 0)


@cache
def loaded(data: Path, name: str, axes: int | None = None) -> tuple[Matrix, Matrix]:
    """Vectors of a pair, row by row the same thing; in so many principal axes of either space, if that is given."""
    pair = load_pair(data, name, limit=MAX_ITEMS)
    x, y = (side.vectors.astype(np.float32) for side in (pair.x, pair.y))
    return (x, y) if axes is None else (_in_axes(x, axes), _in_axes(y, axes))


def _in_axes(space: Matrix, axes: int) -> Matrix:
    """Rows (n, d), centered, in their principal axes (n, axes)."""
    centered = space - space.mean(axis=0)
    directions = np.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :axes]
    return np.ascontiguousarray(centered @ directions)


def draw(data: Path, case: Case) -> Task:
    """The spaces of a case."""
    chance = np.random.default_rng([case.state, zlib.crc32(f"{case.kind} {case.pair} {case.share}".encode())])
    if case.kind == "noise":
        return _seeded(_noise(data, case.pair, chance), case.seeds, chance)
    if case.kind == "provoked":
        return _seeded(_provoked(data, case.pair, chance), case.seeds, chance)
    return _real(*loaded(data, case.pair), case, chance)


def _real(x: Matrix, y: Matrix, case: Case, chance: np.random.Generator) -> Task:
    order = chance.permutation(len(x))
    unseen, rest = order[:UNSEEN], order[UNSEEN:]
    seeds = len(rest) if case.seeds < 0 else case.seeds
    rows = min(case.rows, int((len(rest) - max(case.seeds, 0)) / (2 - case.share)))
    shared = min(max(int(rows * case.share), seeds), rows)
    rows_x, rows_y, truth = split_rows(rest, rows, shared, chance)
    seeded = chance.permutation(shared)[:seeds]
    pairs = np.stack([seeded, truth[seeded]], axis=1)
    if case.kind == "wrong":
        pairs[:, 1] = np.roll(pairs[:, 1], 1)
    return Task(x[rows_x], y[rows_y], truth, pairs, (x[unseen], y[unseen]))


def _seeded(task: Task, seeds: int, chance: np.random.Generator) -> Task:
    """With true seeds where there are pairs, and with any rows as seeds where there are none."""
    known = np.flatnonzero(task.truth >= 0)
    if len(known):
        drawn = chance.permutation(known)[:seeds]
        return Task(task.x, task.y, task.truth, np.stack([drawn, task.truth[drawn]], axis=1))
    either = [chance.permutation(len(space))[:seeds] for space in (task.x, task.y)]
    return Task(task.x, task.y, task.truth, np.stack(either, axis=1))


def _noise(data: Path, name: str, chance: np.random.Generator) -> Task:
    """Spaces that have nothing to do with each other."""
    kind, _, detail = name.partition("-")
    if kind == "strangers":
        names = (("easy", "vit"), ("glove", "texts"))[detail == "2"]
        x, y = loaded(data, names[0])[0], loaded(data, names[1])[1]
        x, y = (space[chance.permutation(len(space))[:ROWS]] for space in (x, y))
    elif kind == "clusters":
        x, y = (
            2 * chance.standard_normal((50, dim))[chance.integers(50, size=2000)] + chance.standard_normal((2000, dim))
            for dim in (100, 64)
        )
    else:
        rank = int(detail)
        x, y = (chance.standard_normal((2000, rank)) @ chance.standard_normal((rank, dim)) for dim in (100, 64))
    return Task(x.astype(np.float32), y.astype(np.float32), np.full(len(x), -1), np.empty((0, 2), dtype=np.int64))


def _provoked(data: Path, name: str, chance: np.random.Generator) -> Task:
    """Spaces that invite false confidence."""
    x, y = loaded(data, "easy")
    x, y = (space / np.linalg.norm(space, axis=1, keepdims=True) for space in (x, y))
    order = chance.permutation(len(x))
    if name == "garbage":  # real words and as many rows of noise
        real = order[:2000]
        x, y = (np.concatenate([s[real], s.std() * chance.standard_normal((2000, s.shape[1]))]) for s in (x, y))
        truth = np.where(np.arange(4000) < 2000, np.arange(4000), -1)
    elif name == "repeated":  # every word ten times, hardly different
        real = np.repeat(order[:400], 10)
        x, y = (s[real] + 0.001 * chance.standard_normal((4000, s.shape[1])) for s in (x, y))
        truth = np.arange(4000)
    elif name == "classes":  # 200 kinds of things in both, and of each other things
        latent = chance.standard_normal((200, 50))
        x, y = (
            (latent[chance.integers(200, size=4000)] + 0.5 * chance.standard_normal((4000, 50)))
            @ chance.standard_normal((50, dim))
            for dim in (100, 64)
        )
        truth = np.full(4000, -1)
    else:  # every row and its opposite
        real = order[:2000]
        x, y = (s - s.mean(axis=0) for s in (x[real], y[real]))
        x, y = (np.concatenate([s, -s]) for s in (x, y))
        truth = np.arange(4000)
    shuffled = chance.permutation(len(y))
    where = np.argsort(shuffled)
    truth = np.where(truth >= 0, where[truth], -1)
    return Task(x.astype(np.float32), y[shuffled].astype(np.float32), truth, np.empty((0, 2), dtype=np.int64))


def run(data: Path, case: Case, device: str) -> dict[str, object]:
    """One discovery: what it said, and what was true."""
    task = draw(data, case)
    discovery = AnchorDiscovery(n_anchors=100, random_state=case.state, device=device)
    discovery.fit(task.x, task.y, task.seeds)
    found = ~np.isin(discovery.pairs_[:, 0], task.seeds[:, 0])
    listed, confidence = discovery.pairs_[found], discovery.pair_confidence_[found]
    right = task.truth[listed[:, 0]] == listed[:, 1]
    known = np.flatnonzero(task.truth >= 0)
    health = discovery.health_
    return {
        "commit": commit_of_kedge(),
        "rows_x": len(task.x),
        "map": (health.map.score, health.map.verdict),
        "pairs": (health.pairs.score, health.pairs.verdict),
        "recognised": health.recognised,
        "closeness": health.closeness,
        "agreement": health.agreement,
        "overlap": (health.overlap.x.estimate, health.overlap.x.low, health.overlap.x.high),
        "shared": len(known) / len(task.x),
        "listed": len(listed),
        "right": float(right.mean()) if len(listed) else None,
        "confidence": float(confidence.mean()) if len(listed) else None,
        "reliability": reliability(confidence, right).tolist(),
        "found": float(np.mean(discovery.match_[known] == task.truth[known])) if len(known) else 0.0,
        "unseen": None if task.unseen is None else unseen_top_1(discovery, *task.unseen),
    }


def unseen_top_1(discovery: AnchorDiscovery, x: Matrix, y: Matrix) -> float:
    """The share of rows (u,) of X that are brought to their counterpart first, among as many of Y."""
    similarity = discovery.x_.shared(x) @ discovery.y_.shared(y).T
    return float((similarity.argmax(axis=1) == np.arange(len(x))).mean())


def report(rows: list[dict[str, Any]]) -> None:
    """What the documentation shows of the runs."""
    for layout in (shared_runs, shared_calibration, shared_overlap, shared_verdicts):
        print(f"\n{layout([{'rows': rows}])}")


if __name__ == "__main__":
    main()
