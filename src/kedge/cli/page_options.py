"""What the pages and figures of a run have in common: where they are written, and what they show."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.arguments import probability
from kedge.cli.true_pairs import describe_pairs, read_gold

if TYPE_CHECKING:
    from kedge.estimators import AnchorDiscovery
    from kedge.report import GoldComparison, RowTexts
    from kedge.spaces import Embeddings


def add_page(parser: argparse.ArgumentParser, *names: str, default: Path | None) -> None:
    """The page to write."""
    purpose = f"page to write, .html{f' ({default})' if default else ''}; needs kedge[report]"
    parser.add_argument(*names, metavar="FILE", type=Path, default=default, help=purpose)


def add_listed(parser: argparse.ArgumentParser) -> None:
    """How probable the pairs that are shown must be."""
    parser.add_argument(
        "--min-confidence",
        metavar="P",
        type=probability,
        help="show the pairs at least this probable (as `kedge discover` did)",
    )


def load_listed(arguments: argparse.Namespace) -> AnchorDiscovery:
    """Load the run, with the pairs that `--min-confidence` asks for."""
    from kedge.estimators import load

    discovery = load(arguments.run_folder)
    given = arguments.min_confidence
    return discovery if given is None else discovery.with_min_confidence(given)


def add_labels(parser: argparse.ArgumentParser) -> None:
    """What to colour points by."""
    parser.add_argument(
        "--labels", metavar="FILE", type=Path, help="labels to colour points by, one line per key of X or Y"
    )


def read_labels(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> dict[str, str] | None:
    """Read `--labels`, if given, for these spaces."""
    from kedge.cli.output import note
    from kedge.spaces.labels import read_labels_of_both

    if not arguments.labels:
        return None
    labels = read_labels_of_both(arguments.labels, x, y)
    labelled = [sum(key in labels for key in space.keys) for space in (x, y)]
    note(f"labels: {labelled[0]} of {len(x)} rows of X and {labelled[1]} of {len(y)} of Y")
    return labels


def read_row_texts(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> RowTexts | None:
    """The texts of rows, if X or Y is a store that keeps texts."""
    from kedge.report import RowTexts
    from kedge.spaces.stores import as_address, is_address
    from kedge.spaces.stores.spaces import read_texts

    of_x, of_y = (
        read_texts(as_address(name), space.keys) if is_address(name) else {}
        for name, space in ((arguments.x, x), (arguments.y, y))
    )
    return RowTexts(of_x, of_y) if of_x or of_y else None


def compare_with_gold(
    arguments: argparse.Namespace, discovery: AnchorDiscovery, x: Embeddings, y: Embeddings
) -> GoldComparison | None:
    """Compare the run with `--gold`, if given."""
    from kedge.cli.output import note
    from kedge.report import GoldComparison
    from kedge.tasks import Truth, evaluate

    if not arguments.gold:
        return None
    gold = read_gold(arguments, x, y)
    note(f"gold: {describe_pairs(gold)}")
    evaluation = evaluate(discovery, x, y, gold.pairs, complete=gold.complete, device=arguments.device)
    return GoldComparison(evaluation, Truth(x, y, gold.pairs, complete=gold.complete))
