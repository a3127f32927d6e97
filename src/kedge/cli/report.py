"""`kedge report`: a run as a page to look at."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_device, add_limit, add_overwrite, add_rows_shown, add_run, add_spaces, add_verb
from kedge.cli.evaluate import add_gold, described, read_gold
from kedge.cli.rehearse import add_known, read_known

if TYPE_CHECKING:
    from kedge.estimators import AnchorDiscovery
    from kedge.report import GoldComparison
    from kedge.spaces import Embeddings


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "report",
        run,
        "Write a run as one HTML page: the verdict, both spaces, search, pairs, and how sure they are.",
        """  kedge report RUN x.vec y.vec
  kedge report RUN en.vec fr.vec --gold dictionary.tsv -o report.html
  kedge report RUN new.npy old.npy --known keys     with a rehearsal: what searches would lose
  kedge report RUN a.npz b.npz --labels labels.tsv --layout tsne     points coloured by label, laid out by t-SNE too

The page needs no network and no other file.""",
    )
    add_run(parser)
    add_spaces(parser)
    add_page(parser, "-o", "--out", default=Path("report.html"))
    add_overwrite(parser)
    add_gold(parser, required=False)
    add_known(parser)
    add_labels(parser)
    parser.add_argument(
        "--layout", choices=("tsne",), help="draw both spaces by t-SNE too, a minute or more; needs kedge[layout]"
    )
    add_rows_shown(parser)
    add_device(parser)
    add_limit(parser)


def add_page(parser: argparse.ArgumentParser, *names: str, default: Path | None) -> None:
    """The page to write."""
    told = f"page to write, .html{f' ({default})' if default else ''}; needs kedge[report]"
    parser.add_argument(*names, metavar="FILE", type=Path, default=default, help=told)


def add_labels(parser: argparse.ArgumentParser) -> None:
    """What to colour points by."""
    parser.add_argument(
        "--labels", metavar="FILE", type=Path, help="lines of a key of X or Y and its label, to colour points by"
    )


def read_labels(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> dict[str, str] | None:
    """What `--labels` names, for these spaces."""
    from kedge.cli.output import note
    from kedge.spaces.labels import read_labels_of_both

    if not arguments.labels:
        return None
    labels = read_labels_of_both(arguments.labels, x, y)
    labelled = [sum(key in labels for key in space.keys) for space in (x, y)]
    note(f"labels: of {labelled[0]} of {len(x)} rows of X and {labelled[1]} of {len(y)} of Y")
    return labels


def compare(
    arguments: argparse.Namespace, discovery: AnchorDiscovery, x: Embeddings, y: Embeddings
) -> GoldComparison | None:
    """The run against what `--gold` names, if anything."""
    from kedge.cli.output import note
    from kedge.report import GoldComparison
    from kedge.tasks import Truth, evaluate

    if not arguments.gold:
        return None
    gold = read_gold(arguments, x, y)
    note(f"gold: {described(gold)}")
    evaluation = evaluate(discovery, x, y, gold.pairs, complete=gold.complete, device=arguments.device)
    return GoldComparison(evaluation, Truth(x, y, gold.pairs, complete=gold.complete))


def run(arguments: argparse.Namespace) -> int:
    """Load, compare if there is something to compare with, write."""
    from kedge.cli.output import note, print_json, tell_page
    from kedge.cli.writing import require_free
    from kedge.estimators import load
    from kedge.report import require_layout, require_page_target, write_report
    from kedge.spaces import read_embeddings
    from kedge.tasks import rehearse

    require_page_target(arguments.out)
    if arguments.layout:
        require_layout()
    require_free(arguments)
    discovery = load(arguments.run_folder)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    labels = read_labels(arguments, x, y)
    rehearsal = None
    if known := read_known(arguments, x, y):
        note(f"known: {described(known)}")
        rehearsal = rehearse(discovery, x, y, known.pairs, device=arguments.device)
    write_report(
        arguments.out,
        discovery,
        x,
        y,
        gold=compare(arguments, discovery, x, y),
        rehearsal=rehearsal,
        labels=labels,
        layout=arguments.layout is not None,
        run=str(arguments.run_folder),
        max_rows=arguments.rows,
    )
    if arguments.json:
        print_json(
            {"out": str(arguments.out), "map": discovery.health_.map.verdict, "pairs": discovery.health_.pairs.verdict}
        )
    else:
        tell_page(arguments.out)
    return 0
