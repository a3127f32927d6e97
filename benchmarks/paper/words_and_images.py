"""The words and images experiments: the same items in two spaces, with the paper's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from paper import published
from paper.pairs_of_spaces import ANCHORS, SEEDS, SpacePair
from paper.pictures import draw_bars, draw_picture
from paper.plan import Plan, digest_of
from paper.retrieval import DIRECTIONS, METRICS, OPTIMISED, K, retrieval_state
from paper.tables import OURS, Result, Table, shown, summarise

# Published figures to show beside ours, for pairs like the paper's.
Published = Mapping[tuple[str, str], Mapping[str, tuple[float, ...]]]
_PUBLISHED: dict[str, tuple[Published, str]] = {
    "files": (published.WORDS, published.WORDS_DATA),
    "medium": (published.WORDS, published.WORDS_DATA),
    "vit": (
        {(optimised, direction): rows for optimised in OPTIMISED for direction, rows in published.IMAGES.items()},
        published.IMAGES_DATA,
    ),
}


def retrieval_tables(
    pair: SpacePair, states: list[dict[str, Any]], theirs: Published, their_data: str
) -> tuple[list[Table], dict[str, Any]]:
    """The paper's table for a pair of spaces, a table on the quality of the pairs found, and details for JSON.

    `theirs` are the paper's figures by optimised space and direction, shown beside ours.
    """
    summary = summarise(states)
    names = {"x": pair.name_x, "y": pair.name_y}
    rows = []
    for optimised in OPTIMISED:
        for direction in DIRECTIONS:
            source, target = direction.split("->")
            cells = [
                shown([summary["scores"][name][optimised][direction][metric] for metric in METRICS])
                if name in summary["scores"]
                else "not run"
                for name in OURS
            ]
            beside = theirs.get((optimised, direction))
            cells += [published.shown(beside[name]) if beside else "" for name in published.ROWS if theirs]
            rows.append((names[optimised], f"{names[source]} → {names[target]}", *cells))
    columns = ("optimised", "source → target", *OURS, *(f"paper: {name}" for name in published.ROWS if theirs))
    title = f"{pair.name_x} x {pair.name_y}: {len(pair.x)} rows, {SEEDS} seeds, {ANCHORS} anchors, {len(states)} states"
    remarks = [
        f"Jaccard@{K} / MRR@{K} / cosine, mean over the random states, ± the largest standard deviation of the three."
    ]
    if theirs:
        remarks.append(f"The columns *paper* are published figures from its own data: {their_data}.")
    tables = [Table(title, columns, rows, remarks), _pairs_table(pair, states, summary)]
    return tables, {"rows": len(pair.x), "x": pair.name_x, "y": pair.name_y, "summary": summary, "states": states}


def _bars(pair: SpacePair, states: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """MRR across spaces for each direction and optimised space, and for each set of anchors."""
    scores = summarise(states)["scores"]
    names = {"x": pair.name_x, "y": pair.name_y}
    return {
        f"{names[direction[0]]}\n→ {names[direction[-1]]}\n({names[optimised]} free)": {
            name: each[optimised][direction]["mrr"] for name, each in scores.items()
        }
        for optimised in OPTIMISED
        for direction in ("x->y", "y->x")
    }


def _pairs_table(pair: SpacePair, states: list[dict[str, Any]], summary: dict[str, Any]) -> Table:
    columns = (
        "hidden anchors exact",
        "pairs: precision",
        "pairs: recall",
        "health",
        "pairs ok",
        "seconds per discovery",
    )
    called_ok = sum(state["verdict"] == "ok" for state in states)
    cells = [shown([summary[name]]) for name in ("anchors_exact", "pairs_precision", "pairs_recall", "health")]
    cells += [f"{called_ok} of {len(states)}", f"{max(state['seconds'] for state in states):.0f} (max)"]
    return Table(f"{pair.name_x} x {pair.name_y}: the pairs found", columns, [tuple(cells)])


def reproduce_retrieval(name: str, pairs: Sequence[SpacePair], plan: Plan) -> Result:
    """Run the experiment `name`, "words" or "images", on pairs of spaces."""
    tables, details, pictures = [], {}, []
    for pair in pairs:
        settings = {"data": digest_of(pair.x, pair.y), **plan.settings()}
        run = partial(retrieval_state, pair, with_picture=name == "words")
        states = plan.states(f"{name}-{pair.name}", settings, run)
        drawn = [state.pop("picture") for state in states if "picture" in state][:1]
        for points in drawn if plan.figures else []:
            pictures += draw_picture(points, pair.name_x, pair.name_y, plan.out / f"{name}-{pair.name}")
        if plan.figures:
            pictures += draw_bars(_bars(pair, states), f"MRR@{K}", plan.out / f"{name}-{pair.name}-mrr")
        pair_tables, details[pair.name] = retrieval_tables(pair, states, *_PUBLISHED.get(pair.name, ({}, "")))
        details[pair.name] |= {"settings": settings, "random_states": list(plan.random_states)}
        tables += pair_tables
    return Result(name, tables, details, pictures)
