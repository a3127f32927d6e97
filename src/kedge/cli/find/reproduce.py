"""`kedge reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

import argparse
import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kedge.cli.arguments import add_command, add_command_group, add_device, positive, seed_number

# The experiments are beside the benchmarks in a checkout, and not in the installed package.
_EXPERIMENTS = Path(__file__).parents[4] / "benchmarks" / "paper"
_WORD_PAIRS = ("easy", "medium")
_IMAGE_PAIRS = ("vit", "mobilenet")
_TASKS = ("amazon", "descriptions", "encoders")


def add_parser(commands: Any) -> None:
    """Describe the command and its three experiments."""
    experiments = add_command_group(
        commands,
        "reproduce",
        "run one of the paper's experiments",
        "Run one of the paper's experiments and print our figures beside the published ones.\n"
        "A run that was stopped continues where it was; tables and figures of an earlier one in --out are replaced.\n"
        "Needs a checkout of the source, which has the experiments in benchmarks/paper.",
        """  kedge reproduce words --data DIR
  kedge reproduce words --x wiki-news-300d-1M.vec --y GoogleNews-vectors-negative300.bin
  kedge reproduce reviews --help     more about one experiment, such as --json""",
        "experiment",
    )
    _add_words(experiments)
    _add_images(experiments)
    _add_reviews(experiments)


def _add_words(experiments: Any) -> None:
    parser = add_command(
        experiments,
        "words",
        run_words,
        "two tables of word vectors",
        "Match the words of two tables of word vectors, from 15 known pairs.",
        """  kedge reproduce words --data DIR
  kedge reproduce words --data DIR --pairs easy --random-states 0 --limit 4000                  a quick look
  kedge reproduce words --x wiki-news-300d-1M.vec --y GoogleNews-vectors-negative300.bin        the paper's own pair""",
    )
    parser.add_argument("--pairs", nargs="+", choices=_WORD_PAIRS, default=list(_WORD_PAIRS), help="which pairs (both)")
    parser.add_argument("--x", metavar="FILE", type=Path, help="word vectors sorted by frequency, instead of --data")
    parser.add_argument("--y", metavar="FILE", type=Path, help="the other table; words are chosen as in the paper")
    _add_common(parser)


def _add_images(experiments: Any) -> None:
    parser = add_command(
        experiments,
        "images",
        run_images,
        "features of images by two networks",
        "Match features of the same images by two networks, from 15 known pairs.",
        """  kedge reproduce images --data DIR
  kedge reproduce images --data DIR --pairs vit --random-states 0 1""",
    )
    parser.add_argument(
        "--pairs", nargs="+", choices=_IMAGE_PAIRS, default=list(_IMAGE_PAIRS), help="which pairs (both)"
    )
    _add_common(parser)


def _add_reviews(experiments: Any) -> None:
    parser = add_command(
        experiments,
        "reviews",
        run_reviews,
        "classifiers of reviews, stitched",
        "Zero-shot stitching: train a classifier on one encoder's vectors, use it on another's.",
        """  kedge reproduce reviews --data DIR
  kedge reproduce reviews --data DIR --tasks amazon --head logistic
  kedge reproduce reviews --data DIR --tasks amazon --encoder-x roberta-base --encoder-y PlanTL-GOB-ES/roberta-base-bne

amazon:        stars of reviews in English (X) and Spanish (Y); 15 parallel sentences of another kind as seeds
descriptions:  topics of package descriptions in English (X) and French (Y)
encoders:      stars of English reviews by two encoders, MiniLM (X) and word means (Y)""",
    )
    parser.add_argument("--tasks", nargs="+", choices=_TASKS, default=list(_TASKS), help="which tasks (all)")
    parser.add_argument(
        "--encoder-x", metavar="NAME", help="model, or file of word vectors, to use instead of the task's encoder of X"
    )
    parser.add_argument("--encoder-y", metavar="NAME", help="the same for Y")
    parser.add_argument(
        "--head",
        choices=("mlp", "logistic"),
        default="mlp",
        help="classifier: the paper's MLP, or logistic regression (mlp)",
    )
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="folder with words/, images/, reviews/, descriptions/ (default: $KEDGE_DATA)",
    )
    parser.add_argument(
        "--random-states",
        metavar="N",
        nargs="+",
        type=seed_number,
        default=[0, 1, 2, 3, 4],
        help="which ones (0 1 2 3 4)",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("kedge-reproduce"),
        help="folder to write (kedge-reproduce)",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N rows or texts, for a quick look")
    parser.add_argument(
        "--paper-optimiser",
        action=argparse.BooleanOptionalAction,
        help="run the paper's optimiser too (default: only on a GPU; on a CPU it takes hours)",
    )
    parser.add_argument("--no-figures", action="store_true", help="tables only, no matplotlib needed")
    add_device(parser)


def run_words(arguments: argparse.Namespace) -> int:
    """Load the pairs, run, write and print."""
    return load_experiments().run_words(arguments)


def run_images(arguments: argparse.Namespace) -> int:
    """Load the pairs, run, write and print."""
    return load_experiments().run_images(arguments)


def run_reviews(arguments: argparse.Namespace) -> int:
    """Encode, run, write and print."""
    return load_experiments().run_reviews(arguments)


def load_experiments() -> ModuleType:
    """What runs the experiments, from the checkout that this file belongs to."""
    from kedge.errors import MissingExtraError

    if not _EXPERIMENTS.is_dir():
        raise MissingExtraError(
            "kedge reproduce works from a checkout of kedge's source, and this kedge is installed without one (no "
            f"{_EXPERIMENTS}); clone the repository or unpack the source distribution, and run "
            "`pip install --editable '.[plot]'` in its folder"
        )
    if "paper" not in sys.modules:  # by its path: another package may have that name
        spec = spec_from_file_location("paper", _EXPERIMENTS / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["paper"] = package = module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module("paper.command")
