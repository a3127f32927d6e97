"""Encoders: from texts and images to vectors. Their libraries are optional, and loaded when first used.

May import the modules of `kedge.spaces`.
"""

from kedge.spaces.encoders.image_encoder import ImageEncoder, ImageModel
from kedge.spaces.encoders.image_files import find_images, open_image
from kedge.spaces.encoders.models import TextEncoder, load_image_encoder, load_text_encoder
from kedge.spaces.encoders.sentence_text import SentenceTextEncoder
from kedge.spaces.encoders.shards import (
    digest,
    digest_of_files,
    digest_of_model,
    encode_in_shards,
    partial_folder,
    remove_shards,
)
from kedge.spaces.encoders.static import StaticTextEncoder
from kedge.spaces.encoders.texts import Texts, read_texts
from kedge.spaces.encoders.transformers_text import TransformersTextEncoder

__all__ = [
    "ImageEncoder",
    "ImageModel",
    "SentenceTextEncoder",
    "StaticTextEncoder",
    "TextEncoder",
    "Texts",
    "TransformersTextEncoder",
    "digest",
    "digest_of_files",
    "digest_of_model",
    "encode_in_shards",
    "find_images",
    "load_image_encoder",
    "load_text_encoder",
    "open_image",
    "partial_folder",
    "read_texts",
    "remove_shards",
]
