"""What `kedge rehearse` says about the strategies: bridge, cascade and re-encode, with what each costs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.arguments import positive

if TYPE_CHECKING:
    from kedge.cli.true_pairs import Gold
    from kedge.estimators import AnchorDiscovery
    from kedge.spaces import Embeddings
    from kedge.tasks.rehearsal import RelevanceLike
    from kedge.tasks.rehearsal.cascade import StrategyComparison


def add_strategies(parser: argparse.ArgumentParser) -> None:
    """Whether strategies are compared, and what they may cost."""
    parser.add_argument(
        "--cascade",
        metavar="N",
        type=positive,
        help="also compare strategies for --queries, by --relevant if given; in the cascade X's model ranks N texts "
        "(say 100) from the bridge",
    )
    parser.add_argument(
        "--seconds-per-text", metavar="S", type=duration, default=0.0, help="how long X's model takes for one text (0)"
    )
    parser.add_argument(
        "--max-seconds", metavar="S", type=duration, help="recommend no strategy that takes longer per query"
    )


def compare_for(
    arguments: argparse.Namespace,
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    known: Gold | None,
    queries: Embeddings | None,
    relevant: RelevanceLike | None,
    queries_old: Embeddings | None,
) -> StrategyComparison | None:
    """The comparison, if it is asked for: by judgements if there are some, and with the old model's queries too."""
    import numpy as np

    from kedge.cli.output import note
    from kedge.errors import InputError
    from kedge.tasks.rehearsal.cascade import judged_pairs, rehearse_strategies
    from kedge.tasks.rehearsal.relevance import as_relevance

    if arguments.cascade is None:
        return None
    if queries is None or known is None:
        missing = "--queries" if queries is None else "--known"
        raise InputError(f"--cascade: compares what queries find among texts of both models; give {missing} too")
    pairs, judged = known.pairs, None
    if relevant is not None:
        pairs = pairs[np.unique(pairs[:, 1], return_index=True)[1]]  # a pair file may name a pair twice
        asked, judged = judged_pairs(as_relevance(relevant, queries, y), pairs)
        if len(asked) < len(queries):
            note(
                f"--cascade: {len(queries) - len(asked)} of {len(queries)} queries are left out, which have no "
                "relevant text among the known pairs"
            )
        queries = queries.take(asked)
    return rehearse_strategies(
        discovery,
        x,
        y,
        pairs,
        queries,
        old_queries=None if queries_old is None else queries_old.take(queries_old.rows(queries.keys)),
        judged=judged,
        candidates=arguments.cascade,
        seconds_per_text=arguments.seconds_per_text,
        max_seconds=arguments.max_seconds,
        device=arguments.device,
    )


def print_strategies(compared: StrategyComparison) -> None:
    """Print the comparison for people."""
    from kedge.cli.output import print_line, print_table

    print_line()
    judge = "the judgements" if compared.judged else "what X's model itself finds"
    print_line(f"strategies, by {judge}: {compared.queries} queries, {compared.index} texts")
    columns = ("strategy", "recall@10", "texts beforehand", "texts per query", "seconds per query")
    print_table(columns, compared.table())
    print_line("recommended: ", (compared.recommended, "bold"), f" ({compared.reason})")


def duration(text: str) -> float:
    """A number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds, such as 0.01, got {text!r}")
    return seconds
