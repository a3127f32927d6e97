"""Image models of the transformers library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kedge.spaces.encoders.image_encoder import ImageModel
from kedge.spaces.encoders.libraries import (
    FOR_IMAGES,
    import_library,
    load_cached_first,
    load_pretrained,
    loading,
)

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


def load(model: str, device: str) -> ImageModel:
    """Load a model from a local folder or the hub, with its own image processor.

    Its features (b, d) are the pooled output if the model has a trained pooler (or one without weights), else the
    first token of a transformer or the spatial mean of a convolutional network. For a joint model of texts and images
    they are its image features.
    """
    with loading(model, "transformers image"):
        processor, network, has_pooler = load_cached_first(model, lambda local: _load(model, local))
        network = network.float().eval().to(device)

    def prepare(image: Image) -> Tensor:
        return processor(images=image, return_tensors="pt")["pixel_values"][0]

    def features(batch: Tensor) -> Tensor:
        if hasattr(network, "get_image_features"):
            output = network.get_image_features(pixel_values=batch)
            return getattr(output, "pooler_output", output)  # older versions return the tensor itself
        output = network(pixel_values=batch)
        pooled = getattr(output, "pooler_output", None) if has_pooler else None
        if pooled is not None:
            return pooled.flatten(1)
        states = output.last_hidden_state
        return states.mean(dim=(2, 3)) if states.ndim == 4 else states[:, 0]

    return ImageModel(prepare, features)


def _load(model: str, local: bool) -> tuple[Any, Any, bool]:
    """The image processor, the network, and whether its pooler can be used."""
    for name, what in (("PIL.Image", "images"), ("transformers", "transformers models")):
        import_library(name, what, install=FOR_IMAGES)
    # Classifiers are stored without a pooler; transformers then adds one with random weights.
    processor, network, complete = load_pretrained(model, "AutoImageProcessor", local=local)
    return processor, network, complete
