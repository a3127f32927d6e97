"""Many spaces at once against pair by pair: what `CommonSpace` gains, finds, leaves out, takes and closes.

    python benchmarks/unite.py --data DIR --out unite.json                          all parts; hours on two cores
    python benchmarks/unite.py --data DIR --parts gain --rows 1500 --out gain.json  one of them; some ten minutes

gain      texts and words, all items in all spaces, 15 seeds and none: rows whose partner is right, beside separate runs
through   2,000 rows of each text encoder, half of them shared, no seeds: pairs that fail alone, found through others
disjoint  nothing in common between any two but 15 seeds: rows that neither side has seen, brought to their counterpart
stranger  one member more, of noise or of another kind of items: is it named, and are the others as they are without it?
ten       ten spaces, subsets and noisy rotations of the four text encoders: time and memory
loops     triangles of separate runs, from right seeds and from wrong ones: AUROC of the share of rows that come back
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kedge import AnchorDiscovery, CommonSpace, Embeddings, read_embeddings
from kedge.estimators.devices import load_space
from kedge.many.numerics.loops import close_loop
from kedge.many.pairwise import PairOutcome, align_alone
from kedge.solving.steps import Log
from setting import add_data_option, auroc, describe_machine, new_parser, peak_megabytes, write_json

TEXTS = {name: f"texts/{name}.npz" for name in ("minilm-en", "bge-en", "me5-en", "me5-fr")}
WORDS = {
    "word2vec": "words/word2vec-googlenews-300.npz",
    "glove": "words/glove-6b-100.npz",
    "fasttext": "words/fasttext-wiki-300.npz",
}
FREQUENT, SEEDS, UNSEEN = 10_000, 15, 2000
RIGHT = 0.3
"""A pair of which a smaller share of the rows is right is wrong."""

Matrix = NDArray[np.float32]
Items = dict[str, list[str]]
Spaces = dict[str, Embeddings]


def main() -> None:
    """Run the parts, print a line for each figure, and keep all of them."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rows", type=int, help="rows per space (as each part says)")
    parser.add_argument("--states", type=int, default=1, help="random states per case (1)")
    parser.add_argument("--first-state", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"machine": describe_machine(arguments.device)}
    for part in arguments.parts:
        states = range(arguments.first_state, arguments.first_state + arguments.states)
        results[part] = PARTS[part](arguments.data, arguments.rows, states, arguments.device)
        if arguments.out:
            write_json(arguments.out, results)


def vectors_by_key(data: Path, files: Mapping[str, str]) -> dict[str, Embeddings]:
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


def right(spaces: Spaces, first: str, second: str, match: NDArray[np.int64]) -> float:
    """The share of the rows of the first space that have a counterpart in the second and are matched with it."""
    of = spaces[second].row_of
    truth = np.array([of.get(key, -1) for key in spaces[first].keys])
    return float((match == truth)[truth >= 0].mean())


def alone(spaces: Spaces, first: str, second: str, seeds: list[str], device: str, **options: Any) -> AnchorDiscovery:
    """A separate run."""
    pairs = [(key, key) for key in seeds]
    discovery = AnchorDiscovery(n_anchors=50, device=device, **options)
    return discovery.fit(spaces[first], spaces[second], pairs or None)


def together(spaces: Spaces, seeds: list[str], device: str, **options: Any) -> CommonSpace:
    """All at once."""
    return CommonSpace(device=device, **options).fit(spaces, [(key,) * len(spaces) for key in seeds] or None)


def matched(common: CommonSpace, spaces: Spaces, first: str, second: str) -> float:
    """What `right` says of two members; nothing is right of a space that was left out."""
    found = common.matches_.get((first, second))
    return 0.0 if found is None else right(spaces, first, second, found)


def run_gain(data: Path, rows: int | None, states: range, device: str) -> list[dict[str, Any]]:
    """Rows right, separately and together."""
    print("\n| spaces | seeds | pair | separate | together | gain |\n|---|---|---|---|---|---|")
    results = []
    for kind, files in (("words", WORDS), ("texts", TEXTS)):
        for state in states:
            for count in (SEEDS, 0):
                chance = np.random.default_rng(state)
                everything = vectors_by_key(data, files)
                items = common_items(everything, chance)[: rows or 5000]
                spaces = drawn(everything, dict.fromkeys(files, items), chance)
                seeds = items[:count]
                common = together(spaces, seeds, device, random_state=state)
                gains = []
                for first, second in combinations(spaces, 2):
                    discovery = alone(spaces, first, second, seeds, device, random_state=state)
                    before = right(spaces, first, second, discovery.match_)
                    after = matched(common, spaces, first, second)
                    gains.append(after - before)
                    print(
                        f"| {kind} | {count} | {first}, {second} | {before:.4f} | {after:.4f} | {after - before:+.4f} |"
                    )
                    results.append(
                        {"kind": kind, "seeds": count, "state": state, "rows": len(items), "pair": [first, second]}
                        | {"separate": before, "together": after, "verdict": discovery.health_.map.verdict}
                    )
                print(
                    f"| {kind} | {count} | **mean** (worst {min(gains):+.4f}) | | | {np.mean(gains):+.4f} |", flush=True
                )
    return results


def run_through(data: Path, rows: int | None, states: range, device: str) -> list[dict[str, Any]]:
    """Pairs that fail alone, half of the rows shared, no seeds."""
    rows = rows or 2000
    print("\n| state | pair | alone | right | together | right |\n|---|---|---|---|---|---|")
    results = []
    everything = vectors_by_key(data, TEXTS)
    for state in states:
        chance = np.random.default_rng(state)
        items = common_items(everything, chance)
        shared, rest = items[: rows // 2], items[rows // 2 :]
        own = {name: rest[place * rows // 2 : (place + 1) * rows // 2] for place, name in enumerate(TEXTS)}
        spaces = drawn(everything, {name: shared + own[name] for name in TEXTS}, chance)
        common = together(spaces, [], device, random_state=state)
        each = {(one.first, one.second): one for one in common.health_.each}
        for first, second in combinations(spaces, 2):
            discovery = alone(spaces, first, second, [], device, random_state=state)
            before, after = right(spaces, first, second, discovery.match_), matched(common, spaces, first, second)
            verdict, answer = discovery.health_.map.verdict, each.get((first, second))
            now = "left out" if answer is None else f"{answer.map.verdict}, {answer.how}"
            print(f"| {state} | {first}, {second} | {verdict} | {before:.3f} | {now} | {after:.3f} |", flush=True)
            results.append(
                {"state": state, "rows": rows, "pair": [first, second], "alone": verdict, "together": now}
                | {"right_alone": before, "right_together": after, "left_out": common.health_.left_out}
            )
    return results


def run_disjoint(data: Path, rows: int | None, states: range, device: str) -> list[dict[str, Any]]:
    """Nothing in common but the seeds."""
    rows = rows or 3800
    print("\n| state | pair | separate | together |\n|---|---|---|---|")
    results = []
    everything = vectors_by_key(data, TEXTS)
    for state in states:
        chance = np.random.default_rng(state)
        items = common_items(everything, chance)
        in_all = set(items)
        others = [key for key in chance.permutation(everything["minilm-en"].keys).tolist() if key not in in_all]
        unseen, seeds, left = items[:UNSEEN], items[UNSEEN : UNSEEN + SEEDS], items[UNSEEN + SEEDS :]
        parts = {"minilm-en": others[:rows], "bge-en": others[rows : 2 * rows]}
        parts |= {"me5-en": left[:rows], "me5-fr": left[rows : 2 * rows]}
        if min(map(len, parts.values())) < rows:
            raise SystemExit(f"--rows: there are not enough items for {rows} of each")
        spaces = drawn(everything, {name: seeds + some for name, some in parts.items()}, chance)
        common = together(spaces, seeds, device, random_state=state, disjoint=True)
        new = {name: space.take(space.rows(unseen)).vectors for name, space in everything.items()}
        for first, second in combinations(spaces, 2):
            discovery = alone(spaces, first, second, seeds, device, random_state=state, disjoint=True)
            before = top_1(discovery.translate, new[first], new[second])
            after = 0.0
            if {first, second} <= set(common.members_):
                after = top_1(common.translator(source=first, target=second), new[first], new[second])
            print(f"| {state} | {first}, {second} | {before:.3f} | {after:.3f} |", flush=True)
            results.append(
                {"state": state, "rows": rows, "pair": [first, second], "separate": before, "together": after}
            )
    return results


def top_1(translate: Callable[[Matrix], Matrix], x: Matrix, y: Matrix) -> float:
    """The share of rows of X that are brought to their counterpart first, by cosine."""
    index = y / np.linalg.norm(y, axis=1, keepdims=True)
    return float(((translate(x) @ index.T).argmax(axis=1) == np.arange(len(x))).mean())


def run_stranger(data: Path, rows: int | None, states: range, device: str) -> list[dict[str, Any]]:
    """A member that does not belong."""
    print("\n| stranger | state | left out | changed rows of the others |\n|---|---|---|---|")
    results = []
    everything = vectors_by_key(data, WORDS)
    images = read_embeddings(data / "images/cifar10-vit-a-128.npz")
    for state in states:
        chance = np.random.default_rng(state)
        items = common_items(everything, chance)[: rows or 2000]
        spaces = drawn(everything, dict.fromkeys(WORDS, items), chance)
        without = together(spaces, items[:SEEDS], device, random_state=state)
        for kind in ("noise", "another topic"):
            if kind == "noise":
                vectors = chance.standard_normal((len(items), 200)).astype(np.float32)
            else:
                vectors = np.asarray(images.vectors[chance.permutation(len(images))[: len(items)]], dtype=np.float32)
            seeds = items[:SEEDS]
            stranger = Embeddings(chance.permutation(items).tolist(), vectors, kind)
            with_it = together(spaces | {"stranger": stranger}, seeds, device, random_state=state)
            changed = [
                float((with_it.matches_[pair] != found).mean()) if pair in with_it.matches_ else 1.0
                for pair, found in without.matches_.items()
            ]
            named = list(with_it.health_.left_out)
            print(f"| {kind} | {state} | {', '.join(named) or 'nobody'} | {max(changed):.4f} |", flush=True)
            results.append({"kind": kind, "state": state, "rows": len(items), "left_out": named, "changed": changed})
    return results


def run_ten(data: Path, rows: int | None, states: range, device: str) -> list[dict[str, Any]]:
    """Ten spaces."""
    print("\n| spaces | rows | seconds | peak MB | spaces MB | left out | mean right |\n|---|---|---|---|---|---|---|")
    results = []
    everything = vectors_by_key(data, TEXTS)
    for state in states:
        chance = np.random.default_rng(state)
        items = common_items(everything, chance)
        rows = min(rows or 5000, len(items))
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
        size = sum(space.vectors.nbytes for space in spaces.values()) / 2**20
        before = peak_megabytes(device)
        began = time.perf_counter()
        common = together(spaces, items[:0], device, random_state=state)
        seconds = time.perf_counter() - began
        peak = peak_megabytes(device)
        share = float(np.mean([matched(common, spaces, *pair) for pair in combinations(spaces, 2)]))
        out = common.health_.left_out
        print(
            f"| 10 | {rows} | {seconds:.0f} | {peak:.0f} ({before:.0f} before) | {size:.0f} | {len(out)} "
            f"| {share:.4f} |"
        )
        results.append(
            {"rows": rows, "seconds": seconds, "peak_mb": peak, "before_mb": before, "spaces_mb": size}
            | {"left_out": out, "right": share, "pairs": len(common.health_.each)}
        )
    return results


def run_loops(data: Path, rows: int | None, states: range, device: str) -> dict[str, Any]:
    """Triangles of pairs that were run by themselves, each from right seeds and from wrong ones."""
    print(
        "\n| triangle | shared | wrong seeds | worst pair right | back | chains | kept |\n|---|---|---|---|---|---|---|"
    )
    rows = rows or 1500
    cases: list[dict[str, Any]] = []
    for state in states:
        for kind, files in (("words", WORDS), ("texts", dict(list(TEXTS.items())[1:]))):
            everything = vectors_by_key(data, files)
            for share in (1.0, 0.5, 0.2, 0.1):
                chance = np.random.default_rng([state, int(10 * share)])
                items = common_items(everything, chance)
                shared, rest = items[: int(share * rows)], items[int(share * rows) :]
                more = rows - len(shared)
                own = {name: rest[place * more : (place + 1) * more] for place, name in enumerate(files)}
                spaces = drawn(everything, {name: shared + own[name] for name in files}, chance)
                links = {
                    (*pair, wrong): one_side(spaces, *pair, shared, wrong, device, state)
                    for pair in combinations(spaces, 2)
                    for wrong in (False, True)
                }
                a, b, c = spaces
                for wrong in product((False, True), repeat=3):
                    sides = [links[a, b, wrong[0]], links[b, c, wrong[1]], links[a, c, wrong[2]]]
                    loop = close_loop(
                        (0, 1, 2), sides[0].outcome.link, sides[1].outcome.link, sides[2].outcome.link_back
                    )
                    worst = min(side.right for side in sides)
                    print(
                        f"| {kind} | {share:g} | {sum(wrong)} | {worst:.3f} | {loop.back:.3f} | {loop.chains} "
                        f"| {loop.kept:.3f} |",
                        flush=True,
                    )
                    cases.append(
                        {"kind": kind, "share": share, "state": state, "wrong": sum(wrong), "worst": worst}
                        | {"closure": loop.closure, "chains": loop.chains, "kept": loop.kept, "closed": loop.closed}
                    )
    found = {}
    for score in ("closure", "kept"):
        values = [(case["worst"] >= RIGHT, case[score]) for case in cases]
        good, bad = ([value for right_one, value in values if right_one is label] for label in (True, False))
        found[score] = auroc(good, bad) if good and bad else None
    print(f"\n{len(good)} triangles right, {len(bad)} wrong; AUROC {found}")
    return {"cases": cases, "auroc": found}


class Side(NamedTuple):
    """A pair of spaces that was run by itself: what came of it, and the share of rows it has right."""

    outcome: PairOutcome
    right: float


def one_side(spaces: Spaces, first: str, second: str, shared: list[str], wrong: bool, device: str, state: int) -> Side:
    """A pair as `CommonSpace` runs it first, from 15 seeds, or from as many that lead elsewhere."""
    x, y = (
        load_space(spaces[name].vectors, torch.device(device), name, center=True, dtype=torch.float32)
        for name in (first, second)
    )
    shift = SEEDS if wrong else 0
    seeds = np.stack([spaces[first].rows(shared[:SEEDS]), spaces[second].rows(shared[shift : shift + SEEDS])], axis=1)
    found = align_alone(x, y, torch.from_numpy(seeds), state, Log(None), disjoint=False)
    return Side(found, right(spaces, first, second, found.partner.cpu().numpy()))


PARTS: dict[str, Callable[[Path, int | None, range, str], Any]] = {
    "gain": run_gain,
    "through": run_through,
    "disjoint": run_disjoint,
    "stranger": run_stranger,
    "ten": run_ten,
    "loops": run_loops,
}


if __name__ == "__main__":
    main()
