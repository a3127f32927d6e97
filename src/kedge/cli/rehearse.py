"""`kedge rehearse`: what searches would lose if the embedding model were changed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_device, add_limit, add_run, add_spaces, add_verb, probability
from kedge.cli.evaluate import add_pair_reading, described, read_true_pairs

if TYPE_CHECKING:
    from kedge.cli.evaluate import Gold
    from kedge.spaces import Embeddings
    from kedge.tasks import Rehearsal
    from kedge.tasks.rehearsal import LowestMetric

EXIT_BELOW = 3
_MOST_LETTERS = 32


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "rehearse",
        run,
        "Say what searches will lose if X's model takes the place of Y's, which the index was made with.",
        """  kedge rehearse RUN new.npy old.npy --known pairs.tsv
  kedge rehearse RUN new.npy old.npy --known keys --queries asked.npy
  kedge rehearse RUN new.npy old.npy --known keys --least 0.9 --way queries   exits with 3 below it

X is the new model's space, Y the old one's: the index. Known pairs are rows of both that are the same text; those that
share a row with a seed are left out. Best are texts that were in neither file of the discovery. Two ways are tried:
translated queries:  new queries, translated, in the old index; compared with what the old model finds there
translated index:    new queries in the known texts' old vectors, translated into the new space; compared with what
                     they find among the same texts' new vectors
self-recall@1, @10:  how often the query's own text is found first, or among ten
overlap@10:          how many of the ten are what the search finds without the change; the own text counts among them
nDCG@10:             the same, and what is missing at the top counts for more
All have 90 % intervals, and are told by kind of query too, the worst first. With fewer than 10 known pairs there is
only an estimate, from what the discovery held out.""",
    )
    add_run(parser)
    add_spaces(parser)
    add_known(parser)
    add_pair_reading(parser)
    parser.add_argument(
        "--queries", metavar="FILE", type=Path, help=f"vectors of real queries, by X's model: {FORMATS}"
    )
    parser.add_argument(
        "--least",
        metavar="SHARE",
        type=probability,
        help="exit with 3 where the figure that --by names is below this in one of the ways; the figure itself counts, "
        "not the end of its interval",
    )
    parser.add_argument(
        "--by",
        choices=("self-recall-1", "self-recall-10", "overlap", "ndcg"),
        default="self-recall-10",
        help="what --least is about (self-recall-10); in an estimate its MRR stands in for self-recall-10",
    )
    parser.add_argument(
        "--way", choices=("both", "queries", "index"), default="both", help="which way --least is about (both)"
    )
    add_device(parser)
    add_limit(parser)


def add_known(parser: argparse.ArgumentParser) -> None:
    """The pairs to rehearse on."""
    parser.add_argument(
        "--known",
        metavar="keys|FILE",
        help="texts of which both models have a vector: `keys`, where equal keys are the same text, or a pair file",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read everything, rehearse, print, judge."""
    from kedge.cli.output import note, print_json
    from kedge.estimators import load
    from kedge.spaces import read_embeddings
    from kedge.tasks import rehearse
    from kedge.tasks.rehearsal import MIN_TEXTS

    discovery = load(arguments.run_folder)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    queries = read_embeddings(arguments.queries, limit=arguments.limit) if arguments.queries else None
    known = read_known(arguments, x, y)
    rehearsal = rehearse(discovery, x, y, known.pairs if known else (), queries=queries, device=arguments.device)
    judged = rehearsal.lowest(arguments.by.replace("-", "_"), arguments.way)
    enough = judged is not None and judged.value >= (arguments.least or 0)
    if queries is not None and rehearsal.given_queries is None:
        note(f"--queries: not used, {MIN_TEXTS} known texts are needed to make an index of for them")
    if arguments.json:
        print_json(as_json(rehearsal, known) | {"judged": _judgement(judged, arguments, enough=enough)})
    else:
        print_rehearsal(rehearsal, known)
    if arguments.least is not None:
        _tell_judgement(judged, arguments, enough=enough)
    return 0 if arguments.least is None or enough else EXIT_BELOW


def read_known(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> Gold | None:
    """What `--known` names, for these spaces."""
    return read_true_pairs(arguments, "known", x, y) if arguments.known else None


def as_json(rehearsal: Rehearsal, known: Gold | None) -> dict[str, Any]:
    """The documented object."""
    from kedge.tasks import DIRECTION_NAMES

    counts = {name: getattr(rehearsal, name) for name in ("pairs", "seeds", "found")}
    ways = {name: getattr(rehearsal, name) for name in DIRECTION_NAMES}
    skipped = known.skipped if known else 0
    told = {"estimate": rehearsal.is_estimate, "known": counts | {"skipped": skipped}}
    return told | ways | {"held_out": rehearsal.held_out}


def print_rehearsal(rehearsal: Rehearsal, known: Gold | None) -> None:
    """The same for people."""
    from kedge.cli.output import print_table, say
    from kedge.tasks import DIRECTION_NAMES, METRIC_NAMES
    from kedge.tasks.rehearsal import MIN_PAIRS

    left_out = f"; {rehearsal.seeds} of them share a row with a seed and are left out" if rehearsal.seeds else ""
    say(f"known: {described(known) if known else 'no pairs'}{left_out}")
    if rehearsal.is_estimate:
        say(f"Nothing was measured, which takes {MIN_PAIRS} pairs; this is an ", ("ESTIMATE", "bold"), ":")
        if rehearsal.held_out.meaningful:
            print_table(("held out", "MRR", METRIC_NAMES["overlap"]), rehearsal.held_out.table())
        say(rehearsal.held_out.caveat)
        return
    print_table(("direction", "queries", "index", *METRIC_NAMES.values()), rehearsal.table())
    for remark in rehearsal.remarks:
        say(remark)
    for name, result in rehearsal.directions.items():
        if result.clusters:
            kinds = (", ".join(cluster.short_keys(_MOST_LETTERS)) for cluster in result.clusters)
            rows = [(kind, *figures) for kind, figures in zip(kinds, result.cluster_table(), strict=True)]
            say()
            print_table((f"{DIRECTION_NAMES[name]}, worst first", "queries", *METRIC_NAMES.values()), rows)


def _judgement(judged: LowestMetric | None, arguments: argparse.Namespace, *, enough: bool) -> dict[str, Any]:
    """What was judged, for JSON; nothing is enough or not where nothing is asked for."""
    told: dict[str, Any] = judged._asdict() if judged else {"metric": None, "direction": None, "value": None}
    asked = {"by": arguments.by, "least": arguments.least}
    return told | asked | {"enough": None if arguments.least is None else enough}


def _tell_judgement(judged: LowestMetric | None, arguments: argparse.Namespace, *, enough: bool) -> None:
    """Whether it is enough; where it is not, loudly."""
    from kedge.cli.output import say, warn
    from kedge.tasks import DIRECTION_NAMES, METRIC_NAMES

    if judged is None:
        told = f"there is no figure for --by {arguments.by} --way {arguments.way}"
    else:
        figure = METRIC_NAMES.get(judged.metric, "MRR")
        told = f"{figure} of {DIRECTION_NAMES[judged.direction]} is {judged.value:.3f}"
    told += f", at least {arguments.least:g} was asked for"
    if not enough:
        warn(f"{told}: do not change over yet.")
    elif not arguments.json:
        say()
        say(f"enough: {told}")
