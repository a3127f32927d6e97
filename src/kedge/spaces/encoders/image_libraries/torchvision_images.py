"""Image models of the torchvision library, without their classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.errors import InputError
from kedge.spaces.encoders.image_encoder import ImageModel
from kedge.spaces.encoders.libraries import FOR_IMAGES, import_library, loading

if TYPE_CHECKING:
    from torch import Tensor

_HEADS = ("fc", "classifier", "heads", "head")


def load(name: str, device: str) -> ImageModel:
    """Load a torchvision classifier with its default weights; its features (b, d) are what the head would see."""
    models = import_library("torchvision", "torchvision models", install=FOR_IMAGES).models
    import torch

    if name not in models.list_models(module=models):
        raise InputError(
            f"model 'torchvision:{name}': torchvision has no such classifier; "
            "torchvision.models.list_models(module=torchvision.models) lists them"
        )
    with loading(f"torchvision:{name}", "torchvision"):
        weights = models.get_model_weights(name).DEFAULT
        network = models.get_model(name, weights=weights)
        head = next(head for head in _HEADS if hasattr(network, head))
        setattr(network, head, torch.nn.Identity())
        network = network.eval().to(device)

    def features(batch: Tensor) -> Tensor:
        output = network(batch)
        # Some heads start with the spatial pooling.
        return output.mean(dim=(2, 3)) if output.ndim == 4 else output

    return ImageModel(weights.transforms(), features)
