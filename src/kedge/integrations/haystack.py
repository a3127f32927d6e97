"""Haystack: text and document embedders that search, or add to, the old index with the new model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kedge.extras import needing
from kedge.integrations.translation import Documents, EmbedderTranslation
from kedge.runs.translators import Scale

with needing("kedge.integrations.haystack needs", "haystack", install="kedge[haystack]"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.core.serialization import component_to_dict
    from haystack.utils import deserialize_component_inplace


@component
class TranslatedTextEmbedder:
    """A text embedder of the new model whose queries work with the old index.

    `embedder` is Haystack's text embedder of the new model, that of X;
    `run` and `scale` are those of `EmbedderTranslation`.
    """

    def __init__(self, embedder: Any, run: str | Path, scale: Scale = "unit") -> None:
        self.embedder = embedder
        self.translation = EmbedderTranslation(run, "native", scale)  # it embeds no documents

    @component.output_types(embedding=list[float], meta=dict[str, Any])
    def run(self, text: str) -> dict[str, Any]:
        """The vector of a text in the old index's space, and the embedder's metadata."""
        given = self.embedder.run(text=text)
        return {"embedding": self.translation.of_query(given["embedding"]), "meta": given.get("meta", {})}

    def warm_up(self) -> None:
        """Load the new model."""
        _warm_up(self.embedder)

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack stores it, with the embedder inside."""
        settings = {name: self.translation.settings[name] for name in ("run", "scale")}
        return default_to_dict(self, embedder=component_to_dict(self.embedder, "embedder"), **settings)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TranslatedTextEmbedder:
        """The component that was stored."""
        deserialize_component_inplace(data["init_parameters"], key="embedder")
        loaded: TranslatedTextEmbedder = default_from_dict(cls, data)
        return loaded


@component
class TranslatedDocumentEmbedder:
    """A document embedder of the new model, for documents that go into the old index or a new one.

    `embedder` is Haystack's document embedder of the new model, that of X;
    `run`, `documents` and `scale` are those of `EmbedderTranslation`.
    """

    def __init__(
        self, embedder: Any, run: str | Path, documents: Documents = "translate", scale: Scale = "unit"
    ) -> None:
        self.embedder = embedder
        self.translation = EmbedderTranslation(run, documents, scale)

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """The documents with their vectors, and the embedder's metadata."""
        given = self.embedder.run(documents=documents)
        vectors = self.translation.of_documents([document.embedding for document in given["documents"]])
        embedded = [replace(document, embedding=v) for document, v in zip(given["documents"], vectors, strict=True)]
        return {"documents": embedded, "meta": given.get("meta", {})}

    def warm_up(self) -> None:
        """Load the new model."""
        _warm_up(self.embedder)

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack stores it, with the embedder inside."""
        return default_to_dict(self, embedder=component_to_dict(self.embedder, "embedder"), **self.translation.settings)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TranslatedDocumentEmbedder:
        """The component that was stored."""
        deserialize_component_inplace(data["init_parameters"], key="embedder")
        loaded: TranslatedDocumentEmbedder = default_from_dict(cls, data)
        return loaded


def _warm_up(embedder: Any) -> None:
    if hasattr(embedder, "warm_up"):
        embedder.warm_up()
