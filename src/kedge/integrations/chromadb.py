"""Chroma: an `EmbeddingFunction` that searches the old collection with the new model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kedge.extras import needing
from kedge.integrations.translation import Documents, EmbedderTranslation
from kedge.runs.translators import Scale

with needing("kedge.integrations.chromadb needs", "chromadb", install="kedge[chroma]"):
    import chromadb.api.types as chroma
    from chromadb.utils.embedding_functions import config_to_embedding_function, register_embedding_function


@register_embedding_function
class TranslatedEmbeddingFunction(chroma.EmbeddingFunction[chroma.Documents]):
    """An embedding function of the new model whose queries work with the old collection.

    Chroma refuses it for a collection that stores another function. Query such a collection with
    `collection.query(query_embeddings=function.embed_query(texts))`.

    `embedder` is Chroma's embedding function of the new model, that of X;
    `run`, `documents` and `scale` are those of `EmbedderTranslation`.
    """

    def __init__(
        self,
        embedder: chroma.EmbeddingFunction[chroma.Documents],
        run: str | Path,
        *,
        documents: Documents = "translate",
        scale: Scale = "unit",
    ) -> None:
        self.embedder = embedder
        self.translation = EmbedderTranslation(run, documents, scale)

    def __call__(self, input: chroma.Documents) -> chroma.Embeddings:
        """Vectors of documents, translated or native."""
        return _rows(self.translation.of_documents(self.embedder(input)))

    def embed_query(self, input: chroma.Documents) -> chroma.Embeddings:
        """Vectors of queries in the old collection's space."""
        return _rows(self.translation.of_queries(self.embedder.embed_query(input)))

    @staticmethod
    def name() -> str:
        """The name under which a collection stores the function."""
        return "kedge"

    def get_config(self) -> dict[str, Any]:
        """The configuration that a collection stores, including that of the wrapped function."""
        inner = {"name": self.embedder.name(), "config": self.embedder.get_config()}
        return {"embedder": inner} | self.translation.settings

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> TranslatedEmbeddingFunction:
        """Rebuild the function from its stored configuration."""
        options = {name: value for name, value in config.items() if name != "embedder"}
        return TranslatedEmbeddingFunction(config_to_embedding_function(config["embedder"]), **options)


def _rows(vectors: list[list[float]]) -> chroma.Embeddings:
    return [np.asarray(vector, dtype=np.float32) for vector in vectors]
