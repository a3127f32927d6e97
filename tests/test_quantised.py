"""What vectors are today: int8, uint8, binary and half precision in files and stores, prefixes, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kedge
from kedge.cli.main import main
from kedge.integrations.embedding_answers import parse_request
from kedge.spaces.stores import open_store

CHANCE = np.random.default_rng(0)
VECTORS = CHANCE.standard_normal((20, 64)).astype(np.float32)
SIGNS = np.where(VECTORS > 0, 1, -1).astype(np.float32)
KEYS = [f"r{row}" for row in range(20)]
UBINARY = np.packbits(VECTORS > 0, axis=1)
BINARY = (UBINARY.astype(np.int16) - 128).astype(np.int8)
INT8 = np.round(VECTORS / np.abs(VECTORS).max() * 127).astype(np.int8)
UINT8 = (INT8.astype(np.int16) + 128).astype(np.uint8)


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def parquet(path, vectors, kind):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": KEYS, "vector": pa.array(vectors.tolist(), pa.list_(kind))}), path)
    return path


@pytest.mark.parametrize("numbers", [INT8, UINT8, VECTORS.astype(np.float16)], ids=["int8", "uint8", "float16"])
def test_files_of_other_precision_are_read(tmp_path, numbers):
    pa = pytest.importorskip("pyarrow")
    np.save(tmp_path / "a.npy", numbers)
    np.savez(tmp_path / "a.npz", keys=np.asarray(KEYS), vectors=numbers)
    kind = {"int8": pa.int8(), "uint8": pa.uint8(), "float16": pa.float16()}[str(numbers.dtype)]
    parquet(tmp_path / "a.parquet", numbers, kind)
    for name in ("a.npy", "a.npz", "a.parquet"):
        np.testing.assert_array_equal(kedge.read_embeddings(tmp_path / name).vectors, numbers.astype(np.float32))


@pytest.mark.parametrize("packed", [UBINARY, BINARY], ids=["ubinary", "binary"])
def test_packed_files_are_unpacked(tmp_path, packed):
    pa = pytest.importorskip("pyarrow")
    np.save(tmp_path / "a.npy", packed)
    np.savez(tmp_path / "a.npz", keys=np.asarray(KEYS), vectors=packed)
    parquet(tmp_path / "a.parquet", packed, pa.int8() if packed.dtype == np.int8 else pa.uint8())
    for name in ("a.npy", "a.npz", "a.parquet"):
        np.testing.assert_array_equal(kedge.read_embeddings(tmp_path / name, packed=True).vectors, SIGNS)


def test_what_is_no_packed_file_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    with pytest.raises(kedge.InputError, match="whole numbers from 0 to 255"):
        kedge.read_embeddings(tmp_path / "a.npy", packed=True)
    np.save(tmp_path / "b.npy", UBINARY.astype(np.int32) + 1000)
    with pytest.raises(kedge.InputError, match="from 1"):
        kedge.read_embeddings(tmp_path / "b.npy", packed=True)


def test_convert_cuts_and_unpacks(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", keys=np.asarray(KEYS), vectors=VECTORS)
    assert run("convert", tmp_path / "a.npz", tmp_path / "short.npz", "--dims", 32, "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["dimensions"] == 32
    assert "the first 32 of 64 dimensions keep " in captured.err
    np.testing.assert_array_equal(kedge.read_embeddings(tmp_path / "short.npz").vectors, VECTORS[:, :32])
    np.testing.assert_array_equal(kedge.read_embeddings(tmp_path / "a.npz", dims=32).vectors, VECTORS[:, :32])
    assert run("convert", tmp_path / "a.npz", tmp_path / "long.npz", "--dims", 65) == 2
    assert "dims must be from 1 to 64" in capsys.readouterr().err
    np.save(tmp_path / "u.npy", UBINARY)
    assert run("convert", tmp_path / "u.npy", tmp_path / "signs.npz", "--packed") == 0
    np.testing.assert_array_equal(kedge.read_embeddings(tmp_path / "signs.npz").vectors, SIGNS)


def test_a_run_of_the_first_dimensions_takes_vectors_of_all(rotated, tmp_path, capsys):
    """Of X a model has put what matters first; of Y all counts."""
    x, y = rotated()
    rest = np.random.default_rng(3).standard_normal((len(x), 8)).astype(np.float32)
    long = np.hstack([x, rest])
    keys = [str(row) for row in range(len(x))]
    files = [tmp_path / name for name in ("x.npz", "y.npz")]
    for file, vectors in zip(files, (long, y), strict=True):
        kedge.write_embeddings(kedge.Embeddings(keys, vectors), file)
    (tmp_path / "seeds.tsv").write_text("".join(f"{key}\t{key}\n" for key in keys[:40]))
    asked = ("--seeds", tmp_path / "seeds.tsv", "--queries", files[0], "-o", tmp_path / "run", "--device", "cpu")
    assert run("discover", *files, "--dims-x", 16, *asked) == 0
    assert "x.npz: the first 16 of 24 dimensions keep " in capsys.readouterr().err
    loaded, translator = kedge.load(tmp_path / "run"), kedge.load_translator(tmp_path / "run")
    assert loaded.x_.dim == 16
    there_and_back = translator.then(kedge.load_translator(tmp_path / "run", back=True))
    for translate in (loaded.translate, loaded.translator(), translator, there_and_back):
        np.testing.assert_array_equal(translate(long), translate(x))
        with pytest.raises(kedge.InputError, match="16"):
            translate(long[:, :20])
    np.testing.assert_array_equal(loaded.translate(long, kind="query"), loaded.translate(x, kind="query"))
    with pytest.raises(kedge.InputError, match=r"must have shape \(k, 16\)"):
        loaded.translator(back=True)(long)
    with pytest.raises(kedge.InputError, match="the first 16 of its 24 dimensions: shorten it with"):
        loaded.require_spaces(kedge.read_embeddings(files[0]), y)
    parsed = parse_request(json.dumps({"model": "m", "input": long[:2].tolist()}).encode(), translator, 10)
    np.testing.assert_array_equal(translator(parsed.vectors), translator(x[:2]))
    for exported in (tmp_path / "to-y.npz", tmp_path / "to-y.safetensors"):
        assert run("export", tmp_path / "run", "-o", exported) == 0
        np.testing.assert_array_equal(kedge.load_translator(exported)(long), translator(x))
    assert run("migrate", files[0], f"parquet:{tmp_path / 'in-y'}", "--run", tmp_path / "run") == 0
    np.testing.assert_allclose(
        kedge.read_embeddings(f"parquet:{tmp_path / 'in-y'}").vectors,
        kedge.load_translator(tmp_path / "run", scale="raw")(x),
        rtol=1e-5,
        atol=1e-6,
    )
    assert run("discover", *files, "--dims-y", 17, *asked, "--overwrite") == 2
    assert "dims must be from 1 to 16" in capsys.readouterr().err


def test_several_vectors_per_row_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    several = pa.array([[[1.0, 2.0], [3.0, 4.0]]] * 20, pa.list_(pa.list_(pa.float32())))
    pq.write_table(pa.table({"id": KEYS, "vector": several}), tmp_path / "a.parquet")
    with pytest.raises(kedge.InputError, match="several vectors per row"):
        kedge.read_embeddings(tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", np.ones((3, 4, 5)))
    with pytest.raises(kedge.InputError, match="a matrix"):
        kedge.read_embeddings(tmp_path / "a.npy")


def test_qdrant_without_dense_vectors_is_refused(tmp_path):
    client_of = pytest.importorskip("qdrant_client")
    from qdrant_client.models import Distance, MultiVectorComparator, MultiVectorConfig, VectorParams

    client = client_of.QdrantClient(path=str(tmp_path / "db"))
    several = MultiVectorConfig(comparator=MultiVectorComparator.MAX_SIM)
    client.create_collection(
        "docs", vectors_config=VectorParams(size=4, distance=Distance.COSINE, multivector_config=several)
    )
    client.close()
    with pytest.raises(kedge.InputError, match="sparse vectors and multi-vectors"):
        kedge.read_embeddings(f"qdrant:{tmp_path / 'db'}#docs")


@pytest.mark.parametrize("kind", ["int8", "bit"])
def test_sqlite_vec_columns_of_bytes_and_bits(tmp_path, kind):
    apsw = pytest.importorskip("apsw")
    sqlite_vec = pytest.importorskip("sqlite_vec")
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute(f"CREATE VIRTUAL TABLE docs USING vec0(id text primary key, embedding {kind}[64])")
    stored = INT8 if kind == "int8" else np.packbits(VECTORS > 0, axis=1, bitorder="little")
    for key, row in zip(KEYS, stored, strict=True):
        connection.execute(f"INSERT INTO docs (id, embedding) VALUES (?, vec_{kind}(?))", (key, row.tobytes()))
    connection.close()
    space = kedge.read_embeddings(f"sqlite-vec:{tmp_path / 'a.db'}#docs")
    expected = INT8.astype(np.float32) if kind == "int8" else SIGNS
    np.testing.assert_array_equal(space.vectors[space.rows(KEYS)], expected)


def test_binary_indexes_of_faiss(tmp_path):
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(64))
    index.add_with_ids(UBINARY, np.arange(20) + 100)
    faiss.write_index_binary(index, str(tmp_path / "a.faiss"))
    space = kedge.read_embeddings(f"faiss:{tmp_path / 'a.faiss'}")
    assert space.keys[0] == "100"
    np.testing.assert_array_equal(space.vectors, SIGNS)
    graph = faiss.IndexBinaryHNSW(64)
    graph.add(UBINARY)
    faiss.write_index_binary(graph, str(tmp_path / "b.faiss"))
    with pytest.raises(kedge.InputError, match="only flat ones can be read"):
        kedge.read_embeddings(f"faiss:{tmp_path / 'b.faiss'}")


@pytest.mark.parametrize("kind", ["int8", "uint8", "float16"])
def test_lance_columns_of_bytes_and_half_precision(tmp_path, kind):
    lancedb = pytest.importorskip("lancedb")
    pa = pytest.importorskip("pyarrow")
    numbers = {"int8": INT8, "uint8": UINT8, "float16": VECTORS.astype(np.float16)}[kind]
    flat = pa.array(numbers.reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, 64)
    lancedb.connect(tmp_path / "db").create_table("docs", pa.table({"id": KEYS, "vector": lists}))
    space = kedge.read_embeddings(f"lancedb:{tmp_path / 'db'}#docs")
    np.testing.assert_array_equal(space.vectors[space.rows(KEYS)], numbers.astype(np.float32))


def test_bits_of_postgres(postgres):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS bits; CREATE TABLE bits (id text PRIMARY KEY, flags bit(3), code bit(64))"
        )
        for key, row in zip(KEYS, VECTORS > 0, strict=True):
            code = "".join("1" if bit else "0" for bit in row)
            connection.execute(f"INSERT INTO bits VALUES ('{key}', B'101', B'{code}')")
    space = kedge.read_embeddings(f"pgvector:{postgres}#bits")
    np.testing.assert_array_equal(space.vectors[space.rows(KEYS)], SIGNS)
    with open_store(f"pgvector:{postgres}#bits.code") as store:
        assert next(store.read(5)).payloads[0] == {"flags": "101"}
