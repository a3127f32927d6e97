"""Many spaces at once against pair by pair: what `CommonSpace` gains, finds, leaves out and costs.

    python benchmarks/unite.py --data DIR --out unite.jsonl                           all parts; hours on two cores
    python benchmarks/unite.py --data DIR --parts gain --rows 1500 --out gain.jsonl   one of them; some ten minutes

gain      texts and words, all items in all spaces, 15 seeds and none: rows whose partner is right, beside separate runs
through   half of the rows of each text encoder shared, no seeds: pairs that fail alone, found through others
disjoint  nothing in common between any two but 15 seeds: rows that neither side has seen, brought to their counterpart
reached   words, all shared, 15 seeds between two of the spaces, and two between each of them and the third
stranger  one member more, of noise or of another kind of items: is it named, and are the others as they are without it?
ten       ten spaces, subsets and noisy rotations of the four text encoders: time and memory

With `--out`, every run is written as soon as it is done; the same command continues where it was stopped, and prints
all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery, CommonSpace, Embeddings, read_embeddings
from setting import (
    add_data_option,
    add_run_options,
    describe_machine,
    markdown_header,
    markdown_row,
    new_parser,
    peak_megabytes,
    run_cases,
)

TEXTS = {name: f"texts/{name}.npz" for name in ("minilm-en", "bge-en", "me5-en", "me5-fr")}
WORDS = {
    "word2vec": "words/word2vec-googlenews-300.npz",
    "glove": "words/glove-6b-100.npz",
    "fasttext": "words/fasttext-wiki-300.npz",
}
KINDS = {"words": WORDS, "texts": TEXTS}
FREQUENT, SEEDS, UNSEEN = 10_000, 15, 2000
ROWS = {"gain": 5000, "through": 2000, "disjoint": 3800, "reached": 400, "stranger": 2000, "ten": 5000}
TOGETHER = "together"

Matrix = NDArray[np.float32]
Items = dict[str, list[str]]
Spaces = dict[str, Embeddings]
Result = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One run: of spaces of a `kind`, so many `rows`, seeds and share of items in all of them; `what` is run is all
    spaces together, or two of them by their names.
    """

    part: str
    kind: str
    rows: int
    seeds: int
    share: float
    state: int
    what: str = TOGETHER


def main() -> None:
    """Run the parts, and print a table of each."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    add_run_options(parser, states=1)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rows", type=int, help=f"rows per space ({', '.join(f'{k} {n}' for k, n in ROWS.items())})")
    parser.add_argument("--first-state", type=int, default=0, help="the first of the random states (0)")
    arguments = parser.parse_args()
    print(describe_machine(arguments.device))
    states = range(arguments.first_state, arguments.first_state + arguments.states)
    for part in arguments.parts:
        of_state = PARTS[part].cases(arguments.rows or ROWS[part])
        cases = [Case(part, *rest, state, what) for *rest, what in of_state for state in states]
        results = run_cases(run_case, cases, arguments)
        PARTS[part].show({case: results[case] for case in cases})


def run_case(data: Path, case: Case, device: str) -> Result:
    """What a case comes to."""
    return PARTS[case.part].run(data, case, device)


def pairs_of(names: Sequence[str]) -> list[str]:
    """Every two names, as cases have them."""
    return [", ".join(pair) for pair in combinations(names, 2)]


def vectors_by_key(data: Path, files: Mapping[str, str]) -> Spaces:
    """The spaces of some files; of words the frequent ones."""
    limit = FREQUENT if files is WORDS else None
    spaces = {name: read_embeddings(data / file) for name, file in files.items()}
    return {name: space.take(range(min(limit, len(space)))) if limit else space for name, space in spaces.items()}


def drawn(spaces: Spaces, items: Items, chance: np.random.Generator) -> Spaces:
    """Some items of each space, in an order of its own."""
    return {name: spaces[name].take(spaces[name].rows(chance.permutation(items[name]).tolist())) for name in items}


def common_items(spaces: Spaces, chance: np.random.Generator) -> list[str]:
    """The keys that all spaces have, in any order."""
    return chance.permutation(sorted(set.intersection(*(set(space.keys) for space in spaces.values())))).tolist()


def sharing(data: Path, files: Mapping[str, str], rows: int, share: float, state: int) -> tuple[Spaces, list[str]]:
    """Spaces of so many rows that share some of their items, and these."""
    chance = np.random.default_rng([state, int(10 * share)])
    everything = vectors_by_key(data, files)
    items = common_items(everything, chance)
    shared, rest = items[: int(share * rows)], items[int(share * rows) :]
    more = rows - len(shared)
    own = {name: rest[place * more : (place + 1) * more] for place, name in enumerate(files)}
    return drawn(everything, {name: shared + own[name] for name in files}, chance), shared


def right(spaces: Spaces, first: str, second: str, match: NDArray[np.int64]) -> float:
    """The share of the rows of the first space that have a counterpart in the second and are matched with it."""
    of = spaces[second].row_of
    truth = np.array([of.get(key, -1) for key in spaces[first].keys])
    return float((match == truth)[truth >= 0].mean())


def alone(spaces: Spaces, case: Case, seeds: list[str], device: str, **options: Any) -> AnchorDiscovery:
    """The two spaces that the case names, in a run of their own."""
    first, second = case.what.split(", ")
    discovery = AnchorDiscovery(n_anchors=50, device=device, random_state=case.state, **options)
    return discovery.fit(spaces[first], spaces[second], [(key, key) for key in seeds] or None)


def together(spaces: Spaces, case: Case, seeds: list[str], device: str, **options: Any) -> CommonSpace:
    """All at once."""
    common = CommonSpace(device=device, random_state=case.state, **options)
    return common.fit(spaces, [(key,) * len(spaces) for key in seeds] or None)


def matched(common: CommonSpace, spaces: Spaces, first: str, second: str) -> float:
    """What `right` says of two members; nothing is right of a space that was left out."""
    found = common.matches_.get((first, second))
    return 0.0 if found is None else right(spaces, first, second, found)


def run_shared(data: Path, case: Case, device: str) -> Result:
    """Rows right of spaces that share items, separately or together."""
    spaces, shared = sharing(data, KINDS[case.kind], case.rows, case.share, case.state)
    seeds = shared[: case.seeds]
    if case.what != TOGETHER:
        discovery = alone(spaces, case, seeds, device)
        first, second = case.what.split(", ")
        return {
            "right": right(spaces, first, second, discovery.match_),
            "verdict": discovery.health_.map.verdict,
        }
    common = together(spaces, case, seeds, device)
    each = {f"{one.first}, {one.second}": f"{one.map.verdict}, {one.how}" for one in common.health_.each}
    return {
        "right": {pair: matched(common, spaces, *pair.split(", ")) for pair in pairs_of(list(spaces))},
        "verdict": each,
        "left out": common.health_.left_out,
    }


def show_shared(results: Mapping[Case, Result]) -> None:
    """Pair by pair: a run of its own, and together with the others."""
    print(markdown_header(("spaces", "seeds", "state", "pair", "alone", "right", "together", "right", "gain")))
    gains = []
    for case, found in results.items():
        if case.what == TOGETHER:
            continue
        whole = next(
            other
            for one, other in results.items()
            if (one.kind, one.seeds, one.state, one.what) == (case.kind, case.seeds, case.state, TOGETHER)
        )
        before, after = found["right"], whole["right"][case.what]
        gains.append(after - before)
        now = whole["verdict"].get(case.what, "left out")
        cells = (case.kind, str(case.seeds), str(case.state), case.what, found["verdict"], f"{before:.4f}", now)
        print(markdown_row((*cells, f"{after:.4f}", f"{after - before:+.4f}")))
    print(f"\nmean gain {np.mean(gains):+.4f}, worst {min(gains):+.4f}\n")


def run_disjoint(data: Path, case: Case, device: str) -> Result:
    """Unseen rows brought to their counterpart, where nothing is in common but the seeds."""
    everything = vectors_by_key(data, TEXTS)
    chance = np.random.default_rng(case.state)
    items = common_items(everything, chance)
    in_all, rows = set(items), case.rows
    others = [key for key in chance.permutation(everything["minilm-en"].keys).tolist() if key not in in_all]
    unseen, seeds, left = items[:UNSEEN], items[UNSEEN : UNSEEN + SEEDS], items[UNSEEN + SEEDS :]
    parts = {"minilm-en": others[:rows], "bge-en": others[rows : 2 * rows]}
    parts |= {"me5-en": left[:rows], "me5-fr": left[rows : 2 * rows]}
    if min(map(len, parts.values())) < rows:
        raise SystemExit(f"--rows: there are not enough items for {rows} of each")
    spaces = drawn(everything, {name: seeds + some for name, some in parts.items()}, chance)
    new = {name: space.take(space.rows(unseen)).vectors for name, space in everything.items()}
    if case.what != TOGETHER:
        discovery = alone(spaces, case, seeds, device, disjoint=True)
        first, second = case.what.split(", ")
        return {
            "right": top_1(discovery.translate, new[first], new[second]),
            "verdict": discovery.health_.map.verdict,
        }
    common = together(spaces, case, seeds, device, disjoint=True)
    found = {}
    for first, second in combinations(spaces, 2):
        inside = {first, second} <= set(common.members_)
        found[f"{first}, {second}"] = (
            top_1(common.translator(source=first, target=second), new[first], new[second]) if inside else 0.0
        )
    each = {f"{one.first}, {one.second}": f"{one.map.verdict}, {one.how}" for one in common.health_.each}
    return {"right": found, "verdict": each, "left out": common.health_.left_out}


def top_1(translate: Callable[[Matrix], Matrix], x: Matrix, y: Matrix) -> float:
    """The share of rows of X that are brought to their counterpart first, by cosine."""
    index = y / np.linalg.norm(y, axis=1, keepdims=True)
    return float(((translate(x) @ index.T).argmax(axis=1) == np.arange(len(x))).mean())


def run_reached(data: Path, case: Case, device: str) -> Result:
    """A third space that is tied to two others by a few seeds each: what its pairs come to alone, and what together."""
    spaces, items = sharing(data, WORDS, case.rows, case.share, case.state)
    first, second, third = spaces
    few, given = case.seeds, {}
    given[first, second] = [(key, key) for key in items[:SEEDS]]
    given[first, third] = [(key, key) for key in items[SEEDS : SEEDS + few]]
    given[second, third] = [(key, key) for key in items[SEEDS + few : SEEDS + 2 * few]]
    alone: dict[str, str] = {}
    common = CommonSpace(
        device=device,
        random_state=case.state,
        on_pair=lambda one, other, verdict: alone.setdefault(f"{one}, {other}", verdict),
    ).fit(spaces, given)
    return {
        "alone": alone,
        "verdict": {f"{one.first}, {one.second}": f"{one.map.verdict}, {one.how}" for one in common.health_.each},
        "right": {pair: matched(common, spaces, *pair.split(", ")) for pair in pairs_of(list(spaces))},
        "left out": common.health_.left_out,
    }


def show_reached(results: Mapping[Case, Result]) -> None:
    """Pair by pair: the verdict alone, and what came of it together."""
    print(markdown_header(("state", "pair", "alone", "together", "right")))
    for case, found in results.items():
        for pair, verdict in found["alone"].items():
            now = "left out" if set(pair.split(", ")) & set(found["left out"]) else found["verdict"][pair]
            print(markdown_row((str(case.state), pair, verdict, now, f"{found['right'][pair]:.4f}")))


def run_stranger(data: Path, case: Case, device: str) -> Result:
    """A member that does not belong."""
    spaces, items = sharing(data, WORDS, case.rows, case.share, case.state)
    seeds, chance = items[: case.seeds], np.random.default_rng(case.state)
    if case.kind == "noise":
        vectors = chance.standard_normal((len(items), 200)).astype(np.float32)
    else:
        images = read_embeddings(data / "images/cifar10-vit-a-128.npz").vectors
        vectors = np.asarray(images[chance.permutation(len(images))[: len(items)]], dtype=np.float32)
    stranger = Embeddings(chance.permutation(items).tolist(), vectors, case.kind)
    without = together(spaces, case, seeds, device)
    with_it = together(spaces | {"stranger": stranger}, case, seeds, device)
    changed = [
        float((with_it.matches_[pair] != found).mean()) if pair in with_it.matches_ else 1.0
        for pair, found in without.matches_.items()
    ]
    return {"left out": list(with_it.health_.left_out), "changed": changed}


def show_stranger(results: Mapping[Case, Result]) -> None:
    """Whether it was named, and nobody else, and by how much the others' rows are matched differently."""
    print(markdown_header(("stranger", "runs", "named, alone", "most changed rows of the others")))
    for kind in dict.fromkeys(case.kind for case in results):
        found = [one for case, one in results.items() if case.kind == kind]
        named = sum(one["left out"] == ["stranger"] for one in found)
        changed = max(share for one in found for share in one["changed"])
        print(markdown_row((kind, str(len(found)), str(named), f"{changed:.4f}")))


def run_ten(data: Path, case: Case, device: str) -> Result:
    """Time and memory of ten spaces."""
    everything = vectors_by_key(data, TEXTS)
    chance = np.random.default_rng(case.state)
    items = common_items(everything, chance)[: int(case.rows / case.share)]
    rows = min(case.rows, len(items))
    spaces: Spaces = {}
    for number in range(10):
        source = everything[list(TEXTS)[number % 4]]
        some = source.take(source.rows(chance.permutation(items)[:rows].tolist()))
        vectors = some.vectors / np.linalg.norm(some.vectors, axis=1, keepdims=True)
        if number >= 4:
            turn = np.linalg.qr(chance.standard_normal((some.dim, some.dim)))[0].astype(np.float32)
            noise = chance.standard_normal(vectors.shape).astype(np.float32) * 0.2 / some.dim**0.5
            vectors = (vectors + noise) @ turn
        spaces[f"space-{number}"] = Embeddings(some.keys, vectors.astype(np.float32), f"space-{number}")
    before = peak_megabytes(device)
    began, began_cpu = time.perf_counter(), time.process_time()
    common = together(spaces, case, [], device)
    return {
        "seconds": time.perf_counter() - began,
        "cpu seconds": time.process_time() - began_cpu,
        "peak MB": peak_megabytes(device),
        "before MB": before,
        "spaces MB": sum(space.vectors.nbytes for space in spaces.values()) / 2**20,
        "left out": common.health_.left_out,
        "right": float(np.mean([matched(common, spaces, *pair) for pair in combinations(spaces, 2)])),
    }


def show_ten(results: Mapping[Case, Result]) -> None:
    """Each run."""
    columns = ("seconds", "cpu seconds", "peak MB", "before MB", "spaces MB")
    print(markdown_header(("rows", *columns, "left out", "mean right")))
    for case, found in results.items():
        figures = (f"{found[name]:.0f}" for name in columns)
        more = (str(len(found["left out"])), f"{found['right']:.4f}")
        print(markdown_row((str(case.rows), *figures, *more)))


class Part(NamedTuple):
    """What is run, how it is shown, and the cases of so many rows: kind, rows, seeds, share, and what is run."""

    run: Callable[[Path, Case, str], Result]
    show: Callable[[Mapping[Case, Result]], None]
    cases: Callable[[int], list[tuple[Any, ...]]]


def _pairs_and_all(kind: str, rows: int, seeds: int, share: float) -> list[tuple[Any, ...]]:
    return [(kind, rows, seeds, share, what) for what in (TOGETHER, *pairs_of(list(KINDS[kind])))]


PARTS = {
    "gain": Part(
        run_shared,
        show_shared,
        lambda rows: [
            case for kind in KINDS for seeds in (SEEDS, 0) for case in _pairs_and_all(kind, rows, seeds, 1.0)
        ],
    ),
    "through": Part(run_shared, show_shared, lambda rows: _pairs_and_all("texts", rows, 0, 0.5)),
    "disjoint": Part(run_disjoint, show_shared, lambda rows: _pairs_and_all("texts", rows, SEEDS, 0.0)),
    "reached": Part(run_reached, show_reached, lambda rows: [("words", rows, 2, 1.0, TOGETHER)]),
    "stranger": Part(
        run_stranger,
        show_stranger,
        lambda rows: [(kind, rows, SEEDS, 1.0, TOGETHER) for kind in ("noise", "another topic")],
    ),
    "ten": Part(run_ten, show_ten, lambda rows: [("texts", rows, 0, 0.5, TOGETHER)]),
}


if __name__ == "__main__":
    main()
