"""kedge beside other ways to align two spaces, on the same rows, with none to a thousand known pairs.

    python benchmarks/methods.py --data DIR --json FILE                          words, texts, sentences; two cores
    python benchmarks/methods.py --data DIR --pairs texts --known 0 15 --shared all

Both spaces have the same number of rows, and k pairs are known. They hold the same items, or (`--shared none`) no
common item but those of the known pairs. Afterwards 1,000 items that neither side has seen are brought together: each
row of X looks for its own item among the 1,000 of Y, by CSLS, which penalises rows that are near to everything. *top-1*
is how often it comes first. The file also has top-1 by cosine, the mean rank, FOSCTTM (the share of rows that are
closer than the true partner) and the mean cosine to the partner. Seconds are CPU time of learning alone.

The other methods are in `rival_methods.py`. kedge has two entries: the map, compared by cosine as all others are, and
the pair model (shared coordinates).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge import AnchorDiscovery
from kedge.geometry import center_of, normalise, unit
from paper.pairs_of_spaces import PAIR_NAMES, SpacePair, load_pair
from rival_methods import FROM_PAIRS, WITHOUT_PAIRS, Apply, by_vecmap, same
from setting import add_data_option, markdown_header, markdown_row, new_parser
from stored import Record, add_json_option

ASKED, NEIGHBOURS = 1000, 10
METHODS = ("kedge", *FROM_PAIRS, "VecMap", *WITHOUT_PAIRS)
KEDGE_MAP, KEDGE_MODEL = "kedge's map", "kedge's pair model"
COLUMNS = ("pair", "shared", "known", "method", "top-1", "top-1, cosine", "mean rank", "FOSCTTM", "cosine", "seconds")

Matrix = NDArray[np.float32]
Compared = Callable[[Matrix, Matrix], tuple[Tensor, Tensor]]
"""New rows of X and Y, ready to be compared by inner products."""


def main() -> None:
    """One row per pair of spaces, share, number of known pairs and method."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", choices=PAIR_NAMES, default=["medium", "glove", "texts", "sentences"])
    parser.add_argument("--shared", nargs="+", choices=("all", "none"), default=["all", "none"])
    parser.add_argument("--known", nargs="+", type=int, default=[0, 15, 100, 1000])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="of kedge; the others stay on the CPU")
    add_json_option(parser)
    arguments = parser.parse_args()
    settings = {"rows": arguments.rows, "asked": ASKED, "random_state": arguments.random_state}
    record = Record(arguments.json, settings, arguments.device)
    print(markdown_header(COLUMNS), flush=True)
    for name in arguments.pairs:
        pair = load_pair(arguments.data, name)
        record.note_data(pair)
        for shared in arguments.shared:
            for known in arguments.known:
                for row in rows_of(pair, shared, known, arguments, record):
                    print(markdown_row([_cell(value) for value in row]), flush=True)


def rows_of(pair: SpacePair, shared: str, known: int, arguments: Any, record: Record) -> Iterator[list[Any]]:
    """What each method comes to on one draw."""
    x, y, new_x, new_y = draw(pair, shared, known, arguments.rows, arguments.random_state)
    fits: dict[str, Callable[[], Mapping[str, Compared]]] = {
        "kedge": lambda: by_kedge(x, y, known, arguments.random_state, arguments.device)
    }
    for name, from_pairs in FROM_PAIRS.items():
        if known:
            fits[name] = lambda learn=from_pairs: by_rows(x, y, lambda a, b: (learn(a[:known], b[:known]), same))
    pairs = np.stack([np.arange(known)] * 2, axis=1)
    fits["VecMap"] = lambda: by_rows(x, y, lambda a, b: by_vecmap(a, b, pairs))
    for name, learn in WITHOUT_PAIRS.items():
        if not known:
            fits[name] = lambda learn=learn: by_rows(x, y, learn)
    for name, fit in fits.items():
        if name not in arguments.methods:
            continue
        case = {"pair": pair.name, "shared": shared, "known": known, "method": name}
        row = record.row(case, lambda fit=fit: measure(fit, new_x, new_y))
        for reading, scores in row["scores"].items():
            yield [pair.name, shared, known, reading or name, *scores.values(), row["seconds"]]


def draw(pair: SpacePair, shared: str, known: int, rows: int, state: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """X (n, dx) and Y (n, dy), whose first rows are the known pairs, and unseen items of both (a, dx), (a, dy).

    The other rows of Y are in another order than those of X, or are other items.
    """
    chance = np.random.default_rng(state)
    order = chance.permutation(len(pair.x))
    asked, seeds, rest = np.split(order, np.cumsum([ASKED, known]))
    own = rows - known
    if len(rest) < own * (1 + (shared == "none")):
        raise SystemExit(f"{pair.name} has {len(pair.x)} items: too few for --rows {rows} and {shared} of them shared")
    others = rest[own : 2 * own] if shared == "none" else chance.permutation(rest[:own])
    x, y = (space.vectors.astype(np.float32) for space in (pair.x, pair.y))
    rows_x, rows_y = np.concatenate([seeds, rest[:own]]), np.concatenate([seeds, others])
    return x[rows_x], y[rows_y], x[asked], y[asked]


def by_kedge(x: Matrix, y: Matrix, known: int, state: int, device: str) -> dict[str, Compared]:
    """The map, and the pair model."""
    pairs = np.stack([np.arange(known)] * 2, axis=1)
    found = AnchorDiscovery(n_anchors=100, random_state=state, device=device).fit(x, y, pairs)

    def by_map(new_x: Matrix, new_y: Matrix) -> tuple[Tensor, Tensor]:
        return unit(torch.from_numpy(found.translate(new_x))), unit(torch.from_numpy(new_y))

    def by_model(new_x: Matrix, new_y: Matrix) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(found.x_.shared(new_x)), torch.from_numpy(found.y_.shared(new_y))

    return {KEDGE_MAP: by_map, KEDGE_MODEL: by_model}


def by_rows(x: Matrix, y: Matrix, learn: Callable[[Tensor, Tensor], tuple[Apply, Apply]]) -> dict[str, Compared]:
    """What is learned from unit, centered rows, and compared by cosine."""
    rows_x, rows_y = torch.from_numpy(x), torch.from_numpy(y)
    center_x, center_y = center_of(rows_x), center_of(rows_y)
    apply_x, apply_y = learn(normalise(rows_x, center_x), normalise(rows_y, center_y))

    def compared(new_x: Matrix, new_y: Matrix) -> tuple[Tensor, Tensor]:
        normal_x, normal_y = normalise(torch.from_numpy(new_x), center_x), normalise(torch.from_numpy(new_y), center_y)
        return unit(apply_x(normal_x)), unit(apply_y(normal_y))

    return {"": compared}


def measure(fit: Callable[[], Mapping[str, Compared]], new_x: Matrix, new_y: Matrix) -> dict[str, Any]:
    """Learn, and score every reading of what was learned."""
    began = time.process_time()
    readings = fit()
    seconds = time.process_time() - began
    return {"seconds": seconds, "scores": {name: scores(*read(new_x, new_y)) for name, read in readings.items()}}


def scores(rows_x: Tensor, rows_y: Tensor) -> dict[str, float]:
    """How well rows (a, d) find their own among rows (a, d)."""
    similarity = rows_x @ rows_y.T
    own = torch.arange(len(similarity))
    rank = (similarity > similarity.diagonal()[:, None]).sum(dim=1).double()
    hubs_x = similarity.topk(NEIGHBOURS, dim=1).values.mean(dim=1)
    hubs_y = similarity.topk(NEIGHBOURS, dim=0).values.mean(dim=0)
    by_csls = 2 * similarity - hubs_x[:, None] - hubs_y
    return {
        "top_1": float((by_csls.argmax(dim=1) == own).double().mean()),
        "top_1_cosine": float((similarity.argmax(dim=1) == own).double().mean()),
        "mean_rank": float(rank.mean()) + 1,
        "foscttm": float(rank.mean()) / (len(own) - 1),
        "cosine": float(torch.cosine_similarity(rows_x, rows_y, dim=1).mean()),
    }


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
