"""What the benchmarks share: pairs of spaces from a data folder (`--data` or `KEDGE_DATA`)."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch

from kedge.discovery.devices import resolve_device
from kedge.spaces import Embeddings, read_embeddings

PAIRS = {
    "easy": ("words/word2vec-googlenews-300", "words/glove-6b-100"),
    "medium": ("words/fasttext-wiki-300", "words/word2vec-googlenews-300"),
    "glove": ("words/glove-6b-100", "words/fasttext-wiki-300"),
    "vit": ("images/cifar10-vit-a-128", "images/cifar10-vit-b-128"),
    "mobilenet": ("images/cifar10-mobilenet-v1-1024", "images/cifar10-mobilenet-v2-1280"),
}
WORD_PAIRS = ("easy", "medium")


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """`--data`, with `KEDGE_DATA` as its default."""
    default = os.environ.get("KEDGE_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=default and Path(default),
        required=default is None,
        help="folder with words/ and images/ (default: $KEDGE_DATA)",
    )


def describe_machine(device_name: str) -> str:
    """What the figures were measured on."""
    device = resolve_device(device_name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"


def load_pair(data: Path, name: str, limit: int | None = None) -> tuple[Embeddings, Embeddings]:
    """What both spaces of a pair hold, in the same order.

    Easy: the first 20,000 words that are alphabetic with at least 3 letters. The others: all.
    """
    x, y = (read_embeddings(data / f"{space}.npz") for space in PAIRS[name])
    shared = [key for key in x.keys if key in y.row_of]
    if name == "easy":
        shared = [key for key in shared if key.isalpha() and len(key) >= 3][:20_000]
    shared = shared[:limit]
    return x.take(x.rows(shared)), y.take(y.rows(shared))


def draw(
    x: Embeddings, truth: Embeddings, random_state: int, seeds: int = 15, anchors: int = 300
) -> tuple[Embeddings, list[str], list[tuple[str, str]]]:
    """What a run gets to see: Y with its rows shuffled, random anchors, and the first of them as seeds."""
    chance = np.random.default_rng(random_state)
    y = truth.take(chance.permutation(len(truth)))
    keys = [x.keys[row] for row in chance.choice(len(x), anchors, replace=False)]
    return y, keys, [(key, key) for key in keys[:seeds]]
