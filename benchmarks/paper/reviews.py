"""The reviews experiment: zero-shot stitching, with the paper's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from paper import published
from paper.pairs_of_spaces import ANCHORS, SEEDS
from paper.pictures import draw_bars
from paper.plan import Plan, digest_of
from paper.stitching import Side, StitchingTask, stitching_state
from paper.tables import OURS, Result, Table, short, shown, summarise


def reproduce_reviews(tasks: Iterable[StitchingTask], plan: Plan, *, head: str = "mlp") -> Result:
    """Run the stitching tasks and make their tables.

    Parameters
    ----------
    tasks : iterable of StitchingTask
        Consumed lazily: each task is loaded only when its turn comes.
    plan : Plan
    head : {"mlp", "logistic"}
        The classifier; see `Stitcher`.
    """
    tables, details, pictures = [], {}, []
    for task in tasks:
        content = (task.parallel_source, task.parallel_target, *_content(task.source), *_content(task.target))
        settings = {
            "data": digest_of(*content),
            "encoders": {side.name: side.encoder for side in (task.source, task.target)},
            "head": head,
            **plan.settings(),
        }
        states = plan.states(f"reviews-{task.name}", settings, partial(stitching_state, task, head=head))
        summary = summarise(states)
        tables.append(_table(task, states, summary, head))
        if plan.figures:
            pictures += draw_bars(_bars(task, summary["scores"]), "weighted F1", plan.out / f"reviews-{task.name}-f1")
        details[task.name] = {
            "summary": summary,
            "states": states,
            "settings": settings,
            "random_states": list(plan.random_states),
        }
    return Result("reviews", tables, details, pictures)


def _content(side: Side) -> tuple[Any, ...]:
    """Everything in a side that scores depend on."""
    return side.space, side.train, side.train_labels, side.test, side.test_labels


def _bars(task: StitchingTask, scores: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Weighted F1 for each decoder and encoder, and for each set of anchors."""
    names = (task.target.name, task.source.name)
    return {
        f"decoder {decoder}\nencoder {encoder}": {
            name: each[f"{decoder}<-{encoder}"]["weighted_f1"] for name, each in scores.items()
        }
        for decoder in names
        for encoder in names
    }


def _table(task: StitchingTask, states: list[dict[str, Any]], summary: dict[str, Any], head: str) -> Table:
    """The paper's table, with its figures beside ours if it has the task."""
    theirs = published.REVIEWS if task.name == "amazon" else {}
    rows = []
    for decoder in (task.target.name, task.source.name):
        for encoder in (task.target.name, task.source.name):
            named = f"{decoder}<-{encoder}"
            cells = [_cell(summary["scores"][name][named]) if name in summary["scores"] else "not run" for name in OURS]
            recovered = _recovered(summary["scores"], named) if decoder != encoder else ""
            beside = [published.shown(theirs[decoder, encoder][name]) for name in published.ROWS if theirs]
            rows.append((decoder, encoder, *cells, recovered, *beside))
    columns = ("decoder", "encoder", *OURS, "Seed to GT", *(f"paper: {name}" for name in published.ROWS if theirs))
    title = (
        f"{task.name}: {len(task.source.space)} x {len(task.target.space)} texts, {SEEDS} seeds, {ANCHORS} anchors, "
        f"{len(states)} states"
    )
    measured = "weighted F1 / MAE" if "mae" in summary["scores"]["GT"][f"{decoder}<-{decoder}"] else "weighted F1"
    verdicts = ", ".join(sorted({state["verdict"] for state in states}))
    remarks = [
        f"{measured[0].upper()}{measured[1:]} of the head {head!r}, mean over the random states, ± the largest "
        "standard deviation. *Seed to GT*: how much of that way Found goes, in the same measures.",
        f"Encoders: {', '.join(f'{side.name} {side.encoder}' for side in (task.source, task.target))}. "
        f"Health of the map: {short(summary['health']['mean'])} ({verdicts}).",
    ]
    if theirs:
        remarks.append(f"The columns *paper* are published figures, from its own encoders: {published.REVIEWS_DATA}.")
    return Table(title, columns, rows, remarks)


def _cell(scores: Mapping[str, dict[str, float]]) -> str:
    return shown([scores[metric] for metric in ("weighted_f1", "mae") if metric in scores])


def _recovered(scores: Mapping[str, Any], named: str) -> str:
    """How much of the gap from Seed to GT Found closes; "-" if GT is hardly better than Seed."""
    shares = []
    for metric, better in (("weighted_f1", 1), ("mae", -1)):
        if metric in scores["GT"][named]:
            gt, seed, found = (scores[name][named][metric]["mean"] for name in ("GT", "Seed", "Found"))
            way = better * (gt - seed)
            shares.append(f"{better * (found - seed) / way:.0%}" if way > 0.005 else "-")
    return " / ".join(shares)
