"""`kedge pairs`: the pairs of a run at any confidence, without a new discovery."""

from __future__ import annotations

import argparse
from typing import Any

from kedge.cli.arguments import add_command, add_min_confidence, add_run, add_table


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "pairs",
        run,
        "list the pairs of a run at another confidence",
        "List the pairs of a run that are at least as probable as you say, without a new discovery.",
        """  kedge pairs RUN -o sure-pairs.tsv --min-confidence 0.9
  kedge pairs RUN -o all-pairs.tsv --min-confidence 0      all mutual ones

RUN/pairs.tsv has those at the confidence given to `kedge discover`; the table has the same columns.""",
    )
    add_run(parser)
    add_table(parser)
    add_min_confidence(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, choose, write."""
    from kedge.cli.output import print_json, print_line
    from kedge.cli.output_files import require_free
    from kedge.estimators import load
    from kedge.spaces.pairs import write_table
    from kedge.spaces.writing.atomic import atomic_path, require_target

    require_target(arguments.out)
    require_free(arguments)
    chosen = load(arguments.run_folder).with_min_confidence(arguments.min_confidence)
    confidences = chosen.pair_confidence_.tolist()
    lines = (
        (str(left), str(right), f"{confidence:.4f}")
        for (left, right), confidence in zip(chosen.pair_keys_, confidences, strict=True)
    )
    with atomic_path(arguments.out) as temporary:
        write_table(temporary, ("x", "y", "confidence"), lines, spreadsheet_safe=arguments.spreadsheet_safe)
    expected = round(float(chosen.pair_confidence_.mean()), 4) if confidences else None
    if arguments.json:
        print_json({"out": str(arguments.out), "pairs": len(confidences), "expected_precision": expected})
        return 0
    share = "" if expected is None else f" (about {100 * expected:.0f} % right)"
    print_line(f"{len(confidences)} pairs{share} in {arguments.out}")
    return 0
