"""`ImageEncoder`: batching, threads and devices, the same for the models of all libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.encoders.image_files import open_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

# Decoding and resizing release the GIL, so a few threads help; more do not.
_THREADS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class ImageModel:
    """A model of some library: `prepare` makes a tensor (3, h, w) of an image, `features` maps a batch to (b, d)."""

    prepare: Callable[[Image], Tensor]
    features: Callable[[Tensor], Tensor]


class ImageEncoder:
    """Vectors of images.

    Parameters
    ----------
    model : ImageModel
        Made by `load_image_encoder`, which returns the encoder for a model name.
    batch_size : int
        Images per forward pass.
    device : str
        The torch device that the model is on.
    """

    def __init__(self, model: ImageModel, *, batch_size: int = 32, device: str = "cpu") -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self._model = model
        self._device = device

    def encode(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Vectors (n, d) of RGB images."""
        blocks = [
            self._features([self._model.prepare(image) for image in images[begin : begin + self.batch_size]])
            for begin in range(0, len(images), self.batch_size)
        ]
        return _stack(blocks)

    def encode_files(
        self, paths: Sequence[str | Path], *, skip_bad: bool = False
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Return a mask (n,) of the files that could be read, and their vectors (found, d).

        Without `skip_bad`, the first unreadable file raises `InputError`.
        """

        def prepare(path: str | Path) -> Tensor | None:
            try:
                image = open_image(path)
            except InputError:
                if skip_bad:
                    return None
                raise
            return self._model.prepare(image)  # right away: the tensor is smaller than the image

        found = np.zeros(len(paths), dtype=np.bool_)
        blocks = []
        with ThreadPoolExecutor(_THREADS) as threads:
            for begin in range(0, len(paths), self.batch_size):
                prepared = list(threads.map(prepare, paths[begin : begin + self.batch_size]))
                found[begin : begin + len(prepared)] = [image is not None for image in prepared]
                blocks.append(self._features([image for image in prepared if image is not None]))
        return found, _stack(blocks)

    def _features(self, images: list[Tensor]) -> NDArray[np.float32]:
        import torch

        if not images:
            return np.empty((0, 0), dtype=np.float32)
        with torch.inference_mode():
            return self._model.features(torch.stack(images).to(self._device)).float().cpu().numpy()


def _stack(blocks: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    full = [block for block in blocks if len(block)]
    return np.concatenate(full) if full else np.empty((0, 0), dtype=np.float32)
