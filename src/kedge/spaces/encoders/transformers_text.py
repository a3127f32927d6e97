"""Text encoders of the transformers library: the states of the last layer, pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.encoders.libraries import (
    load_cached_first,
    load_pretrained,
    loading,
)

if TYPE_CHECKING:
    from torch import Tensor

POOLINGS = ("cls", "mean")

# Tokenizers without a limit report a huge number.
_NO_LIMIT = 10**6
_USUAL_LENGTH = 512


class TransformersTextEncoder:
    """A transformers model whose last layer is pooled to one vector per text.

    Parameters
    ----------
    model : str
        A local folder or a name on the hub.
    pooling : {"mean", "cls"}
        Mean of the states of all tokens except padding, or the state of the first token.
    max_length : int, optional
        Truncate texts to this many tokens; by default, to the most that the model takes.
    batch_size : int
        Texts per forward pass.
    device : str
        A torch device.
    """

    def __init__(
        self,
        model: str,
        *,
        pooling: str = "mean",
        max_length: int | None = None,
        batch_size: int = 32,
        device: str = "cpu",
    ) -> None:
        if pooling not in POOLINGS:
            raise InputError(f"pooling must be 'cls' or 'mean', got {pooling!r}")
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        self.pooling = pooling
        self.batch_size = batch_size
        self._device = device
        with loading(model, "transformers text"):
            self._tokenizer, self._model = load_cached_first(model, lambda local: _load(model, local))
            self._model = self._model.float().eval().to(device)
        self.max_length = _max_length(model, self._tokenizer, self._model, max_length)

    @property
    def dim(self) -> int:
        """Number of dimensions d."""
        return int(self._model.config.hidden_size)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, d) of the texts."""
        import torch

        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        # Texts of similar length in one batch need little padding.
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        with torch.inference_mode():
            for begin in range(0, len(order), self.batch_size):
                rows = order[begin : begin + self.batch_size]
                tokens = self._tokenizer(
                    [texts[row] for row in rows],
                    padding=True,
                    truncation=True,
                    max_length=self.max_length,
                    return_tensors="pt",
                ).to(self._device)
                states = self._model(**tokens).last_hidden_state
                vectors[rows] = pool(states, tokens["attention_mask"], self.pooling).float().cpu().numpy()
        return vectors


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Pool states (b, tokens, d), given the attention mask (b, tokens), to one vector per text (b, d)."""
    if pooling == "cls":
        return states[:, 0]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def position_limit(model: Any) -> int | None:
    """How many tokens the model's position embeddings allow, or None if it has none."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    # RoBERTa and its relatives count positions from after the padding index.
    offset = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    return positions if offset is None else positions - offset - 1


def require_length(model: str, max_length: int, limit: int | None) -> None:
    """Refuse a `max_length` that the model cannot take."""
    if max_length < 1 or (limit is not None and max_length > limit):
        rule = "at least 1" if limit is None else f"from 1 to {limit}, the limit of model {model!r}"
        raise InputError(f"max_length must be {rule}, got {max_length}")


def _load(model: str, local: bool) -> tuple[Any, Any]:
    # An untrained pooler does no harm: it is not used.
    tokenizer, network, _ = load_pretrained(model, "AutoTokenizer", local=local)
    if hasattr(network, "vision_model"):
        raise InputError(
            f"model {model!r}: is a joint model of texts and images, which is not supported for texts; "
            "use its sentence-transformers version instead"
        )
    if getattr(network.config, "is_encoder_decoder", False):
        network = network.get_encoder()
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise InputError(f"model {model!r}: its tokenizer has no padding token, so texts cannot be batched")
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"  # so that the first token is where "cls" looks for it
    return tokenizer, network


def _max_length(model: str, tokenizer: Any, network: Any, asked: int | None) -> int:
    limit = position_limit(network)
    if asked is not None:
        require_length(model, asked, limit)
        return asked
    usual = tokenizer.model_max_length
    if usual > _NO_LIMIT:
        return limit or _USUAL_LENGTH
    return int(usual if limit is None else min(usual, limit))
