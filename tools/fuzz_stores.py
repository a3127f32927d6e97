"""Put odd rows, ids and names through every kind of store, kill writers and let two write at once: nothing is lost.

    python tools/fuzz_stores.py --cases 50000               # shared among all targets, the same for the same --seed
    python tools/fuzz_stores.py --target payloads --minutes 10
    python tools/fuzz_stores.py --target kills --store parquet --cases 100

payloads   a row with odd values: it arrives with its vector and its payload, or is reported with a reason
ids        a row with an odd id, one that repeats, or none: likewise, whatever --on-duplicate says
names      a table and column of an odd name, in SQL: it works or is refused, and the table beside it stays as it is
kills      a migration that is killed at any moment, several times, and resumed: all rows are there, each once
writers    two that resume at once: one does it, the other is refused or finds nothing left to do

A case is one row, name, kill or pair of writers. Failures are printed with their number, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import multiprocessing.process
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kedge import InputError, KedgeError
from kedge.spaces.stores import DOCUMENT, Batch, Description, open_store
from kedge.spaces.stores.migration import Migration, migrate
from kedge.spaces.stores.payloads import same_payload
from kedge.spaces.stores.store import NO_ID, Store

DIM = 4
ROUND = 40  # rows of one migration
KILLED_ROWS, KILLED_BATCH = 240, 8
FILES = ("faiss", "npz", "npy", "safetensors")
KINDS = ("parquet", "lancedb", "chroma", "qdrant", "qdrant-edge", "qdrant-server", "sqlite-vec", "pgvector", *FILES)
SQL_KINDS = ("sqlite-vec", "pgvector")
# fmt: off
TEXTS = [
    "", "a", "é", "日本", "\U0001f600", "\0", "x\0y", "\n", "'", '"', "\\", "\\u0000", "%s", "$1", "b'x'", "None",
    "NaN", "null", "1", "1.0", "true", "[1]", '{"a": 1}', "\ud800", " ", "\u2028", "z" * 300, "infinity", "2024-01-01",
]
NUMBERS = [0, 1, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**80, 10**30]
FLOATS = [0.0, -0.0, 0.5, 1e308, 5e-324, math.nan, math.inf, -math.inf, 1.0, 0.1, 1e22]
ENTRIES = [
    "a", "b", "n", "id", "vector", "payload", "document", "_id", "key", "payload.id", "", "$x", "#x", "a.b", "é", "'",
    "_rowid", "_distance", "x\0", "chroma:document", "_kedge_id", "A", "embedding", "metadata", "`", '"',
]
LETTERS = [
    *"abE_1 .;,()[]{}'\"`%$@!?*-+/\\|&<>=:\0\n\t", "é", "--", "/*", "DROP TABLE victim", "victim", "); ", "%s",
    "float[4]", "id", "payload", "rowid", "\\'", "x" * 40,
]
# fmt: on


class Rows(Store):
    """A source in memory, whose ids may repeat or be None."""

    def __init__(self, ids: list[Any], payloads: list[dict[str, Any]], seed: int) -> None:
        self.address: Any = "rows"
        self.names, self.payloads = ids, payloads
        self.vectors = np.random.default_rng(seed).standard_normal((len(ids), DIM)).astype(np.float32)

    def exists(self) -> bool:
        """Whether there is one: always."""
        return True

    def describe(self) -> Description:
        """What is in it."""
        return Description(len(self.names), DIM, "cosine")

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:  # noqa: ARG002
        """The rows in their order."""
        for begin in range(0, len(self.names), size):
            rows = range(begin, min(begin + size, len(self.names)))
            good = [row for row in rows if self.names[row] is not None]
            bad = [(row, NO_ID) for row in rows if self.names[row] is None]
            yield Batch(
                [self.names[row] for row in good], self.vectors[good], [self.payloads[row] for row in good], bad
            )

    def fetch(self, ids: Any) -> Batch:
        """Sources are not asked for rows by id."""
        raise NotImplementedError

    create = write = fetch  # type: ignore[assignment]


def translate(vectors: np.ndarray) -> np.ndarray:
    """Into a space of one dimension more."""
    return np.concatenate([2 * vectors, np.ones((len(vectors), 1))], axis=1).astype(np.float32)


class Place:
    """Where stores are made: a folder, and servers that are started when they are first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._servers, self._count = stack, {}, 0
        memory = Path("/dev/shm")
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)))

    def server(self, kind: str) -> str:
        """The URL of a server of this kind."""
        if kind not in self._servers:
            import fake_qdrant
            import postgres_server

            made = postgres_server.serve() if kind == "pgvector" else fake_qdrant.serve()
            self._servers[kind] = self._stack.enter_context(made)
        return self._servers[kind]

    def new(self, kind: str, name: str | None = None) -> tuple[str, Path]:
        """The address of a store that does not exist, and a folder to delete afterwards."""
        self._count += 1
        folder, name = self._folder / str(self._count), name or f"docs{os.getpid()}x{self._count}"
        folder.mkdir()
        addresses = {
            "pgvector": lambda: f"pgvector:{self.server('pgvector')}#{name}",
            "qdrant-server": lambda: f"qdrant:{self.server('qdrant')}#{name}",
            "sqlite-vec": lambda: f"sqlite-vec:{folder / 'v.db'}#{name}",
            "qdrant-edge": lambda: f"qdrant-edge:{folder / 'shard'}",
            "parquet": lambda: f"parquet:{folder / 'rows'}",
            "faiss": lambda: f"faiss:{folder / 'v.faiss'}",
            **{suffix: lambda suffix=suffix: str(folder / f"v.{suffix}") for suffix in FILES[1:]},
        }
        return addresses.get(kind, lambda: f"{kind}:{folder / 'place'}#{name}")(), folder


def run_rows(kind: str, chance: Random, place: Place, payloads: list[dict[str, Any]], ids: list[Any]) -> Counter[str]:
    """A migration of some rows; each must arrive as it is, or be reported."""
    policy = chance.choice(["refuse", "first", "suffix"])
    source = Rows(ids, payloads, chance.randrange(2**31))
    bad: list[tuple[Any, str]] = []
    skip = chance.random() < 0.8
    address, folder = place.new(kind)
    batch_rows = chance.randint(1, 50)
    real = [str(name) for name in ids if name is not None]
    faulty = len(set(real)) != len(real) and policy == "refuse"
    try:
        with open_store(address) as target:
            try:
                result = migrate(
                    source, target, translate, {}, (DIM, DIM + 1), batch_rows=batch_rows, on_duplicate=policy,
                    on_bad=(lambda name, why: bad.append((name, why))) if skip else None,
                )  # fmt: skip
            except InputError as error:
                if faulty or (None in ids and not skip):
                    assert not target.exists(), "something was written"
                    return Counter({"refused": len(ids)})
                if skip or "--skip-bad" not in str(error):
                    raise AssertionError(f"refused whole: {error}") from error
                return Counter({"refused": len(ids)})
            assert not faulty, "ids that repeat were not refused"
            check_rows(source, target, result, bad, policy)
    finally:
        shutil.rmtree(folder)
    return Counter({"kept": result.written, "reported": result.bad + result.repeated * (policy == "first")})


def check_rows(source: Rows, target: Store, result: Migration, bad: list[tuple[Any, str]], policy: str) -> None:
    """Every row that was not reported is in the target once, with its vector and payload."""
    assert result.complete, result
    assert all(why for _, why in bad)
    found: dict[str, tuple[np.ndarray, dict[str, Any]]] = {}
    for batch in target.read(7):
        for name, vector, payload in zip(batch.ids, batch.vectors, batch.payloads, strict=True):
            assert str(name) not in found, f"{name!r} is there twice"
            found[str(name)] = vector, dict(payload)
    assert len(found) == target.describe().rows == result.written
    unmatched = dict(found)
    reported = Counter(str(name) for name, _ in bad)
    kept, left_out = set[str](), 0
    for row, name in enumerate(source.names):
        if name is None:
            continue
        expected = translate(source.vectors[row : row + 1])[0]
        candidates = [str(name)] if policy != "suffix" else [key for key in unmatched if key.startswith(str(name))]
        match = next((key for key in candidates if key in unmatched and _alike(unmatched[key][0], expected)), None)
        if match is None and policy == "first" and str(name) in kept:
            left_out += 1
            continue
        if match is None:
            assert reported[str(name)] > 0, f"row {row}, {name!r}, is neither there nor reported"
            reported[str(name)] -= 1
            continue
        kept.add(str(name))
        payload = unmatched.pop(match)[1]
        if target.keeps_payload:
            assert same_payload(source.payloads[row], payload), f"{source.payloads[row]!r} became {payload!r}"
    assert policy != "first" or left_out == result.repeated, f"{left_out} left out, {result.repeated} counted"
    assert not unmatched, f"made up: {list(unmatched)}"


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(one / np.linalg.norm(one) - other / np.linalg.norm(other)).max() < 1e-5)


def odd_value(chance: Random, depth: int = 0) -> Any:
    """Anything that a payload may hold."""
    kinds: list[Callable[[], Any]] = [
        lambda: chance.choice(TEXTS),
        lambda: "".join(chance.choice(TEXTS) for _ in range(3)),
        lambda: chance.choice(NUMBERS),
        lambda: chance.choice(FLOATS),
        lambda: chance.random() < 0.5,
        lambda: None,
        lambda: [chance.randbytes(2), chance.choice(TEXTS)],
        lambda: datetime(
            chance.randint(1, 9999), 1, 2, 3, 4, 5, chance.randint(0, 999_999), chance.choice([None, UTC])
        ),
        lambda: date(chance.randint(1, 9999), 12, 31),
        lambda: Decimal(chance.choice(["1.50", "NaN", "-0", "1E+30"])),
    ]
    if depth < 3:
        kinds += [
            lambda: [odd_value(chance, depth + 1) for _ in range(chance.randint(0, 3))],
            lambda: [chance.choice(NUMBERS) for _ in range(3)],
            lambda: {chance.choice(ENTRIES): odd_value(chance, depth + 1) for _ in range(chance.randint(0, 3))},
        ]
    return chance.choice(kinds)()


def fuzz_payloads(kind: str, chance: Random, place: Place) -> Counter[str]:
    """Rows with odd payloads, under plain ids."""
    payloads = [{chance.choice(ENTRIES): odd_value(chance) for _ in range(chance.randint(0, 4))} for _ in range(ROUND)]
    return run_rows(kind, chance, place, payloads, [f"i{row}" for row in range(ROUND)])


def fuzz_ids(kind: str, chance: Random, place: Place) -> Counter[str]:
    """Rows with odd ids, of which some repeat and some are missing."""
    pool: list[Any] = [
        *TEXTS[:-3],
        *map(str, NUMBERS),
        *(f"i{row}" for row in range(ROUND)),
        "i1-2",
        "i1-3",
        "x" * 5000,
    ]
    pool = [name for name in pool if "\ud800" not in name]
    repeats, missing = chance.random() < 0.6, chance.random() < 0.3
    ids = [chance.choice(pool) for _ in range(ROUND)] if repeats else chance.sample(pool, ROUND)
    if missing:
        ids = [None if chance.random() < 0.1 else name for name in ids]
    return run_rows(kind, chance, place, [{"n": row} for row in range(ROUND)], ids)


def fuzz_names(kind: str, chance: Random, place: Place) -> Counter[str]:
    """A table and column of an odd name, with a victim beside."""
    name = "".join(chance.choice(LETTERS) for _ in range(chance.randint(1, 7)))
    if name.split(".")[0] == "victim":  # that is a column in the victim's own table
        return Counter({"refused": 1})
    address, folder = place.new(kind, name)
    rows = Batch(["a", "it's"], np.eye(2, DIM, dtype=np.float32), [{"n": 1}, {}])
    connection, ask = _victim(kind, address)
    try:
        with open_store(address) as store:
            outcome = "refused"
            if not store.exists():
                store.create(Description(2, DIM))
                store.write(rows)
                assert store.present(["a", "b"]) == {"a"}
                assert [sorted(batch.ids) for batch in store.read(5)] == [["a", "it's"]]
                outcome = "kept"
    except KedgeError:
        outcome = "refused"
    finally:
        alive = ask()
        connection.close()
        shutil.rmtree(folder)
    assert alive == [("alive",)], f"{name!r}: the victim has {alive}"
    return Counter({outcome: 1})


def _victim(kind: str, address: str) -> tuple[Any, Callable[[], list[Any]]]:
    """A table beside; the connection to it, and a function that reads it."""
    place = address.partition(":")[2].partition("#")[0]
    if kind == "sqlite-vec":
        import apsw

        connection: Any = apsw.Connection(place)
    else:
        import psycopg

        connection = psycopg.connect(place, autocommit=True)
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute("CREATE TABLE victim (name TEXT PRIMARY KEY)")
    connection.execute("INSERT INTO victim VALUES ('alive')")
    return connection, lambda: list(connection.execute("SELECT * FROM victim"))


def _rows_to_kill(seed: int) -> Rows:
    ids = [f"i{row}" for row in range(KILLED_ROWS)]
    return Rows(ids, [{"n": row, DOCUMENT: f"text {row}"} for row in range(KILLED_ROWS)], seed)


def _migrate_in_child(address: str, seed: int, *, resume: bool) -> multiprocessing.process.BaseProcess:
    """A process that migrates; 0: complete, 2: refused, 3: not complete, 4 and 5: anything else.

    It is forked off a server that has loaded what it needs and used none of it, since clients do not outlive a fork.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *_LOADED])
    child = context.Process(target=_child, args=(address, seed, resume))
    child.start()
    return child


_BACKENDS = (
    "chroma",
    "faiss_index",
    "parquet_folder",
    "postgres",
    "qdrant",
    "qdrant_edge",
    "single_file",
    "sqlite_vec",
)
_LOADED = [f"kedge.spaces.stores.backends.{name}" for name in _BACKENDS]  # not LanceDB, which starts a thread


def _child(address: str, seed: int, resume: bool) -> None:
    code = 4
    try:
        with open_store(address) as target:
            source = _rows_to_kill(seed)
            result = migrate(source, target, translate, {}, (DIM, DIM + 1), batch_rows=KILLED_BATCH, resume=resume)
        code = 0 if result.complete else 3
    except InputError as error:
        refused = ("is writing", "already accessed", "already exists")
        code = 2 if any(words in str(error) for words in refused) else 5
        if code == 5:
            print(f"child: {error}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _killed(child: multiprocessing.process.BaseProcess) -> bool:
    """Kill it; False where it had ended by itself, be it a moment ago."""
    child.kill()
    child.join()
    return child.exitcode == -signal.SIGKILL


def fuzz_kills(kind: str, chance: Random, place: Place) -> Counter[str]:
    """Kill a migration up to five times, and go on with it."""
    address, folder = place.new(kind)
    seed, counts = chance.randrange(2**31), Counter[str]()
    try:
        seconds = _whole_seconds(kind, place)
        for attempt in range(chance.randint(1, 5)):
            child = _migrate_in_child(address, seed, resume=attempt > 0)
            child.join(chance.random() * seconds)
            if _killed(child):
                counts["killed"] += 1
            else:
                assert child.exitcode == 0, f"exit code {child.exitcode}"
                counts["done before the kill"] += 1
                break
        _finish(address, seed)
    finally:
        shutil.rmtree(folder)
    return counts


_WHOLE_SECONDS: dict[str, float] = {}


def _whole_seconds(kind: str, place: Place) -> float:
    """How long a whole migration takes: the second, since the first has to load what it needs."""
    for _ in range(2 if kind not in _WHOLE_SECONDS else 0):
        address, folder = place.new(kind)
        began = time.monotonic()
        child = _migrate_in_child(address, 0, resume=False)
        child.join(120)
        _WHOLE_SECONDS[kind] = time.monotonic() - began
        shutil.rmtree(folder)
    return _WHOLE_SECONDS[kind]


def _finish(address: str, seed: int) -> None:
    """Resume to the end in a process of its own, and look at every row."""
    child = _migrate_in_child(address, seed, resume=True)
    child.join(120)
    assert child.exitcode == 0, f"resumed with exit code {child.exitcode}"
    source = _rows_to_kill(seed)
    with open_store(address) as target:
        check_rows(source, target, Migration(KILLED_ROWS, KILLED_ROWS, 0, 0, 0, 0, 0, 0), [], "refuse")


def fuzz_writers(kind: str, chance: Random, place: Place) -> Counter[str]:
    """Kill one, then let two resume at once."""
    address, folder = place.new(kind)
    seed, counts = chance.randrange(2**31), Counter[str]()
    try:
        child = _migrate_in_child(address, seed, resume=False)
        child.join(chance.random() * _whole_seconds(kind, place))
        counts["killed"] += _killed(child)
        both = [_migrate_in_child(address, seed, resume=True) for _ in range(2)]
        for writer in both:
            writer.join(120)
        codes = sorted(writer.exitcode for writer in both if writer.exitcode is not None)
        assert codes in ([0, 0], [0, 2]), f"exit codes {codes}"
        counts["second refused" if codes[1] else "one after the other"] += 1
        _finish(address, seed)
    finally:
        shutil.rmtree(folder)
    return counts


# How each is done, over which kinds, and how many cases one call is.
TARGETS: dict[str, tuple[Callable[[str, Random, Place], Counter[str]], tuple[str, ...], int]] = {
    "payloads": (fuzz_payloads, tuple(kind for kind in KINDS if kind not in FILES), ROUND),
    "ids": (fuzz_ids, KINDS, ROUND),
    "names": (fuzz_names, SQL_KINDS, 1),
    "kills": (fuzz_kills, KINDS, 3),
    "writers": (fuzz_writers, KINDS, 1),
}


def main() -> int:
    """Run, print a table of outcomes, return 1 if there was a failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="how many, of each target")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many, shared by the targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first call of each target")
    parser.add_argument("--target", action="append", choices=TARGETS, help="may be given several times")
    parser.add_argument("--store", action="append", choices=KINDS, help="may be given several times")
    arguments = parser.parse_args()
    failures = 0
    with ExitStack() as stack:
        place = Place(stack)
        names = arguments.target or list(TARGETS)
        for name in names:
            counts: Counter[str] = Counter()
            deadline = time.monotonic() + 60 * arguments.minutes / len(names)
            _, kinds, size = TARGETS[name]
            chosen = [kind for kind in kinds if not arguments.store or kind in arguments.store]
            calls = range(arguments.first, arguments.first + -(-arguments.cases // size))
            for number in calls if chosen else ():
                if time.monotonic() > deadline:
                    break
                counts += try_case(name, chosen[number % len(chosen)], arguments.seed, number, place)
            failures += counts["FAILED"]
            print(f"{name:10}", "  ".join(f"{what} {count:,}" for what, count in sorted(counts.items())), flush=True)
    return int(bool(failures))


def try_case(name: str, kind: str, seed: int, number: int, place: Place) -> Counter[str]:
    """The outcomes of one call; what is not as it should be is printed."""
    try:
        return TARGETS[name][0](kind, Random(f"{seed} {name} {number}"), place)
    except Exception:
        print(f"FAILED {name} {kind} --seed {seed} --first {number}\n{traceback.format_exc()}", file=sys.stderr)
        return Counter({"FAILED": 1})


if __name__ == "__main__":
    sys.exit(main())
