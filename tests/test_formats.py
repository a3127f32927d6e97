"""Inputs as other people's tools write them: AnnData, datasets of Hugging Face, Parquet of any making, odd archives."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from kedge import Embeddings, InputError, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.errors import MissingExtraError
from kedge.extras import needing
from kedge.spaces.stores import open_store

KEYS = [f"r{row}" for row in range(6)]
VECTORS = np.arange(1, 19, dtype=np.float32).reshape(6, 3)


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def failure(capsys, *arguments) -> str:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def refusal(path, **options) -> str:
    with pytest.raises(InputError) as raised:
        read_embeddings(path, **options)
    return str(raised.value)


def assert_read(path, names, vectors, **options) -> None:
    space = read_embeddings(path, **options)
    assert list(space.keys) == list(names)
    np.testing.assert_array_equal(space.vectors, vectors)


# -- AnnData -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anndata():
    return pytest.importorskip("anndata", reason="needs anndata: pip install 'kedge[anndata]'")


@pytest.fixture
def save(anndata, tmp_path):
    """A function that writes an AnnData file with these entries of .obsm, and counts in X that are sparse or given."""
    import pandas
    from scipy import sparse

    def written(obsm, X=None, keys=KEYS) -> Path:
        counts = sparse.random(len(keys), 50, 0.2, format="csr", random_state=0) if X is None else X
        observed = anndata.AnnData(X=counts, obs=pandas.DataFrame(index=list(keys)), obsm=obsm)
        observed.write_h5ad(tmp_path / "cells.h5ad")
        return tmp_path / "cells.h5ad"

    return written


def test_an_entry_of_obsm_is_read_by_its_name(save):
    path = save({"X_pca": VECTORS, "X_umap": VECTORS[:, :2].astype(np.float64)})
    assert_read(f"{path}#X_pca", KEYS, VECTORS)
    assert_read(Path(f"{path}#X_umap"), KEYS, VECTORS[:, :2])
    assert_read(f"{path}#X_umap", KEYS[:2], VECTORS[:2, :2], limit=2)
    assert_read(f"{path}#X_pca", ["r1", "r4"], VECTORS[[1, 4]], keys={"r4", "r1", "absent"})
    assert "none of the 1 wanted keys" in refusal(f"{path}#X_pca", keys={"absent"})
    told = refusal(path)
    assert f".obsm has several entries (X_pca, X_umap); name one: {path}#X_pca" in told
    assert ".obsm has no entry 'X_pac'; its dense entries are X_pca, X_umap; did you mean" in refusal(f"{path}#X_pac")


def test_the_only_entry_needs_no_name(save):
    from scipy import sparse

    assert_read(save({"X_pca": VECTORS, "graph": sparse.eye(6).tocsr()}), KEYS, VECTORS)


def test_a_table_in_obsm_is_read(save):
    import pandas

    path = save({"factors": pandas.DataFrame(VECTORS, index=KEYS, columns=list("abc"))})
    assert_read(path, KEYS, VECTORS)
    assert_read(path, KEYS[:2], VECTORS[:2], limit=2)


def test_x_is_read_where_it_is_dense_and_obsm_empty(save):
    assert_read(save({}, X=VECTORS), KEYS, VECTORS)
    path = save({"X_pca": VECTORS[:, :2]}, X=VECTORS)
    assert_read(path, KEYS, VECTORS[:, :2])
    assert_read(f"{path}#X", KEYS, VECTORS)


def test_a_sparse_matrix_is_refused(save):
    path = save({"X_pca": VECTORS})
    assert "X is a sparse matrix, but a dense one is needed; name an entry of .obsm: X_pca" in refusal(f"{path}#X")
    assert "put vectors into .obsm first" in refusal(save({}))


def test_the_counts_are_not_read(save, monkeypatch):
    import h5py

    path = save({"X_pca": VECTORS}, X=np.ones((6, 4)))
    seen = []
    real = h5py.Dataset.__getitem__

    def watched(dataset, *arguments):
        seen.append(dataset.name)
        return real(dataset, *arguments)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", watched)
    read_embeddings(path)
    assert set(seen) == {"/obs/_index", "/obsm/X_pca"}


def test_a_file_of_anndata_that_claims_too_much_is_refused(anndata, tmp_path):
    import h5py

    with h5py.File(tmp_path / "claims.h5ad", "w") as file:
        file.create_group("obs").attrs["_index"] = "_index"
        file["obs"].create_dataset("_index", data=np.array([b"a", b"b"]))
        file.create_group("obsm").create_dataset("X_pca", shape=(10**8, 300), dtype="f4", chunks=True)
    assert "unpacks to" in refusal(tmp_path / "claims.h5ad")


def test_other_files_of_hdf5_are_refused(anndata, tmp_path):
    import h5py

    with h5py.File(tmp_path / "old.h5ad", "w") as file:
        file["X"] = VECTORS
    assert "not an AnnData file of version 0.7 or later" in refusal(tmp_path / "old.h5ad")
    (tmp_path / "junk.h5ad").write_bytes(b"junk")
    assert "not a readable .h5ad file" in refusal(tmp_path / "junk.h5ad")


def test_anndata_there_and_back(anndata, tmp_path):
    space = Embeddings(["the", "ünïcode", "日本", "😀", "a b", "<b>"], VECTORS)
    write_embeddings(space, tmp_path / "space.h5ad")
    assert_read(tmp_path / "space.h5ad", space.keys, VECTORS)
    observed = anndata.read_h5ad(tmp_path / "space.h5ad")
    assert list(observed.obs_names) == list(space.keys)
    np.testing.assert_array_equal(observed.obsm["vectors"], VECTORS)
    with pytest.raises(InputError, match="selects what to read, and cannot be written to; write to .*space.h5ad"):
        write_embeddings(space, tmp_path / "space.h5ad#X_pca")
    with pytest.raises(InputError, match="nul.h5ad: a key holds a NUL character"):
        write_embeddings(Embeddings(["a\0b"], VECTORS[:1]), tmp_path / "nul.h5ad")


def test_anndata_on_the_command_line(small_files, save, tmp_path, capsys):
    x, y, seeds = small_files
    space = read_embeddings(x)
    cells = save({"X_pca": space.vectors, "X_umap": space.vectors[:, :2]}, keys=space.keys)
    assert run("info", f"{cells}#X_pca", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 120
    assert run("convert", f"{cells}#X_pca", tmp_path / "cells.npz") == 0
    assert_read(tmp_path / "cells.npz", space.keys, space.vectors)
    assert run("discover", f"{cells}#X_pca", y, "--seeds", seeds, "--anchors", 20, "--out", tmp_path / "run") == 0
    described = json.loads((tmp_path / "run" / "run.json").read_text())["inputs"]["x"]
    assert described["file"] == "cells.h5ad#X_pca"
    assert described["sha256"] == hashlib.sha256(cells.read_bytes()).hexdigest()
    capsys.readouterr()
    assert "name one" in failure(capsys, "discover", cells, y, "--seeds", seeds, "--out", tmp_path / "other")
    assert "no such file" in failure(capsys, "info", tmp_path / "absent.h5ad#X_pca")


def test_without_anndata_the_extra_is_named(monkeypatch, tmp_path):
    (tmp_path / "x.h5ad").write_bytes(b"any")
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(MissingExtraError, match=r"AnnData files need anndata and h5py: pip install 'kedge\[anndata\]'"):
        read_embeddings(tmp_path / "x.h5ad")


# -- columns -----------------------------------------------------------------------------------------


def table(path: Path, **columns) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)
    return path


def lists(vectors=VECTORS, kind=None):
    import pyarrow as pa

    return pa.array(vectors.tolist(), type=kind)


@pytest.mark.parametrize("kind", ["list", "large list", "fixed list", "half", "double", "integers"])
def test_lists_of_every_kind_are_vectors(kind, tmp_path):
    import pyarrow as pa

    types = {
        "list": pa.list_(pa.float32()),
        "large list": pa.large_list(pa.float32()),
        "fixed list": pa.list_(pa.float32(), 3),
        "half": pa.list_(pa.float16()),
        "double": pa.list_(pa.float64()),
        "integers": pa.list_(pa.int8()),
    }
    whole = VECTORS.astype(np.int8) if kind == "integers" else VECTORS.astype(np.float16) if kind == "half" else VECTORS
    assert_read(table(tmp_path / "x.parquet", id=KEYS, embedding=lists(whole, types[kind])), KEYS, VECTORS)


def test_whole_numbers_are_keys(tmp_path):
    path = table(tmp_path / "x.parquet", id=[10, 7, -1, 2**62, 0, 5], emb=lists(), title=KEYS, label=[0] * 6)
    keys = ["10", "7", "-1", str(2**62), "0", "5"]
    assert_read(path, keys, VECTORS)
    assert_read(path, ["7", "5"], VECTORS[[1, 5]], keys={"7", "5"})
    assert "duplicate key '0' in rows 0 and 1" in refusal(f"{path}#label,emb")


def test_rows_without_keys_are_numbered(tmp_path):
    path = table(tmp_path / "x.parquet", vector=lists(), score=[0.5] * 6)
    assert_read(path, "012345", VECTORS)
    assert_read(path, "34", VECTORS[3:5], keys={"4", "3"})


def test_columns_are_chosen_by_name_then_by_what_they_can_be(tmp_path):
    path = table(tmp_path / "x.parquet", url=KEYS, text=KEYS, words=lists(VECTORS.astype(int)), other=lists(-VECTORS))
    assert_read(path, KEYS, -VECTORS)  # `text` is usual, and of the lists one holds fractions
    assert_read(f"{path}#words", KEYS, VECTORS)
    assert_read(f"{path}#url,words", KEYS, VECTORS)
    assert "no column 'wrds' holds lists of numbers; those that do are other, words; did you mean 'words'?" in refusal(
        f"{path}#wrds"
    )
    assert "no column 'ur' holds text or whole numbers; those that do are url, text" in refusal(f"{path}#ur,words")


def test_columns_that_could_both_be_meant_are_named(tmp_path):
    path = table(tmp_path / "x.parquet", id=KEYS, a=lists(), b=lists(-VECTORS))
    assert f"several columns hold lists of numbers (a, b); name one: {path}#VECTORS" in refusal(path)
    assert_read(f"{path}#b", KEYS, -VECTORS)
    path = table(tmp_path / "y.parquet", title=KEYS, author=KEYS[::-1], emb=lists())
    assert "several columns hold text or whole numbers (title, author)" in refusal(path)
    assert f"name the column of keys: {path}#KEYS,emb" in refusal(path)
    assert_read(f"{path}#author,emb", KEYS[::-1], VECTORS)
    assert "no column holds lists of numbers; the columns are n" in refusal(table(tmp_path / "z.parquet", n=KEYS))


def test_a_folder_of_parquet_as_a_store_follows_the_same_rule(tmp_path, capsys):
    table(tmp_path / "part.parquet", title=KEYS, author=KEYS[::-1], emb=lists())
    address = f"parquet:{tmp_path}"
    assert f"name the column of keys: {address}#KEYS,emb" in failure(capsys, "info", address)
    assert_read(f"{address}#author,emb", KEYS[::-1], VECTORS)
    with open_store(f"{address}#title,emb") as store:
        assert next(store.read(10)).payloads[0] == {"author": "r5"}
    assert "omit the name after #" in failure(
        capsys, "convert", f"{address}#title,emb", f"parquet:{tmp_path / 'new'}#title,emb"
    )


def test_a_number_sign_in_the_name_of_a_file_is_part_of_it(tmp_path):
    write_embeddings(Embeddings(KEYS, VECTORS), tmp_path / "a#b.npz")
    assert_read(tmp_path / "a#b.npz", KEYS, VECTORS)
    (tmp_path / "c#d").touch()
    assert "is not that of a known format" in refusal(tmp_path / "c#d")


# -- datasets ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets", reason="needs datasets: pip install datasets")


@pytest.fixture
def dataset(datasets):
    rows = {"id": list(range(6)), "text": KEYS, "embedding": VECTORS.tolist(), "label": [0, 1] * 3}
    return datasets.Dataset.from_dict(rows)


def test_a_dataset_saved_to_disk_is_read(dataset, tmp_path, capsys):
    dataset.save_to_disk(tmp_path / "texts", num_shards=2)
    capsys.readouterr()
    assert_read(tmp_path / "texts", "012345", VECTORS)
    assert_read(f"{tmp_path}/texts#text,embedding", KEYS, VECTORS)
    assert_read(tmp_path / "texts", "0123", VECTORS[:4], limit=4)
    assert_read(tmp_path / "texts", "25", VECTORS[[2, 5]], keys={"5", "2"})
    assert run("info", tmp_path / "texts") == 0
    assert "6 rows, 3 dimensions" in capsys.readouterr().out
    assert run("convert", f"{tmp_path}/texts#text,embedding", tmp_path / "texts.npz") == 0
    assert_read(tmp_path / "texts.npz", KEYS, VECTORS)
    with open_store(tmp_path / "texts") as store:
        assert store.exists()
        assert store.describe().rows == 6
    (tmp_path / "texts" / "data-00001-of-00002.arrow").unlink()
    assert "data-00001-of-00002.arrow: no such file, but it is one of the 2 shards" in refusal(tmp_path / "texts")


def test_of_several_splits_one_is_named(dataset, datasets, tmp_path):
    datasets.DatasetDict(train=dataset, test=dataset.select([3])).save_to_disk(tmp_path / "texts")
    assert f"give one of them: {tmp_path}/texts/train, {tmp_path}/texts/test" in refusal(tmp_path / "texts")
    assert_read(tmp_path / "texts" / "test", "3", VECTORS[[3]])
    datasets.DatasetDict(train=dataset).save_to_disk(tmp_path / "one")
    assert_read(tmp_path / "one", "012345", VECTORS)


def test_a_damaged_dataset_is_refused(dataset, tmp_path):
    dataset.save_to_disk(tmp_path / "texts")
    shard = tmp_path / "texts" / "data-00000-of-00001.arrow"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    assert "not a readable dataset" in refusal(tmp_path / "texts")
    # The ends of the lists: Arrow would follow them out of the file.
    ends = np.arange(0, 21, 3, dtype=np.int32).tobytes()
    assert whole.count(ends) == 1
    shard.write_bytes(whole.replace(ends, np.array([0, 3, 2**30, 2**30, 12, 15, 18], dtype=np.int32).tobytes()))
    assert "not a readable dataset" in refusal(tmp_path / "texts")
    (tmp_path / "texts" / "state.json").write_text("{")
    assert "not a readable dataset" in refusal(tmp_path / "texts")


@pytest.fixture
def hub(tmp_path) -> Path:
    """Parquet shards as the hub has them."""
    folder = tmp_path / "texts" / "data"
    folder.mkdir(parents=True)
    for split, sign in (("train", 1), ("test", -1)):
        for shard, rows in enumerate((slice(0, 4), slice(4, 6))):
            path = folder / f"{split}-0000{shard}-of-00002.parquet"
            table(path, _id=KEYS[rows], emb=lists(sign * VECTORS[rows]))
    return tmp_path / "texts"


def test_shards_of_the_hub_are_read(hub):
    splits = f"{hub}/data/test, {hub}/data/train"
    assert f"one split is needed, not 2; give one of them: {splits}" in refusal(hub)
    assert_read(hub / "data" / "train", KEYS, VECTORS)
    assert_read(f"{hub}/data/test#emb", KEYS[:5], -VECTORS[:5], limit=5)
    for path in (hub / "data").glob("test-*"):
        path.unlink()
    assert_read(hub, KEYS, VECTORS)
    (hub / "data" / "train-00001-of-00002.parquet").unlink()
    assert "train-00001-of-00002.parquet: no such file, but it is one of the 2 shards" in refusal(hub)


def test_a_run_from_a_dataset_tells_what_was_read(small_files, datasets, tmp_path, capsys):
    x, y, seeds = small_files
    space = read_embeddings(x)
    made = datasets.Dataset.from_dict({"id": list(space.keys), "embedding": space.vectors.tolist()})
    made.save_to_disk(tmp_path / "texts")
    assert run("discover", tmp_path / "texts", y, "--seeds", seeds, "--anchors", 20, "--out", tmp_path / "run") == 0
    described = json.loads((tmp_path / "run" / "run.json").read_text())["inputs"]["x"]
    digest = hashlib.sha256("\n".join(space.keys).encode() + space.vectors.tobytes())
    assert (described["file"], described["sha256"]) == ("texts", digest.hexdigest())


def test_other_folders_are_no_spaces(tmp_path, capsys):
    assert "is a folder, not a file" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "absent#embedding")
    assert "run.json" in failure(capsys, "info", tmp_path)


# -- .npz --------------------------------------------------------------------------------------------


def test_keys_that_are_python_objects_are_explained(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", keys=np.array(KEYS, dtype=object), vectors=VECTORS)
    told = failure(capsys, "info", tmp_path / "x.npz")
    assert "`keys` holds Python objects (pickled), which are not loaded because that could run code" in told
    assert "save it as text: keys=np.asarray(keys, dtype=str)" in told
    np.savez(tmp_path / "y.npz", keys=KEYS[:2], vectors=np.array([[1.0], [1.0, 2.0]], dtype=object))
    assert "save it as numbers, all rows of the same length" in refusal(tmp_path / "y.npz")


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_whole_numbers_in_an_archive_are_keys(kind, tmp_path):
    np.savez(tmp_path / "x.npz", keys=np.arange(6, dtype=kind), vectors=VECTORS)
    assert_read(tmp_path / "x.npz", "012345", VECTORS)


# -- extras ------------------------------------------------------------------------------------------


def broken_package(folder: Path, name: str, error: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"raise {error}\n")


def test_an_import_that_fails_says_why(tmp_path, monkeypatch):
    """As of a torchvision built for another torch, after which nothing that imports it can be imported either."""
    broken_package(tmp_path, "torch_ops", "RuntimeError('operator ops::nms does not exist')")
    broken_package(tmp_path, "wrapping", "ImportError('Could not import X') from ValueError('the very reason')")
    broken_package(tmp_path, "lacking", "ModuleNotFoundError(\"No module named 'inner'\", name='inner')")
    monkeypatch.syspath_prepend(tmp_path)

    def told(package: str) -> str:
        with pytest.raises(MissingExtraError) as raised, needing("models need", package, install="kedge[some]"):
            __import__(package)
        return str(raised.value)

    assert told("no_such_package") == "models need no_such_package: pip install 'kedge[some]'"
    installed = "which is installed but cannot be imported"
    assert told("torch_ops") == f"models need torch_ops, {installed} (operator ops::nms does not exist)"
    assert told("wrapping") == f"models need wrapping, {installed} (Could not import X; because the very reason)"
    assert told("lacking") == f"models need lacking, {installed} (No module named 'inner')"


def test_texts_need_no_library_of_images():
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not any(name.startswith(("timm", "torchvision", "pillow")) for name in extras["encode"])
    assert any(name.startswith("timm") for name in extras["encode-images"])
    assert any(name.startswith("torchvision") for name in extras["encode-images"])


def test_a_client_of_a_store_that_cannot_be_imported_says_why(tmp_path, monkeypatch, capsys):
    broken_package(tmp_path, "faiss", "ImportError('libfaiss.so: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    told = failure(capsys, "info", "faiss:any.faiss")
    assert "needs faiss, which is installed but cannot be imported (libfaiss.so: cannot open" in told
    assert "pip install" not in told
