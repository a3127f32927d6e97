"""Encode the texts of the experiments with word vectors or a model; results of models are kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kedge import __version__
from kedge.spaces import Embeddings, read_embeddings
from kedge.spaces.encoders import (
    StaticTextEncoder,
    digest,
    digest_of_model,
    encode_in_shards,
    load_text_encoder,
    remove_shards,
)
from kedge.spaces.encoders.sentence_text import is_sentence_model
from kedge.spaces.files import is_known_format
from kedge.spaces.formats.npy import write_matrix
from kedge.spaces.writing.atomic import atomic_path

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class EncodingPlace:
    """Where to encode: the folder for finished work, the torch device, and a progress callback."""

    folder: Path
    device: str
    on_progress: OnProgress | None = None


def encode_all(
    groups: Sequence[Sequence[str]], model: str, place: EncodingPlace, *, fit_on: int = 0
) -> list[NDArray[np.float32]]:
    """Encode several groups of texts with one encoder to vectors (n, d); texts without a known word become zeros.

    Parameters
    ----------
    groups : sequence of texts
    model : str
        A file of word vectors, to take weighted means of (weights are learned on the group `fit_on`), or the name or
        folder of a transformers or sentence-transformers model. A transformers model is pooled by its first token's
        state, as in the paper. Texts must not be blank.
    """
    if is_known_format(model) and not Path(model).is_dir():
        encoder = StaticTextEncoder(read_embeddings(model)).fit(groups[fit_on])
        return [encoder.encode(texts) for texts in groups]
    texts = [text for group in groups for text in group]
    vectors = _encode_by_model(texts, model, place)
    ends = np.cumsum([len(group) for group in groups])
    return np.split(vectors, ends[:-1])


def _encode_by_model(texts: Sequence[str], model: str, place: EncodingPlace) -> NDArray[np.float32]:
    """Encode texts to vectors (n, d), cached in the folder under a digest of model and texts."""
    pooling = None if is_sentence_model(model) else "cls"
    inputs = digest(texts)
    made_from = digest([model, digest_of_model(model) or "", pooling or "", __version__, inputs])
    folder = place.folder / f"{made_from[:16]}.partial"
    finished = folder.with_suffix(".npy")
    vectors = _read_finished(finished, len(texts))
    if vectors is not None:
        return vectors
    place.folder.mkdir(parents=True, exist_ok=True)
    encoder = load_text_encoder(model, pooling=pooling, device=place.device)
    # Batch texts of similar length together, for less padding.
    order = np.argsort([len(text) for text in texts], kind="stable")
    _, encoded = encode_in_shards(
        lambda some: (np.ones(len(some), dtype=np.bool_), encoder.encode(some)),
        [texts[row] for row in order],
        folder,
        settings={"made from": made_from},
        inputs=inputs,
        step=64,
        on_progress=place.on_progress,
    )
    vectors = encoded[np.argsort(order)]
    with atomic_path(finished) as temporary:
        write_matrix(temporary, vectors)
    remove_shards(folder)
    return vectors


def _read_finished(path: Path, rows: int) -> NDArray[np.float32] | None:
    """Read finished vectors (n, d); returns None if they are missing or damaged."""
    try:
        vectors: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return vectors if vectors.ndim == 2 and len(vectors) == rows else None


def with_vectors(keys: Sequence[str], vectors: NDArray[np.float32], source: str) -> Embeddings:
    """A space of the rows whose vector is not zero."""
    known = np.flatnonzero(np.linalg.norm(vectors, axis=1) > 0)
    return Embeddings([keys[row] for row in known.tolist()], vectors[known], source)
