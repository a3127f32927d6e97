"""Load the encoder for the name of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.encoders.image_encoder import ImageEncoder
from kedge.spaces.encoders.image_libraries import (
    efficientnet_lite,
    timm_images,
    torchvision_images,
    transformers_images,
)
from kedge.spaces.encoders.sentence_text import SentenceTextEncoder, is_sentence_model
from kedge.spaces.encoders.transformers_text import TransformersTextEncoder

_IMAGE_LIBRARIES = {
    "efficientnet-lite": efficientnet_lite.load,
    "timm": timm_images.load,
    "torchvision": torchvision_images.load,
}


class TextEncoder(Protocol):
    """What every text encoder can do."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, d) of the texts."""


def load_text_encoder(
    model: str,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    device: str = "cpu",
) -> TextEncoder:
    """Load the text encoder called `model`.

    Parameters
    ----------
    model : str
        A sentence-transformers model (a local folder with `modules.json`, or a hub name that begins with
        `sentence-transformers/`), else a transformers model (a local folder or a hub name).
    pooling : {"mean", "cls"}, optional
        For transformers models, "mean" by default; sentence-transformers models have their own.
    max_length : int, optional
        Truncate texts to this many tokens.
    batch_size : int
        Texts per forward pass.
    device : str
        A torch device.
    """
    if not is_sentence_model(model):
        return TransformersTextEncoder(
            model, pooling=pooling or "mean", max_length=max_length, batch_size=batch_size, device=device
        )
    if pooling is not None:
        raise InputError(
            f"pooling {pooling!r} was asked for, but {model!r} is a sentence-transformers model, "
            "which has its own pooling; omit pooling"
        )
    return SentenceTextEncoder(model, max_length=max_length, batch_size=batch_size, device=device)


def load_image_encoder(model: str, *, batch_size: int = 32, device: str = "cpu") -> ImageEncoder:
    """Load the image encoder called `model`.

    Parameters
    ----------
    model : str
        `timm:NAME`, `torchvision:NAME`, `efficientnet-lite:0` (or 1, 2), else a transformers model (a local folder
        or a hub name).
    batch_size : int
        Images per forward pass.
    device : str
        A torch device.
    """
    library, colon, name = model.partition(":")
    if colon and library in _IMAGE_LIBRARIES:
        return ImageEncoder(_IMAGE_LIBRARIES[library](name, device), batch_size=batch_size, device=device)
    return ImageEncoder(transformers_images.load(model, device), batch_size=batch_size, device=device)
