"""`kedge evaluate`: a run against gold pairs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_device, add_limit, add_run, add_spaces, add_verb

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kedge.discovery import Health
    from kedge.spaces import Embeddings
    from kedge.tasks import Evaluation


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
    add_gold(parser, required=True)
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything, score, print."""
    from kedge.cli.output import print_json
    from kedge.discovery import load
    from kedge.spaces import read_embeddings
    from kedge.tasks import evaluate

    discovery = load(arguments.run_folder)
    x = read_embeddings(arguments.x, limit=arguments.limit)
    y = read_embeddings(arguments.y, limit=arguments.limit)
    gold, complete = read_gold(arguments, x, y)
    evaluation = evaluate(discovery, x, y, gold, complete=complete, device=arguments.device)
    if arguments.json:
        print_json(as_json(evaluation, discovery.health_))
    else:
        print_evaluation(evaluation, discovery.health_)
    return 0


def add_gold(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The truth to compare with."""
    parser.add_argument(
        "--gold",
        metavar="keys|FILE",
        required=required,
        help="the truth: `keys`, where equal keys are the gold pairs, or a pair file",
    )
    parser.add_argument("--pairs-by", choices=("key", "row"), default="key", help="what the gold file holds (key)")


def read_gold(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> tuple[NDArray[np.int64], bool]:
    """Gold pairs as rows (g, 2), and whether rows without one are known to have none."""
    from kedge.spaces import read_pairs
    from kedge.tasks import gold_by_key

    if arguments.gold == "keys":
        return gold_by_key(x, y), True
    return read_pairs(Path(arguments.gold), x, y, by=arguments.pairs_by), False


def as_json(evaluation: Evaluation, health: Health) -> dict[str, Any]:
    """The documented object."""
    shares = ("anchors_exact", "pairs_precision", "pairs_recall")
    return evaluation.rows | {name: getattr(evaluation, name) for name in shares} | {"health": health}


def print_evaluation(evaluation: Evaluation, health: Health) -> None:
    """The same as tables for people."""
    from kedge.cli.output import health_line, print_table, results
    from kedge.tasks import SCORE_NAMES, as_percent

    print_table(("anchors", *SCORE_NAMES.values()), evaluation.table())
    console = results()
    console.print(
        f"hidden anchors found exactly {as_percent(evaluation.anchors_exact)}, "
        f"pairs: precision {as_percent(evaluation.pairs_precision)}, recall {as_percent(evaluation.pairs_recall)}"
    )
    console.print(health_line(health))
