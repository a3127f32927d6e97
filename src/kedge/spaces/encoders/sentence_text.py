"""Text encoders of the sentence-transformers library, with the pooling that each model defines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.encoders.libraries import import_library, load_cached_first, loading, quiet_transformers
from kedge.spaces.encoders.transformers_text import position_limit, require_length

_PREFIX = "sentence-transformers/"


class SentenceTextEncoder:
    """A sentence-transformers model.

    Parameters
    ----------
    model : str
        A local folder with `modules.json`, or a name on the hub.
    max_length : int, optional
        Truncate texts to this many tokens; by default, to the model's own limit.
    batch_size : int
        Texts per forward pass.
    device : str
        A torch device.
    """

    def __init__(self, model: str, *, max_length: int | None = None, batch_size: int = 32, device: str = "cpu") -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        with loading(model, "sentence-transformers"):
            self._model = load_cached_first(model, lambda local: _load(model, local, device))
            self._model = self._model.float().eval()
        if max_length is not None:
            network = getattr(self._model[0], "auto_model", None)
            require_length(model, max_length, None if network is None else position_limit(network))
            self._model.max_seq_length = max_length

    @property
    def dim(self) -> int:
        """Number of dimensions d."""
        return self.encode(["a"]).shape[1]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, d) of the texts."""
        vectors = self._model.encode(
            list(texts), batch_size=self.batch_size, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


def is_sentence_model(model: str) -> bool:
    """Whether this is a sentence-transformers model, judged by its folder or its name on the hub."""
    folder = Path(model).expanduser()
    return (folder / "modules.json").is_file() or (model.startswith(_PREFIX) and not folder.is_dir())


def _load(model: str, local: bool, device: str) -> Any:
    library = import_library("sentence_transformers", "sentence-transformers models")
    folder = Path(model).expanduser()
    with quiet_transformers(bars=not local):
        return library.SentenceTransformer(
            str(folder) if folder.is_dir() else model, device=device, local_files_only=local
        )
