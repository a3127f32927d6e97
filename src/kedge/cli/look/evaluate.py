"""`kedge evaluate`: a run against gold pairs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_command, add_device, add_limit, add_run, add_spaces
from kedge.cli.true_pairs import add_gold, describe_pairs, read_gold

if TYPE_CHECKING:
    from kedge.judging.health import Health
    from kedge.tasks import Evaluation


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "evaluate",
        run,
        "score a run against gold pairs",
        "Score a run against gold pairs: GT, Seed, Found and Snapped anchors, shared coordinates, searching, pairs.",
        """  kedge evaluate RUN x.vec y.vec --gold keys        equal keys mean the same thing
  kedge evaluate RUN en.vec fr.vec --gold dictionary.tsv --json

Lines of a gold file whose keys the spaces do not have are skipped and counted (--strict refuses them). Partners of
rows of X that are in no seed are searched for among all rows of Y; where there are several, any counts.""",
    )
    add_run(parser)
    add_spaces(parser)
    add_gold(parser, required=True)
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything, score, print."""
    from kedge.cli.output import print_json, print_line
    from kedge.estimators import load
    from kedge.spaces import read_embeddings
    from kedge.tasks import evaluate

    discovery = load(arguments.run_folder)
    x = read_embeddings(arguments.x, limit=arguments.limit)
    y = read_embeddings(arguments.y, limit=arguments.limit)
    gold = read_gold(arguments, x, y)
    evaluation = evaluate(discovery, x, y, gold.pairs, complete=gold.complete, device=arguments.device)
    if arguments.json:
        counts = {"pairs": len(gold.pairs), "skipped": gold.skipped, "queries": evaluation.gold_used}
        print_json({"gold": counts} | as_json(evaluation, discovery.health_))
    else:
        searched = f"partners of {evaluation.gold_used} rows of X that are in no seed"
        print_line(f"gold: {describe_pairs(gold)}; searched for: {searched}")
        print_evaluation(evaluation, discovery.health_, searching=True)
    return 0


def as_json(evaluation: Evaluation, health: Health) -> dict[str, Any]:
    """The documented object."""
    names = ("searching", "anchors_exact", "pairs_precision", "pairs_recall")
    return evaluation.rows | {name: getattr(evaluation, name) for name in names} | {"health": health}


def print_evaluation(evaluation: Evaluation, health: Health, *, searching: bool = False) -> None:
    """The same as tables for people; that of searching where it is asked for."""
    from kedge.cli.output import print_health, print_line, print_table
    from kedge.tasks import SCORE_NAMES, SEARCH_NAMES, as_percent

    print_table(("anchors", *SCORE_NAMES.values()), evaluation.table())
    if searching:
        print_table(("search by", *SEARCH_NAMES.values()), evaluation.search_table())
    print_line(
        f"hidden anchors found exactly {as_percent(evaluation.anchors_exact)}, "
        f"pairs: precision {as_percent(evaluation.pairs_precision)}, recall {as_percent(evaluation.pairs_recall)}"
    )
    print_health(health)
