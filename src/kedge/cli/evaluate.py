"""`kedge evaluate`: a run against gold pairs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kedge.cli.arguments import add_device, add_limit, add_run, add_spaces, add_verb

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kedge.judging.health import Health
    from kedge.spaces import Embeddings
    from kedge.tasks import Evaluation


class Gold(NamedTuple):
    """Gold pairs as rows (g, 2), whether rows without one are known to have none, and how many lines were skipped."""

    pairs: NDArray[np.int64]
    complete: bool
    skipped: int = 0


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "evaluate",
        run,
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
    from kedge.cli.output import print_json, say
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
        say(f"gold: {described(gold)}; searched for: partners of {evaluation.gold_used} rows of X that are in no seed")
        print_evaluation(evaluation, discovery.health_, searching=True)
    return 0


def add_gold(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The truth to compare with."""
    parser.add_argument(
        "--gold",
        metavar="keys|FILE",
        required=required,
        help="the truth: `keys`, where equal keys are the gold pairs, or a pair file",
    )
    add_pair_reading(parser)


def add_pair_reading(parser: argparse.ArgumentParser) -> None:
    """How a file of true pairs is read."""
    parser.add_argument("--pairs-by", choices=("key", "row"), default="key", help="what the pair file holds (key)")
    parser.add_argument("--strict", action="store_true", help="refuse lines of unknown keys in it (they are skipped)")


def read_gold(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> Gold:
    """What `--gold` names, for these spaces."""
    return read_true_pairs(arguments, "gold", x, y)


def read_true_pairs(arguments: argparse.Namespace, option: str, x: Embeddings, y: Embeddings) -> Gold:
    """What an option names that takes `keys` or a pair file, for these spaces."""
    from kedge.spaces import read_dictionary, read_pairs
    from kedge.tasks import gold_by_key

    named = getattr(arguments, option)
    if named == "keys":
        return Gold(gold_by_key(x, y, option), complete=True)
    path = Path(named)
    if arguments.strict:
        return Gold(read_pairs(path, x, y, by=arguments.pairs_by), complete=False)
    dictionary = read_dictionary(path, x, y, by=arguments.pairs_by)
    return Gold(dictionary.pairs, complete=False, skipped=dictionary.skipped)


def described(gold: Gold) -> str:
    """How many pairs there are, and how many lines were of no use."""
    skipped = f" ({gold.skipped} lines skipped, of which a space lacks a key)" if gold.skipped else ""
    return f"{len(gold.pairs)} pairs{skipped}"


def as_json(evaluation: Evaluation, health: Health) -> dict[str, Any]:
    """The documented object."""
    names = ("searching", "anchors_exact", "pairs_precision", "pairs_recall")
    return evaluation.rows | {name: getattr(evaluation, name) for name in names} | {"health": health}


def print_evaluation(evaluation: Evaluation, health: Health, *, searching: bool = False) -> None:
    """The same as tables for people; that of searching where it is asked for."""
    from kedge.cli.output import print_table, say, say_health
    from kedge.tasks import SCORE_NAMES, SEARCH_NAMES, as_percent

    print_table(("anchors", *SCORE_NAMES.values()), evaluation.table())
    if searching:
        print_table(("search by", *SEARCH_NAMES.values()), evaluation.search_table())
    say(
        f"hidden anchors found exactly {as_percent(evaluation.anchors_exact)}, "
        f"pairs: precision {as_percent(evaluation.pairs_precision)}, recall {as_percent(evaluation.pairs_recall)}"
    )
    say_health(health)
