"""LlamaIndex: a `BaseEmbedding` that searches the old index with the new model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedge.extras import needing
from kedge.integrations.translation import Documents, EmbedderTranslation
from kedge.runs.translators import Scale

with needing("kedge.integrations.llama_index needs", "llama_index", install="kedge[llama-index]"):
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import Field, PrivateAttr, SerializeAsAny


class TranslatedEmbedding(BaseEmbedding):
    """An embedder of the new model whose queries work with the old index.

    `embedder` is LlamaIndex's embedder of the new model, that of X;
    `run`, `documents` and `scale` are those of `EmbedderTranslation`.
    """

    embedder: SerializeAsAny[BaseEmbedding] = Field(description="Embedder of the new model.")
    run: str = Field(description="Run folder, or a file of `kedge export --to numpy`.")
    documents: Documents = Field(default="translate", description="What becomes of documents.")
    scale: Scale = Field(default="unit", description="Length of translated vectors.")
    _translation: EmbedderTranslation = PrivateAttr()

    def __init__(self, embedder: BaseEmbedding, run: str | Path, **options: Any) -> None:
        fields: dict[str, Any] = {"embedder": embedder, "run": str(run), "model_name": embedder.model_name}
        super().__init__(**fields | {"embed_batch_size": embedder.embed_batch_size} | options)
        self._translation = EmbedderTranslation(self.run, self.documents, self.scale)

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex stores the class."""
        return "TranslatedEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._translation.of_query(self.embedder.get_query_embedding(query))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._translation.of_query(await self.embedder.aget_query_embedding(query))

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._translation.of_documents(self.embedder.get_text_embedding_batch(texts))

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._translation.of_documents(await self.embedder.aget_text_embedding_batch(texts))
