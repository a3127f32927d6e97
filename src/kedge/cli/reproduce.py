"""`kedge reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_device, add_verb, add_verb_group, positive, seed_number

if TYPE_CHECKING:
    from kedge.experiments import Result
    from kedge.experiments.pairs_of_spaces import SpacePair
    from kedge.experiments.plan import Plan
    from kedge.experiments.stitching import StitchingTask
    from kedge.solving.steps import OnStep, Step

_WORD_PAIRS = ("easy", "medium")
_IMAGE_PAIRS = ("vit", "mobilenet")
_TASKS = ("amazon", "descriptions", "encoders")


def add_parser(verbs: Any) -> None:
    """Describe the verb and its three experiments."""
    experiments = add_verb_group(
        verbs,
        "reproduce",
        "run one of the paper's experiments, with its figures beside ours",
        "Run one of the paper's experiments and print our figures beside the published ones. "
        "A run that was stopped goes on where it was; tables and figures of an earlier one in --out are replaced.",
        """  kedge reproduce words --data DIR
  kedge reproduce words --x wiki-news-300d-1M.vec --y GoogleNews-vectors-negative300.bin
  kedge reproduce reviews --help     more about one experiment, such as --json""",
        "experiment",
    )
    _add_words(experiments)
    _add_images(experiments)
    _add_reviews(experiments)


def _add_words(experiments: Any) -> None:
    parser = add_verb(
        experiments,
        "words",
        run_words,
        "Two tables of word vectors: which word is which, from 15 known pairs.",
        """  kedge reproduce words --data DIR
  kedge reproduce words --data DIR --pairs easy --random-states 0 --limit 4000                  a quick look
  kedge reproduce words --x wiki-news-300d-1M.vec --y GoogleNews-vectors-negative300.bin        the paper's own pair""",
    )
    parser.add_argument("--pairs", nargs="+", choices=_WORD_PAIRS, default=list(_WORD_PAIRS), help="which pairs (both)")
    parser.add_argument("--x", metavar="FILE", type=Path, help="word vectors sorted by frequency, instead of --data")
    parser.add_argument("--y", metavar="FILE", type=Path, help="the other table; the paper's choice of words is taken")
    _add_common(parser)


def _add_images(experiments: Any) -> None:
    parser = add_verb(
        experiments,
        "images",
        run_images,
        "Features of the same images by two networks: which is which, from 15 known pairs.",
        """  kedge reproduce images --data DIR
  kedge reproduce images --data DIR --pairs vit --random-states 0 1""",
    )
    parser.add_argument(
        "--pairs", nargs="+", choices=_IMAGE_PAIRS, default=list(_IMAGE_PAIRS), help="which pairs (both)"
    )
    _add_common(parser)


def _add_reviews(experiments: Any) -> None:
    parser = add_verb(
        experiments,
        "reviews",
        run_reviews,
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
        "--encoder-x", metavar="NAME", help="model or file of word vectors instead of the task's own encoder of X"
    )
    parser.add_argument("--encoder-y", metavar="NAME", help="the same for Y")
    parser.add_argument("--head", choices=("mlp", "logistic"), default="mlp", help="classifier: the paper's MLP (mlp)")
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="folder with words/, images/, reviews/, descriptions/ (default: $KEDGE_DATA)",
    )
    parser.add_argument(
        "--random-states", metavar="N", nargs="+", type=seed_number, default=[0, 1, 2, 3, 4], help="(0 1 2 3 4)"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("kedge-reproduce"), help="(kedge-reproduce)")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N rows or texts, for a quick look")
    parser.add_argument(
        "--paper-optimiser",
        action=argparse.BooleanOptionalAction,
        help="run the paper's optimiser too (default: where there is a GPU; on a CPU it takes hours)",
    )
    parser.add_argument("--no-figures", action="store_true", help="tables only, no matplotlib needed")
    add_device(parser)


def run_words(arguments: argparse.Namespace) -> int:
    """Load the pairs, run, write and print."""
    from kedge.errors import InputError
    from kedge.experiments.pairs_of_spaces import load_pair, load_published_words

    _prepare(arguments)
    if (arguments.x is None) != (arguments.y is None):
        raise InputError("--x and --y go together; give both files, or --data")
    if arguments.x:
        pairs = [load_published_words(arguments.x, arguments.y, arguments.limit)]
    else:
        data = _data_folder(arguments)
        pairs = [load_pair(data, name, arguments.limit) for name in arguments.pairs]
    return _run_retrieval(arguments, "words", pairs)


def run_images(arguments: argparse.Namespace) -> int:
    """Load the pairs, run, write and print."""
    from kedge.experiments.pairs_of_spaces import load_pair

    _prepare(arguments)
    data = _data_folder(arguments)
    return _run_retrieval(arguments, "images", [load_pair(data, name, arguments.limit) for name in arguments.pairs])


def _run_retrieval(arguments: argparse.Namespace, name: str, pairs: Sequence[SpacePair]) -> int:
    from kedge.experiments.words_and_images import reproduce_retrieval

    with _Bars() as bars:
        result = reproduce_retrieval(name, pairs, _plan(arguments, bars))
    return _conclude(arguments, result)


def run_reviews(arguments: argparse.Namespace) -> int:
    """Encode, run, write and print."""
    from kedge.cli.progress import counting_bar
    from kedge.errors import InputError
    from kedge.estimators.devices import resolve_device
    from kedge.experiments.encoding import EncodingPlace
    from kedge.experiments.reviews import reproduce_reviews
    from kedge.experiments.stitching_data import Encoders, load_task

    data = _data_folder(arguments)
    _prepare(arguments)
    chosen = Encoders(arguments.encoder_x, arguments.encoder_y)
    if (arguments.encoder_x or arguments.encoder_y) and len(arguments.tasks) > 1:
        raise InputError("--encoder-x and --encoder-y are for one task, each has its own languages; add --tasks NAME")

    with _Bars() as bars:

        def load(name: str) -> StitchingTask:
            bars.close()  # two live displays would write over each other
            with counting_bar(f"encoding {name}") as on_progress:
                place = EncodingPlace(arguments.out / "encoded", str(resolve_device(arguments.device)), on_progress)
                return load_task(name, data, place, chosen, arguments.limit)

        result = reproduce_reviews(map(load, arguments.tasks), _plan(arguments, bars), head=arguments.head)
    return _conclude(arguments, result)


def _prepare(arguments: argparse.Namespace) -> None:
    """Find out now, not after the work, whether results can be written and figures drawn."""
    from kedge.errors import InputError
    from kedge.report import require_matplotlib

    if arguments.out.is_file():
        raise InputError(f"{arguments.out}: is a file; --out needs a folder")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in ("random_states", "pairs", "tasks"):
        given = getattr(arguments, name, [])
        if len(set(given)) < len(given):
            raise InputError(f"--{name.replace('_', '-')}: something is given twice: {' '.join(map(str, given))}")
    if not arguments.no_figures:
        require_matplotlib(", or pass --no-figures")


def _data_folder(arguments: argparse.Namespace) -> Path:
    from kedge.errors import InputError

    folder = arguments.data or os.environ.get("KEDGE_DATA")
    if not folder:
        raise InputError("no data: give their folder with --data, or in the environment as KEDGE_DATA")
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of the data with --data or KEDGE_DATA")
    return Path(folder)


def _plan(arguments: argparse.Namespace, bars: _Bars) -> Plan:
    from kedge.estimators.devices import resolve_device
    from kedge.experiments.plan import Plan

    wanted = arguments.paper_optimiser
    return Plan(
        out=arguments.out,
        random_states=arguments.random_states,
        on_part=bars.begin,
        on_step=bars.draw,
        device=arguments.device,
        paper_optimiser=resolve_device(arguments.device).type == "cuda" if wanted is None else wanted,
        figures=not arguments.no_figures,
    )


class _Bars(ExitStack):
    """Progress of a run in parts: each gets a line, and bars of its own once it makes a step."""

    _on_step: OnStep | None = None

    def begin(self, name: str, finished: bool) -> None:
        """A part begins, or was done before."""
        from kedge.cli.output import note

        self.close()
        note(f"{name}{': done before' if finished else ''}")

    def draw(self, step: Step) -> None:
        """The part makes a step."""
        from kedge.cli.progress import progress_bar

        if self._on_step is None:
            self._on_step = self.enter_context(progress_bar())
            self.callback(setattr, self, "_on_step", None)
        self._on_step(step)


def _conclude(arguments: argparse.Namespace, result: Result) -> int:
    from kedge.cli.output import print_json, print_table, say

    written = result.write(arguments.out)
    if arguments.json:
        print_json(result.details)
        return 0
    for table in result.tables:
        say((table.title, "bold"))
        print_table(table.columns, table.rows)
        for remark in table.remarks:
            say(remark)
        say()
    say(f"Written: {', '.join(str(path) for path in written)}")
    return 0
