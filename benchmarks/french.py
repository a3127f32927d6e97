"""English words against French ones: P@1 by a dictionary, beside a map fitted to the dictionary itself.

    apt-get download dict-freedict-eng-fra && dpkg -x dict-freedict-eng-fra_*.deb DIR
    python benchmarks/french.py --data DATA --dictionary DIR/usr/share/dictd/freedict-eng-fra.dict.dz

Word2Vec (English) x FastText (French). A fifth of the dictionary is held out: *supervised* is the map that kedge fits
to the other four fifths, *discovered* what it finds from a few of those pairs. P@1 is over the held-out English words,
by CSLS; any translation in the dictionary counts as right.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import torch

from kedge import AnchorDiscovery, Embeddings
from kedge.geometry import center_of, moments_of, nearest_rotation, normalise, refine_rotation, unit
from kedge.matching import match_csls
from kedge.spaces import read_embeddings
from setting import add_data_option, describe_machine, new_parser

HEADWORD = re.compile(r"(?P<word>.+) /[^/]*/$")


def main() -> None:
    """One row for the supervised map, one per number of seeds."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--dictionary", type=Path, required=True, help="freedict-eng-fra.dict.dz")
    parser.add_argument("--seeds", nargs="+", type=int, default=[300, 100, 15, 0])
    parser.add_argument("--random-states", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    x = read_embeddings(arguments.data / "words" / "word2vec-googlenews-300.npz", limit=20_000)
    y = read_embeddings(arguments.data / "words" / "fasttext-fr-300.npz")
    gold = [(a, b) for a, b in read_dictionary(arguments.dictionary) if a in x.row_of and b in y.row_of]
    words = sorted({a for a, _ in gold})
    held_out = set(np.random.default_rng(0).permutation(words)[: len(words) // 5].tolist())
    right = {(a, b) for a, b in gold if a in held_out}
    known = one_to_one([(a, b) for a, b in gold if a not in held_out])
    print(f"{describe_machine(arguments.device)}; {len(x)} x {len(y)} words, {len(words)} in the dictionary")
    print(f"supervised by {len(known)} pairs: P@1 {supervised(x, y, known, right):.3f}", flush=True)
    for count in arguments.seeds:
        for state in arguments.random_states:
            chosen = np.random.default_rng(state).permutation(len(known))[:count]
            discovery = AnchorDiscovery(random_state=state, device=arguments.device)
            discovery.fit(x, y, [known[index] for index in chosen])
            pairs = discovery.health_.pairs
            found = {(x.keys[a], y.keys[b]) for a, b in enumerate(discovery.match_.tolist())}
            print(
                f"{count} seeds, state {state}: P@1 {len(found & right) / len(held_out):.3f}, "
                f"{len(discovery.pairs_)} pairs, {pairs.verdict} ({pairs.score:.2f})",
                flush=True,
            )


def read_dictionary(path: Path) -> list[tuple[str, str]]:
    """Pairs of single lower-case words; a dictzip file is a gzip file."""
    pairs, word = [], None
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        if found := HEADWORD.match(line.strip()):
            word = found["word"].lower()
            continue
        for translation in re.sub(r"^\s*\d+\.\s*", "", line).split(","):
            if word and " " not in word and translation.strip() and " " not in translation.strip():
                pairs.append((word, translation.strip().lower()))
    return pairs


def one_to_one(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first pair of every word on either side."""
    by_left = dict(reversed(pairs))
    by_right = {right: left for left, right in reversed(by_left.items())}
    return [(left, right) for right, left in by_right.items()]


def supervised(x: Embeddings, y: Embeddings, known: list[tuple[str, str]], right: set[tuple[str, str]]) -> float:
    """P@1 of the rotation that the known pairs imply, refined like every map of kedge."""
    unit_x, unit_y = normalised(x), normalised(y)
    source, target = unit_x[x.rows(a for a, _ in known)], unit_y[y.rows(b for _, b in known)]
    moments = moments_of(source, target)
    linear = refine_rotation(moments, nearest_rotation(moments.cross), 2.0 * x.dim).float()
    match = match_csls(unit(unit_x @ linear), unit_y)
    found = {(x.keys[a], y.keys[b]) for a, b in enumerate(match.partner.tolist())}
    return len(found & right) / len({a for a, _ in right})


def normalised(space: Embeddings) -> torch.Tensor:
    """Unit norm, centered, unit norm."""
    rows = torch.from_numpy(np.array(space.vectors))
    return normalise(rows, center_of(rows))


if __name__ == "__main__":
    main()
