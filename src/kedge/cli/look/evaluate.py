"""`kedge evaluate`: a run against gold pairs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_command, add_device, add_limit, add_run, add_spaces, space_name
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
  kedge evaluate COMMON a.npz b.npz c.npz --gold keys     every two of these members of a run by `kedge unite`

Lines of a gold file with unknown keys are skipped and counted (--strict refuses them). Rows of X that are in no seed
look for their partners among all rows of Y; if a row has several, any counts.
For a run by `kedge unite`, a gold file has one column per space, as its seeds do.""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument(
        "more", metavar="Z", type=space_name, nargs="*", help="more members, for a run by `kedge unite`"
    )
    add_gold(parser, required=True)
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything, score, print."""
    from kedge.cli.output import print_json, print_line
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.runs.description import holds_common_space
    from kedge.spaces import read_embeddings
    from kedge.tasks import evaluate

    if holds_common_space(arguments.run_folder):
        return _evaluate_common(arguments)
    if arguments.more:
        raise InputError(f"{arguments.more[0]}: {arguments.run_folder} is a run of two spaces; omit it")
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


def _evaluate_common(arguments: argparse.Namespace) -> int:
    """Score every two members of a run of many spaces."""
    from dataclasses import asdict

    from kedge.cli.look.members import read_members
    from kedge.cli.output import print_answer, print_json, print_line, print_table
    from kedge.many.common_space import CommonSpace
    from kedge.many.seed_tuples import read_seed_tuples
    from kedge.tasks import as_percent, evaluate_common, gold_tuples_by_key

    common = CommonSpace.load(arguments.run_folder)
    places = (arguments.x, arguments.y, *arguments.more)
    spaces = read_members(common, arguments.run_folder, places, arguments.limit)
    by_key = arguments.gold == "keys"
    gold = gold_tuples_by_key(spaces) if by_key else read_seed_tuples(Path(arguments.gold), spaces)
    found = evaluate_common(common, spaces, gold, complete=by_key, device=arguments.device)
    if arguments.json:
        print_json({"gold": len(gold), "pairs": [asdict(one) for one in found], "health": common.health_})
        return 0
    print_line(f"gold: {len(gold)} items; every row of the first space outside the seeds is used as a query")
    print_table(
        ("pair", "rows", "P@1", "P@10", "MRR@10", "P@1 by map", "pairs: precision", "recall"),
        [
            (
                f"{one.first}, {one.second}",
                str(one.queries),
                *(f"{value:.3f}" for value in (one.shared.p_at_1, one.shared.p_at_10, one.shared.mrr)),
                f"{one.map.p_at_1:.3f}",
                as_percent(one.pairs_precision),
                as_percent(one.pairs_recall),
            )
            if one.shared and one.map
            else (f"{one.first}, {one.second}", "0", "-", "-", "-", "-", as_percent(one.pairs_precision), "-")
            for one in found
        ],
    )
    for begin, answer in (("Map", common.health_.map), ("Groups", common.health_.pairs)):
        print_answer(f"{begin}: ", answer)
    return 0


def as_json(evaluation: Evaluation, health: Health) -> dict[str, Any]:
    """The documented JSON object."""
    names = ("searching", "anchors_exact", "pairs_precision", "pairs_recall")
    return evaluation.rows | {name: getattr(evaluation, name) for name in names} | {"health": health}


def print_evaluation(evaluation: Evaluation, health: Health, *, searching: bool = False) -> None:
    """Print the same as tables for people; that of searching if it is asked for."""
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
