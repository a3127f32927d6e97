"""What is shared: the two verdicts, the overlap, confidence at every share, and spaces with nothing in common.

    python benchmarks/shared.py --data DIR --jobs 8 --out shared.jsonl          all runs; half an hour on 16 cores
    python benchmarks/shared.py --data DIR --pairs easy --states 1 --kinds shares   a few; many minutes on two cores

Two spaces of about 4,000 rows each that share all, half, a tenth or none of their items (but for the seeds), with seeds
and without; besides, spaces on which a verdict must fail: noise, unrelated spaces, wrong seeds, and some made to
provoke false confidence. 2,000 further items that neither side has seen try the map: it is *right* if it brings at
least half as many of them to their counterpart first as a run does that was given all true pairs of as many rows.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery
from kedge.tasks import calibration_error, reliability
from paper.pairs_of_spaces import load_pair
from setting import add_data_option, add_run_options, auroc, new_parser, print_verdicts, run_cases, split_rows

MAX_ITEMS, ROWS, UNSEEN = 10_000, 4000, 2000
SHARES, SEEDS = (1.0, 0.5, 0.1, 0.0), (15, 100, 0)
PAIRS = ("easy", "medium", "glove", "vit", "mobilenet", "texts", "texts-fr", "upgrade")
# The names seed the draws: with others the documentation's figures would be of other spaces.
NOISE = ("gauss-3", "gauss-5", "gauss-20", "gauss-100", "clusters", "strangers", "strangers-2")
PROVOKED = ("garbage", "repeated", "classes", "mirrored")
HALF = 0.5

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """One run: a kind of spaces, the share of items in both, the number of seeds."""

    kind: str
    pair: str
    share: float
    seeds: int
    state: int


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
    add_run_options(parser, states=2)
    arguments = parser.parse_args()
    report(run_cases(run, grid(arguments.pairs, arguments.kinds, arguments.states), arguments))


def grid(pairs: list[str], kinds: list[str], states: int) -> list[Case]:
    """All cases; the longest first."""
    cases = []
    for state in range(states):
        if "shares" in kinds:
            cases += [Case("shares", p, share, seeds, state) for seeds in SEEDS for p in pairs for share in SHARES]
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
    rows = min(ROWS, int((len(rest) - max(case.seeds, 0)) / (2 - case.share)))
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
        "rows": len(task.x),
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


def report(results: dict[Case, dict]) -> None:
    """The figures."""
    best = {(case.pair, case.state): result["unseen"] for case, result in results.items() if case.kind == "all known"}
    real = {case: result for case, result in results.items() if case.kind in ("shares", "wrong")}
    print("\n| pair | share | seeds | listed | right | confidence | overlap | unseen | all known | map | pairs |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for key in sorted({(case.pair, -case.share, case.seeds) for case in real if case.kind == "shares"}):
        some = {c: r for c, r in real.items() if (c.pair, -c.share, c.seeds) == key and c.kind == "shares"}
        ceiling = np.mean([best[case.pair, case.state] for case in some])
        figures = [_mean(some, name) for name in ("listed", "right", "confidence")]
        estimates = " ".join(_interval(result["overlap"]) for result in some.values())
        verdicts = [", ".join(sorted({r[name][1] for r in some.values()})) for name in ("map", "pairs")]
        print(
            f"| {key[0]} | {-key[1]:g} | {key[2]} | {' | '.join(figures)} | {estimates} | {_mean(some, 'unseen')} "
            f"| {ceiling:.3f} | {' | '.join(verdicts)} |"
        )
    report_calibration(results)
    report_overlap({case: result for case, result in real.items() if case.kind == "shares"})
    report_verdicts(results, best)
    print("\n| spaces | seeds | map | score | listed | right | confidence | calibration error | pairs |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case, result in sorted(results.items(), key=lambda item: str(item[0])):
        if case.kind in ("noise", "provoked"):
            error = calibration_error(np.asarray(result["reliability"]))
            shown = [f"{result[name]:.2f}" if result[name] is not None else "-" for name in ("right", "confidence")]
            print(
                f"| {case.pair} | {case.seeds} | {result['map'][1]} | {result['map'][0]:.2f} | {result['listed']} "
                f"| {' | '.join(shown)} | {error:.2f} | {result['pairs'][1]} |"
            )


def report_calibration(results: dict[Case, dict]) -> None:
    """How wrong confidence is in groups of a hundred pairs or more, and what is listed where nothing is shared."""
    print("\nCalibration error of listed pairs, over all runs of a group:\n\n| pair | share | pairs | error |")
    print("|---|---|---|---|")
    for pair, share in sorted({(c.pair, c.share) for c in results if c.kind == "shares"}):
        tables = [np.asarray(r["reliability"]) for c, r in results.items() if (c.pair, c.share) == (pair, share)]
        total = np.sum(tables, axis=0)
        if total[0].sum() >= 100:
            print(f"| {pair} | {share:g} | {int(total[0].sum())} | {calibration_error(total):.3f} |")
    nothing = [r for c, r in results.items() if c.kind == "shares" and c.share == 0 and c.seeds == 15]
    if nothing:
        print(
            f"\nNothing shared, 15 seeds: {np.mean([r['listed'] / r['rows'] for r in nothing]):.2%} of rows are listed"
        )


def report_overlap(results: dict[Case, dict]) -> None:
    """How far the overlap is off, and whether its interval holds."""
    print("\n| seeds | runs | mean error | within .15 | within .07 | interval holds |\n|---|---|---|---|---|---|")
    for seeds in (15, 100):
        some = [r for c, r in results.items() if c.seeds == seeds and r["overlap"][0] is not None]
        errors = np.array([abs(r["overlap"][0] - r["shared"]) for r in some])
        held = [r["overlap"][1] - 1e-9 <= r["shared"] <= r["overlap"][2] + 1e-9 for r in some]
        if len(some):
            print(
                f"| {seeds} | {len(some)} | {errors.mean():.3f} | {np.mean(errors <= 0.15):.2f} "
                f"| {np.mean(errors <= 0.07):.2f} | {np.mean(held):.2f} |"
            )


def report_verdicts(results: dict[Case, dict], best: dict[tuple[str, int], float]) -> None:
    """Whether the answers to both questions are right."""
    truth = {
        case: result["unseen"] is not None and result["unseen"] >= HALF * best[case.pair, case.state]
        for case, result in results.items()
        if case.kind in ("shares", "wrong", "noise")
    }
    found = {case: results[case]["found"] >= 0.3 and case.share >= 0.5 for case in truth if case.share != 0.1}
    for name, success in (("map", truth), ("pairs", found)):
        good = [results[case][name][0] for case in success if success[case]]
        bad = [results[case][name][0] for case in success if not success[case]]
        if not good or not bad:
            continue
        print(f"\n{name}: {len(good)} successes, {len(bad)} failures; AUROC of the score {auroc(good, bad):.3f}\n")
        print_verdicts({case: results[case][name][1] for case in success}, success)
        for case in success:
            if results[case][name][1] == "ok" and not success[case]:
                print(f"  falsely ok: {case}, score {results[case][name][0]:.2f}, unseen {results[case]['unseen']}")


def _mean(runs: dict[Case, dict], name: str) -> str:
    values = [result[name] for result in runs.values() if result[name] is not None]
    return "-" if not values else f"{np.mean(values):.0f}" if name == "listed" else f"{np.mean(values):.3f}"


def _interval(overlap: tuple[float | None, float, float]) -> str:
    estimate, low, high = overlap
    return f"{'?' if estimate is None else f'{estimate:.2f}'} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
