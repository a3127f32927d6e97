"""Text vectors from word vectors: weighted mean, first component removed ("simple but tough to beat").

The weight of a word is a / (a + p), where p is its relative frequency in the texts given to `fit`: frequent words,
which say little, count little. The first component, which all texts have in common, is then removed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, NotFittedError
from kedge.spaces.embeddings import Embeddings

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_WORD = re.compile(r"[^\W\d_]+")


class StaticTextEncoder:
    """Weighted mean of word vectors, without the first component of the texts given to `fit`.

    Words are runs of letters, lower-cased; of words that differ only in case, the first row is used.
    The table's vectors are scaled to unit norm, then centered.

    Parameters
    ----------
    words : Embeddings
        One vector for each word.
    smoothing : float
        The a of the weight a / (a + p); a larger one makes weights more equal.
    """

    def __init__(self, words: Embeddings, *, smoothing: float = 1e-3) -> None:
        if not (np.isfinite(smoothing) and smoothing > 0):
            raise InputError(f"smoothing must be a number above 0, got {smoothing}")
        self.smoothing = smoothing
        self._row_of: dict[str, int] = {}
        for row, word in enumerate(words.keys):
            self._row_of.setdefault(word.lower(), row)
        vectors = np.array(words.vectors, dtype=np.float32)  # a copy: the table may be a memory map
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors -= vectors.mean(axis=0)
        self._vectors = vectors
        self._weights: NDArray[np.float32] | None = None
        self._component: NDArray[np.float32] | None = None

    @property
    def dim(self) -> int:
        """Number of dimensions d."""
        return int(self._vectors.shape[1])

    def fit(self, texts: Sequence[str]) -> StaticTextEncoder:
        """Learn word frequencies and the first component from some texts; returns itself."""
        counted = Counter(word for text in texts for word in _words(text))
        total = sum(counted.values())
        weights = np.ones(len(self._vectors), dtype=np.float32)  # words not seen here get weight 1
        for word, count in counted.items():
            row = self._row_of.get(word)
            if row is not None:
                weights[row] = self.smoothing / (self.smoothing + count / total)
        self._weights = weights
        means = self._means(texts, weights)
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        known = norms[:, 0] > 0
        if not known.any():
            raise InputError(f"texts: none of the {len(texts)} texts to fit on contains a word of the table")
        unit = means[known] / norms[known]
        # The leading right singular vector, by way of the small Gram matrix (d, d).
        self._component = np.linalg.eigh((unit.T @ unit).astype(np.float64))[1][:, -1:].astype(np.float32)
        return self

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, d) of the texts; a text without any known word gives a row of zeros."""
        if self._weights is None or self._component is None:
            raise NotFittedError("this StaticTextEncoder is not fitted yet; call fit(texts) first")
        means = self._means(texts, self._weights)
        return (means - (means @ self._component) @ self._component.T).astype(np.float32, copy=False)

    def _means(self, texts: Sequence[str], weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Weighted means of the word vectors (n, d)."""
        counts = self._counts(texts, weights)
        sums = np.asarray(counts @ self._vectors, dtype=np.float32)
        totals = np.asarray(counts.sum(axis=1), dtype=np.float32).reshape(-1, 1)
        return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)

    def _counts(self, texts: Sequence[str], weights: NDArray[np.float32]) -> csr_array:
        """Weighted counts (n, number of words in the table)."""
        from scipy.sparse import csr_array

        if isinstance(texts, str):
            raise InputError("texts must be a sequence of strings, got one string; give [text]")
        columns: list[int] = []
        begins = [0]
        for text in texts:
            columns.extend(row for word in _words(text) if (row := self._row_of.get(word)) is not None)
            begins.append(len(columns))
        index = np.asarray(columns, dtype=np.int64)
        shape = (len(texts), len(self._vectors))
        counts = csr_array((weights[index], index, np.asarray(begins, dtype=np.int64)), shape=shape)
        counts.sum_duplicates()  # also sorts, so that word order does not even affect rounding
        return counts


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
