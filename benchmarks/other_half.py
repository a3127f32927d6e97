"""Words of two models, without a common word or a known pair: half of them in X, the other half in Y.

    python benchmarks/other_half.py                        the words that kedge ships with, some minutes on two cores
    python benchmarks/other_half.py --states 3 --rows 1500 2500 --json other-half.json

Of 5,000 words that are in Word2Vec and GloVe, X has some as Word2Vec sees them, Y has others as GloVe does. Afterwards
Word2Vec's vector of each word of Y, which the run has not seen, is translated and looked for among all of Y. Likewise
each word of X is looked for among GloVe's vectors of X's words. The figure is the share that is found first, by plain
cosine.
"""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery, read_embeddings
from setting import describe_machine, markdown_header, markdown_row, new_parser, timed
from stored import Record, add_json_option

COLUMNS = ("words in either half", "random state", "verdict", "words of Y first", "words of X first", "s")


def main() -> None:
    """Run, and print a table."""
    parser = new_parser(__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[2500])
    parser.add_argument("--states", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    add_json_option(parser)
    arguments = parser.parse_args()
    x, y = words()
    record = Record(arguments.json, {}, arguments.device)
    print(f"{describe_machine(arguments.device)}\n\n{markdown_header(COLUMNS)}", flush=True)
    for rows in arguments.rows:
        for state in range(arguments.states):
            found = record.row({"rows": rows, "state": state}, partial(halves, x, y, rows, state, arguments.device))
            shares = [f"{found[name]:.3f}" for name in ("words_of_y", "words_of_x")]
            cells = [rows, state, found["verdict"], *shares, f"{found['seconds']:.0f}"]
            print(markdown_row([str(cell) for cell in cells]), flush=True)


def words() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The same words (n, 300) and (n, 100) in Word2Vec and GloVe."""
    x, y = (read_embeddings(str(files("kedge") / "data" / f"{name}.npz")) for name in ("word2vec", "glove"))
    both = [key for key in x.keys if key in y.row_of]
    left, right = (space.vectors[space.rows(both)].astype(np.float32) for space in (x, y))
    return left, right


def halves(x: NDArray[np.float32], y: NDArray[np.float32], rows: int, state: int, device: str) -> dict[str, Any]:
    """One run between so many words of either space, none of them in both."""
    order = np.random.default_rng(state).permutation(len(x))
    of_x, of_y = order[:rows], order[rows : 2 * rows]
    discovery = AnchorDiscovery(n_anchors=100, random_state=state, device=device)
    seconds, _ = timed(lambda: discovery.fit(x[of_x], y[of_y]))
    shares = {}
    for name, some in (("words_of_y", of_y), ("words_of_x", of_x)):
        there = y[some] / np.linalg.norm(y[some], axis=1, keepdims=True)
        nearest = (discovery.translate(x[some]) @ there.T).argmax(axis=1)
        shares[name] = float(np.mean(nearest == np.arange(len(some))))
    searching = discovery.health_.searching
    verdict = f"{searching.verdict} ({searching.score:.2f})"
    return shares | {"verdict": verdict, "pairs": len(discovery.pairs_), "seconds": seconds}


if __name__ == "__main__":
    main()
