"""`kedge demo`: the main job on the words that kedge ships."""

from __future__ import annotations

import argparse
import textwrap
import time
from pathlib import Path
from typing import Any

from kedge.cli.arguments import add_command, add_device, add_random_state

_SEEDS = 15
_ANCHORS = 300
_WORDS_SHOWN = 5
_FILES = ("word2vec.npz", "glove.npz", "seeds.tsv")
_MADE = ("run", "report.html")
_THE_PAPER = (
    "The paper, on 20,000 words of FastText and Word2Vec: GT .34 / .94 / .86, Seed .06 / .11 / .85, optimised anchors "
    ".52 / .99 / .94 (Jaccard / MRR / cosine). Other models and fewer words here: compare the order of the rows, not "
    "the figures."
)


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "demo",
        run,
        "pair up 5,000 words of two models, from 15 known pairs",
        "Pair up 5,000 English words of Word2Vec and GloVe, two models trained independently, from 15 known pairs.",
        """  kedge demo
  kedge demo -o DIR --random-state 3

An earlier demo in the folder is replaced; a folder that holds anything else is left alone.""",
    )
    parser.add_argument(
        "-o", "--out", metavar="DIR", type=Path, default=Path("kedge-demo"), help="folder to write (kedge-demo)"
    )
    add_random_state(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the two spaces and seeds as files, discover, and compare with the truth."""
    from dataclasses import replace

    import numpy as np

    from kedge.cli.find.provenance import describe_input, describe_machine
    from kedge.cli.look.evaluate import as_json, print_evaluation
    from kedge.cli.output import kedge_command, print_json, print_line
    from kedge.cli.progress import progress_bar
    from kedge.data import load_demo_words
    from kedge.errors import InputError, MissingExtraError
    from kedge.estimators import AnchorDiscovery
    from kedge.report import GoldComparison, write_report
    from kedge.spaces import write_embeddings, write_table
    from kedge.spaces.writing.atomic import atomic_folder
    from kedge.tasks import Truth, evaluate, gold_by_key, search

    out: Path = arguments.out
    if out.is_file() or (out.is_dir() and not {path.name for path in out.iterdir()} <= {*_FILES, *_MADE}):
        raise InputError(f"{out}: already exists and is not an earlier demo; choose another name with --out")
    out.parent.mkdir(parents=True, exist_ok=True)  # now, not after the work
    x, y = load_demo_words()
    chance = np.random.default_rng(arguments.random_state)
    y = y.take(chance.permutation(len(y)))  # so that no row number gives a pair away
    x, y = (replace(space, source=str(out / name)) for space, name in zip((x, y), _FILES, strict=False))
    gold = gold_by_key(x, y)
    seeds = gold[chance.choice(len(gold), _SEEDS, replace=False)]

    began = time.perf_counter()
    with progress_bar() as on_step:
        discovery = AnchorDiscovery(
            n_anchors=_ANCHORS, random_state=arguments.random_state, device=arguments.device, on_step=on_step
        ).fit(x, y, seeds)
    seconds = time.perf_counter() - began
    evaluation = evaluate(discovery, x, y, gold, complete=True, device=arguments.device)

    with atomic_folder(out) as folder:
        write_embeddings(x, folder / _FILES[0])
        write_embeddings(y, folder / _FILES[1])
        write_table(folder / _FILES[2], ("x", "y"), discovery.seed_keys_)
        described = (describe_input(folder / name, space) for name, space in zip(_FILES, (x, y, None), strict=True))
        extra = {
            "inputs": dict(zip(("x", "y", "seeds"), described, strict=True)),
            "timings": {"fit_seconds": round(seconds, 3)},
            "machine": describe_machine(arguments.device),
        }
        discovery.save(folder / "run", extra=extra)
        try:
            truth = GoldComparison(evaluation, Truth(x, y, gold, complete=True), _THE_PAPER)
            write_report(folder / "report.html", discovery, x, y, gold=truth, run=str(out / "run"))
            page = str(out / "report.html")
        except MissingExtraError as error:  # the rest of the demo works without it
            page = f"not made, {error}"

    if arguments.json:
        more = {"seconds": round(seconds, 2), "run": str(out / "run"), "report": page}
        print_json(as_json(evaluation, discovery.health_) | more)
        return 0
    print_line(
        ("kedge demo", "bold"),
        f": {len(x)} words in Word2Vec ({x.dim}-d) and GloVe ({y.dim}-d), two models trained "
        f"independently; known at the start: {_SEEDS} pairs",
    )
    print_line("  " + ", ".join(left for left, _ in discovery.seed_keys_))
    print_line()
    print_line(
        ("Found", "bold"),
        f" {len(discovery.pairs_)} pairs in {seconds:.1f} s. Some words and their nearest in GloVe:",
    )
    hidden = [key for key, seed in zip(discovery.anchor_keys_, discovery.anchor_is_seed_, strict=True) if not seed]
    for key, near in search(discovery, x, y, [left for left, _ in hidden[:_WORDS_SHOWN]], 3).items():
        print_line(f"  {key:<14} {', '.join(f'{n.key} {n.similarity:.2f}' for n in near)}")
    print_line()
    print_line(("Against the truth", "bold"), " (which the method did not see):")
    print_evaluation(evaluation, discovery.health_)
    for line in textwrap.wrap(_THE_PAPER, 110):
        print_line(line)
    x_file, y_file, seeds_file = (out / name for name in _FILES)
    print_line()
    print_line(("Look at it", "bold"), ", in a browser:")
    print_line(f"  {page}")
    print_line(f"Files are in {out}. Try next:")
    print_line(f"  {kedge_command()} search {out / 'run'} {x_file} {y_file} water music")
    print_line(f"  {kedge_command()} discover {x_file} {y_file} --seeds {seeds_file} -o my-run")
    return 0
