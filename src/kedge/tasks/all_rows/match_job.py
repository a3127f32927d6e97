"""Match all rows of two spaces by a run, in three passes; each leaves files from which a second call resumes.

FOLDER/
    call.json                   the arguments of the job; a later call with different ones is refused
    plan.safetensors            centers, and the rows whose nearest are known exactly
    met/, ranked/, pairs/       the output of the passes, one file for each finished group
    hubness_x.npy, ..._y.npy    the hubness of all rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from kedge.engines import Engine
from kedge.engines.job_folder import require_same_call, run_pass
from kedge.engines.messages import matrix_of, read_rows
from kedge.errors import InputError
from kedge.estimators.fitted import FittedDiscovery
from kedge.models.side import Side
from kedge.spaces.row_ranges import RowRanges
from kedge.spaces.writing.atomic import atomic_path
from kedge.tasks.all_rows.comparing import CompareRows, SendRows, met_file
from kedge.tasks.all_rows.match_plan import BATCH, CheckedRows, MatchPlan, ReadSide, make_plan
from kedge.tasks.all_rows.merging import BUCKET, Buckets, MergeMet, SendMet, ranked_file
from kedge.tasks.all_rows.pairing import MatchFiles, PairCounts, SendChoices, WritePairs, counts_in, pairs_file

PAIRS = "pairs"
"""The subfolder that holds the result."""

OnPass = Callable[[str, int, int], None]


@dataclass(frozen=True)
class MatchSummary:
    """The result of a match: rows of either side, mutual pairs, and listed pairs.

    `seeds` of the listed pairs are what the run was given; of the others, about `expected_right` are right.

    For `checked` rows of X the exact nearest row in Y is known; `met` is the share of them that have it among their
    candidates. `counted` of them, of which `met_counted` have, decided into how many clusters rows look: all, or only
    those that are the nearest of their nearest, if many others never meet theirs. Rows looked into `probes` of
    `clusters` clusters, on average.
    """

    rows_x: int
    rows_y: int
    mutual: int
    listed: int
    seeds: int
    expected_right: float
    checked: int
    met: float
    counted: int
    met_counted: float
    probes: float
    clusters: int


def match_all(
    discovery: FittedDiscovery,
    x: RowRanges,
    y: RowRanges,
    folder: Path,
    engine: Engine,
    *,
    min_confidence: float | None = None,
    call: Mapping[str, Any] | None = None,
    on_pass: OnPass | None = None,
) -> MatchSummary:
    """Match all rows of X and Y by a run, and write the pairs to `folder`/pairs; an unfinished job there is resumed.

    Parameters
    ----------
    min_confidence : float, optional
        List only mutual pairs with at least this confidence; by default, every row of X with its best partner.
    call : mapping, optional
        Further arguments that must be unchanged for the job to be resumed.
    on_pass : callable, optional
        Called with the name of a pass, the number of its finished parts, and their total number.
    """
    curve = discovery.confidence_curve_
    if curve is None:
        raise InputError(
            "the run does not say how probable a match of a given margin is, because an earlier version of kedge wrote "
            "it; run `kedge discover` again with the same files and --random-state, which gives the same result"
        )
    read_x, read_y = _as_read(x, discovery.x_), _as_read(y, discovery.y_)
    stamps = {"X": x.identity(), "Y": y.identity(), "min_confidence": min_confidence}
    require_same_call(folder, stamps | dict(call or {}))
    report = on_pass or (lambda *_: None)
    plan, checked = _kept_plan(folder / "plan.safetensors", read_x, read_y, engine)
    buckets = Buckets(x.rows, y.rows)
    met, ranked, pairs = (folder / name for name in ("met", "ranked", PAIRS))

    tasks = [(number, rows) for number, side in enumerate((x, y)) for rows in side.ranges(4 * BATCH)]
    run_pass(
        met,
        partial(met_file, met),
        plan.groups,
        lambda done: engine.regroup(tasks, SendRows(plan, done), CompareRows(met), plan.groups),
        partial(report, "comparing"),
    )
    run_pass(
        ranked,
        partial(ranked_file, ranked),
        buckets.count,
        lambda done: engine.regroup(
            sorted(met.glob("*.arrow")), SendMet(buckets, done), MergeMet(buckets, ranked), buckets.count
        ),
        partial(report, "merging"),
    )
    files = MatchFiles(ranked, folder / "hubness_x.npy", folder / "hubness_y.npy")
    _gather_hubness(files, buckets)
    seeds = {str(left): str(right) for left, right in discovery.seed_keys_}
    write = WritePairs(files, buckets, y, curve, seeds, min_confidence, pairs)
    run_pass(
        pairs,
        partial(pairs_file, pairs),
        buckets.of_y,
        lambda done: engine.regroup(range(buckets.of_x), SendChoices(files, buckets, x, done), write, buckets.of_y),
        partial(report, "pairing"),
    )
    counts = reduce(PairCounts.__add__, map(counts_in, sorted(pairs.glob("*.parquet"))))
    if counts.rows != x.rows:
        raise InputError(f"{folder}: holds pairs of {counts.rows} rows, but X has {x.rows}; delete it and start over")
    has_met = _have_met(files, checked)
    return MatchSummary(
        x.rows,
        y.rows,
        counts.mutual,
        counts.listed,
        counts.seeds,
        counts.expected,
        len(has_met),
        float(has_met.mean()),
        int(checked.counts.sum()),
        float(has_met[checked.counts].mean()),
        plan.probes,
        len(plan.centers),
    )


def _as_read(rows: RowRanges, side: Side) -> ReadSide:
    """The rows to read, with a side of the run that is stripped to what coordinates need."""
    if rows.dim != side.dim:
        swapped = "; give X first and then Y" if rows.dim == side.other_dim else ""
        raise InputError(
            f"{rows.source}: has {rows.dim} dimensions, but {side.name} of this run has {side.dim}; give vectors of "
            f"{side.name}'s encoder{swapped}{side.prefix_hint(rows.dim)}"
        )
    return ReadSide(rows, replace(side, anchors={}, unmatched_keys=(), whitening=None))


def _kept_plan(path: Path, x: ReadSide, y: ReadSide, engine: Engine) -> tuple[MatchPlan, CheckedRows]:
    """The plan and the checked rows: loaded if the job was begun before, otherwise made and saved."""
    if not path.exists():
        plan, checked = make_plan(x, y, engine)
        arrays = {"axes": plan.axes, "centers": plan.centers, "group_of": plan.group_of}
        arrays |= {"checked": np.stack(checked[:2], axis=1), "counts": checked.counts}
        arrays["numbers"] = np.array([plan.slack, plan.probes])
        with atomic_path(path) as temporary:
            temporary.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    kept = load_file(path)
    plan = MatchPlan(x, y, kept["axes"], kept["centers"], kept["group_of"], *kept["numbers"].tolist())
    rows, nearest = kept["checked"].T
    counts = kept.get("counts", np.ones(len(rows), dtype=bool))  # in a folder of an earlier version, all did
    return plan, CheckedRows(rows, nearest, counts)


def _gather_hubness(files: MatchFiles, buckets: Buckets) -> None:
    """Write one file of hubness per side, which is later read through a memory map to look up any row."""
    sides = (
        (files.hubness_x, buckets.rows_x, range(buckets.of_x)),
        (files.hubness_y, buckets.rows_y, range(buckets.of_x, buckets.count)),
    )
    for path, rows, numbers in sides:
        if not path.exists():
            with atomic_path(path) as temporary:
                _write_hubness(temporary, rows, [ranked_file(files.ranked, number) for number in numbers])


def _write_hubness(path: Path, rows: int, parts: Sequence[Path]) -> None:
    with path.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(stream, header)
        for part in parts:
            stream.write(read_rows(part)["hubness"].to_numpy().astype("<f4").tobytes())


def _have_met(files: MatchFiles, checked: CheckedRows) -> NDArray[np.bool_]:
    """Which of the checked rows of X (s,) have their exact nearest row of Y among their candidates."""
    met = np.zeros(len(checked.rows), dtype=bool)
    for bucket in np.unique(checked.rows // BUCKET).tolist():
        some = checked.rows // BUCKET == bucket
        others = matrix_of(read_rows(ranked_file(files.ranked, bucket))["others"], np.int64)
        met[some] = (others[checked.rows[some] - bucket * BUCKET] == checked.nearest[some, None]).any(axis=1)
    return met
