"""Image models of the libraries timm and torchvision, without their classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kedge.errors import InputError
from kedge.spaces.encoders.image_encoder import ImageModel
from kedge.spaces.encoders.libraries import FOR_IMAGES, import_library, loading, require_hub

if TYPE_CHECKING:
    from torch import Tensor

_HEADS = ("fc", "classifier", "heads", "head")


def load_timm(name: str, device: str) -> ImageModel:
    """A pretrained timm model; its features (b, d) are what its classifier would see.

    `local-dir:FOLDER` is timm's own way to name a model saved in a folder.
    """
    timm = import_library("timm", "timm models", install=FOR_IMAGES)
    with loading(f"timm:{name}", "timm"):
        if _is_to_download(timm, name):
            require_hub(f"timm:{name}")
        network = timm.create_model(name, pretrained=True, num_classes=0).float().eval().to(device)
        settings = timm.data.resolve_model_data_config(network)
        return ImageModel(timm.data.create_transform(**settings, is_training=False), network)


def load_torchvision(name: str, device: str) -> ImageModel:
    """A torchvision classifier with its default weights; its features (b, d) are what the head would see."""
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
        # Some heads begin with the pooling over space.
        return output.mean(dim=(2, 3)) if output.ndim == 4 else output

    return ImageModel(weights.transforms(), features)


def _is_to_download(timm: Any, name: str) -> bool:
    """Whether the weights are on the hub and not yet in the local cache."""
    config = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    if config is None or not config.hf_hub_id:
        return False
    hub = import_library("huggingface_hub", "timm models", install=FOR_IMAGES)
    files = ("model.safetensors", "pytorch_model.bin")
    return not any(isinstance(hub.try_to_load_from_cache(config.hf_hub_id, file), str) for file in files)
