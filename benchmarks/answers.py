"""What kedge tells people, and whether it is true.

    python benchmarks/answers.py --data DIR                            all sections, at full size; a GPU is advisable
    python benchmarks/answers.py --data DIR --sections listed --pairs medium mobilenet --device cuda
    python benchmarks/answers.py --data DIR --sections asked --rows 2000 --json answers.json

Each section asks one question and prints one table:

- *listed*: the pairs that are listed by default, without the seeds: how many there are, their precision and recall over
  the rows that are in no seed, the stated confidence, and the share of rows of X whose partner is right.
- *asked*: what a person asks, what kedge says, and what is true; each case says whether the answer is right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kedge import AnchorDiscovery
from kedge.spaces import read_embeddings
from paper.pairs_of_spaces import PAIR_NAMES, draw_task, load_pair
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser, write_json

Row = dict[str, Any]


def main() -> int:
    """Run the sections; 1 where an answer that a section judges is not right."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--sections", nargs="+", choices=tuple(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--pairs", nargs="+", choices=PAIR_NAMES, default=["medium", "mobilenet", "texts"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[15], help="of the section listed (15)")
    parser.add_argument("--rows", type=int, help="of either space at most (all)")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="also write the rows of all tables to this file")
    arguments = parser.parse_args()
    print(describe_machine(arguments.device))
    results: dict[str, list[Row]] = {}
    for name in arguments.sections:
        print(f"\n## {name}\n")
        rows = results.setdefault(name, [])
        for row in SECTIONS[name](arguments):
            if not rows:
                print(markdown_header(tuple(row)))
            print(markdown_row([shown(value) for value in row.values()]), flush=True)
            rows.append(row)
            if arguments.json:
                write_json(arguments.json, results)
    return int(any(row.get("right") is False for rows in results.values() for row in rows))


def shown(value: object) -> str:
    """A cell of a table."""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def listed(arguments: argparse.Namespace) -> Iterator[Row]:
    """What is listed by default."""
    for name in arguments.pairs:
        pair = load_pair(arguments.data, name, arguments.rows)
        for seeds in arguments.seeds:
            task = draw_task(pair, arguments.random_state, seeds)
            discovery = fit(arguments, task.x, task.y, task.seeds)
            seeded = {left for left, _ in task.seeds}
            to_find = len(task.x) - len(seeded)
            found = [pair for pair in discovery.pair_keys_ if pair[0] not in seeded]
            right = sum(left == other for left, other in found)
            matched = zip(task.x.keys, discovery.match_.tolist(), strict=True)
            yield {
                "pair": f"{pair.name_x} x {pair.name_y}",
                "rows": len(task.x),
                "seeds": seeds,
                "listed": len(found),
                "precision": right / max(len(found), 1),
                "recall": right / to_find,
                "stated": float(discovery.pair_confidence_.mean()) if len(found) else 0.0,
                "rows right": sum(key not in seeded and task.y.keys[row] == key for key, row in matched) / to_find,
                "searching": discovery.health_.searching.verdict,
                "pairs": discovery.health_.pairs.verdict,
            }


def asked(arguments: argparse.Namespace) -> Iterator[Row]:
    """What people ask, each case by a function that yields what was said and whether that is right."""
    for case in (known_rows_alone, wrong_seeds, identical_strings):
        yield from case(arguments)


def known_rows_alone(arguments: argparse.Namespace) -> Iterator[Row]:
    """Is this map good enough, which is made of 100 known rows of X and nothing else?"""
    pair = load_pair(arguments.data, "texts", arguments.rows)
    keys = np.random.default_rng(arguments.random_state).permutation(pair.x.keys).tolist()
    known, unseen = keys[:100], keys[100:1100]
    discovery = fit(arguments, pair.x.take(pair.x.rows(known)), pair.y, [(key, key) for key in known])
    translated = discovery.translate(pair.x.vectors[pair.x.rows(unseen)])
    index = pair.y.vectors / np.linalg.norm(pair.y.vectors, axis=1, keepdims=True)
    first = ((translated @ index.T).argmax(axis=1) == pair.y.rows(unseen)).mean()
    answer = discovery.health_.searching
    yield answered(
        "can I search with a map of 100 known rows?",
        f"{answer.verdict}: {answer.reason}",
        f"own text first {first:.2f}, of texts that the map had not seen",
        (answer.verdict == "ok") == (first >= 0.4),
    )
    yield answered("how many pairs were found?", discovery.health_.pairs.reason, "none", len(discovery.pairs_) == 0)


def wrong_seeds(arguments: argparse.Namespace) -> Iterator[Row]:
    """Are my seeds right, of which 20 of 100 have each other's partners?"""
    pair = load_pair(arguments.data, "medium", arguments.rows)
    task = draw_task(pair, arguments.random_state, 100)
    keys = [left for left, _ in task.seeds]
    seeds = list(zip(keys, keys[1:20] + keys[:1] + keys[20:], strict=True))
    discovery = fit(arguments, task.x, task.y, seeds)
    contradicted = discovery.seed_opinion_ == "contradicted"
    caught, blamed = int(contradicted[:20].sum()), int(contradicted[20:].sum())
    certain = {pair for pair in discovery.linked_pairs().keys if pair in set(seeds[:20])}
    said = f"{caught} of the 20 wrong ones contradicted, and {blamed} of the 80 right ones"
    yield answered("which of my seeds are wrong?", said, "20 are", caught >= 18 and blamed <= 8)
    yield answered("do wrong ones count as pairs?", f"{len(certain)} do", "none may", len(certain) <= 20 - caught)


def identical_strings(arguments: argparse.Namespace) -> Iterator[Row]:
    """Which pairs were found from 100 identical strings of English and French?"""
    words = arguments.data / "words"
    x = read_embeddings(words / "word2vec-googlenews-300.npz", limit=arguments.rows or 20_000)
    y = read_embeddings(words / "fasttext-fr-300.npz", limit=arguments.rows)
    same = [key for key in x.keys if key in y.row_of]
    chosen = np.random.default_rng(arguments.random_state).permutation(same)[:100].tolist()
    discovery = fit(arguments, x, y, [(key, key) for key in chosen])
    seeds = set(zip(chosen, chosen, strict=True))
    said = discovery.health_.pairs.reason
    counted = said.startswith(f"{len(discovery.pairs_):,} pairs found besides the 100 seeds")
    yield answered(
        "which pairs were found?", said, "no seed is a finding", counted and not seeds & set(discovery.pair_keys_)
    )


def fit(arguments: argparse.Namespace, x: Any, y: Any, seeds: list[tuple[str, str]]) -> AnchorDiscovery:
    """A discovery as people run it."""
    return AnchorDiscovery(device=arguments.device, random_state=arguments.random_state).fit(x, y, seeds)


def answered(question: str, said: str, so: str, right: bool) -> Row:
    """A row of the section."""
    return {"a person asks": question, "kedge says": said, "what is so": so, "right": bool(right)}


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {"listed": listed, "asked": asked}

if __name__ == "__main__":
    sys.exit(main())
