"""Does a store hold one model or several, and what changed between two sets of vectors?

    python benchmarks/audit.py --data DATA [--rows 5000] [--large 99316] [--pure 60] [--only PART] [--out audit.json]

Mixed stores hold each item once, by one of two models of one dimension; the second model has 1, 10 and 50 % of the
rows. The AUROC is that of the rows' scores. Pure stores are samples, and runs of neighbouring rows, of every space in
the data. The last part shows what `drift` calls variants of one model, with 64 items (a canary) and with many.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kedge
from setting import add_data_option, markdown_header, markdown_row, new_parser, timed, write_json

MODELS: dict[str, str | tuple[str, ...]] = {
    "MiniLM": "texts/minilm-en.npz",
    "BGE": "texts/bge-en.npz",
    "mE5": "texts/me5-en.npz",
    "mE5 French": "texts/me5-fr.npz",
    "MiniLM sentences": "sentences/minilm-en.npz",
    "MiniLM, all": ("sentences/minilm-en.npz", "texts/minilm-en.npz"),
    "mE5 sentences": "sentences/me5-en.npz",
    "FastText": "words/fasttext-wiki-300.npz",
    "FastText French": "words/fasttext-fr-300.npz",
    "FastText Spanish": "words/fasttext-es-200.npz",
    "GloVe": "words/glove-6b-100.npz",
    "Word2Vec": "words/word2vec-googlenews-300.npz",
    "MobileNet v1": "images/cifar10-mobilenet-v1-1024.npz",
    "MobileNet v2": "images/cifar10-mobilenet-v2-1280.npz",
    "ViT a": "images/cifar10-vit-a-128.npz",
    "ViT b": "images/cifar10-vit-b-128.npz",
}
PAIRS = (
    ("MiniLM", "mE5"),
    ("mE5", "MiniLM"),
    ("BGE", "mE5"),
    ("MiniLM", "BGE"),
    ("BGE", "MiniLM"),
    ("Word2Vec", "FastText"),
    ("ViT a", "ViT b"),
)
SHARES = (0.01, 0.1, 0.5)
POOLS = [name for name, files in MODELS.items() if isinstance(files, str)]
"""Of which pure stores are taken."""


class Spaces:
    """The vectors of the models, each file read once; those of several files after each other, scaled to length 1."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._read: dict[str, kedge.Embeddings] = {}

    def __getitem__(self, name: str) -> kedge.Embeddings:
        if name not in self._read:
            files = MODELS[name]
            if isinstance(files, str):
                self._read[name] = kedge.read_embeddings(self._data / files)
            else:
                parts = [kedge.read_embeddings(self._data / file) for file in files]
                vectors = [part.vectors / np.linalg.norm(part.vectors, axis=1, keepdims=True) for part in parts]
                self._read[name] = kedge.Embeddings([k for part in parts for k in part.keys], np.concatenate(vectors))
        return self._read[name]


def auroc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """How often a positive row has the higher score, by ranks; equal scores count half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    few, many = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - few * (few + 1) / 2) / (few * many))


def mixed(spaces: Spaces, first: str, second: str, share: float, rows: int) -> dict[str, Any]:
    """One store of two models, each item in one of them only."""
    a, b = spaces[first], spaces[second]
    chance = np.random.default_rng(0)
    # Items that only the first model has read go to it; of those that both have, the second gets its share of all.
    common = [key for key in a.keys if key in b.row_of]
    common = [common[place] for place in chance.permutation(len(common))[:rows]]
    more = [key for key in a.keys if key not in b.row_of][: rows - len(common)]
    keys = [*common, *more]
    foreign = np.arange(len(keys)) < round(share * len(keys))
    chosen = [key for key, is_foreign in zip(keys, foreign, strict=True) if is_foreign]
    rest = [key for key, is_foreign in zip(keys, foreign, strict=True) if not is_foreign]
    vectors = np.concatenate([b.vectors[b.rows(chosen)], a.vectors[a.rows(rest)]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    seconds, found = timed(lambda: kedge.audit(vectors))
    apart = auroc(np.maximum(found.scores, -1e300), foreign)
    right = float((found.foreign == foreign).mean())
    if share == 0.5:  # neither is the main one
        apart, right = max(apart, 1 - apart), max(right, 1 - right)
    return {
        "first": first,
        "second": second,
        "share": share,
        "rows": len(keys),
        "verdict": found.verdict,
        "relation": [group.relation for group in found.groups[1:]],
        "likeness": [group.likeness for group in found.groups[1:]],
        "auroc": apart,
        "right": right,
        "seconds": seconds,
    }


def pure(spaces: Spaces, count: int, rows: int) -> Iterator[dict[str, Any]]:
    """Stores of one model: random rows and neighbouring rows, of several sizes."""
    chance = np.random.default_rng(1)
    for number in range(count):
        name = POOLS[number % len(POOLS)]
        space = spaces[name]
        size = min(len(space), (rows, rows // 2, rows // 5, rows)[number // len(POOLS) % 4])
        if number // len(POOLS) % 2:
            begin = int(chance.integers(len(space) - size + 1))
            taken, how = np.arange(begin, begin + size), "neighbouring"
        else:
            taken, how = np.sort(chance.permutation(len(space))[:size]), "random"
        seconds, found = timed(lambda taken=taken, space=space: kedge.audit(space.vectors[taken]))
        yield {
            "model": name,
            "rows": size,
            "how": how,
            "verdict": found.verdict,
            "reason": found.reason,
            "seconds": seconds,
        }


def variants(spaces: Spaces, rows: int) -> Iterator[dict[str, Any]]:
    """What becomes of one model's vectors, and what `drift` says."""
    a, other, unrelated = (spaces[name] for name in ("MiniLM", "BGE", "mE5"))
    keys = [key for key in unrelated.keys if key in a.row_of and key in other.row_of][:rows]
    base, sibling, foreign = (space.vectors[space.rows(keys)].astype(np.float32) for space in (a, other, unrelated))
    french = spaces["mE5 French"]
    chance = np.random.default_rng(2)
    dim = base.shape[1]
    rotation = np.linalg.qr(chance.standard_normal((dim, dim)))[0].astype(np.float32)
    low_rank = (chance.standard_normal((dim, 8)) / 20).astype(np.float32)
    scale = np.abs(base).max(axis=0) / 127 + 1e-9
    half = base.copy()
    half[: len(half) // 4] = foreign[: len(half) // 4]
    cases = {
        "the same, other lengths": ("same", base * 3),
        "bfloat16": ("same but for precision", (base.view(np.uint32) & 0xFFFF0000).view(np.float32)),
        "int8, one scale": ("same but for precision", np.round(base / np.abs(base).max() * 127)),
        "int8, a scale per dimension": ("same but for precision", np.round(base / scale)),
        "binary": ("same but for precision", np.sign(base)),
        "first 128 dimensions": ("shortened", base[:, :128]),
        "rotated": ("rotated", base @ rotation),
        "dimensions in another order": ("rotated", base[:, ::-1]),
        "low-rank change of 8 directions": ("fine-tuned", base + np.tanh(base @ low_rank * 8) @ low_rank.T),
        "ids mixed up": ("shuffled", None),
        "BGE, of the same family": ("another model", sibling),
        "mE5": ("another model", foreign),
        "a quarter of the rows from mE5": ("mixed", half),
    }
    for label, (expected, vectors) in cases.items():
        for count in (64, len(base)):
            some = slice(None, None, len(base) // count)
            before = base[some][:count]
            after = np.roll(before, 1, axis=0) if vectors is None else np.asarray(vectors)[some][:count]
            found = kedge.drift(before, after)
            yield {"variant": label, "items": count, "expected": expected} | found.as_dict() | {"changed_keys": None}
    both = [key for key in keys if key in french.row_of]
    found = kedge.drift(unrelated.vectors[unrelated.rows(both)], french.vectors[french.rows(both)])
    yield {"variant": "mE5, English against French texts", "items": len(both), "expected": "fine-tuned"} | (
        found.as_dict() | {"changed_keys": None}
    )


def measure_variants(spaces: Spaces, _: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A table of verdicts of `drift`."""
    print(markdown_header(("what became of MiniLM's vectors", "items", "verdict", "cosine", "neighbours kept")))
    for one in variants(spaces, 3000):
        right = "" if one["verdict"] == one["expected"] else f" (expected {one['expected']})"
        cosine = "" if one["cosine"] is None else f"{one['cosine']:.3f}"
        cells = (one["variant"], str(one["items"]), one["verdict"] + right, cosine, f"{one['overlap']:.2f}")
        print(markdown_row(cells), flush=True)
        yield one


def measure_mixed(spaces: Spaces, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A table of mixed stores."""
    print("\n" + markdown_header(("store", "rows", "share", "verdict", "AUROC of rows", "rows right", "seconds")))
    cases = [] if arguments.only_large else [(*pair, share, arguments.rows) for pair in PAIRS for share in SHARES]
    if arguments.large:
        cases += [("MiniLM, all", "mE5 sentences", share, arguments.large) for share in SHARES]
    for case in cases:
        one = mixed(spaces, *case)
        cells = (f"{one['first']} with {one['second']}", str(one["rows"]), f"{one['share']:.0%}", one["verdict"])
        figures = (f"{one['auroc']:.4f}", f"{one['right']:.4f}", f"{one['seconds']:.0f}")
        print(markdown_row(cells + figures), flush=True)
        yield one


def measure_pure(spaces: Spaces, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each pure store that is not called one, and how many there were."""
    verdicts = []
    print()
    for one in pure(spaces, arguments.pure, arguments.rows):
        verdicts.append(one["verdict"])
        if one["verdict"] != "one model":
            print(f"{one['model']}, {one['rows']} {one['how']} rows: {one['verdict']}: {one['reason']}", flush=True)
        yield one
    print(f"{len(verdicts)} pure stores: " + ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))))


def main() -> None:
    """Measure and print three tables."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--rows", type=int, default=5000, help="rows of a mixed store (5000)")
    parser.add_argument("--large", type=int, default=99_316, help="rows of the large mixed store, 0 for none (99316)")
    parser.add_argument("--only-large", action="store_true", help="of the mixed stores the large one alone")
    parser.add_argument("--pure", type=int, default=60, help="pure stores (60)")
    parser.add_argument("--only", choices=("variants", "mixed", "pure"), help="one of the three parts")
    parser.add_argument("--out", type=Path, help="write everything as JSON")
    arguments = parser.parse_args()
    spaces = Spaces(arguments.data)

    parts = {"variants": measure_variants, "mixed": measure_mixed, "pure": measure_pure}
    chosen = [arguments.only] if arguments.only else list(parts)
    results = {part: list(parts[part](spaces, arguments)) for part in chosen}
    if arguments.out:
        write_json(arguments.out, results)


if __name__ == "__main__":
    main()
