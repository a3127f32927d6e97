"""The core of every integration: a translator, and what to do with documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.models.translation_trust import Trust
from kedge.models.translator import Translator
from kedge.runs.translators import Scale, load_both_translators

Documents = Literal["translate", "native"]
"""Whether vectors of documents are translated into the old index's space, or kept as the embedder returns them."""


class EmbedderTranslation:
    """Translates the vectors of an embedder of X into Y's space.

    Queries are always translated, with a translation of their own if the run has one.

    Parameters
    ----------
    run : str or Path
        Run folder, or a file written by `kedge export --to numpy`; one of `--kind query` translates no documents.
    documents : {"translate", "native"}
        Whether documents are translated too, to be added to the old index, or kept as the embedder returns them, to
        fill a new index.
    scale : {"unit", "raw"}
        Length of translated vectors: 1, or the mean length of the old index's vectors, for an index by distance.
    """

    def __init__(self, run: str | Path, documents: str = "translate", scale: Scale = "unit") -> None:
        require_documents(documents)
        self.run = str(run)
        self.documents = documents
        self.scale = scale
        self.translator: Translator
        self.query_translator: Translator
        self.translator, self.query_translator = load_both_translators(
            run, scale=scale, only_queries=documents == "native"
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor arguments, for frameworks that store configurations."""
        return {"run": self.run, "documents": self.documents, "scale": self.scale}

    def of_query(self, vector: Any) -> list[float]:
        """Translate one query vector (ds,) of the embedder into one (dt,) of the old index."""
        return self.as_array([vector], query=True)[0].tolist()

    def of_queries(self, vectors: Any) -> list[list[float]]:
        """Translate vectors (k, ds) of queries into vectors (k, dt) of the old index."""
        return self.as_array(vectors, query=True).tolist()

    def of_documents(self, vectors: Sequence[Any]) -> list[list[float]]:
        """Vectors (k, ds) of documents, translated (k, dt) or as they are."""
        if self.documents == "translate":
            return self.as_array(vectors).tolist()
        return np.asarray(vectors, dtype=np.float32).tolist()

    def trust(self, vectors: Any, *, query: bool = True) -> Trust:
        """How far to trust the translations of the embedder's vectors (k, ds), or of one (ds,).

        >>> trust = embeddings.translation.trust(embeddings.embedder.embed_query(text))
        >>> if trust.probability < 0.9 or trust.familiarity < 0.02:
        ...     ...  # search by words, or with the old model
        """
        return (self.query_translator if query else self.translator).trust(vectors)

    def as_array(self, vectors: Any, *, query: bool = False) -> NDArray[np.float32]:
        """Translate vectors (k, ds) of texts or queries into an array (k, dt), which is empty if there are none."""
        source, target = self.translator.dims
        if not len(vectors):
            return np.empty((0, target), dtype=np.float32)
        rows = np.asarray(vectors, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] not in self.translator.dims_taken:
            raise InputError(
                f"the embedder gives vectors of {rows.shape[-1]} dimensions, but {self.run} translates from {source}; "
                "wrap the model that X of the run was encoded with"
            )
        return (self.query_translator if query else self.translator)(rows)


def require_documents(documents: str) -> None:
    """Raise an `InputError` unless `documents` is one of the options."""
    if documents not in get_args(Documents):
        raise InputError(f"documents must be one of {', '.join(get_args(Documents))}, got {documents!r}")
