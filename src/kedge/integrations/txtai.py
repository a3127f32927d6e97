"""txtai: search an old index with the new model, through txtai's own configuration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.extras import needing
from kedge.integrations.translation import EmbedderTranslation

with needing("kedge.integrations.txtai needs", "txtai", install="kedge[txtai]"):
    from txtai.vectors import Vectors, VectorsFactory


class TranslatedVectors(Vectors):  # type: ignore[misc]
    """Vectors for txtai, selected by `method="kedge.integrations.txtai.TranslatedVectors"`.

    From txtai's configuration it reads `embedder`, the configuration of the new model, such as {"path": NAME} or
    {"transform": FUNCTION}; and `translation`, with `run` and optionally `documents` and `scale`, which are those of
    `EmbedderTranslation`.
    """

    def __init__(self, config: dict[str, Any], scoring: Any = None, models: Any = None) -> None:
        settings = config.get("translation")
        if not isinstance(settings, dict) or "run" not in settings or not config.get("embedder"):
            raise InputError(
                "txtai's configuration must have `embedder`, that of the new model, and `translation`, such as "
                '{"run": "RUN", "documents": "translate"}'
            )
        self.translation = EmbedderTranslation(**settings)
        super().__init__(config, scoring, models)

    def loadmodel(self, _: str | None) -> Any:
        """Load the new model by its own configuration."""
        return VectorsFactory.create(self.config["embedder"], self.scoring, self.models)

    def encode(self, data: list[Any], category: str | None = None) -> NDArray[np.float32]:
        """Encode texts: queries are translated, documents are translated or native."""
        vectors = np.asarray(self.model.encode(data, category), dtype=np.float32)
        if category != "query" and self.translation.documents == "native":
            return vectors
        return self.translation.as_array(vectors, query=category == "query")
