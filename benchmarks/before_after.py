"""The same answers before and after a change? Fits by two checkouts, side by side.

    python benchmarks/before_after.py --before ../kedge-before --data DIR            24 cases; 15 minutes or more
    python benchmarks/before_after.py --before ../kedge-before --data DIR --quick    4 cases, a minute or two
    python benchmarks/before_after.py --before ../kedge-before --data DIR --pairs vit --json before-after.json

Words, images and texts by two models each, with 15 seeds and with none, where the two spaces share all of their items,
half of them and none. Each case is fitted by the checkout `--before` and by this one, in separate processes on the CPU,
with the same rows, random state and number of threads. The pairs and the partners of all rows must be the same.
Confidences, scores and translations of 500 vectors that neither space holds, in both directions, may differ by
`--tolerance`. Verdicts are compared too; *right*, *doubtful* and *not right* are earlier names of *ok*, *uncertain* and
*failed*. Exits with 1 if an answer differs. The ratio is the time of a fit after over before; it says something only if
nothing else is running.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.pairs_of_spaces import SpacePair, load_pair
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser, split_rows, write_json

HERE = Path(__file__).parent
PAIRS = ("easy", "medium", "vit", "texts")
SEEDS, SHARES = (15, 0), (1.0, 0.5, 0.0)
QUICK = (("easy", 15, 1.0), ("medium", 15, 0.5), ("vit", 0, 1.0), ("texts", 15, 0.0))
QUERIES = 500
EARLIER_VERDICTS = {"right": "ok", "doubtful": "uncertain", "not right": "failed"}
COLUMNS = (
    "spaces", "rows", "seeds", "shared", "pairs before", "pairs after", "pairs in one only", "other partners",
    "confidence", "x to y", "y to x", "map", "pairs", "scores", "seconds before", "after", "ratio", "answers",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Two spaces of so many rows, the share of their items that both hold, and the number of known pairs."""

    pair: str
    seeds: int
    share: float
    rows: int
    random_state: int = 0


@dataclass(frozen=True)
class Answer:
    """What one checkout says of a case: pairs of keys with their confidence, and for n rows of X a partner and a
    confidence (n,), translations (q, d) in both directions, and the two verdicts with their scores; what the fit took,
    in seconds and in bytes, the spaces included.
    """

    pairs: dict[tuple[str, str], float]
    match: NDArray[np.int64]
    confidence: NDArray[np.float32]
    forth: NDArray[np.float32]
    back: NDArray[np.float32]
    verdicts: dict[str, str]
    scores: dict[str, float]
    seconds: float
    peak_bytes: int = 0


@dataclass(frozen=True)
class Comparison:
    """How far two answers are apart; differences are the largest of all."""

    pairs_before: int
    pairs_after: int
    pairs_in_one: int
    other_partners: int
    confidence: float
    forth: float
    back: float
    verdicts: dict[str, tuple[str, str]]
    scores: float
    seconds_before: float
    seconds_after: float

    def same(self, tolerance: float) -> bool:
        """Whether all answers are the same, figures within the tolerance."""
        figures = (self.confidence, self.forth, self.back, self.scores)
        exact = not self.pairs_in_one and not self.other_partners
        return exact and max(figures) <= tolerance and all(old == new for old, new in self.verdicts.values())


def main() -> int:
    """Run the cases by both checkouts; 1 where an answer differs."""
    parser = new_parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, metavar="CHECKOUT", help="the checkout to compare with")
    add_data_option(parser)
    parser.add_argument("--quick", action="store_true", help="four cases of 1,000 rows")
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS), help="of which spaces (all)")
    parser.add_argument("--rows", type=int, help="of either space (2,000; with --quick 1,000)")
    parser.add_argument("--random-state", type=int, default=0, help="of the draw and of the fits (0)")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="of either fit (2)")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="for confidences, scores and maps (1e-5)")
    parser.add_argument("--json", type=Path, help="also write the comparisons to this file")
    arguments = parser.parse_args()
    checkouts = [require_checkout(arguments.before), require_checkout(HERE.parent)]
    cases = list_cases(arguments.pairs, arguments.quick, arguments.rows, arguments.random_state)
    print(f"{describe_machine('cpu')}, {arguments.threads} threads, tolerance {arguments.tolerance:g}\n")
    print(markdown_header(COLUMNS), flush=True)
    results, differ = [], 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            spaces = draw(load_pair(arguments.data, case.pair), case)
            before, after = (fit(checkout, spaces, arguments.threads, Path(folder)) for checkout in checkouts)
        compared = compare(before, after)
        same = compared.same(arguments.tolerance)
        differ += not same
        print(markdown_row(cells(case, compared, same)), flush=True)
        results.append(asdict(case) | asdict(compared) | {"same": same, "tolerance": arguments.tolerance})
        if arguments.json:
            write_json(arguments.json, results)
    ratio = sum(r["seconds_after"] for r in results) / sum(r["seconds_before"] for r in results)
    print(f"\n{len(results) - differ} of {len(results)} cases have the same answers; all fits took {ratio:.2f} as long")
    return int(differ > 0)


def require_checkout(path: Path) -> Path:
    """The folder of a checkout, as an absolute path."""
    if not (path / "src" / "kedge" / "__init__.py").is_file():
        raise SystemExit(f"{path}: no checkout of kedge, there is no src/kedge in it; give its folder with --before")
    return path.resolve()


def list_cases(pairs: Sequence[str], quick: bool, rows: int | None, random_state: int) -> list[Case]:
    """The grid, or a few of its cases."""
    grid = QUICK if quick else itertools.product(PAIRS, SEEDS, SHARES)
    rows = rows or (1000 if quick else 2000)
    return [Case(pair, seeds, share, rows, random_state) for pair, seeds, share in grid if pair in pairs]


def draw(pair: SpacePair, case: Case) -> dict[str, Any]:
    """The spaces of a case with their keys, seeds as rows (s, 2), and vectors (q, d) of either that are in neither.

    Spaces that share nothing have no more in common than the seeds.
    """
    needed = QUERIES + int((2 - case.share) * case.rows)
    if len(pair.x) < needed:
        raise SystemExit(f"{pair.name}: {case} needs {needed} items, there are {len(pair.x)}; give fewer --rows")
    chance = np.random.default_rng(case.random_state)
    unseen, order = np.split(chance.permutation(len(pair.x)), [QUERIES])
    shared = max(int(case.share * case.rows), case.seeds)
    rows_x, rows_y, truth = split_rows(order, case.rows, shared, chance)
    seeded = chance.permutation(shared)[: case.seeds]
    x, y = pair.x.take(rows_x), pair.y.take(rows_y)
    return {
        "x": x.vectors,
        "y": y.vectors,
        "keys_x": np.array(x.keys),
        "keys_y": np.array(y.keys),
        "seeds": np.stack([seeded, truth[seeded]], axis=1),
        "queries_x": pair.x.vectors[unseen],
        "queries_y": pair.y.vectors[unseen],
        "random_state": case.random_state,
    }


def fit(checkout: Path, spaces: dict[str, Any], threads: int, folder: Path) -> Answer:
    """The answer of a checkout, from a process that finds its package and no other."""
    case_file, answer_file = folder / "case.npz", folder / "answer.npz"
    np.savez(case_file, threads=threads, **spaces)
    # Threads that wait by spinning are far slower where anything else is running.
    quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = os.environ | quiet | {"PYTHONPATH": str(checkout / "src")}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [sys.executable, str(HERE / "one_fit.py"), str(case_file), str(answer_file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the fit by {checkout} failed:\n{done.stderr[-3000:]}")
    with np.load(answer_file) as arrays:
        description = json.loads(str(arrays["description"]))
        if not Path(description["package"]).is_relative_to(checkout):
            raise SystemExit(f"{checkout}: the fit used {description['package']} instead; is it on the path for all?")
        keys = [tuple(pair) for pair in description["pair_keys"]]
        return Answer(
            dict(zip(keys, arrays["pair_confidence"].tolist(), strict=True)),
            arrays["match"],
            arrays["confidence"],
            arrays["forth"],
            arrays["back"],
            {name: EARLIER_VERDICTS.get(verdict, verdict) for name, verdict in description["verdicts"].items()},
            description["scores"],
            description["seconds"],
            description["peak_bytes"],
        )


def compare(before: Answer, after: Answer) -> Comparison:
    """How far two answers to the same case are apart."""
    in_both = before.pairs.keys() & after.pairs.keys()
    confidence = [abs(before.pairs[pair] - after.pairs[pair]) for pair in in_both]
    return Comparison(
        pairs_before=len(before.pairs),
        pairs_after=len(after.pairs),
        pairs_in_one=len(before.pairs.keys() ^ after.pairs.keys()),
        other_partners=int((before.match != after.match).sum()),
        confidence=max(largest_difference(before.confidence, after.confidence), *confidence, 0.0),
        forth=largest_difference(before.forth, after.forth),
        back=largest_difference(before.back, after.back),
        verdicts={name: (verdict, after.verdicts[name]) for name, verdict in before.verdicts.items()},
        scores=max(abs(score - after.scores[name]) for name, score in before.scores.items()),
        seconds_before=before.seconds,
        seconds_after=after.seconds,
    )


def largest_difference(before: NDArray[np.float32], after: NDArray[np.float32]) -> float:
    """Of two arrays of one shape; infinite where one of them is not a number and the other is."""
    if before.shape != after.shape:
        return np.inf
    apart = np.abs(before.astype(np.float64) - after)
    apart[np.isnan(before) & np.isnan(after)] = 0
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))


def cells(case: Case, compared: Comparison, same: bool) -> list[str]:
    """A row of the table, in the order of the columns."""
    figures = (compared.confidence, compared.forth, compared.back)
    verdicts = [old if old == new else f"{old} -> {new}" for old, new in compared.verdicts.values()]
    seconds = (compared.seconds_before, compared.seconds_after)
    return [
        case.pair,
        str(case.rows),
        str(case.seeds),
        f"{case.share:g}",
        *(str(count) for count in (compared.pairs_before, compared.pairs_after, compared.pairs_in_one)),
        str(compared.other_partners),
        *(f"{figure:.1e}" for figure in figures),
        *verdicts,
        f"{compared.scores:.1e}",
        *(f"{taken:.1f}" for taken in seconds),
        f"{seconds[1] / seconds[0]:.2f}",
        "same" if same else "DIFFERENT",
    ]


if __name__ == "__main__":
    sys.exit(main())
