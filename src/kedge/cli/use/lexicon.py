"""`kedge lexicon`: the translations of X's rows that are probably acceptable."""

from __future__ import annotations

import argparse
from typing import Any

from kedge.cli.arguments import (
    add_command,
    add_device,
    add_limit,
    add_min_confidence,
    add_run,
    add_spaces,
    add_table,
    positive,
)
from kedge.cli.exit_codes import EXIT_NOT_PASSED
from kedge.cli.true_pairs import add_known, add_pair_reading, describe_pairs, read_known

_SHOWN = 5


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "lexicon",
        run,
        "list translations of X's rows that are probably right",
        "List the best few rows of Y for each row of X, with the probability that each is an acceptable translation.",
        """  kedge lexicon RUN en.vec fr.vec -o lexicon.tsv
  kedge lexicon RUN en.vec fr.vec -o lexicon.tsv --min-confidence 0.8 --top 1
  kedge lexicon RUN en.vec fr.vec -o lexicon.tsv --known dictionary.tsv     calibrated by more known pairs

The table has the columns source, target, probability and rank. Unlike the pairs of a run it may list a row of either
side several times: a word has several translations. It is made from a finished run: another --min-confidence needs no
new discovery. The probabilities are calibrated by the seeds, each held out in turn, and by --known.
If what is listed is not ok for a lexicon, the exit code is 3; the table is written all the same.""",
    )
    add_run(parser)
    add_spaces(parser)
    add_table(parser)
    add_min_confidence(parser, "translations")
    parser.add_argument("--top", metavar="N", type=positive, default=3, help="at most N translations per row (3)")
    add_known(parser, purpose="calibrate by these pairs as well")
    add_pair_reading(parser)
    parser.add_argument("--ignore-verdict", action="store_true", help="exit with 0 regardless of the verdict")
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, list, write, and print a few of them."""
    from kedge.cli.output import note, print_answer, print_json, print_line, warn
    from kedge.cli.output_files import require_free
    from kedge.estimators import load
    from kedge.spaces import read_embeddings
    from kedge.spaces.writing.atomic import require_target
    from kedge.tasks import make_lexicon

    require_target(arguments.out)
    require_free(arguments)
    discovery = load(arguments.run_folder)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    known = read_known(arguments, x, y)
    if known:
        note(f"known: {describe_pairs(known)}")
    lexicon = make_lexicon(
        discovery,
        x,
        y,
        top=arguments.top,
        min_confidence=arguments.min_confidence,
        known=known.pairs if known else None,
        device=arguments.device,
    )
    entries = lexicon.write(arguments.out, spreadsheet_safe=arguments.spreadsheet_safe)
    words = len({entry.source for entry in lexicon.entries()})
    answer = lexicon.answer
    if arguments.json:
        print_json(
            {
                "out": str(arguments.out),
                "lexicon": answer,
                "translations": entries,
                "rows": words,
                "known": lexicon.translations.known,
                "known_first": lexicon.translations.known_first,
            }
        )
    else:
        print_answer("Lexicon: ", answer)
        print_line(f"{entries} translations of {words} of {len(x)} rows of X in {arguments.out}")
        for entry in lexicon.surest(_SHOWN):
            print_line(f"  {entry.source} = {entry.target}  ({entry.probability:.2f})")
        if answer.verdict == "ok":
            print_line(answer.advice)
    if answer.verdict == "ok":
        return 0
    warn(f"the verdict for a lexicon is {answer.verdict}: do not rely on it. {answer.advice}")
    return 0 if arguments.ignore_verdict else EXIT_NOT_PASSED
