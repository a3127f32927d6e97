"""`kedge rehearse`: what searches would lose if the embedding model were changed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_device, add_limit, add_run, add_spaces, probability
from kedge.cli.change_model.proxy_queries import add_proxy, check_proxy, encode_proxies, write_proxy_files
from kedge.cli.change_model.strategies import add_strategies, compare_for, print_strategies
from kedge.cli.exit_codes import EXIT_NOT_PASSED
from kedge.cli.true_pairs import add_known, add_pair_reading, describe_pairs, read_known

if TYPE_CHECKING:
    from kedge.cli.true_pairs import Gold
    from kedge.spaces import Embeddings
    from kedge.tasks import Rehearsal
    from kedge.tasks.rehearsal import JudgedSearches, LowestMetric, Metric, RelevanceLike

_METRICS: dict[str, Metric] = {
    "self-recall-1": "self_recall_1",
    "self-recall-10": "self_recall_10",
    "overlap": "overlap",
    "ndcg": "ndcg",
    "recall-1": "recall_1",
    "recall-10": "recall_10",
    "judged-ndcg": "judged_ndcg",
}
_MAX_LETTERS = 32


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "rehearse",
        run,
        "measure what searches lose if the model is changed",
        "Measure what searches lose if X's model replaces Y's, which the index was made with.",
        """  kedge rehearse RUN new.npy old.npy --known pairs.tsv
  kedge rehearse RUN new.npy old.npy --known keys --queries asked.npz --relevant qrels.tsv --old-queries asked-old.npz
  kedge rehearse RUN new.npy old.npy --proxy texts.jsonl --key-field id --proxy-model MODEL --prefix 'query: '
  kedge rehearse RUN new.npy old.npy --known keys --queries asked.npy --cascade 100 --seconds-per-text 0.01
  kedge rehearse RUN new.npy old.npy --known keys --fail-under 0.9 --direction queries      exits with 3 below it

X is the new model's space, Y the old one's: the index. Known pairs are rows of both that are the same text; those that
share a row with a seed are left out. Texts that were in neither file of the discovery are best. Both directions are
tried:
queries:         translated queries: new queries, translated, search the old index; compared with what the old model
                 finds there
index:           translated index: new queries search the known texts' old vectors, translated into the new space;
                 compared with what they find among the same texts' new vectors
With --queries and --relevant, searches are measured by what they should find: by the old model alone (--old-queries),
with translated queries, in the translated index, and by the new model alone on the texts that X has (--known). A file
of judgements has two columns (query, text), three (with a grade) or TREC's four; a header may name a column `kind`.
The metrics of these:
recall-1, recall-10:  the share of the relevant texts that is found first, or among ten
judged-ndcg:     the grades of the ten, those at the top counting for more, as a share of the best possible
The metrics of texts used as queries, with 90 % intervals, over all queries and for each kind of query, worst first:
self-recall-1:   how often a query finds its own text first
self-recall-10:  how often it finds its own text among ten
overlap:         the share of the ten that the search also finds without the change, the query's own text included
ndcg:            the same, but what is missing at the top counts for more
With fewer than 10 known pairs there is only an estimate, from what the discovery held out.
--cascade compares strategies by --relevant too, among the known texts, and staying with the old model if there are
--old-queries; without --relevant, what X's model itself finds counts as right.""",
    )
    add_run(parser)
    add_spaces(parser)
    add_known(parser)
    add_pair_reading(parser)
    parser.add_argument(
        "--queries", metavar="FILE", type=Path, help=f"vectors of real queries, by X's model: {FORMATS}"
    )
    parser.add_argument(
        "--relevant",
        metavar="FILE",
        type=Path,
        help="what the queries should find in Y: TREC qrels, or columns of query and text",
    )
    parser.add_argument(
        "--old-queries", metavar="FILE", type=Path, help="the same queries by Y's model, with the same keys"
    )
    parser.add_argument(
        "--query-kinds", metavar="FILE", type=Path, help="keys of queries and their kinds, for figures by kind"
    )
    add_proxy(parser)
    parser.add_argument(
        "--fail-under",
        metavar="SHARE",
        type=probability,
        help="exit with 3 if the metric is below this in a direction; its value counts, not its interval",
    )
    parser.add_argument(
        "--metric",
        choices=_METRICS,
        help="metric for --fail-under (self-recall-10; with --relevant or --proxy: recall-10); an estimate has only "
        "overlap and self-recall-10, for which it takes the MRR",
    )
    parser.add_argument(
        "--direction", choices=("both", "queries", "index"), default="both", help="direction for --fail-under (both)"
    )
    add_strategies(parser)
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything, rehearse, print, judge."""
    from kedge.cli.output import note, print_json
    from kedge.estimators import load
    from kedge.spaces import read_embeddings
    from kedge.tasks import read_relevance, rehearse
    from kedge.tasks.rehearsal import MIN_TEXTS

    _check(arguments)
    if arguments.proxy_out:
        return write_proxy_files(arguments)
    discovery = load(arguments.run_folder)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    queries = read_embeddings(arguments.queries, limit=arguments.limit) if arguments.queries else None
    queries_old = read_embeddings(arguments.old_queries) if arguments.old_queries else None
    known = read_known(arguments, x, y)
    relevant: RelevanceLike | None = None
    if arguments.proxy:
        queries, relevant = encode_proxies(arguments, y)
    elif arguments.relevant and queries is not None:
        relevant = read_relevance(arguments.relevant, queries, y, strict=arguments.strict)
    rehearsal = rehearse(
        discovery,
        x,
        y,
        known.pairs if known else (),
        queries=queries,
        relevant=relevant,
        queries_old=queries_old,
        kinds=_read_kinds(arguments, queries),
        device=arguments.device,
    )
    if arguments.metric is None:
        arguments.metric = "self-recall-10" if relevant is None else "recall-10"
    compared = compare_for(arguments, discovery, x, y, known, queries, relevant, queries_old)
    judged = rehearsal.lowest(_METRICS[arguments.metric], arguments.direction)
    passed = judged is not None and judged.value >= (arguments.fail_under or 0)
    if queries is not None and relevant is None and rehearsal.given_queries is None:
        note(f"--queries: not used; an index for them needs at least {MIN_TEXTS} known texts")
    if arguments.json:
        print_json(
            as_json(rehearsal, known) | {"strategies": compared, "judged": _judgement(judged, arguments, passed=passed)}
        )
    else:
        print_rehearsal(rehearsal, known)
        if compared is not None:
            print_strategies(compared)
    if arguments.fail_under is not None:
        _print_judgement(judged, arguments, passed=passed)
    return 0 if arguments.fail_under is None or passed else EXIT_NOT_PASSED


def as_json(rehearsal: Rehearsal, known: Gold | None) -> dict[str, Any]:
    """The documented JSON object."""
    from kedge.tasks import DIRECTION_NAMES

    counts = {name: getattr(rehearsal, name) for name in ("pairs", "seeds", "found")}
    directions = {name: getattr(rehearsal, name) for name in DIRECTION_NAMES}
    skipped = known.skipped if known else 0
    about = {"estimate": rehearsal.is_estimate, "known": counts | {"skipped": skipped}}
    judged = {"judged_queries": rehearsal.judged_queries, "flattery": rehearsal.flattery}
    return about | directions | judged | {"held_out": rehearsal.held_out, "remarks": list(rehearsal.remarks)}


def print_rehearsal(rehearsal: Rehearsal, known: Gold | None) -> None:
    """Print the same for people."""
    from kedge.cli.output import print_line, print_table
    from kedge.tasks import DIRECTION_NAMES, METRIC_NAMES
    from kedge.tasks.rehearsal import MIN_PAIRS

    left_out = f"; {rehearsal.seeds} of them share a row with a seed and are left out" if rehearsal.seeds else ""
    print_line(f"known: {describe_pairs(known) if known else 'no pairs'}{left_out}")
    if rehearsal.judged_queries is not None:
        _print_judged(rehearsal.judged_queries)
        if rehearsal.is_estimate:
            return
        print_line()
    if rehearsal.is_estimate:
        print_line(f"Nothing was measured: that takes {MIN_PAIRS} pairs; this is an ", ("ESTIMATE", "bold"), ":")
        if rehearsal.held_out.meaningful:
            print_table(("held out", "MRR", METRIC_NAMES["overlap"]), rehearsal.held_out.table())
        print_line(rehearsal.held_out.caveat)
        return
    print_table(("direction", "queries", "index", *METRIC_NAMES.values()), rehearsal.table())
    for remark in rehearsal.remarks:
        print_line(remark)
    for name, result in rehearsal.directions.items():
        if result.clusters:
            kinds = (", ".join(cluster.short_keys(_MAX_LETTERS)) for cluster in result.clusters)
            rows = [(kind, *metrics) for kind, metrics in zip(kinds, result.cluster_table(), strict=True)]
            print_line()
            print_table((f"{DIRECTION_NAMES[name]}, worst first", "queries", *METRIC_NAMES.values()), rows)


def _print_judged(judged: JudgedSearches) -> None:
    """Print what real queries find, in all and for each kind of query."""
    from kedge.cli.output import print_line, print_table
    from kedge.tasks.rehearsal import JUDGED_METRIC_NAMES, SEARCH_ROW_NAMES

    skipped = f"; {judged.skipped} judgements name a query or text that is not here" if judged.skipped else ""
    how = "as queries" if judged.as_queries else "as texts are: the discovery was given no --queries"
    print_line(f"judged: {judged.queries} queries, {judged.judgements} relevant texts{skipped}; translated {how}")
    print_table(("search", "queries", "index", *JUDGED_METRIC_NAMES.values()), judged.table())
    for name, search in judged.searches.items():
        if search.kinds:
            rows = [
                (each.kind, f"{each.queries}", *(f"{metric.estimate:.3f}" for metric in each.metrics.in_order()))
                for each in search.kinds
            ]
            print_line()
            print_table((f"{SEARCH_ROW_NAMES[name]}, by kind", "queries", *JUDGED_METRIC_NAMES.values()), rows)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that need others."""
    from kedge.errors import InputError

    check_proxy(arguments)
    for option, needed in (("relevant", "queries"), ("old_queries", "relevant"), ("query_kinds", "relevant")):
        if getattr(arguments, option) and not getattr(arguments, needed):
            name, other = (f"--{each.replace('_', '-')}" for each in (option, needed))
            raise InputError(f"{name}: says something about queries and what they should find; give {other} too")


def _read_kinds(arguments: argparse.Namespace, queries: Embeddings | None) -> dict[str, str] | None:
    """The kinds of queries by key, if a file names them."""
    from kedge.spaces.labels import read_labels

    if arguments.query_kinds is None or queries is None:
        return None
    return read_labels(arguments.query_kinds, queries, complete=False)


def _judgement(judged: LowestMetric | None, arguments: argparse.Namespace, *, passed: bool) -> dict[str, Any]:
    """What was judged, for JSON; nothing passes or fails unless it is asked for."""
    return {
        "metric": judged.metric if judged else _METRICS[arguments.metric],
        "direction": judged.direction if judged else None,
        "value": judged.value if judged else None,
        "fail_under": arguments.fail_under,
        "passed": None if arguments.fail_under is None else passed,
    }


def _print_judgement(judged: LowestMetric | None, arguments: argparse.Namespace, *, passed: bool) -> None:
    """Print whether it passed; a failure as a warning."""
    from kedge.cli.output import print_line, warn
    from kedge.tasks import DIRECTION_NAMES, METRIC_NAMES
    from kedge.tasks.rehearsal import JUDGED_METRIC_NAMES

    if judged is None:
        text = f"there is no value of --metric {arguments.metric} --direction {arguments.direction}"
    else:
        judged_name = JUDGED_METRIC_NAMES.get(judged.metric.removeprefix("judged_"), "MRR")
        metric = METRIC_NAMES.get(judged.metric, judged_name)
        text = f"{metric} of {DIRECTION_NAMES[judged.direction]} is {judged.value:.3f}"
    text += f", at least {arguments.fail_under:g} was asked for"
    if not passed:
        warn(f"{text}: do not change over yet.")
    elif not arguments.json:
        print_line()
        print_line(f"passed: {text}")
