"""Lexicons: how many rows get a translation that is probably acceptable, how many are right, and calibration.

    apt-get download dict-freedict-eng-fra && dpkg -x dict-freedict-eng-fra_*.deb DIR
    python benchmarks/lexicon.py --data DATA --dictionary DIR/usr/share/dictd/freedict-eng-fra.dict.dz --runs RUNS

English-French is Word2Vec x FastText, 20,000 words each. Any translation in a dictionary counts as right, and only
words in it count. In the other pairs both spaces hold the same items, and only the item itself is right. Rows of seeds
never count. `words` have a translation that is at least .5 probable; precision and the calibration error are over all
such translations. `P@1` is over all rows that count, for the first translation and for the run's match. Discoveries are
kept in RUNS and reused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from french import one_to_one, read_dictionary
from kedge import AnchorDiscovery, Embeddings, load
from kedge.spaces import read_embeddings
from kedge.tasks import calibration_error, make_lexicon, reliability
from setting import (
    add_data_option,
    describe_machine,
    markdown_header,
    markdown_row,
    new_parser,
    timed,
)
from stored import Record, add_json_option

MIN_CONFIDENCE = 0.5
SAME_ITEMS = {
    "FastText x Word2Vec": ("words/fasttext-wiki-300.npz", "words/word2vec-googlenews-300.npz"),
    "GloVe x FastText": ("words/glove-6b-100.npz", "words/fasttext-wiki-300.npz"),
    "MiniLM x multilingual E5, French": ("texts/minilm-en.npz", "texts/me5-fr.npz"),
    "MobileNet v1 x v2": ("images/cifar10-mobilenet-v1-1024.npz", "images/cifar10-mobilenet-v2-1280.npz"),
}
COLUMNS = ("pair", "seeds", "state", "verdict", "words", "precision", "calibration error", "P@1", "P@1 of the match")


@dataclass(frozen=True)
class Setting:
    """Two spaces, what is right for rows of the first (any of the rows of the second), and pairs to draw seeds from."""

    x: Embeddings
    y: Embeddings
    right: dict[int, set[int]]
    known: list[tuple[int, int]]


@dataclass(frozen=True)
class Outcome:
    """What one lexicon came to."""

    map: str
    verdict: str
    reason: str
    words: int
    translations: int
    judged: int
    precision: float
    mean_probability: float
    calibration_error: float
    calibration_error_of_all: float
    p_at_1: float
    p_at_1_of_match: float
    seconds: float


def main() -> None:
    """One row for each pair of spaces, number of seeds and random state."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--dictionary", type=Path, help="freedict-eng-fra.dict.dz; without it no English-French")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[15, 60])
    parser.add_argument("--states", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--pairs", nargs="*", choices=SAME_ITEMS, default=list(SAME_ITEMS), help="of the same items")
    parser.add_argument("--rows", type=int, default=6000, help="rows of those (6000)")
    parser.add_argument("--device", default="auto")
    add_json_option(parser)
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    settings = {name: (lambda name=name: same_items(arguments.data, name, arguments.rows)) for name in arguments.pairs}
    if arguments.dictionary:
        french = {"English x French": lambda: english_french(arguments.data, arguments.dictionary)}
        settings = french | settings
    print(describe_machine(arguments.device))
    print(markdown_header(COLUMNS), flush=True)
    record = Record(arguments.json, {"rows": arguments.rows}, arguments.device)
    for name, make in settings.items():
        setting = make()
        for seeds in arguments.seeds:
            for state in arguments.states:
                case = (name, setting, seeds, state, arguments.runs, arguments.device)
                about = {"pair": name, "seeds": seeds, "state": state}
                row = record.row(about, lambda case=case: asdict(measure(*case)))
                figures = (row[name] for name in ("precision", "calibration_error", "p_at_1", "p_at_1_of_match"))
                cells = (name, str(seeds), str(state), row["verdict"], str(row["words"]))
                print(markdown_row([*cells, *(f"{figure:.3f}" for figure in figures)]), flush=True)


def english_french(data: Path, dictionary: Path) -> Setting:
    """20,000 English words and 19,999 French ones, and a dictionary."""
    x = read_embeddings(data / "words" / "word2vec-googlenews-300.npz", limit=20_000)
    y = read_embeddings(data / "words" / "fasttext-fr-300.npz")
    gold = [(a, b) for a, b in read_dictionary(dictionary) if a in x.row_of and b in y.row_of]
    words = sorted({a for a, _ in gold})
    held_out = set(np.random.default_rng(0).permutation(words)[: len(words) // 5].tolist())  # as in french.py
    known = one_to_one([(a, b) for a, b in gold if a not in held_out])
    right: dict[int, set[int]] = {}
    for a, b in gold:
        right.setdefault(x.row_of[a], set()).add(y.row_of[b])
    return Setting(x, y, right, [(x.row_of[a], y.row_of[b]) for a, b in known])


def same_items(data: Path, name: str, rows: int) -> Setting:
    """So many items that both spaces of a pair have, in another order in the second."""
    x, y = (read_embeddings(data / path) for path in SAME_ITEMS[name])
    chance = np.random.default_rng(0)
    keys = chance.permutation([key for key in x.keys if key in y.row_of])[:rows].tolist()
    shuffled = chance.permutation(keys).tolist()
    x, y = x.take(x.rows(keys)), y.take(y.rows(shuffled))
    known = [(row, y.row_of[key]) for row, key in enumerate(keys)]
    return Setting(x, y, {row: {partner} for row, partner in known}, known)


def measure(name: str, setting: Setting, seeds: int, state: int, runs: Path, device: str) -> Outcome:
    """Discover, unless that was done, make the lexicon and compare it with what is right."""
    folder = runs / f"{name.replace(' ', '-').replace(',', '')}-{len(setting.x)}-{seeds}-{state}"
    if not folder.exists():
        chosen = np.random.default_rng(state).permutation(len(setting.known))[:seeds]
        pairs = [setting.known[index] for index in chosen]
        AnchorDiscovery(random_state=state, device=device).fit(setting.x, setting.y, pairs).save(folder)
    discovery = load(folder)
    make = lambda: make_lexicon(discovery, setting.x, setting.y, min_confidence=MIN_CONFIDENCE, device=device)  # noqa: E731
    seconds, lexicon = timed(make)
    found = lexicon.translations
    counted = np.array(sorted(setting.right.keys() - set(discovery.seeds_[:, 0].tolist())))
    right = are_right(setting, found.rows, counted)
    probability = found.probability[counted]
    listed = probability >= MIN_CONFIDENCE
    match = are_right(setting, discovery.match_[:, None], counted)
    return Outcome(
        map=discovery.health_.map.verdict,
        verdict=lexicon.answer.verdict,
        reason=lexicon.answer.reason,
        words=int((found.probability[:, 0] >= MIN_CONFIDENCE).sum()),
        translations=int((found.probability >= MIN_CONFIDENCE).sum()),
        judged=int(listed.sum()),
        precision=float(right[listed].mean()) if listed.any() else 0.0,
        mean_probability=float(probability[listed].mean()) if listed.any() else 0.0,
        calibration_error=calibration_error(reliability(probability[listed], right[listed])),
        calibration_error_of_all=calibration_error(reliability(probability.ravel(), right.ravel())),
        p_at_1=float(right[:, 0].mean()),
        p_at_1_of_match=float(match.mean()),
        seconds=round(seconds, 1),
    )


def are_right(setting: Setting, rows: NDArray[np.int64], counted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the translations (n, k) of some rows (c,) are right (c, k)."""
    return np.array([[row in setting.right[source] for row in rows[source].tolist()] for source in counted.tolist()])


if __name__ == "__main__":
    main()
