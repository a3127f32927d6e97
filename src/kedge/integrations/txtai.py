"""txtai: vectors of the new model that search an old index, by way of txtai's own configuration."""

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
    """What txtai makes vectors with where `method` is "kedge.integrations.txtai.TranslatedVectors".

    Of txtai's configuration it takes `embedder`, the configuration of the new model, such as {"path": NAME} or
    {"transform": FUNCTION}; and `translation`, which has `run`, and may have `documents` and `scale` as elsewhere.
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
        """The new model, by its own configuration."""
        return VectorsFactory.create(self.config["embedder"], self.scoring, self.models)

    def encode(self, data: list[Any], category: str | None = None) -> NDArray[np.float32]:
        """Vectors of texts: queries translated, documents translated or native."""
        vectors = np.asarray(self.model.encode(data, category), dtype=np.float32)
        if category != "query" and self.translation.documents == "native":
            return vectors
        return self.translation.as_array(vectors, query=category == "query")
