"""`kedge stitch`: labels for one space from a classifier trained on the other."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import (
    FORMATS,
    add_command,
    add_overwrite,
    add_random_state,
    add_run,
    add_spreadsheet_safe,
    space_name,
)

if TYPE_CHECKING:
    from kedge.tasks import StitchScores


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "stitch",
        run,
        "label one space by a classifier trained on the other",
        "Train a classifier on labelled vectors of one space, and label vectors of the other with it.",
        """  kedge stitch RUN --train x.vec --labels x-labels.tsv --predict y.vec -o predictions.tsv
  kedge stitch RUN --train x.npz --labels x.tsv --predict y.npz --gold y.tsv --head mlp -o predictions.tsv
  kedge stitch RUN --from Y --to X --train y.npz --labels y.csv --predict x.npz -o predictions.tsv

The labels are two columns, key and label: .tsv, .csv, or separated by white space. Whole numbers are classes too;
for them --gold also says how far off they are (MAE). Logistic regression needs kedge[stitch].""",
    )
    add_run(parser)
    parser.add_argument("--train", metavar="FILE", type=space_name, required=True, help=f"labelled vectors: {FORMATS}")
    parser.add_argument("--labels", metavar="FILE", type=Path, required=True, help="a label for each key of --train")
    parser.add_argument(
        "--predict", metavar="FILE", type=space_name, required=True, help="vectors to label, in the same formats"
    )
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="file to write: .tsv")
    add_overwrite(parser)
    add_spreadsheet_safe(parser)
    parser.add_argument("--from", dest="source", choices=("X", "Y"), default="X", help="the space of --train (X)")
    parser.add_argument("--to", dest="target", choices=("X", "Y"), help="the space of --predict (the other one)")
    parser.add_argument("--head", choices=("logistic", "mlp"), default="logistic", help="the classifier (logistic)")
    parser.add_argument(
        "--anchors", choices=("free", "snapped", "seeds"), default="free", help="the run's anchors to use (free)"
    )
    parser.add_argument(
        "--gold", metavar="FILE", type=Path, help="true labels for all or some keys of --predict, to score against"
    )
    add_random_state(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train, predict, write, score."""
    from dataclasses import asdict

    from kedge.cli.output import print_json, print_line
    from kedge.cli.output_files import require_free
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.spaces import read_embeddings, read_labels, write_table
    from kedge.spaces.writing.atomic import atomic_path, require_target
    from kedge.tasks import Stitcher

    if arguments.out.suffix != ".tsv":
        raise InputError(f"{arguments.out}: predictions are tab-separated; give a name that ends in .tsv")
    require_target(arguments.out)
    require_free(arguments)
    target: Any = arguments.target or ("Y" if arguments.source == "X" else "X")
    discovery = load(arguments.run_folder)
    train, space = read_embeddings(arguments.train), read_embeddings(arguments.predict)
    labels = list(read_labels(arguments.labels, train).values())
    gold = read_labels(arguments.gold, space, complete=False) if arguments.gold else {}
    stitcher = Stitcher(
        discovery,
        head=arguments.head,
        space=arguments.source.lower(),
        anchors=arguments.anchors,
        random_state=arguments.random_state,
    ).fit(train, labels)
    probabilities = stitcher.predict_proba(space, target.lower())
    predicted = stitcher.classes_[probabilities.argmax(axis=1)].tolist()
    with atomic_path(arguments.out) as temporary:
        surest = (f"{probability:.4f}" for probability in probabilities.max(axis=1).tolist())
        write_table(
            temporary,
            ("key", "label", "probability"),
            zip(space.keys, predicted, surest, strict=True),
            spreadsheet_safe=arguments.spreadsheet_safe,
        )
    scores = _score(list(gold.values()), [predicted[space.row_of[key]] for key in gold]) if gold else None
    if arguments.json:
        described = {"out": str(arguments.out), "rows": len(space), "classes": len(stitcher.classes_)}
        print_json(described | {"scored": len(gold), "scores": asdict(scores) if scores else None})
        return 0
    print_line(f"labels for {len(space)} rows of {target}, {len(stitcher.classes_)} classes, in {arguments.out}")
    if scores:
        error = "" if scores.mae is None else f", MAE {scores.mae:.3f}"
        of = f"{len(gold)} of {len(space)} rows"
        print_line(f"weighted F1 {scores.weighted_f1:.3f}, accuracy {scores.accuracy:.3f}{error}, over {of}")
    return 0


def _score(labels: list[str], predicted: list[str]) -> StitchScores:
    """Scores of labels as files hold them; as numbers if all of them are whole."""
    from kedge.tasks import stitch_scores

    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label) for label in (*labels, *predicted)):
        return stitch_scores([int(label) for label in labels], [int(label) for label in predicted])
    return stitch_scores(labels, predicted)
