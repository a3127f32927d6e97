"""The old index answers the new model: every integration with the framework itself, offline."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kedge
from kedge import AnchorDiscovery, Embeddings, InputError
from kedge.cli.main import main
from kedge.integrations.translation import EmbedderTranslation
from kedge.models.maps.linear import LinearMap
from kedge.models.translator import Normaliser, TranslationStep, Translator, unit_vectors
from kedge.runs.folder import read_translation
from kedge.tasks import export_bytes

ASKED = 40


class Model:
    """Stands in for an encoder: knows the vectors of some words."""

    def __init__(self, space: Embeddings) -> None:
        self.space = space

    def one(self, text: str) -> list[float]:
        return self.space.vectors[self.space.row_of[text]].tolist()

    def many(self, texts: list[str]) -> list[list[float]]:
        return [self.one(text) for text in texts]


@pytest.fixture(scope="module")
def models(words) -> tuple[Model, Model]:
    """The new model, that of X with 300 dimensions, and the old one, that of Y with 100."""
    return Model(words[0]), Model(words[1])


@pytest.fixture(scope="module")
def asked(words) -> list[str]:
    return [str(key) for key in words[0].keys[:: len(words[0]) // ASKED]]


@pytest.fixture(scope="module")
def expected(run_files, models, asked) -> dict[str, str]:
    """What each word that the old index of 1,000 holds must find first: the nearest by cosine, exactly."""
    keys, index = list(models[1].space.keys[:1000]), unit_vectors(models[1].space.vectors[:1000])
    held = [text for text in asked if text in set(keys)]
    nearest = (kedge.load_translator(run_files[0])(models[0].many(held)) @ index.T).argmax(axis=1)
    found = {text: str(keys[row]) for text, row in zip(held, nearest.tolist(), strict=True)}
    assert np.mean([text == hit for text, hit in found.items()]) > 0.8  # the map is worth something
    return found


# -- exported files -------------------------------------------------------------------------------


def make_translator(source: int = 32, target: int = 24, length: float = 1.5) -> Translator:
    chance = np.random.default_rng(0)
    matrix = chance.standard_normal((source, target)).astype(np.float32)
    centers = [0.3 * row / np.linalg.norm(row) for row in (chance.standard_normal(d) for d in (source, target))]
    ends = [Normaliser(center.astype(np.float32)) for center in centers]
    return Translator((TranslationStep(ends[0], LinearMap(matrix), ends[1]),), length)


ABOUT = {"format": "kedge-translation", "source": "X", "target": "Y", "scale": "raw"}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_an_exported_file_is_a_translator_again(suffix, tmp_path):
    translator, path = make_translator(), tmp_path / f"to-y{suffix}"
    path.write_bytes(export_bytes(translator, ABOUT, suffix))
    vectors = np.random.default_rng(1).standard_normal((5, 32))
    np.testing.assert_array_equal(kedge.load_translator(path)(vectors), translator(vectors))
    with pytest.raises(InputError, match="X to Y with scale raw; give the run folder.*--back"):
        kedge.load_translator(path, back=True)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_run_of_the_first_dimensions_takes_vectors_of_all_when_exported(suffix, tmp_path):
    translator, path = replace(make_translator(), prefix_of=48), tmp_path / f"to-y{suffix}"
    path.write_bytes(export_bytes(translator, ABOUT, suffix))
    loaded = kedge.load_translator(path)
    vectors = np.random.default_rng(1).standard_normal((5, 48))
    np.testing.assert_array_equal(loaded(vectors), loaded(vectors[:, :32]))
    np.testing.assert_array_equal(loaded(vectors), translator(vectors))
    with pytest.raises(InputError, match="must have shape"):
        loaded(vectors[:, :40])


def test_an_exported_file_has_one_scale(run_files, tmp_path):
    path = tmp_path / "to-y.npz"
    assert main(["export", run_files[0], "--to", "numpy", "-o", str(path)]) == 0
    vector = np.ones(300)
    np.testing.assert_allclose(kedge.load_translator(path)(vector), kedge.load_translator(run_files[0])(vector))
    with pytest.raises(InputError, match="--scale raw"):
        kedge.load_translator(path, scale="raw")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"matrix": np.ones((3, 24), np.float32)}, "source_center has changed since it was written"),
        ({"matrix": np.ones((32, 24))}, "matrix has changed since it was written"),
        ({"length": np.asarray(np.nan, np.float32)}, "length has changed since it was written"),
        ({"length": np.asarray(-1, np.float32)}, "has changed since it was written"),
        ({"prefix_of": np.asarray(32)}, "prefix_of has changed since it was written"),
        ({"prefix_of": np.asarray([48])}, "prefix_of has changed since it was written"),
        ({"prefix_of": np.asarray(48.5)}, "prefix_of has changed since it was written"),
        ({"about": np.asarray("{}")}, "is not a file written by `kedge export"),
        ({"about": np.asarray("[")}, "is not a file written by `kedge export"),
        ({"matrix": np.asarray([None], dtype=object)}, "is not a file written by `kedge export"),
    ],
)
def test_a_damaged_exported_file_is_refused(change, said, tmp_path):
    path = tmp_path / "to-y.npz"
    path.write_bytes(export_bytes(make_translator(), ABOUT, ".npz"))
    with np.load(path) as stored:
        arrays = dict(stored) | change
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=said):
        kedge.load_translator(path)


def test_what_is_no_exported_file_is_refused(tmp_path):
    for name, said in (("none.npz", "no such file"), ("a.onnx", "only .npz and .safetensors")):
        with pytest.raises(InputError, match=said):
            kedge.load_translator(tmp_path / name)
    for name in ("text.npz", "text.safetensors"):
        (tmp_path / name).write_text("text")
        with pytest.raises(InputError, match="is not a file written by `kedge export"):
            kedge.load_translator(tmp_path / name)


# -- what all have in common ----------------------------------------------------------------------


def test_documents_are_translated_or_native(run_files, models):
    from kedge.integrations.translation import EmbedderTranslation

    new, texts = models[0], ["dog", "house"]
    translated = kedge.load_translator(run_files[0])(new.many(texts))
    for documents, expected in (("translate", translated), ("native", np.asarray(new.many(texts)))):
        translation = EmbedderTranslation(run_files[0], documents)
        np.testing.assert_allclose(translation.of_documents(new.many(texts)), expected, atol=1e-6)
        np.testing.assert_allclose(translation.of_queries(new.many(texts)), translated, atol=1e-6)
        np.testing.assert_allclose(translation.of_query(new.one("dog")), translated[0], atol=1e-6)
        assert translation.of_documents([]) == translation.of_queries([]) == []


def test_a_file_of_queries_translates_no_documents(tmp_path):
    path, vector = tmp_path / "queries.npz", np.ones(32)
    path.write_bytes(export_bytes(make_translator(), ABOUT | {"kind": "query"}, ".npz"))
    with pytest.raises(InputError, match=r"queries.npz: translates queries .*documents would.*documents=\"native\""):
        EmbedderTranslation(path)
    translation = EmbedderTranslation(path, "native")
    np.testing.assert_allclose(translation.of_query(vector), make_translator()(vector))
    np.testing.assert_array_equal(translation.of_documents([vector]), [vector])


def test_whole_numbers_beyond_all_floats_are_refused():
    with pytest.raises(InputError, match="vectors must be numbers"):
        make_translator()([0.5] * 31 + [10**400])


def test_mistakes_are_explained(run_files):
    from kedge.integrations.translation import EmbedderTranslation

    with pytest.raises(InputError, match="documents must be one of translate, native, got 'both'"):
        EmbedderTranslation(run_files[0], "both")
    with pytest.raises(InputError, match="gives vectors of 7 dimensions, but .* translates from 300"):
        EmbedderTranslation(run_files[0]).of_query(np.ones(7))


@pytest.mark.parametrize("module", ["langchain", "llama_index", "chromadb", "embedding_server"])
def test_no_torch_is_loaded_unless_a_framework_does(module):
    code = f"import sys, kedge.integrations.{module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "pip install" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr


# -- frameworks -----------------------------------------------------------------------------------


def test_trust_in_what_an_embedder_gives(run_files, models):
    translation = EmbedderTranslation(run_files[0])
    trust = translation.trust(models[0].one("dog"))
    assert 0 < trust.probability < 1
    assert translation.trust(models[0].many(["dog", "house"]), query=False).familiarity.shape == (2,)


def test_a_run_is_read_once(run_files, monkeypatch):
    read = []
    monkeypatch.setattr(
        "kedge.runs.translators.read_translation", lambda folder: read.append(folder) or read_translation(folder)
    )
    EmbedderTranslation(run_files[0])
    assert len(read) == 1


def test_langchain(run_files, models, asked, expected):
    pytest.importorskip("langchain_core", reason="needs LangChain: pip install 'kedge[langchain]'")
    from langchain_core.embeddings import Embeddings as Embedder
    from langchain_core.vectorstores import InMemoryVectorStore

    from kedge.integrations.langchain import TranslatedEmbeddings

    class Own(Embedder):
        def __init__(self, model: Model) -> None:
            self.model = model

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return self.model.many(texts)

        def embed_query(self, text: str) -> list[float]:
            return self.model.one(text)

    new, old = (Own(model) for model in models)
    store = InMemoryVectorStore(old)
    store.add_texts(old.model.space.keys[:1000])
    store.embedding = TranslatedEmbeddings(new, run_files[0])
    held = set(old.model.space.keys[:1000])
    assert {text: store.similarity_search(text, k=1)[0].page_content for text in expected} == expected
    store.add_texts([text for text in asked if text not in held])
    assert store.similarity_search(next(text for text in asked if text not in held), k=1)

    native = TranslatedEmbeddings(new, run_files[0], documents="native")
    assert len(native.embed_documents(["dog"])[0]) == 300
    assert len(native.embed_query("dog")) == 100
    assert asyncio.run(native.aembed_documents(["dog"])) == native.embed_documents(["dog"])
    assert asyncio.run(native.aembed_query("dog")) == native.embed_query("dog")


def test_llama_index(run_files, models, expected):
    pytest.importorskip("llama_index.core", reason="needs LlamaIndex: pip install 'kedge[llama-index]'")
    from llama_index.core import VectorStoreIndex
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.schema import TextNode

    from kedge.integrations.llama_index import TranslatedEmbedding

    class Own(BaseEmbedding):
        _model: Model = PrivateAttr()

        def __init__(self, model: Model) -> None:
            super().__init__(model_name="stand-in", embed_batch_size=7)
            self._model = model

        def _get_query_embedding(self, query: str) -> list[float]:
            return self._model.one(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._model.one(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return self._model.one(text)

    new, old = (Own(model) for model in models)
    nodes = [TextNode(text=text, id_=text) for text in models[1].space.keys[:1000]]
    index = VectorStoreIndex(nodes, embed_model=old, transformations=[])
    translated = TranslatedEmbedding(new, Path(run_files[0]))
    retriever = index.as_retriever(embed_model=translated, similarity_top_k=1)
    assert {text: retriever.retrieve(text)[0].node.node_id for text in expected} == expected

    assert (translated.model_name, translated.embed_batch_size) == ("stand-in", 7)
    assert translated.to_dict()["documents"] == "translate"
    native = TranslatedEmbedding(new, run_files[0], documents="native")
    assert [len(vector) for vector in native.get_text_embedding_batch(["dog", "house"])] == [300, 300]
    assert len(translated.get_text_embedding("dog")) == len(native.get_query_embedding("dog")) == 100
    assert asyncio.run(native.aget_text_embedding("dog")) == native.get_text_embedding("dog")
    assert asyncio.run(native.aget_query_embedding("dog")) == native.get_query_embedding("dog")


def new_text(text: str) -> list[float]:
    return HAYSTACK[0].one(text)


def old_text(text: str) -> list[float]:
    return HAYSTACK[1].one(text)


HAYSTACK: list[Model] = []
"""What the two functions above, which Haystack stores by name, look words up in."""


def test_haystack(run_files, models, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip("haystack", reason="needs Haystack: pip install 'kedge[haystack]'")
    from haystack import Document, Pipeline
    from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
    from haystack.components.retrievers import InMemoryEmbeddingRetriever
    from haystack.core.serialization import allow_deserialization_module
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    from kedge.integrations.haystack import TranslatedDocumentEmbedder, TranslatedTextEmbedder

    monkeypatch.setattr("test_integrations.HAYSTACK", list(models))
    allow_deserialization_module("test_integrations")
    old = [Document(id=text, content=text) for text in models[1].space.keys[:1000]]
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(MockDocumentEmbedder(embedding_fn=old_text).run(old)["documents"])

    # A pipeline is stored and read back before it is asked; Haystack wants to be told whose code it may load.
    stored = Pipeline()
    stored.add_component("embedder", TranslatedTextEmbedder(MockTextEmbedder(embedding_fn=new_text), run_files[0]))
    pipeline = Pipeline.loads(stored.dumps(), allowed_modules=["kedge.integrations.haystack"])
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")

    def ask(text: str) -> str:
        return pipeline.run({"embedder": {"text": text}})["retriever"]["documents"][0].id

    assert {text: ask(text) for text in expected} == expected

    of_queries = tmp_path / "queries.npz"
    of_queries.write_bytes(export_bytes(make_translator(300, 100), ABOUT | {"kind": "query"}, ".npz"))
    texts = TranslatedTextEmbedder(MockTextEmbedder(embedding_fn=new_text), of_queries)
    assert len(texts.run("dog")["embedding"]) == 100
    with pytest.raises(InputError, match="translates queries"):
        TranslatedDocumentEmbedder(MockDocumentEmbedder(embedding_fn=new_text), of_queries)

    for documents, dim in (("translate", 100), ("native", 300)):
        embedder = TranslatedDocumentEmbedder(MockDocumentEmbedder(embedding_fn=new_text), run_files[0], documents)
        loaded = TranslatedDocumentEmbedder.from_dict(json.loads(json.dumps(embedder.to_dict())))
        loaded.warm_up()
        (embedded,) = loaded.run([Document(content="dog")])["documents"]
        assert len(embedded.embedding) == dim


def test_chroma(run_files, models, expected, tmp_path):
    chromadb = pytest.importorskip("chromadb", reason="needs Chroma: pip install 'kedge[chroma]'")
    from chromadb.utils.embedding_functions import register_embedding_function

    from kedge.integrations.chromadb import TranslatedEmbeddingFunction

    @register_embedding_function
    class Own(chromadb.EmbeddingFunction):
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self, input: list[str]) -> Any:
            return [np.asarray(vector, np.float32) for vector in models[self.number].many(input)]

        @staticmethod
        def name() -> str:
            return "stand-in"

        def get_config(self) -> dict[str, Any]:
            return {"number": self.number}

        @staticmethod
        def build_from_config(config: dict[str, Any]) -> Own:
            return Own(**config)

    keys = list(models[1].space.keys[:1000])
    vectors = models[1].space.vectors[:1000]
    client = chromadb.PersistentClient(tmp_path)
    client.create_collection("own", embedding_function=None, metadata={"hnsw:space": "cosine"}).add(keys, vectors)
    client.create_collection("named", embedding_function=Own(1)).add(keys, documents=keys)

    function = TranslatedEmbeddingFunction(Own(0), run_files[0])
    old = client.get_collection("own", embedding_function=function)
    texts = list(expected)
    assert [hits[0] for hits in old.query(query_texts=texts, n_results=1)["ids"]] == list(expected.values())
    old.add(["new"], documents=["dog"])
    assert old.get(["new"], include=["embeddings"])["embeddings"].shape == (1, 100)

    # A collection that stores another function keeps it, and is asked with vectors.
    with pytest.raises(ValueError, match="conflict"):
        client.get_collection("named", embedding_function=function)
    by_distance = TranslatedEmbeddingFunction(Own(0), run_files[0], scale="raw")
    hits = client.get_collection("named").query(query_embeddings=by_distance.embed_query(texts), n_results=1)
    distances = np.linalg.norm(np.asarray(by_distance.embed_query(texts))[:, None] - vectors, axis=2)
    assert [ids[0] for ids in hits["ids"]] == [keys[row] for row in distances.argmin(axis=1).tolist()]

    # What a new collection stores is found again by its name.
    native = TranslatedEmbeddingFunction(Own(0), run_files[0], documents="native")
    client.create_collection("new", embedding_function=native).add(["dog"], documents=["dog"])
    stored = client.get_collection("new").configuration["embedding_function"]
    assert stored.get_config() == native.get_config()
    assert (len(stored(["dog"])[0]), len(stored.embed_query(["dog"])[0])) == (300, 100)


def test_txtai(run_files, models, expected, tmp_path):
    txtai = pytest.importorskip("txtai", reason="needs txtai: pip install 'kedge[txtai]'")

    def new(texts: list[str]) -> list[list[float]]:
        return models[0].many(texts)

    def old(texts: list[str]) -> list[list[float]]:
        return models[1].many(texts)

    embeddings = txtai.Embeddings(transform=old, backend="numpy")
    keys = list(models[1].space.keys[:1000])
    embeddings.index([(key, key, None) for key in keys])
    embeddings.config.pop("transform")  # a function that pickle would have to find
    embeddings.save(str(tmp_path / "index"))

    changed = {
        "method": "kedge.integrations.txtai.TranslatedVectors",
        "embedder": {"transform": new},
        "translation": {"run": run_files[0], "documents": "translate"},
    }
    embeddings = txtai.Embeddings().load(str(tmp_path / "index"), config=changed)
    hits = embeddings.batchsearch(list(expected), 1)
    assert {text: ids[0][0] for text, ids in zip(expected, hits, strict=True)} == expected
    assert embeddings.batchtransform(["dog"], "data").shape == (1, 100)
    changed["translation"] = {"run": run_files[0], "documents": "native"}
    native = txtai.Embeddings(changed)
    assert native.batchtransform(["dog"], "data").shape == (1, 300)
    assert native.batchtransform(["dog"], "query").shape == (1, 100)

    from kedge.integrations.txtai import TranslatedVectors

    with pytest.raises(InputError, match="`embedder`.*`translation`"):
        TranslatedVectors({"embedder": {"transform": new}})


# -- sentence-transformers ------------------------------------------------------------------------

TEXTS = ["red green", "green", "blue red blue", "blue"]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory, make_roberta) -> Any:
    """A SentenceTransformer with 32 dimensions."""
    pytest.importorskip("sentence_transformers.base.modules", reason="pip install 'kedge[sentence-transformers]'")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    folder = make_roberta(tmp_path_factory.mktemp("tiny") / "model", {"red", "green", "blue"})
    return SentenceTransformer(modules=[Transformer(folder), Pooling(32)], device="cpu")


@pytest.fixture
def exported(tmp_path) -> Path:
    path = tmp_path / "to-y.npz"
    path.write_bytes(export_bytes(make_translator(), ABOUT, ".npz"))
    return path


def test_a_module_translates_as_a_translator(tmp_path):
    pytest.importorskip("sentence_transformers.base.modules", reason="pip install 'kedge[sentence-transformers]'")
    import torch

    from kedge.integrations.sentence_transformers import TranslationModule

    translator = make_translator()
    module = TranslationModule.from_translator(translator)
    vectors = np.random.default_rng(2).standard_normal((6, 32)).astype(np.float32)
    given = {"sentence_embedding": torch.from_numpy(vectors), "other": 1}
    translated = module(given)
    np.testing.assert_allclose(translated["sentence_embedding"], translator(vectors), rtol=1e-5, atol=1e-6)
    assert translated["other"] == 1
    assert given["sentence_embedding"].shape == (6, 32)
    with pytest.raises(InputError, match="gives vectors of 5 dimensions, but this module translates from 32"):
        module({"sentence_embedding": torch.ones(1, 5)})
    with pytest.raises(InputError, match="only one linear map"):
        TranslationModule.from_translator(translator.then(make_translator(24, 8)))
    half = module.half()({"sentence_embedding": torch.from_numpy(vectors).half()})["sentence_embedding"]
    assert half.dtype == torch.float16
    np.testing.assert_allclose(half.float(), translator(vectors), atol=5e-3)


@pytest.mark.parametrize("documents", ["translate", "native"])
def test_new_model_and_map_are_one_object(documents, tiny_model, exported, tmp_path):
    from sentence_transformers import SentenceTransformer

    from kedge.integrations.sentence_transformers import translated_model

    native = tiny_model.encode(TEXTS)
    translated = make_translator()(native)
    whole = translated_model(tiny_model, exported, documents=documents)
    whole.save(str(tmp_path / "whole"))
    exported.unlink()  # the saved model has all it needs
    loaded = SentenceTransformer(str(tmp_path / "whole"), device="cpu", trust_remote_code=True)
    for model in (whole, loaded):
        np.testing.assert_allclose(model.encode_query(TEXTS), translated, rtol=1e-4, atol=1e-5)
        expected = translated if documents == "translate" else native
        np.testing.assert_allclose(model.encode_document(TEXTS), expected, rtol=1e-4, atol=1e-5)
    assert tiny_model.get_embedding_dimension() == 32
    if documents == "translate":
        assert loaded.get_embedding_dimension() == 24
        np.testing.assert_allclose(loaded.encode(TEXTS), translated, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def asked_run(tmp_path_factory) -> Path:
    """A run with queries that are marked, so that they have a map of their own; X has 32 dimensions."""
    from test_query_maps import make_world

    x, y, queries = make_world(shift=4.0, dim=32)
    discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(k, k) for k in x.keys[:60]], queries=queries)
    folder = tmp_path_factory.mktemp("asked") / "run"
    discovery.save(folder)
    return folder


@pytest.mark.parametrize("documents", ["translate", "native"])
def test_queries_are_translated_as_such(documents, tiny_model, asked_run, tmp_path):
    from sentence_transformers import SentenceTransformer

    from kedge.integrations.sentence_transformers import translated_model

    native = tiny_model.encode(TEXTS)
    as_texts, as_queries = (kedge.load_translator(asked_run, kind=kind)(native) for kind in ("text", "query"))
    assert np.abs(as_texts - as_queries).max() > 0.01
    whole = translated_model(tiny_model, asked_run, documents=documents)
    whole.save(str(tmp_path / "whole"))
    loaded = SentenceTransformer(str(tmp_path / "whole"), device="cpu", trust_remote_code=True)
    for model in (whole, loaded):
        np.testing.assert_allclose(model.encode_query(TEXTS), as_queries, rtol=1e-3, atol=1e-4)
        for encode in (model.encode, model.encode_document):
            expected = as_texts if documents == "translate" else native
            np.testing.assert_allclose(encode(TEXTS), expected, rtol=1e-3, atol=1e-4)


def test_export_of_queries_for_sentence_transformers(tiny_model, asked_run, tmp_path, capsys):
    from sentence_transformers import SentenceTransformer

    from kedge.integrations.sentence_transformers import TranslationModule

    tiny_model.save(str(tmp_path / "tiny"))
    to = ["export", str(asked_run), "--to", "sentence-transformers"]
    assert main([*to, "-o", str(tmp_path / "module"), "--kind", "query", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "query"
    module = TranslationModule.load(str(tmp_path / "module"))
    assert module.equals(TranslationModule.from_run(asked_run, kind="query"))
    assert not module.equals(TranslationModule.from_run(asked_run))
    model = ["--model", str(tmp_path / "tiny")]
    assert main([*to, "-o", str(tmp_path / "whole"), *model, "--kind", "query"]) == 2
    assert "queries get their own translation where RUN has one" in capsys.readouterr().err
    assert main([*to, "-o", str(tmp_path / "whole"), *model]) == 0
    whole = SentenceTransformer(str(tmp_path / "whole"), device="cpu", trust_remote_code=True)
    expected = kedge.load_translator(asked_run, kind="query")(tiny_model.encode(TEXTS))
    np.testing.assert_allclose(whole.encode_query(TEXTS), expected, rtol=1e-3, atol=1e-4)
    # A file of queries is no map for documents, and does for queries alone.
    assert main(["export", str(asked_run), "-o", str(tmp_path / "queries.npz"), "--kind", "query"]) == 0
    capsys.readouterr()
    to[1] = str(tmp_path / "queries.npz")
    assert main([*to, "-o", str(tmp_path / "refused"), *model]) == 2
    assert "translates queries (it was exported with --kind query)" in capsys.readouterr().err
    assert main([*to, "-o", str(tmp_path / "native"), *model, "--documents", "native"]) == 0


def test_a_module_takes_vectors_of_all_dimensions_where_the_run_has_the_first(tmp_path):
    pytest.importorskip("sentence_transformers.base.modules", reason="pip install 'kedge[sentence-transformers]'")
    import torch

    from kedge.integrations.sentence_transformers import TranslationModule

    translator = replace(make_translator(), prefix_of=48)
    TranslationModule.from_translator(translator).save(str(tmp_path))
    module = TranslationModule.load(str(tmp_path))
    vectors = np.random.default_rng(2).standard_normal((6, 48)).astype(np.float32)
    for given in (vectors, vectors[:, :32]):
        found = module({"sentence_embedding": torch.from_numpy(given)})["sentence_embedding"]
        np.testing.assert_allclose(found, translator(given), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="gives vectors of 40 dimensions"):
        module({"sentence_embedding": torch.from_numpy(vectors[:, :40])})
    config = tmp_path / "config.json"  # as earlier versions wrote it
    config.write_text(json.dumps({name: json.loads(config.read_text())[name] for name in ("source_dim", "target_dim")}))
    assert TranslationModule.load(str(tmp_path)).prefix_of is None


def test_a_router_takes_the_old_model_for_documents(tiny_model, exported):
    """The other use: queries by the new model and the map, documents by the old model itself."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    from kedge.integrations.sentence_transformers import TranslationModule

    module = TranslationModule.from_run(exported)
    both = SentenceTransformer(modules=[Router.for_query_document([*tiny_model, module], list(tiny_model))])
    assert both.encode_query(TEXTS).shape == (4, 24)
    assert both.encode_document(TEXTS).shape == (4, 32)


@pytest.mark.parametrize("documents", ["translate", "native"])
def test_export_writes_model_and_map(documents, tiny_model, exported, tmp_path, capsys):
    from sentence_transformers import SentenceTransformer

    tiny_model.save(str(tmp_path / "tiny"))
    command = ["export", str(exported), "--to", "sentence-transformers", "-o", str(tmp_path / "whole")]
    assert main([*command, "--model", str(tmp_path / "tiny"), "--documents", documents]) == 0
    printed = capsys.readouterr().out
    assert "32 to 24 dimensions" in printed
    names: dict[str, Any] = {}
    exec(printed.partition("use it so:\n")[2], names)
    assert isinstance(names["model"], SentenceTransformer)
    translated = make_translator()(tiny_model.encode(TEXTS))
    np.testing.assert_allclose(names["model"].encode_query(TEXTS), translated, rtol=1e-4, atol=1e-5)
    assert names["model"].encode_document(TEXTS).shape == (4, 24 if documents == "translate" else 32)
    assert main([*command, "--overwrite"]) == 2
    assert "a folder is not overwritten" in capsys.readouterr().err


def test_export_writes_a_module_alone(tiny_model, run_files, exported, tmp_path, capsys):
    pytest.importorskip("sentence_transformers.base.modules", reason="pip install 'kedge[sentence-transformers]'")
    from kedge.integrations.sentence_transformers import TranslationModule

    back = ["--back", "--scale", "raw", "--json"]
    assert main(["export", run_files[0], "--to", "sentence-transformers", "-o", str(tmp_path / "back"), *back]) == 0
    assert json.loads(capsys.readouterr().out)["dimensions_out"] == 300
    module = TranslationModule.load(str(tmp_path / "back"))
    vectors = np.random.default_rng(3).standard_normal((2, 100)).astype(np.float32)
    import torch

    translated = module({"sentence_embedding": torch.from_numpy(vectors)})["sentence_embedding"]
    expected = kedge.load_translator(run_files[0], back=True, scale="raw")(vectors)
    np.testing.assert_allclose(translated, expected, rtol=1e-3, atol=1e-4)

    assert main(["export", str(exported), "--to", "sentence-transformers", "-o", str(tmp_path / "module")]) == 0
    names = {"model": copy.deepcopy(tiny_model)}
    exec(capsys.readouterr().out.partition("use it so:\n")[2], names)
    expected = make_translator()(tiny_model.encode(TEXTS))
    np.testing.assert_allclose(names["model"].encode(TEXTS), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["-o", "a.npz", "--model", "m"], "--model is for --to sentence-transformers"),
        (["-o", "a", "--to", "sentence-transformers", "--documents", "native"], "with --model"),
        (["-o", "a", "--to", "sentence-transformers", "--spreadsheet-safe"], "--spreadsheet-safe is for tables"),
        (["-o", "none/a", "--to", "sentence-transformers"], "does not exist"),
        (["-o", "a", "--to", "sentence-transformers", "--model", "./nothing"], "cannot be loaded as a SentenceT"),
    ],
)
def test_export_to_folders_refuses(more, said, exported, tmp_path, monkeypatch, capsys):
    pytest.importorskip("sentence_transformers.base.modules", reason="pip install 'kedge[sentence-transformers]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["export", str(exported), *more]) == 2
    assert said in capsys.readouterr().err
    assert not Path("a").exists()


def test_recipes_are_short():
    from test_docs import blocks_of

    blocks = [block for block in blocks_of("docs/recipes/in-your-stack.md") if block.language == "python"]
    assert len(blocks) >= 9
    for block in blocks:
        lines = [line for line in block.body.splitlines() if line.strip()]
        assert len(lines) <= 20, f"line {block.line}"
