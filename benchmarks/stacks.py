"""A new model in a running search: what four strategies find and cost, and what a half-migrated index finds.

    python benchmarks/stacks.py --data DIR                        15,000 texts; 15, 100 and 1,000 known pairs
    python benchmarks/stacks.py --data DIR --index 4000 --lacked 2000 --known 100 --out stacks.json

The index holds sentences by MiniLM, and multilingual E5 is the new model. X holds other sentences by E5, and those of
the index whose pairs are known. Queries are 1,000 sentences that neither has. Three judges say which ten are right:
BM25, which knows neither model, the old model, and the new one. In the half-migrated index a tenth, a half or nine
tenths of the rows are native; the rest were translated. It is searched with plain scores, with the offset that the run
keeps, which needs nothing else, and with one that is learned from 2,000 rows of the index that were encoded again and
are no known pairs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor

from kedge import AnchorDiscovery, Embeddings, read_embeddings
from kedge.geometry import unit
from kedge.tasks.rehearsal.cascade import compare_strategies, recall_of
from kedge.tasks.rehearsal.mixed_index import ScoreCalibration, fit_calibration, search_mixed
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser, write_json

QUERIES = 1000
AGAIN = 2000
NATIVE_SHARES = (0.1, 0.5, 0.9)
_K1, _B = 1.2, 0.75  # of BM25, as they usually are


@dataclass(frozen=True)
class Stack:
    """Queries and texts of the index by both models, unit rows, and which ten texts are right by BM25 (q, 10)."""

    old_queries: Tensor
    new_queries: Tensor
    old_index: Tensor
    new_index: Tensor
    lexical: Tensor


def main() -> None:
    """Draw the texts, fit a run for each number of known pairs, and measure."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--index", type=int, default=15_000, help="texts in the index (15000)")
    parser.add_argument("--lacked", type=int, default=4000, help="other texts by the new model (4000)")
    parser.add_argument("--known", type=int, nargs="+", default=(15, 100, 1000), help="known pairs (15 100 1000)")
    parser.add_argument("--candidates", type=int, nargs="+", default=(100, 200), help="of the cascade (100 200)")
    parser.add_argument(
        "--seconds-per-text", type=float, default=0.01, help="that the new model takes for one text (0.01)"
    )
    parser.add_argument("--state", type=int, default=0, help="draw of the texts (0)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    arguments = parser.parse_args()
    folder = arguments.data / "sentences"
    old, new = (read_embeddings(folder / f"{name}-en.npz") for name in ("minilm", "me5"))
    drawn = np.random.default_rng(arguments.state).permutation(list(old.keys)).tolist()
    asked, drawn = drawn[:QUERIES], drawn[QUERIES:]
    held, lacked = drawn[: arguments.index], drawn[arguments.index : arguments.index + arguments.lacked]
    texts = read_texts(folder / "sentences.tsv.gz")
    stack = Stack(
        *(unit_rows(space, asked) for space in (old, new)),
        *(unit_rows(space, held) for space in (old, new)),
        bm25([texts[key] for key in asked], [texts[key] for key in held]),
    )
    print(f"{describe_machine(arguments.device)}; {len(held)} texts, {len(asked)} queries", flush=True)
    results: dict[str, Any] = {}
    for known in arguments.known:
        x, y = new.take(new.rows([*lacked, *held[:known]])), old.take(old.rows(held))
        pairs = np.stack([x.rows(held[:known]), np.arange(known)], axis=1)
        run = AnchorDiscovery(device=arguments.device).fit(x, y, pairs)
        print(f"\n{known} known pairs: the map is {run.health_.map.verdict}, {run.map_scores_['map']['kind']}\n")
        results[str(known)] = {
            "verdict": run.health_.map.verdict,
            "strategies": strategies(run, stack, arguments),
            "half_migrated": half_migrated(run, stack, known),
        }
    if arguments.out:
        sizes = {"index": len(held), "lacked": arguments.lacked, "queries": len(asked)}
        write_json(arguments.out, sizes | {"seconds_per_text": arguments.seconds_per_text, "known": results})


def strategies(run: AnchorDiscovery, stack: Stack, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The table of the four strategies, by three judges."""
    translated = unit(torch.from_numpy(run.translate(stack.new_queries.numpy())))
    judges = {
        "BM25": stack.lexical,
        "the old model": (stack.old_queries @ stack.old_index.T).topk(10, dim=1).indices,
        "the new model": (stack.new_queries @ stack.new_index.T).topk(10, dim=1).indices,
    }
    columns = ("", *(f"by {judge}" for judge in judges), "texts beforehand", "texts per query", "seconds per query")
    rows: dict[str, dict[str, Any]] = {}
    for candidates in arguments.candidates:
        for judge, right in judges.items():
            compared = compare_strategies(
                translated,
                stack.new_queries,
                stack.old_index,
                stack.new_index,
                right,
                old_queries=stack.old_queries,
                candidates=candidates,
                seconds_per_text=arguments.seconds_per_text,
            )
            for each in compared.strategies:
                name = f"cascade of {candidates}" if each.name == "cascade" else each.name
                row = rows.setdefault(name, asdict(each) | {"name": name, "recall": {}})
                row["recall"][judge] = each.recall.estimate
            print(f"by {judge}, {candidates} candidates: {compared.recommended} ({compared.reason})", flush=True)
    print(f"\n{markdown_header(columns)}")
    for row in rows.values():
        recalls = (f"{row['recall'][judge]:.3f}" for judge in judges)
        costs = (f"{row['texts']}", f"{row['texts_per_query']}", f"{row['seconds_per_query']:.4f}")
        print(markdown_row((row["name"], *recalls, *costs)))
    return list(rows.values())


def half_migrated(run: AnchorDiscovery, stack: Stack, known: int) -> list[dict[str, Any]]:
    """The table of mixed indexes, before and after calibration; recall is of what an index of native rows finds."""
    rows = unit(torch.from_numpy(run.translate(stack.old_index.numpy(), back=True)))
    again = slice(known, known + AGAIN)
    kept = run.score_offsets_
    calibrations = {
        "none": ScoreCalibration(0.0),
        "of the run": ScoreCalibration(0.0 if kept is None else kept.to_x),
        "by rows encoded again": fit_calibration(stack.new_index[again], rows[again]),
    }
    right = (stack.new_queries @ stack.new_index.T).topk(10, dim=1).indices
    found = []
    print()
    columns = (
        "native rows",
        "calibration",
        "offset",
        "native among the ten",
        "recall",
        "of native rows",
        "of translated rows",
    )
    print(markdown_header(columns))
    for share in NATIVE_SHARES:
        native = torch.rand(len(rows), generator=torch.Generator().manual_seed(0)) < share
        index = torch.where(native[:, None], stack.new_index, rows)
        for name, each in calibrations.items():
            ten = search_mixed(stack.new_queries, index, native, each)
            kinds = [right.where(mask[right], -1) for mask in (native, ~native)]
            of_kind = [float(recall_of(ten, k)[(k >= 0).any(dim=1).numpy()].mean()) for k in kinds]
            row = {
                "native": share,
                "calibration": name,
                "offset": each.offset,
                "native_found": float(native[ten].double().mean()),
                "recall": float(recall_of(ten, right).mean()),
                "recall_native": of_kind[0],
                "recall_translated": of_kind[1],
            }
            found.append(row)
            figures = (f"{value:.3f}" for value in list(row.values())[3:])
            print(markdown_row((f"{share:.0%}", name, f"{each.offset:+.4f}", *figures)))
    return found


def unit_rows(space: Embeddings, keys: list[str]) -> Tensor:
    """The vectors of keys, of unit length."""
    return unit(torch.from_numpy(np.array(space.vectors[space.rows(keys)], dtype=np.float32)))


def read_texts(path: Path) -> dict[str, str]:
    """The sentences by key."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return {row[0]: row[-1] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}


def bm25(queries: list[str], texts: list[str], k: int = 10) -> Tensor:
    """The rows (q, k) of the texts that BM25 ranks first for each query, padded with -1 where fewer share a word."""
    counter = CountVectorizer(lowercase=True, stop_words="english")
    counts = counter.fit_transform(texts).tocsr().astype(np.float32)
    asked = (counter.transform(queries) > 0).astype(np.float32)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    present = np.diff(counts.tocsc().indptr)
    rarity = np.log1p((len(texts) - present + 0.5) / (present + 0.5)).astype(np.float32)
    weights = counts.tocoo()
    normaliser = _K1 * (1 - _B + _B * lengths[weights.row] / lengths.mean())
    values = rarity[weights.col] * weights.data * (_K1 + 1) / (weights.data + normaliser)
    weighted = sparse.csr_matrix((values, (weights.row, weights.col)), shape=counts.shape)
    scores, rows = torch.from_numpy((asked @ weighted.T).toarray()).topk(k, dim=1)
    return rows.where(scores > 0, -1)


if __name__ == "__main__":
    main()
