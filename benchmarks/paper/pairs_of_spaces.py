"""Pairs of spaces with the same items under the same keys, and what a run may see of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kedge.errors import InputError
from kedge.spaces import Embeddings, read_embeddings

ANCHORS, SEEDS = 300, 15
"""The numbers used in the paper."""

# The paper's choice of words, as in its authors' earlier work.
_MIN_LETTERS, _MOST_FREQUENT_SKIPPED, _WORDS = 4, 400, 20_000
# Words to read from a published table: more than enough to find 20,000 that the other table has, too.
_WORDS_READ = 200_000


@dataclass(frozen=True)
class SpacePair:
    """Two spaces in which row i is the same item, with names for tables."""

    name: str
    x: Embeddings
    y: Embeddings
    name_x: str
    name_y: str


@dataclass(frozen=True)
class _Files:
    x: str
    y: str
    name_x: str
    name_y: str
    min_letters: int = 0
    max_keys: int | None = None


_PAIRS = {
    "easy": _Files(
        "words/word2vec-googlenews-300", "words/glove-6b-100", "Word2Vec", "GloVe", min_letters=3, max_keys=20_000
    ),
    "medium": _Files("words/fasttext-wiki-300", "words/word2vec-googlenews-300", "FastText", "Word2Vec"),
    "glove": _Files("words/glove-6b-100", "words/fasttext-wiki-300", "GloVe", "FastText"),
    "vit": _Files("images/cifar10-vit-a-128", "images/cifar10-vit-b-128", "ViT-a", "ViT-b"),
    "mobilenet": _Files(
        "images/cifar10-mobilenet-v1-1024", "images/cifar10-mobilenet-v2-1280", "MobileNet-v1", "MobileNet-v2"
    ),
    "texts": _Files("texts/minilm-en", "texts/me5-en", "MiniLM", "multilingual E5"),
    "texts-fr": _Files("texts/minilm-en", "texts/me5-fr", "MiniLM, English", "multilingual E5, French"),
    "sentences": _Files("sentences/minilm-en", "sentences/me5-en", "MiniLM", "multilingual E5"),
    "upgrade": _Files("texts/bge-en", "texts/minilm-en", "BGE", "MiniLM"),
}
PAIR_NAMES = tuple(_PAIRS)
WORD_PAIRS = ("easy", "medium")


def load_pair(data: Path, name: str, limit: int | None = None) -> SpacePair:
    """Load a pair from the data folder: the keys in both spaces, in the order of the first, at most `limit`."""
    files = _PAIRS[name]
    x, y = (read_embeddings(data / f"{file}.npz") for file in (files.x, files.y))
    shared = [key for key in x.keys if key in y.row_of]
    if files.min_letters:
        shared = [key for key in shared if key.isalpha() and len(key) >= files.min_letters]
    shared = shared[: files.max_keys][:limit]
    require_enough(len(shared), f"{x.source}, {y.source}: keys in both")
    return SpacePair(name, x.take(x.rows(shared)), y.take(y.rows(shared)), files.name_x, files.name_y)


def load_published_words(path_x: Path, path_y: Path, limit: int | None = None) -> SpacePair:
    """Load two published tables of word vectors, sorted by frequency, with the paper's choice of words.

    These are alphabetic words of at least 4 letters that both tables have. The 400 most frequent in X are skipped, and
    the next 20,000 taken, or at most `limit` of them.
    """
    x = read_embeddings(path_x, limit=_WORDS_READ)
    wanted = [key for key in x.keys if key.isalpha() and len(key) >= _MIN_LETTERS]
    y = read_embeddings(path_y, keys=wanted)
    shared = [key for key in wanted if key in y.row_of]
    chosen = shared[_MOST_FREQUENT_SKIPPED : _MOST_FREQUENT_SKIPPED + _WORDS][:limit]
    what = f"{path_x}, {path_y}: words of at least {_MIN_LETTERS} letters in both, without the first"
    require_enough(len(chosen), f"{what} {_MOST_FREQUENT_SKIPPED}")
    return SpacePair("files", x.take(x.rows(chosen)), y.take(y.rows(chosen)), path_x.name, path_y.name)


def require_enough(count: int, what: str) -> None:
    """Raise `InputError` if there are too few items to draw the anchors from."""
    if count < ANCHORS:
        raise InputError(f"{what}: there are {count}, at least {ANCHORS} are needed; give larger files or --limit")


@dataclass(frozen=True)
class Task:
    """What a run may see: X, Y with shuffled rows, anchors as keys of X, and the first of them paired as seeds."""

    x: Embeddings
    y: Embeddings
    anchors: list[str]
    seeds: list[tuple[str, str]]


def draw_task(pair: SpacePair, random_state: int, seeds: int = SEEDS, anchors: int = ANCHORS) -> Task:
    """Hide the pairs by shuffling Y, and draw random anchors and seeds."""
    chance = np.random.default_rng(random_state)
    y = pair.y.take(chance.permutation(len(pair.y)))
    keys = [pair.x.keys[row] for row in chance.choice(len(pair.x), anchors, replace=False)]
    return Task(pair.x, y, keys, [(key, key) for key in keys[:seeds]])
