"""Are the answers right? Verdicts, overlap and confidence over many small runs with a known truth.

    python benchmarks/verdicts.py --data DIR --jobs 8 --out verdicts.jsonl --json verdicts.json   all; an hour or so
    python benchmarks/verdicts.py --data DIR --pairs easy --kinds noise symmetric                 a few; minutes
    python benchmarks/verdicts.py --data DIR --rows 600 --axes 64 --out small.jsonl --minutes 6   a part of smaller ones

Cases are in random order, so whatever part of them is done is a fair sample; the same command continues with the rest.

The cases are real spaces of 1,500 rows each that share a part of their items, with seeds and without; wrong seeds; the
signs of real spaces alone; noise; symmetric spaces; and spaces of which half is garbage. The map is *right* if unseen
items, once translated, find their counterparts among as many with at least half the mean reciprocal rank of a run that
was given all true pairs of as many rows. Where there are no unseen items, it is right if at least half of the rows that
have a counterpart get it. Pairs are right if at least half of the listed ones are. A lexicon is right if at least half
of its translations are, of rows that have a counterpart: what is acceptable for other rows is not known. A false ok is
counted among the runs that are not right; their number stands beside it. The calibration error is that of all listed
pairs of a group together; beside it is the mean over its runs that list at least 20.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery
from kedge.tasks import calibration_error, make_lexicon, reliability
from made_spaces import GARBAGE, NOISE, SYMMETRIC, Spaces, garbage, noise, symmetric
from setting import (
    add_data_option,
    add_run_options,
    auroc,
    describe_machine,
    markdown_header,
    markdown_row,
    new_parser,
    run_cases,
    split_rows,
    write_json,
)
from shared import Matrix, loaded

ROWS, UNSEEN = 1500, 1000
MIN_PROBABLE = 0.5
SHARES, SEEDS = (0.0, 0.05, 0.1, 0.3, 0.5, 1.0), (0, 3, 15, 100)
PAIRS = ("easy", "medium", "vit", "texts", "sentences")
KINDS = ("shares", "wrong", "signs", "noise", "symmetric", "garbage")
OF = {"easy": "words", "medium": "words", "vit": "images", "texts": "texts", "sentences": "texts"}
USES = ("searching", "pairs", "lexicon")
MIN_LISTED = 20
KEPT = (*USES, "reason", "overlap", "shared", "reached", "possible", "listed", "right", "recall", "confidence")
HALF = 0.5


@dataclass(frozen=True)
class Case:
    """One run: a kind of spaces, which of them, the share of items in both, the number of seeds."""

    kind: str
    name: str
    share: float
    seeds: int
    state: int
    rows: int = ROWS
    axes: int | None = None


def main() -> None:
    """Run the cases and print what the answers were worth."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", default=PAIRS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of either space ({ROWS})")
    parser.add_argument("--axes", type=int, help="principal axes that real spaces are cut down to (all of them)")
    parser.add_argument("--json", type=Path, help="write all runs and the summary to this file")
    add_run_options(parser, states=1)
    arguments = parser.parse_args()
    cases = grid(arguments)
    results = run_cases(run, cases, arguments)
    summary = summarise(results)
    print(f"{len(results)} of {len(cases)} cases, {describe_machine(arguments.device)}\n")
    report(results, summary)
    if arguments.json:
        runs = [asdict(case) | {name: result[name] for name in KEPT} for case, result in results.items()]
        about = {"machine": describe_machine(arguments.device), "cases": len(cases)}
        write_json(arguments.json, about | {"summary": summary, "runs": runs})


def grid(arguments: Any) -> list[Case]:
    """All cases."""
    pairs, kinds, cases = arguments.pairs, arguments.kinds, []
    for state in range(arguments.states):
        if "shares" in kinds:
            shares = arguments.shares
            cases += [
                Case("shares", p, share, seeds, state) for seeds in arguments.seeds for p in pairs for share in shares
            ]
        if "wrong" in kinds:
            cases += [Case("wrong", pair, 1.0, 15, state) for pair in pairs]
        if "signs" in kinds:
            cases += [Case("signs", pair, 1.0, seeds, state) for pair in pairs for seeds in (15, 0)]
        if "noise" in kinds:
            cases += [Case("noise", name, 0.0, seeds, state) for name in NOISE for seeds in (15, 0)]
        if "symmetric" in kinds:
            cases += [Case("symmetric", name, 1.0, seeds, state) for name in SYMMETRIC for seeds in (3, 0)]
        if "garbage" in kinds:
            cases += [
                Case("garbage", f"{pair} {name}", 0.5, seeds, state)
                for pair in pairs
                for name in GARBAGE
                for seeds in (15, 100, 0)
            ]
    order = np.random.default_rng(0).permutation(len(cases))
    return [replace(cases[place], rows=arguments.rows, axes=arguments.axes) for place in order]


def draw(data: Path, case: Case) -> tuple[Spaces, NDArray[np.int64]]:
    """The spaces of a case, and its seeds (s, 2)."""
    chance = np.random.default_rng([case.state, zlib.crc32(f"{case.kind} {case.name} {case.share}".encode())])
    rows = case.rows
    if case.kind == "noise":
        spaces = noise(case.name, rows, chance)
        return spaces, np.stack([chance.permutation(rows)[: case.seeds] for _ in range(2)], axis=1)
    if case.kind == "symmetric":
        spaces = symmetric(data, case.name, rows, case.axes, chance)
    elif case.kind == "garbage":
        spaces = garbage(data, *case.name.split(), rows, case.axes, chance)
    else:
        spaces = _real(data, case, chance)
    seeded = chance.permutation(np.flatnonzero(spaces.truth >= 0))[: case.seeds]
    seeds = np.stack([seeded, spaces.truth[seeded]], axis=1)
    if case.kind == "wrong":
        seeds[:, 1] = np.roll(seeds[:, 1], 1)
    return spaces, seeds


def _real(data: Path, case: Case, chance: np.random.Generator) -> Spaces:
    x, y = loaded(data, case.name, case.axes)
    order = chance.permutation(len(x))
    unseen, rest = order[:UNSEEN], order[UNSEEN:]
    shared = max(int(case.rows * case.share), case.seeds)
    rows_x, rows_y, truth = split_rows(rest, case.rows, shared, chance)
    sides = [x[rows_x], y[rows_y], x[unseen], y[unseen]]
    if case.kind == "signs":
        sides = [
            np.where(side > np.median(space, axis=0), 1.0, -1.0)
            for side, space in zip(sides, (x, y, x, y), strict=True)
        ]
    one, other, *held_out = (side.astype(np.float32) for side in sides)
    return Spaces(one, other, truth, (held_out[0], held_out[1]))


def run(data: Path, case: Case, device: str) -> dict[str, Any]:
    """One discovery: what it said, and what was true."""
    spaces, seeds = draw(data, case)
    discovery = AnchorDiscovery(n_anchors=100, random_state=case.state, device=device).fit(spaces.x, spaces.y, seeds)
    found = ~np.isin(discovery.pairs_[:, 0], seeds[:, 0])
    listed, confidence = discovery.pairs_[found], discovery.pair_confidence_[found]
    right = spaces.truth[listed[:, 0]] == listed[:, 1]
    known = np.flatnonzero(spaces.truth >= 0)
    known = known[~np.isin(known, seeds[:, 0])]
    health = discovery.health_
    reached = float(np.mean(discovery.match_[known] == spaces.truth[known])) if len(known) else 0.0
    possible = 1.0
    if spaces.unseen is not None:
        kind = case.kind if case.kind == "signs" else "shares"
        all_known = replace(case, kind=kind, share=1.0, seeds=case.rows)
        reached, possible = unseen_mrr(discovery, *spaces.unseen), _possible(data, all_known, device)
    return {
        "searching": (health.searching.score, health.searching.verdict),
        "pairs": (health.pairs.score, health.pairs.verdict),
        "reason": health.searching.reason,
        "overlap": [(side.estimate, side.low, side.high) for side in (health.overlap.x, health.overlap.y)],
        "shared": [float((spaces.truth >= 0).sum() / len(side)) for side in (spaces.x, spaces.y)],
        "reached": reached,
        "possible": possible,
        "map_right": case.kind != "noise" and reached >= HALF * possible,
        "listed": len(listed),
        "right": int(right.sum()),
        "recall": float(right.sum() / max(len(known), 1)),
        "confidence": float(confidence.mean()) if len(listed) else None,
        "reliability": reliability(confidence, right).tolist(),
        "lexicon": _lexicon(discovery, spaces, known, device),
    }


def _lexicon(
    discovery: AnchorDiscovery, spaces: Spaces, known: NDArray[np.int64], device: str
) -> tuple[float, str, int, int]:
    """Score and verdict of a lexicon, how many of its translations are of rows (k,) with a counterpart, and right."""
    lexicon = make_lexicon(discovery, spaces.x, spaces.y, min_confidence=MIN_PROBABLE, device=device)
    found = lexicon.translations
    listed = found.probability[known] >= MIN_PROBABLE
    right = (found.rows[known] == spaces.truth[known, None]) & listed
    return lexicon.answer.score, lexicon.answer.verdict, int(listed.sum()), int(right.sum())


@cache
def _possible(data: Path, all_known: Case, device: str) -> float:
    """What a run that was given all true pairs reaches on unseen items."""
    spaces, seeds = draw(data, all_known)
    assert spaces.unseen is not None
    return unseen_mrr(AnchorDiscovery(n_anchors=100, device=device).fit(spaces.x, spaces.y, seeds), *spaces.unseen)


def unseen_mrr(discovery: AnchorDiscovery, x: Matrix, y: Matrix) -> float:
    """Mean reciprocal rank of the counterparts of rows (u, dx) of X, translated, among as many rows (u, dy) of Y."""
    translated, index = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (discovery.translate(x), y))
    similarity = translated @ index.T
    return float((1 / ((similarity > similarity.diagonal()[:, None]).sum(axis=1) + 1)).mean())


def summarise(results: dict[Case, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the answers were worth, by group of cases and over all."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for case, result in sorted(results.items(), key=lambda item: KINDS.index(item[0].kind)):
        names = [case.kind]
        if case.kind == "shares":
            names += [f"of {OF.get(case.name, case.name)}", f"of share {case.share:g}", f"of {case.seeds} seeds"]
        for name in names:
            groups.setdefault(name, []).append(result)
    ordered = sorted(groups, key=lambda name: (name.startswith("of "), name if name.startswith("of ") else ""))
    return {name: _figures(groups[name]) for name in ordered} | {"all": _figures(list(results.values()))}


def _figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    right, wrong = ([run for run in runs if run["map_right"] == so] for so in (True, False))
    listing = [np.asarray(run["reliability"]) for run in runs if run["listed"] >= MIN_LISTED]
    both = right and wrong
    return {
        "runs": len(runs),
        **{f"false ok: {use}": _false(runs, use, "ok") for use in USES},
        "false failed: searching": _false(runs, "searching", "failed"),
        "AUROC": auroc(*([run["searching"][0] for run in some] for some in (right, wrong))) if both else None,
        "intervals that hold": f"{sum(map(_holds, runs))} of {len(runs)}",
        "mean width": float(np.mean([run["overlap"][0][2] - run["overlap"][0][1] for run in runs])) if runs else None,
        "pairs": int(sum(table[0].sum() for table in listing)),
        "calibration error": calibration_error(np.sum(listing, axis=0)) if listing else None,
        "of one run": float(np.mean([calibration_error(table) for table in listing])) if listing else None,
        "recall": float(np.mean([run["recall"] for run in right])) if right else None,
    }


def _false(runs: list[dict[str, Any]], use: str, verdict: str) -> str:
    """How many of the runs that are wrong for a use are called ok for it, or of those that are right, failed."""
    some = [run for run in runs if _is_right(run, use) == (verdict == "failed")]
    return f"{sum(run[use][1] == verdict for run in some)} of {len(some)}"


def _is_right(run: dict[str, Any], use: str) -> bool:
    """Whether the result serves a use; a lexicon does if the map does, where no listed translation can be checked."""
    listed, right = {"pairs": (run["listed"], run["right"]), "lexicon": run["lexicon"][2:]}.get(use, (0, 0))
    if use == "pairs" or listed:
        return bool(listed and right >= HALF * listed)
    return bool(run["map_right"])


def _holds(run: dict[str, Any]) -> bool:
    """Whether both intervals of the overlap hold."""
    both = zip(run["overlap"], run["shared"], strict=True)
    return all(low - 1e-6 <= shared <= high + 1e-6 for (_, low, high), shared in both)


def report(results: dict[Case, dict[str, Any]], summary: dict[str, dict[str, Any]]) -> None:
    """Two tables: every run, and what the answers were worth."""
    columns = ("spaces", "share", "seeds", *USES, "reached", "possible", "overlap", "listed", "right", "said")
    print(markdown_header(columns))
    for case, result in sorted(results.items(), key=lambda item: str(item[0])):
        right = result["right"] / result["listed"] if result["listed"] else None
        cells = [f"{case.kind}: {case.name}", f"{result['shared'][0]:.2f}", str(case.seeds)]
        for use in USES:
            score, verdict = result[use][:2]
            cells.append(f"{verdict} ({score:.2f})" + (" FALSE" if _misleads(result, use) else ""))
        overlap = _interval(*result["overlap"][0]) + ("" if _holds(result) else " misses")
        cells += [f"{result['reached']:.2f}", f"{result['possible']:.2f}", overlap, str(result["listed"])]
        print(markdown_row([*cells, *map(_shown, (right, result["confidence"]))]))
    print(f"\n{markdown_header(('group', *summary['all']))}")
    for group, figures in summary.items():
        print(markdown_row((group, *map(_shown, figures.values()))))


def _misleads(run: dict[str, Any], use: str) -> bool:
    """Whether a verdict says the opposite of what is so."""
    return bool(run[use][1] == ("failed" if _is_right(run, use) else "ok"))


def _shown(figure: float | str | None) -> str:
    return "-" if figure is None else f"{figure:.3f}" if isinstance(figure, float) else str(figure)


def _interval(estimate: float | None, low: float, high: float) -> str:
    return f"{'?' if estimate is None else f'{estimate:.2f}'} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
