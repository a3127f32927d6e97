"""Pairs that are known to be true: the options `--gold` and `--known`, and how their files are read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kedge.cli.arguments import PAIR_FORMATS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kedge.spaces import Embeddings


class Gold(NamedTuple):
    """Gold pairs as rows (g, 2), whether all other rows are known to have none, and how many lines were skipped.

    `limit` is how many rows of each space were read, if `--limit` says so.
    """

    pairs: NDArray[np.int64]
    complete: bool
    skipped: int = 0
    limit: int | None = None


def add_gold(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The truth to compare with."""
    parser.add_argument(
        "--gold",
        metavar="keys|FILE",
        required=required,
        help="the truth: `keys` if equal keys are the gold pairs, or a pair file",
    )
    add_pair_reading(parser)


def add_known(parser: argparse.ArgumentParser, purpose: str = "texts encoded by both models") -> None:
    """The known pairs, and what they are for: by default, to rehearse on."""
    parser.add_argument(
        "--known", metavar="keys|FILE", help=f"{purpose}: `keys` if equal keys are the same item, or a pair file"
    )


def add_pair_reading(parser: argparse.ArgumentParser) -> None:
    """How a file of true pairs is read."""
    parser.add_argument("--pair-format", choices=PAIR_FORMATS, default="keys", help="what the pair file holds (keys)")
    parser.add_argument(
        "--strict", action="store_true", help="refuse a pair file with unknown keys, instead of skipping those lines"
    )


def read_gold(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> Gold:
    """Read `--gold` for these spaces."""
    return read_true_pairs(arguments, "gold", x, y)


def read_known(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> Gold | None:
    """Read `--known`, if given, for these spaces."""
    return read_true_pairs(arguments, "known", x, y) if arguments.known else None


def read_true_pairs(arguments: argparse.Namespace, option: str, x: Embeddings, y: Embeddings) -> Gold:
    """Read an option that takes `keys` or a pair file, for these spaces."""
    from kedge.spaces import read_dictionary, read_pairs
    from kedge.tasks import gold_by_key

    named = getattr(arguments, option)
    if named == "keys":
        return Gold(gold_by_key(x, y, option), complete=True)
    path = Path(named)
    if arguments.strict:
        return Gold(read_pairs(path, x, y, by=PAIR_FORMATS[arguments.pair_format]), complete=False)
    dictionary = read_dictionary(path, x, y, by=PAIR_FORMATS[arguments.pair_format])
    return Gold(dictionary.pairs, complete=False, skipped=dictionary.skipped, limit=getattr(arguments, "limit", None))


def describe_pairs(gold: Gold) -> str:
    """How many pairs there are, and how many lines were skipped."""
    pairs = "pair" if len(gold.pairs) == 1 else "pairs"
    return f"{len(gold.pairs)} {pairs}{describe_skipped(gold.skipped, gold.limit)}"


def describe_skipped(lines: int, limit: int | None = None) -> str:
    """What follows a count of pairs if lines of the file could not be used; `limit` is that of `--limit`."""
    if not lines:
        return ""
    beyond = "" if limit is None else f", or it is beyond --limit {limit}"
    return f" ({lines} {'line' if lines == 1 else 'lines'} skipped: a space lacks a key{beyond})"
