"""`kedge evaluate`: a run against gold pairs."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_device, add_limit, add_run, add_spaces, add_verb

if TYPE_CHECKING:
    from kedge.discovery import Health
    from kedge.tasks import Evaluation

_COLUMNS = {
    "jaccard": "Jaccard@10",
    "mrr": "MRR@10",
    "cosine": "cosine",
    "p_at_1": "P@1",
    "foscttm": "FOSCTTM",
}


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "evaluate",
        run,
        "Score a run against gold pairs: GT, Seed, Found and Snapped anchors, and the pairs.",
        """  kedge evaluate RUN x.vec y.vec --gold keys        equal keys mean the same thing
  kedge evaluate RUN en.vec fr.vec --gold dictionary.tsv --json""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument(
        "--gold",
        metavar="keys|FILE",
        required=True,
        help="`keys`: equal keys are the gold pairs; or a pair file",
    )
    parser.add_argument("--pairs-by", choices=("key", "row"), default="key", help="what the gold file holds (key)")
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything, score, print."""
    from kedge.cli.output import print_json
    from kedge.discovery import load
    from kedge.spaces import read_embeddings, read_pairs
    from kedge.tasks import evaluate, gold_by_key

    discovery = load(arguments.run_folder)
    x = read_embeddings(arguments.x, limit=arguments.limit)
    y = read_embeddings(arguments.y, limit=arguments.limit)
    if arguments.gold == "keys":
        gold = gold_by_key(x, y)
    else:
        gold = read_pairs(Path(arguments.gold), x, y, by=arguments.pairs_by)
    evaluation = evaluate(discovery, x, y, gold, complete=arguments.gold == "keys", device=arguments.device)
    if arguments.json:
        print_json(as_json(evaluation, discovery.health_))
    else:
        print_evaluation(evaluation, discovery.health_)
    return 0


def as_json(evaluation: Evaluation, health: Health) -> dict[str, Any]:
    """The documented object."""
    scores = asdict(evaluation)
    rows = {"GT": "gt", "Seed": "seed", "Found": "found", "Snapped": "snapped"}
    rest = ("anchors_exact", "pairs_precision", "pairs_recall")
    return (
        {name: scores[field] for name, field in rows.items()}
        | {name: scores[name] for name in rest}
        | {"health": health}
    )


def print_evaluation(evaluation: Evaluation, health: Health) -> None:
    """The same as tables for people."""
    from kedge.cli.output import health_line, print_table, results

    described = as_json(evaluation, health)
    print_table(
        ("anchors", *_COLUMNS.values()),
        [
            (name, *(f"{described[name][field]:.3f}" if described[name] else "-" for field in _COLUMNS))
            for name in ("GT", "Seed", "Found", "Snapped")
        ],
    )
    console = results()
    console.print(
        f"hidden anchors found exactly {_percent(evaluation.anchors_exact)}, "
        f"pairs: precision {_percent(evaluation.pairs_precision)}, recall {_percent(evaluation.pairs_recall)}"
    )
    console.print(health_line(health))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
