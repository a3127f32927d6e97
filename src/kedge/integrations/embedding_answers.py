"""The message formats of OpenAI's /v1/embeddings: client requests, upstream's answers, and our answers."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.models.translation_trust import Trust
from kedge.models.translator import Translator

_ENCODINGS = ("float", "base64")
_VECTOR = np.dtype("<f4")


@dataclass(frozen=True)
class EmbeddingRequest:
    """A client's request: either `texts` (or lists of tokens) for upstream to encode, or `vectors` (k, ds)."""

    model: str
    encoding: str
    texts: list[Any] | None
    vectors: NDArray[np.float32] | None


def parse_request(body: bytes, translator: Translator, max_inputs: int) -> EmbeddingRequest:
    """Parse a request from a JSON body; raises `InputError` if it is invalid.

    `input` is a text or a list of tokens, or a list of these; lists of numbers that are not all whole are vectors of
    the new model.
    """
    asked = _json_object(body, "the body")
    inputs = asked.get("input")
    inputs = [inputs] if isinstance(inputs, str) or _is_numbers(inputs) else inputs
    if not isinstance(inputs, list) or not inputs:
        raise InputError("input must be a text, a list of texts, of tokens or of vectors, and not empty")
    if len(inputs) > max_inputs:
        raise InputError(f"input has {len(inputs)} entries, but at most {max_inputs} are answered at once; send fewer")
    encoding = asked.get("encoding_format") or "float"
    if encoding not in _ENCODINGS:
        raise InputError(f"encoding_format must be one of {', '.join(_ENCODINGS)}, got {encoding!r}")
    if asked.get("dimensions") not in (None, translator.dims[1]):
        raise InputError(
            f"dimensions must be {translator.dims[1]}, those of the old index, or omitted; got {asked['dimensions']!r}"
        )
    model = asked.get("model")
    if not isinstance(model, str):
        raise InputError("model must be a text")
    if all(isinstance(text, str) and text for text in inputs):
        return EmbeddingRequest(model, encoding, inputs, None)
    if not all(map(_is_numbers, inputs)):
        raise InputError("input must hold either texts that are not empty, or lists of numbers")
    if all(isinstance(number, int) for numbers in inputs for number in numbers):
        return EmbeddingRequest(model, encoding, inputs, None)
    return EmbeddingRequest(model, encoding, None, _as_rows(inputs, translator, "input"))


def upstream_body(request: EmbeddingRequest, model: str | None) -> bytes:
    """The body of the request to upstream for texts; `model` replaces the client's."""
    # In base64 a vector takes a third of the space and parses forty times as fast; servers without it send numbers.
    asked = {"model": model or request.model, "input": request.texts, "encoding_format": "base64"}
    return json.dumps(asked).encode()


def parse_upstream(body: bytes, count: int, translator: Translator) -> tuple[NDArray[np.float32], Mapping[str, Any]]:
    """The vectors (count, ds) and `usage` in upstream's answer; raises `InputError` if it is invalid."""
    answer = _json_object(body, "it")
    data = answer.get("data")
    if not isinstance(data, list) or len(data) != count or not all(isinstance(entry, dict) for entry in data):
        raise InputError(f"`data` must be a list of {count} embeddings, one for each input")
    by_index = {str(entry.get("index", row)): entry.get("embedding") for row, entry in enumerate(data)}
    if by_index.keys() != set(map(str, range(count))):
        raise InputError(f"each embedding must have an `index` of its own, from 0 to {count - 1}")
    vectors = [_decoded(by_index[str(row)]) for row in range(count)]
    usage = answer.get("usage")
    return _as_rows(vectors, translator, "it"), usage if isinstance(usage, dict) else {}


def answer_body(
    request: EmbeddingRequest, vectors: NDArray[np.float32], trust: Trust | None, usage: Mapping[str, Any]
) -> bytes:
    """The answer to a client: vectors (k, dt) in the requested encoding, and how far to trust each, if known.

    OpenAI's clients keep unknown fields: `answer.data[0].trust`.
    """
    if request.encoding == "base64":
        embeddings: list[Any] = [base64.b64encode(row.astype(_VECTOR).tobytes()).decode() for row in vectors]
    else:
        embeddings = vectors.tolist()
    data = [{"object": "embedding", "index": row, "embedding": each} for row, each in enumerate(embeddings)]
    if trust is not None:
        figures = zip(data, trust.probability.tolist(), trust.familiarity.tolist(), strict=True)
        data = [each | {"trust": round(p, 4), "familiarity": round(f, 4)} for each, p, f in figures]
    counted = {"prompt_tokens": 0, "total_tokens": 0} | dict(usage)
    return json.dumps({"object": "list", "data": data, "model": request.model, "usage": counted}).encode()


def error_body(message: str, kind: str) -> bytes:
    """An error in OpenAI's format."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()


def _json_object(body: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise InputError(f"{what} must be a JSON object, got {type(value).__name__}")
    return value


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(number) in (int, float) for number in value)


def _decoded(embedding: Any) -> Any:
    """Decode a vector that is given as numbers or in base64."""
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype=_VECTOR)
    except (binascii.Error, ValueError) as error:
        raise InputError("an embedding is neither numbers nor base64") from error


def _as_rows(vectors: list[Any], translator: Translator, what: str) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):  # numbers that overflow become infinite and are refused by the translator
            rows = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:  # a whole number may have more digits than any float
        raise InputError(f"{what} must hold vectors of {translator.dims[0]} numbers each") from error
    if rows.ndim != 2 or rows.shape[1] not in translator.dims_taken:
        found = f"{rows.shape[1]} dimensions" if rows.ndim == 2 else "another form"
        raise InputError(
            f"{what} holds vectors of {found}, but this run translates from {translator.dims[0]}: "
            "is it the model that X of the run was encoded with?"
        )
    return rows
