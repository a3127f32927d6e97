"""What one would write in ten lines, beside kedge on the same files: Procrustes by SciPy, ridge by scikit-learn.

    python benchmarks/baselines.py --data DIR

Both spaces hold the same items, 5,000 of them, of which k pairs are known. Asked for are the partners of 1,000 rows
that are never known, among all 5,000 of Y. Procrustes and ridge (its strength chosen by leaving pairs out) are fitted
to the known pairs, on rows scaled to unit norm and centered, as kedge scales them; a row's partner is then the nearest
by cosine, or by CSLS, which needs the other rows of X too. Of kedge there is the map, read by cosine, and the match.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes
from sklearn.linear_model import RidgeCV

from kedge import AnchorDiscovery
from paper.pairs_of_spaces import PAIR_NAMES, SpacePair, load_pair
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser

ASKED, NEIGHBOURS = 1000, 10
STRENGTHS = np.logspace(-4, 3, 8)
COLUMNS = ("pair", "known", "Procrustes", "ridge", "Procrustes, CSLS", "ridge, CSLS", "kedge's map", "kedge's match")


def main() -> None:
    """One row per pair of spaces and number of known pairs."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    chosen = [name for name in PAIR_NAMES if name != "glove"]
    parser.add_argument("--pairs", nargs="+", choices=PAIR_NAMES, default=chosen)
    parser.add_argument("--known", nargs="+", type=int, default=[0, 15, 100, 1000, 4000])
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    print(f"{describe_machine(arguments.device)}: share of {ASKED} unknown rows whose partner is right\n")
    print(markdown_header(COLUMNS), flush=True)
    for name in arguments.pairs:
        pair = load_pair(arguments.data, name, arguments.rows)
        for known in arguments.known:
            shares = row(pair, known, arguments.random_state, arguments.device)
            cells = ["" if share is None else f"{share:.3f}".lstrip("0") for share in shares]
            print(markdown_row([f"{pair.name_x} x {pair.name_y}", str(known), *cells]), flush=True)


def row(pair: SpacePair, known: int, random_state: int, device: str) -> list[float | None]:
    """The shares for one number of known pairs, in the order of the columns; None where nothing can be fitted."""
    order = np.random.default_rng(random_state).permutation(len(pair.x))
    x, y = pair.x.take(order), pair.y.take(order)
    asked = np.arange(len(x) - ASKED, len(x))
    if known > asked[0]:
        raise SystemExit(f"--known {known}: with {len(x)} rows, of which {ASKED} are asked for, at most {asked[0]}")
    rows_x, rows_y = normalised(x.vectors), normalised(y.vectors)

    translated, dim = [], max(x.dim, y.dim)
    if known:
        same_dim = [np.pad(rows, ((0, 0), (0, dim - rows.shape[1]))) for rows in (rows_x, rows_y)]
        rotation, _ = orthogonal_procrustes(*(rows[:known] for rows in same_dim))
        ridge = RidgeCV(STRENGTHS, fit_intercept=False).fit(rows_x[:known], rows_y[:known])
        translated = [(same_dim[0] @ rotation)[:, : y.dim], ridge.predict(rows_x)]
    shares = [share_right(by, vectors, rows_y, asked) for by in (cosine, csls) for vectors in translated]

    shuffle = np.random.default_rng(random_state).permutation(len(y))  # nothing may depend on the order of the rows
    seeds = [(key, key) for key in x.keys[:known]]
    found = AnchorDiscovery(device=device, random_state=random_state).fit(x, y.take(shuffle), seeds)
    by_map = share_right(cosine, found.translate(x), unit(y.vectors), asked)
    by_match = float(np.mean(shuffle[found.match_[asked]] == asked))
    return [*(shares or [None] * 4), by_map, by_match]


def unit(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Rows (n, d) of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def normalised(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Rows (n, d) of length 1, without their mean, of length 1 again."""
    rows = unit(vectors)
    return unit(rows - rows.mean(axis=0))


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.floating]:
    """Cosines (n, m) of rows (n, d) and rows (m, d)."""
    return unit(a) @ unit(b).T


def csls(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.floating]:
    """Twice the cosines (n, m) less the mean of either row's ten nearest."""
    similarity = cosine(a, b)
    hubs_a = np.sort(similarity, axis=1)[:, -NEIGHBOURS:].mean(axis=1)
    hubs_b = np.sort(similarity, axis=0)[-NEIGHBOURS:].mean(axis=0)
    return 2 * similarity - hubs_a[:, None] - hubs_b


def share_right(
    by: Callable[..., NDArray[np.floating]],
    translated: NDArray[np.floating],
    rows_y: NDArray[np.floating],
    asked: NDArray[np.int64],
) -> float:
    """Share of the rows asked for whose most similar row of Y is their own."""
    return float(np.mean(by(translated, rows_y)[asked].argmax(axis=1) == asked))


if __name__ == "__main__":
    main()
