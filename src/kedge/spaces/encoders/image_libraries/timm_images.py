"""Image models of the timm library, without their classifier."""

from __future__ import annotations

from typing import Any

from kedge.spaces.encoders.image_encoder import ImageModel
from kedge.spaces.encoders.libraries import FOR_IMAGES, import_library, loading, require_hub


def load(name: str, device: str) -> ImageModel:
    """Load a pretrained timm model; its features (b, d) are what its classifier would see.

    `local-dir:FOLDER` is timm's own way to name a model saved in a folder.
    """
    timm = import_library("timm", "timm models", install=FOR_IMAGES)
    with loading(f"timm:{name}", "timm"):
        if _is_to_download(timm, name):
            require_hub(f"timm:{name}")
        network = timm.create_model(name, pretrained=True, num_classes=0).float().eval().to(device)
        settings = timm.data.resolve_model_data_config(network)
        return ImageModel(timm.data.create_transform(**settings, is_training=False), network)


def _is_to_download(timm: Any, name: str) -> bool:
    """Whether the weights have to be downloaded from the hub, since they are not in the local cache."""
    config = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    if config is None or not config.hf_hub_id:
        return False
    hub = import_library("huggingface_hub", "timm models", install=FOR_IMAGES)
    files = ("model.safetensors", "pytorch_model.bin")
    return not any(isinstance(hub.try_to_load_from_cache(config.hf_hub_id, file), str) for file in files)
