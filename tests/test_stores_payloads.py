"""What is kept of a payload: exactly, as text by one rule, or not at all and with a line that says why."""

from __future__ import annotations

import datetime
import json
import math
import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
from test_stores import (  # noqa: F401
    ADDRESSES,
    DIM,
    _name_of,
    address,
    by_id,
    carry_all,
    chroma_server,
    qdrant_server,
    turned,
)
from test_stores_sql import as_text, database  # noqa: F401

from kedge import InputError
from kedge.spaces.stores import DOCUMENT, Batch, Description, open_store
from kedge.spaces.stores.migration import migrate
from kedge.spaces.stores.payloads import same_payload
from kedge.spaces.stores.store import Store

pa = pytest.importorskip("pyarrow")


class Rows(Store):
    """A source that holds whatever it is given."""

    def __init__(self, payloads: list, ids: list | None = None) -> None:
        self.address = "rows"
        vectors = np.random.default_rng(0).standard_normal((len(payloads), DIM)).astype(np.float32)
        self._batch = Batch(ids or [f"i{row}" for row in range(len(payloads))], vectors, payloads)

    def exists(self):
        return True

    def describe(self):
        return Description(len(self._batch), DIM, "cosine")

    def read(self, size, *, payload=True):
        for begin in range(0, len(self._batch), size):
            yield self._batch.take(range(begin, min(begin + size, len(self._batch))))

    def fetch(self, ids):
        raise NotImplementedError

    create = write = fetch


TEXTS = [
    "chroma",
    "chroma-server",
    "qdrant",
    "qdrant-server",
    "qdrant-edge",
    "pgvector",
    "sqlite-vec",
    "lancedb",
    "parquet",
]


@pytest.fixture(params=TEXTS)
def kept_by(request, tmp_path):
    """A function that gives what a store of some kind keeps of payloads; its `kind` says which."""

    def run(payloads: list, **options) -> list:
        with open_store(ADDRESSES[request.param](request, tmp_path, _name_of(request))) as target:
            run.result = carry_all(Rows(payloads), target, **options)
            found = by_id(target.read(100))
        return [found[f"i{row}"][1] if f"i{row}" in found else None for row in range(len(payloads))]

    run.kind = request.param.removesuffix("-server")
    return run


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=["nan", "inf", "minus_inf"])
def test_numbers_that_are_none(kept_by, value):
    """Exactly where there are columns of floats, else as the text that JSON's readers know."""
    (found,) = kept_by([{"a": value, "deep": {"b": [value, 1]}}])
    assert kept_by.result.complete
    text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kept_by.kind in ("parquet", "lancedb"):
        assert found["a"] == value or math.isnan(found["a"])
        assert kept_by.result.as_text
    else:
        assert found["a"] == text
        assert kept_by.result.as_text == 1
    deep = found["deep"] if isinstance(found["deep"], dict) else json.loads(found["deep"])
    assert deep == {"b": [text, 1]}


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, -(2**63), -(2**63) - 1, 2**70, 2**53 + 1], ids=list("abcdef"))
def test_large_whole_numbers(kept_by, value):
    """As they are where 64 bits or more are enough, else as text; never as a float."""
    (found,) = kept_by([{"a": value, "many": [1, value]}])
    assert kept_by.result.complete
    assert found["a"] in (value, str(value))
    assert found["a"] == value or not -(2**63) <= value < 2**63
    many = found["many"] if isinstance(found["many"], list) else json.loads(found["many"])
    assert [int(number) for number in many] == [1, value]


def test_empty_texts(kept_by):
    given = [{DOCUMENT: ""}, {DOCUMENT: "", "title": ""}, {"title": "x"}]
    assert kept_by(given) == given
    assert kept_by.result.complete


def test_a_document_that_is_no_text(kept_by):
    found = kept_by([{DOCUMENT: 5}, {DOCUMENT: 6}])
    assert [str(payload[DOCUMENT]) for payload in found] == ["5", "6"]
    assert kept_by.result.complete


def test_entries_that_are_called_like_columns(kept_by):
    given = [
        {"id": row, "vector": "v", "payload": {"document": 1}, "embedding": [1.5], "payload.id": "p", "key": "k"}
        for row in range(6)
    ]
    found = kept_by(given)
    assert kept_by.result.complete
    assert all(map(same_payload, given, found))
    assert [payload["id"] for payload in found] == list(range(6))


def test_values_of_several_types(kept_by):
    given = [{"a": 1}, {"a": "one"}, {"a": 1.5}, {"a": True}, {"a": [1, "x", None]}, {"a": {"b": {}}}, {"a": None}, {}]
    if kept_by.kind == "lancedb":  # a column has the type of the first rows, and what does not fit is reported
        bad = {}
        kept_by(given, on_bad=bad.__setitem__)
        assert kept_by.result.complete
        assert all("where the column of the target holds" in why for why in bad.values())
        return
    found = kept_by(given)
    assert kept_by.result.complete
    assert all(map(same_payload, given, found))
    if kept_by.kind == "parquet":
        assert found == [{key: value for key, value in payload.items() if value is not None} for payload in given]


def test_structures_keep_their_entries(kept_by):
    given = [{"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {}}, {"a": {"x": None}}, {"b": []}, {"b": [[], [1]]}]
    found = kept_by(given)
    assert kept_by.result.complete
    for payload, there in zip(given, found, strict=True):
        for name, value in payload.items():
            assert (json.loads(there[name]) if isinstance(there[name], str) else there[name]) == value


def test_bytes_are_bytes_or_refused(kept_by):
    """And never the text `b'...'`, which nothing could tell from a text."""
    given = [{"blob": b"\x00\xff"}, {"blob": b"text"}]
    if kept_by.kind in ("parquet", "lancedb"):
        assert kept_by(given) == given
        assert kept_by.result.complete
        return
    with pytest.raises(InputError, match=r"row 'i0' has bytes, which it has no type for in 'blob'.*--skip-bad"):
        kept_by([*given, {"a": 1}])
    bad = {}
    assert kept_by([*given, {"a": 1}], resume=True, on_bad=bad.__setitem__) == [None, None, {"a": 1}]
    assert set(bad) == {"i0", "i1"}
    assert (kept_by.result.complete, kept_by.result.bad) == (True, 2)


def test_bytes_are_not_their_text():
    assert not same_payload({"a": b"x"}, {"a": "b'x'"})
    assert not same_payload({"a": [b"x"]}, {"a": "[\"b'x'\"]"})
    assert same_payload({"a": b"x"}, {"a": b"x"})
    assert not same_payload({"a": 1}, {"a": True})
    assert not same_payload({"a": "NaN "}, {"a": "NaN"})
    assert same_payload({"a": math.nan}, {"a": "NaN"})
    assert not same_payload({"a": math.nan}, {"a": "nan"})
    assert not same_payload({"a": ""}, {})


def test_names_that_a_store_keeps_to_itself(kept_by):
    given = [{"": 1}, {"$and": 1}, {"#x": 1}, {"chroma:document": "x"}, {"_kedge_id": "other"}, {"fine": 1}]
    bad = {}
    found = kept_by(given, on_bad=bad.__setitem__)
    assert kept_by.result.complete
    refused = {"chroma": {"i0", "i1", "i2", "i3"}, "qdrant": {"i4"}, "qdrant-edge": {"i4"}}.get(kept_by.kind, set())
    assert set(bad) == refused
    assert all("in its payload, a name that the target uses itself" in why for why in bad.values())
    assert [payload for payload in found if payload is not None] == [
        payload for row, payload in enumerate(given) if f"i{row}" not in refused
    ]


def test_characters_that_not_all_keep(kept_by):
    given = [
        {"a": "x\0y"},
        {"a\0": 1},
        {DOCUMENT: "\0"},
        {"a": ["\ud800"]},
        {"a": "\\u0000"},
        {"a": "é\u2028中\U0001f600"},
    ]
    bad = {}
    found = kept_by(given, on_bad=bad.__setitem__)
    assert kept_by.result.complete
    assert "valid Unicode" in bad.pop("i3")
    assert set(bad) == ({"i0", "i1", "i2"} if kept_by.kind == "pgvector" else set())
    assert all("NUL" in why for why in bad.values())
    for row, payload in enumerate(found):
        assert payload == (None if row == 3 or f"i{row}" in bad else given[row])


def test_ids_that_not_all_keep(address, tmp_path):  # noqa: F811
    ids = ["a\0b", "", "line\nbreak", "x" * 3000, "'", '"', "é", " ", "%s", "None", "nan", "01", "1e5"]
    bad = {}
    with open_store(address) as target:
        result = carry_all(Rows([{} for _ in ids], ids), target, on_bad=bad.__setitem__)
        found = by_id(target.read(100))
    assert result.complete
    assert set(bad) <= {"a\0b", "", "line\nbreak"}
    assert found.keys() == set(ids) - set(bad)
    for name, vector in zip(ids, turned(Rows([{} for _ in ids])._batch.vectors), strict=True):
        if name not in bad:
            own = found[name][0]
            np.testing.assert_allclose(own / np.linalg.norm(own), vector / np.linalg.norm(vector), atol=1e-6)


def test_dates_and_decimals(kept_by):
    given = {
        "at": datetime.datetime(2024, 2, 3, tzinfo=datetime.UTC),
        "day": datetime.date(2024, 2, 3),
        "price": Decimal("1.50"),
    }
    (found,) = kept_by([given])
    assert kept_by.result.complete
    if kept_by.kind == "parquet":
        assert found == given
    else:
        assert same_payload(given, found)


def test_types_outlast_an_interruption(tmp_path):
    """What goes on writes the same types, though it was not told of them again."""
    fields = pa.schema([("small", pa.int16()), ("when", pa.timestamp("ns"))])
    with open_store(f"parquet:{tmp_path / 'new'}") as target:
        target.create(Description(2, DIM, fields=fields))
    with open_store(f"parquet:{tmp_path / 'new'}") as target:
        target.write(Batch(["a"], np.ones((1, DIM), dtype=np.float32), [{"small": 3}]))
        assert target.describe().fields == fields


def test_pg_times_without_an_end(database, tmp_path):  # noqa: F811
    database("CREATE TABLE docs (id int PRIMARY KEY, at timestamptz, day date, spans interval, vector vector(3))")
    rows = [
        ("infinity", "-infinity", "1 day"),
        ("2024-02-03 04:05+00", "0044-03-15 BC", "100000000 years"),
        (None, "2024-02-03", None),
    ]
    for number, row in enumerate(rows):
        database("INSERT INTO docs VALUES (%s, %s, %s, %s, %s)", (number, *row, as_text(np.ones(3))))
    with open_store(f"pgvector:{database.url}#docs.vector") as source:
        (batch,) = source.read(9)
        assert batch.payloads[0]["at"] == "infinity"
        assert batch.payloads[0]["day"] == "-infinity"
        assert batch.payloads[1]["day"] == "0044-03-15 BC"
        assert batch.payloads[2]["day"] == datetime.date(2024, 2, 3)
        for target_address in (
            f"parquet:{tmp_path / 'new'}",
            f"pgvector:{database.url}#copy",
            f"pgvector:{database.url}#docs.new",
        ):
            with open_store(target_address) as target:
                assert migrate(source, target, lambda vectors: vectors, {}, (3, 3)).complete


def test_pg_bytes_of_a_table_stay_where_they_are(database):  # noqa: F811
    """A new column beside them has nothing to do with them."""
    database("CREATE TABLE docs (id int PRIMARY KEY, blob bytea, vector vector(3))")
    database("INSERT INTO docs VALUES (1, '\\x00ff', '[1,2,3]')")
    with (
        open_store(f"pgvector:{database.url}#docs.vector") as source,
        open_store(f"pgvector:{database.url}#docs.new") as target,
    ):
        assert migrate(source, target, lambda vectors: vectors, {}, (3, 3)).complete


LONG, SHORT = "k" * 5 * 10**5, "k" * 5 * 10**4
BOMBS = {
    "text": (LONG, pa.string()),
    "bytes of one length": (LONG.encode(), pa.binary(len(LONG))),
    "lists": ([SHORT] * 10, pa.list_(pa.string())),
    "lists of bytes of one length": ([SHORT.encode()] * 10, pa.list_(pa.binary(len(SHORT)))),
    "lists of one length": ([SHORT] * 10, pa.list_(pa.string(), 10)),
    "a key of a map": ({LONG: 1}, pa.map_(pa.string(), pa.int64())),
}
for _name, _value in {"string_view": LONG, "binary_view": LONG.encode(), "json_": f'"{LONG}"'}.items():
    if hasattr(pa, _name):  # newer than the oldest pyarrow
        BOMBS[_name] = (_value, getattr(pa, _name)())
QUICK = ("text", "bytes of one length")


@pytest.fixture(params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in BOMBS])
def bomb(request, tmp_path) -> str:
    """Some kilobytes of Parquet that unpack to 500 MB, in one column."""
    import pyarrow.parquet as pq

    rows, folder = 1000, tmp_path / "bomb"
    folder.mkdir()
    vectors = np.random.default_rng(0).standard_normal(rows * DIM).astype(np.float32)
    value, kind = BOMBS[request.param]
    columns = {
        "id": pa.array([str(row) for row in range(rows)]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIM),
        "more": pa.array([value] * rows, kind),
    }
    pq.write_table(pa.table(columns), folder / "a.parquet", compression="zstd")
    assert (folder / "a.parquet").stat().st_size < 10**5
    return f"parquet:{folder}"


GOING_THROUGH = """
import sys
import pyarrow.compute, pyarrow.parquet
from kedge import read_embeddings
from kedge.spaces.stores import open_store
def peak():  # of this process alone: that of `resource` begins with the peak of the process that started it
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024
def size_of(value):
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    return len(value) if isinstance(value, (str, bytes)) else 0
before = peak()
assert len(read_embeddings(sys.argv[1])) == 1000
print(peak() - before)
with open_store(sys.argv[1]) as store:
    payloads = (payload for batch in store.read(1000) for payload in batch.payloads)
    size = sum(size_of(payload["more"]) for payload in payloads)
print(peak() - before)
assert size >= 5 * 10**8
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's account of memory")
def test_values_that_repeat_take_no_memory(bomb):
    done = subprocess.run(
        [sys.executable, "-c", GOING_THROUGH, bomb],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=300,
    )
    as_a_space, with_payload = map(float, done.stdout.split())
    assert as_a_space < 60
    assert with_payload < 200


FAR = {
    "a moment": pa.array([0, 2**63 - 1, 0, 0], pa.timestamp("us")),
    "milliseconds": pa.array([0, 10**15, 0, 0], pa.timestamp("ms")),
    "a day": pa.array([0, 10**8, 0, 0], pa.date32()),
    "text": pa.Array.from_buffers(
        pa.string(), 4, [None, pa.py_buffer(np.arange(5, dtype=np.int32).tobytes()), pa.py_buffer(b"a\xffbc")]
    ),
}


CASES = [(kind, name) for kind in ("parquet", "lancedb") for name in FAR]
CASES.remove(("lancedb", "text"))  # LanceDB itself refuses to read on


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_value_that_cannot_be_read_is_one_bad_row(tmp_path, kind, name):
    import pyarrow.parquet as pq

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(4 * DIM, np.float32)), DIM)
    table = pa.table({"id": list("abcd"), "vector": vectors, "when": FAR[name]})
    if kind == "parquet":
        (tmp_path / "old").mkdir()
        pq.write_table(table, tmp_path / "old/a.parquet")
        source_address = f"parquet:{tmp_path / 'old'}"
    else:
        lancedb = pytest.importorskip("lancedb", reason="needs lancedb: pip install 'kedge[lancedb]'")
        lancedb.connect(tmp_path / "old").create_table("t", table)
        source_address = f"lancedb:{tmp_path / 'old'}#t"
    told: list = []
    with open_store(source_address) as source, open_store(f"parquet:{tmp_path / 'new'}") as target:
        with pytest.raises(InputError, match=r"^row 'b' has a value in 'when' of its payload that cannot be read \("):
            migrate(source, target, lambda vectors: vectors, {}, (DIM, DIM))
        target.abandon()
        done = migrate(
            source, target, lambda vectors: vectors, {}, (DIM, DIM), on_bad=lambda *row: told.append(row), resume=True
        )
        assert done.complete
        assert [name for name, _ in told] == ["b"]
        assert [name for batch in target.read(10) for name in batch.ids] == ["a", "c", "d"]


def test_an_id_that_cannot_be_read_is_missing(tmp_path):
    import pyarrow.parquet as pq

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(4 * DIM, np.float32)), DIM)
    pq.write_table(pa.table({"id": FAR["text"], "vector": vectors}), tmp_path / "a.parquet")
    with open_store(f"parquet:{tmp_path}") as store:
        assert [list(ids) for ids in store.ids(10)] == [["a", None, "b", "c"]]
        (batch,) = store.read(10)
        assert list(batch.ids) == ["a", "b", "c"]
        assert list(batch.bad) == [(1, "has no id (rows are counted from 0)")]
