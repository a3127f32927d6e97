"""LangChain: an `Embeddings` that searches the old index with the new model."""

from __future__ import annotations

from pathlib import Path

from kedge.extras import needing
from kedge.integrations.translation import Documents, EmbedderTranslation
from kedge.runs.translators import Scale

with needing("kedge.integrations.langchain needs", "langchain_core", install="kedge[langchain]"):
    from langchain_core.embeddings import Embeddings


class TranslatedEmbeddings(Embeddings):
    """An embedder of the new model whose queries work with the old index.

    `embedder` is LangChain's embedder of the new model, that of X;
    `run`, `documents` and `scale` are those of `EmbedderTranslation`.
    """

    def __init__(
        self, embedder: Embeddings, run: str | Path, *, documents: Documents = "translate", scale: Scale = "unit"
    ) -> None:
        self.embedder = embedder
        self.translation = EmbedderTranslation(run, documents, scale)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of documents, translated or native."""
        return self.translation.of_documents(self.embedder.embed_documents(texts))

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query in the old index's space."""
        return self.translation.of_query(self.embedder.embed_query(text))

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """The asynchronous version of `embed_documents`."""
        return self.translation.of_documents(await self.embedder.aembed_documents(texts))

    async def aembed_query(self, text: str) -> list[float]:
        """The asynchronous version of `embed_query`."""
        return self.translation.of_query(await self.embedder.aembed_query(text))
