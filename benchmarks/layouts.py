"""How the tables of the documentation look: functions of stored rows, one for each layout that a page may name.

All rows of a file are shown, won or lost. A layout may leave out columns, but leaves out cases only if its name says
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kedge.tasks import calibration_error
from setting import auroc, markdown_header, markdown_row

Record = dict[str, Any]
Row = dict[str, Any]

NAMES = {
    "easy": "Word2Vec x GloVe",
    "medium": "FastText x Word2Vec",
    "glove": "GloVe x FastText",
    "vit": "two ViTs",
    "mobilenet": "two MobileNets",
    "texts": "MiniLM x multilingual E5",
    "texts-fr": "the same, English x French",
    "sentences": "MiniLM x multilingual E5, sentences",
    "upgrade": "BGE x MiniLM",
}
HALF, FOUND = 0.5, 0.3
VERDICTS = ("ok", "uncertain", "failed")


def share(value: float | None) -> str:
    """A share with three digits, such as .984; nothing where there is none."""
    return "" if value is None else f"{value:.3f}".removeprefix("0")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join([markdown_header(columns), *map(markdown_row, rows)])


def rows_of(records: Iterable[Record]) -> list[Row]:
    """All rows of some files, in their order."""
    return [row for record in records for row in record["rows"]]


def boldest(cells: Sequence[float | None]) -> list[str]:
    """Shares as text, the largest of them in bold."""
    best = max((cell for cell in cells if cell is not None), default=None)
    return [f"**{share(cell)}**" if cell is not None and cell == best else share(cell) for cell in cells]


# -- methods --------------------------------------------------------------------------------------


def _by_method(records: list[Record]) -> dict[str, dict[tuple[str, str, int], tuple[float, float]]]:
    """Top-1 and seconds of every method and setting; of kedge, for each of its readings."""
    found: dict[str, dict[tuple[str, str, int], tuple[float, float]]] = {}
    for row in rows_of(records):
        case = row["case"]
        for reading, scores in row["scores"].items():
            cells = found.setdefault(reading or case["method"], {})
            cells[case["pair"], case["shared"], case["known"]] = scores["top_1"], row["seconds"]
    return found


def methods(records: list[Record]) -> str:
    """All settings, one line each, and one column for each method: top-1."""
    by_method = _by_method(records)
    order = {name: place for place, name in enumerate(NAMES)}
    settings = {setting for cells in by_method.values() for setting in cells}
    lines = []
    for pair, shared, known in sorted(settings, key=lambda one: (order[one[0]], one[1], one[2])):
        cells = boldest([by_method[name].get((pair, shared, known), (None,))[0] for name in by_method])
        lines.append([NAMES[pair], shared, f"{known:,}", *cells])
    seconds = [_seconds([spent for _, spent in cells.values()]) for cells in by_method.values()]
    return table(
        ("pair", "shared", "known", *by_method), [*lines, ["processor seconds, median (range)", "", "", *seconds]]
    )


def methods_few(records: list[Record]) -> str:
    """Settings with 15 known pairs or none, one column each, and one line for each method."""
    by_method = _by_method(records)
    settings = [setting for cells in by_method.values() for setting in cells if setting[2] <= 15]
    settings = list(dict.fromkeys(settings))
    order = {name: place for place, name in enumerate(NAMES)}
    settings.sort(key=lambda one: (order[one[0]], one[1], one[2]))
    columns = [boldest([cells.get(setting, (None,))[0] for cells in by_method.values()]) for setting in settings]
    heads = [f"{NAMES[pair]}, {shared} shared, {known or 'no'} pairs" for pair, shared, known in settings]
    lines = [[name, *(column[place] for column in columns)] for place, name in enumerate(by_method)]
    return table(("top-1", *heads), lines)


def _seconds(values: list[float]) -> str:
    return f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


# -- reading --------------------------------------------------------------------------------------


def reading(records: list[Record]) -> str:
    """Whole runs, and what other readings make of their pairs."""
    columns = ("kedge", "map and cosine", "VecMap", "pair model", "5 folds of all true pairs")
    lines = []
    for row in rows_of(records):
        case = row["case"]
        listed = f"{share(row['precision'])} / {share(row['recall'])}"
        read = boldest([row.get(name) for name in columns[:4]])
        name = f"{NAMES[case['pair']]}, {row['rows']:,}"
        lines.append(
            [name, str(case["seeds"]), row["verdict"], *read[:1], listed, *read[1:], share(row.get(columns[4]))]
        )
    return table(("pair, rows", "seeds", "verdict", "kedge", "precision / recall", *columns[1:]), lines)


# -- what is shared -------------------------------------------------------------------------------


def _judged(rows: list[Row]) -> dict[str, list[tuple[Row, bool]]]:
    """Runs and whether they succeeded, for the map and for the pairs: what counts is said in `shared.py`."""
    best = {(row["case"]["pair"], row["case"]["state"]): row["unseen"] for row in rows if _kind(row) == "all known"}
    tried = [row for row in rows if _kind(row) in ("shares", "wrong", "noise")]
    maps = [
        (row, row["unseen"] is not None and row["unseen"] >= HALF * best[row["case"]["pair"], row["case"]["state"]])
        for row in tried
    ]
    pairs = [
        (row, bool(row["listed"]) and row["right"] >= HALF and row["found"] >= FOUND)
        for row in rows
        if _kind(row) != "all known"
    ]
    return {"map": maps, "pairs": pairs}


def _kind(row: Row) -> str:
    return str(row["case"]["kind"])


def shared_verdicts(records: list[Record]) -> str:
    """How many of the runs with each verdict were right, and how well the score tells."""
    lines = []
    for name, runs in _judged(rows_of(records)).items():
        counts = Counter((row[name][1], success) for row, success in runs)
        good, bad = ([row[name][0] for row, success in runs if success is wanted] for wanted in (True, False))
        told = f"{auroc(good, bad):.3f}" if good and bad else ""
        each = [f"{counts[verdict, True]} / {counts[verdict, False]}" for verdict in VERDICTS]
        lines.append([name, str(len(runs)), *each, told])
    return table(("", "runs", *(f"{verdict}: right / wrong" for verdict in VERDICTS), "AUROC of the score"), lines)


def shared_runs(records: list[Record]) -> str:
    """Every setting with what came of it: means over random states."""
    rows = rows_of(records)
    best = {(row["case"]["pair"], row["case"]["state"]): row["unseen"] for row in rows if _kind(row) == "all known"}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        case = row["case"]
        if _kind(row) != "all known":
            groups.setdefault((case["kind"], case["pair"], -case["share"], case["seeds"]), []).append(row)
    lines = []
    for (kind, pair, share_of, seeds), runs in sorted(groups.items()):
        name = NAMES.get(pair, pair) + ("" if kind == "shares" else f" ({kind})")
        ceiling = [best[pair, row["case"]["state"]] for row in runs if (pair, row["case"]["state"]) in best]
        counted = [f"{_mean(runs, 'listed'):.0f}", share(_mean(runs, "right")), share(_mean(runs, "confidence"))]
        unseen = [share(_mean(runs, "unseen")), share(float(np.mean(ceiling)) if ceiling else None)]
        verdicts = [", ".join(sorted({row[what][1] for row in runs})) for what in ("map", "pairs")]
        lines.append([name, f"{-share_of:g}", str(seeds), str(len(runs)), *counted, *unseen, *verdicts])
    heads = ("pair", "share", "seeds", "runs", "listed", "right", "said", "unseen first", "all known", "map", "pairs")
    return table(heads, lines)


def _mean(runs: list[Row], name: str) -> float | None:
    values = [row[name] for row in runs if row.get(name) is not None]
    return float(np.mean(values)) if values else None


def shared_overlap(records: list[Record]) -> str:
    """How far the overlap is off, and how often its interval holds; of the runs for which there is an estimate."""
    runs = [row for row in rows_of(records) if _kind(row) == "shares"]
    lines = []
    for seeds in sorted({row["case"]["seeds"] for row in runs}):
        those = [row for row in runs if row["case"]["seeds"] == seeds]
        given = [row for row in those if row["overlap"][0] is not None]
        errors = [abs(row["overlap"][0] - row["shared"]) for row in given]
        held = sum(row["overlap"][1] - 1e-9 <= row["shared"] <= row["overlap"][2] + 1e-9 for row in those)
        error = f"{np.mean(errors):.3f} (largest {max(errors):.3f})" if errors else ""
        lines.append([str(seeds), str(len(those)), str(len(given)), error, f"{held} of {len(those)}"])
    return table(("seeds", "runs", "with an estimate", "mean error", "interval holds"), lines)


def shared_calibration(records: list[Record]) -> str:
    """Calibration error of listed pairs, over all runs of a group together."""
    groups: dict[tuple[str, float], list[Any]] = {}
    for row in rows_of(records):
        if _kind(row) == "shares":
            groups.setdefault((row["case"]["pair"], row["case"]["share"]), []).append(np.asarray(row["reliability"]))
    shares = sorted({of for _, of in groups}, reverse=True)
    lines = []
    for pair in dict.fromkeys(pair for pair, _ in groups):
        totals = [np.sum(groups[pair, of], axis=0) if (pair, of) in groups else None for of in shares]
        cells = [
            "" if total is None else f"{share(calibration_error(total))} of {int(total[0].sum()):,}" for total in totals
        ]
        lines.append([NAMES[pair], *cells])
    return table(("pair", *(f"share {of:g}: error, pairs" for of in shares)), lines)


# -- others ---------------------------------------------------------------------------------------


def lexicon(records: list[Record]) -> str:
    """Translations at least half probable."""
    lines = [
        [
            row["case"]["pair"],
            str(row["case"]["seeds"]),
            str(row["case"]["state"]),
            f"{row['words']:,}",
            *(share(row[name]) for name in ("precision", "calibration_error", "p_at_1", "p_at_1_of_match")),
        ]
        for row in rows_of(records)
    ]
    heads = ("pair", "seeds", "state", "words listed", "precision", "calibration error", "P@1", "P@1 of the match")
    return table(heads, lines)


def optimiser(records: list[Record]) -> str:
    """The paper's optimiser beside the default method: means over random states."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of(records):
        groups.setdefault((row["case"]["pair"], row["case"]["method"]), []).append(row)
        if row["case"]["method"] == "default":
            groups.setdefault((row["case"]["pair"], "GT"), []).append(row["GT"])
    names = ("jaccard", "mrr", "cosine", "anchors_exact")
    lines = []
    for (pair, method), runs in groups.items():
        cells = [share(_mean(runs, name)) for name in names]
        lines.append([NAMES[pair], method, str(len(runs)), *cells])
    return table(("pair", "anchors", "states", "Jaccard@10", "MRR@10", "cosine", "hidden anchors exact"), lines)


def other_half(records: list[Record]) -> str:
    """Words of two models that have no word in common."""
    lines = [
        [
            f"{row['case']['rows']:,}",
            str(row["case"]["state"]),
            row["verdict"],
            share(row["words_of_y"]),
            share(row["words_of_x"]),
            f"{row['seconds']:.0f} s",
        ]
        for row in rows_of(records)
    ]
    first = ("Y's words first", "X's words first")
    return table(("words in either half", "random state", "verdict for searching", *first, "time"), lines)


def scale(records: list[Record]) -> str:
    """Whole discoveries of made-up rows."""
    lines = []
    for row in rows_of(records):
        memory = f"{row['process_mb'] / 1000:.1f} GB"
        if row["gpu_mb"] and np.isfinite(row["gpu_mb"]):
            memory += f", {row['gpu_mb'] / 1000:.1f} GB of the GPU"
        spent = f"{row['seconds']:.0f} s" + (", kernels compiled" if row["case"]["repeat"] else "")
        lines.append(
            [f"{row['case']['rows']:,}", row["machine"], spent, memory, f"{row['rows_right']:.2%}", row["commit"]]
        )
    return table(("made-up rows per side, 15 seeds", "machine", "time", "memory", "rows right", "commit"), lines)


LAYOUTS: dict[str, Callable[[list[Record]], str]] = {
    "lexicon": lexicon,
    "methods": methods,
    "methods-few": methods_few,
    "optimiser": optimiser,
    "other-half": other_half,
    "reading": reading,
    "scale": scale,
    "shared-calibration": shared_calibration,
    "shared-overlap": shared_overlap,
    "shared-runs": shared_runs,
    "shared-verdicts": shared_verdicts,
}
