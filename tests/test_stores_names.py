"""No name reaches SQL unquoted: whatever a table or column is called, the table beside it stays as it is."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from test_stores_sql import database, sqlite  # noqa: F401

from kedge import InputError, KedgeError
from kedge.spaces.stores import Batch, Description, open_store
from kedge.spaces.stores.address import Address

VECTORS = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
ROWS = Batch(["a", "it's", 'q"'], VECTORS, [{"n": 1}, {"document": "text"}, {}])

NAMES = [
    "tt.e float[24]); DROP TABLE victim; --",
    'tt".e float[3]); DROP TABLE victim; --',
    'tt.e"); DROP TABLE victim; --',
    "tt.e); DROP TABLE victim; --",
    "tt.e float[3], +x text",
    "tt.e float[3] distance_metric=l2",
    "tt') ; DROP TABLE victim; --.e",
    'tt" USING vec0(id text primary key, e float[3]); DROP TABLE victim; --.e',
    "victim",
    "victim.e",
    "victim.name",
    "100%",
    "100%s.e%s",
    "%(x)s.e",
    "tt.%",
    "select.from",
    "tt.é",
    "é 日本.e",
    "tt.e\n",
    "tt\n;DROP TABLE victim\n.e",
    "tt.e\0",
    "tt.id",
    "tt.payload",
    "tt.document",
    "tt.rowid",
    "tt.distance",
    "sqlite_master.e",
    "kedge_stores.e",
    "tt.e--",
    "tt.e/*",
    "tt." + "e" * 70,
    "t" * 70,
    "tt_rowids.e",
    "[tt].e",
    "`tt`.e",
    "$$tt$$.e",
    "tt.$1",
    ":tt.e",
    "?.e",
]
ALPHABET = [
    *"abE_1 .;,()[]{}'\"`%$@!?*-+/\\|&<>=:\0\n\t",
    "é",
    "--",
    "/*",
    "DROP TABLE victim",
    "victim",
    "); ",
    "%s",
    "float[3]",
]


def odd_names(count: int, seed: int) -> list[str]:
    chance = Random(seed)
    return ["".join(chance.choice(ALPHABET) for _ in range(chance.randint(1, 8))) for _ in range(count)]


def try_name(address: str) -> bool:
    """Make a store of this name, fill it and read it; False where the name is refused."""
    try:
        with open_store(address) as store:
            if store.exists():
                store.describe()
                return False
            store.create(Description(3, 3))
            store.write(ROWS)
            store.write(ROWS)
            assert store.present(["a", "b", "it's"]) == {"a", "it's"}
            assert sorted(store.fetch(["it's"]).ids) == ["it's"]
        with open_store(address) as store:
            assert store.describe().rows == 3
            found = {name: row for batch in store.read(2) for row, name in zip(batch.payloads, batch.ids, strict=True)}
            assert found == dict(zip(ROWS.ids, ROWS.payloads, strict=True))
            assert sorted(name for ids in store.ids(2) for name in ids) == sorted(ROWS.ids)
    except KedgeError:
        return False
    return True


@pytest.mark.parametrize("name", [*NAMES, *odd_names(80, seed=1)])
def test_sqlite_no_name_touches_another_table(sqlite, name):  # noqa: F811
    sqlite("CREATE TABLE victim (name TEXT)")
    sqlite("INSERT INTO victim VALUES ('alive')")
    table = name.partition(".")[0].lower()
    made = try_name(f"sqlite-vec:{sqlite.path}#{name}")
    assert sqlite("SELECT name FROM victim") == [("alive",)]
    found = {
        found.lower()
        for (found,) in sqlite("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite|_%' ESCAPE '|'")
    }
    assert (table in found and table != "victim") == made
    others = {other for other in found if not (made and (other == table or other.startswith(f"{table}_")))}
    assert others == {"victim", *(["kedge_stores"] if made else [])}


def test_sqlite_the_rule_for_columns(sqlite):  # noqa: F811
    for name in ("tt.e float[24]); DROP TABLE victim; --", "tt.payload", "tt.é", "tt.1a"):
        with (
            open_store(f"sqlite-vec:{sqlite.path}#{name}") as store,
            pytest.raises(InputError, match="name of ASCII letters, digits and _, other than id, rowid"),
        ):
            store.create(Description(3, 3))
    assert try_name(f'sqlite-vec:{sqlite.path}#a "quoted" name.the_column_2')


def test_pg_no_name_touches_another_table(database):  # noqa: F811
    database("CREATE TABLE victim (name text PRIMARY KEY)")
    database("INSERT INTO victim VALUES ('alive')")
    listed = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'victim'::regclass AND attnum > 0"
    made = []
    for name in [*NAMES, *odd_names(40, seed=2)]:
        if name.split(".")[0] == "victim":
            continue
        before = {relation for (relation,) in database(listed)}
        if try_name(f"pgvector:{database.url}#{name}"):
            made.append(name)
            assert {relation for (relation,) in database(listed)} - before <= {
                name.split(".")[-2 if "." in name else 0]
            }
        assert database("SELECT name FROM victim") == [("alive",)]
        assert database(columns) == [("name",)]
    assert {"100%", "100%s.e%s", "tt.%", "select.from", "é 日本.e"} <= set(made)


def test_pg_names_that_would_be_cut_short_are_refused(database):  # noqa: F811
    database(f"CREATE TABLE {'t' * 63} (id text PRIMARY KEY)")
    with pytest.raises(InputError, match="at most 63 bytes"), open_store(f"pgvector:{database.url}#{'t' * 64}.e"):
        pass


def test_lance_a_column_with_a_backtick(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    import pyarrow as pa

    column = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), 3)
    name = "id` IS NOT NULL OR `id"
    table = pa.table({name: ["a", "b", "c"], "vector": column})
    lancedb.connect(tmp_path).create_table("t", table)
    with open_store(f"lancedb:{tmp_path}#t") as store, pytest.raises(InputError, match="has a ` in its name"):
        store.fetch(["b"])


@pytest.mark.parametrize("name", ["ab", "../../escaped", "-docs", "docs.", "a b c", "n" * 513])
def test_a_name_that_chroma_refuses_is_no_address(name):
    with pytest.raises(InputError, match="a name in Chroma has 3 to 512 letters"):
        Address.parse(f"chroma:folder#{name}")
    Address.parse("chroma:folder#a.B_c-1")
