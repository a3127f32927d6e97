"""One index for several encoders: does Chroma find what an exact search finds in common coordinates?

    python benchmarks/common_index.py --data DIR --json benchmarks/results/common-index-two-cores.json

MiniLM and multilingual E5, on English and on French texts, are brought into one common space by 1,000 texts, of which
15 are known. Other English texts, by both encoders, make one collection, and 500 of them are looked up by their French
versions. Collections differ in how they compare (inner product or distance) and in how far Chroma searches
(`ef_search`; none is its default). *exact* and *first* are how often a translation comes first in an exact search and
in Chroma; *recall@10* is the share of the ten of the exact search that Chroma finds.
"""

from __future__ import annotations

from pathlib import Path

import chromadb
import numpy as np
from numpy.typing import NDArray

from kedge import CommonSpace, read_embeddings
from kedge.many.member import CommonMetric
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser, write_json

FITTED, STORED, ASKED, SEEDS, K = 1000, 2000, 500, 15, 10
COLUMNS = ("by", "ef_search", "exact", "first", "recall@10")
METRICS: tuple[CommonMetric, ...] = ("ip", "l2")


def main() -> None:
    """Fit, fill the collections, ask, and print a table."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    files = {"minilm": "minilm-en", "e5": "me5-en", "e5-french": "me5-fr"}
    spaces = {name: read_embeddings(arguments.data / "texts" / f"{file}.npz") for name, file in files.items()}
    keys = [key for key in spaces["e5"].keys if all(key in space.row_of for space in spaces.values())]
    fitted, stored = keys[:FITTED], keys[FITTED : FITTED + STORED]
    known = [(key,) * len(spaces) for key in fitted[:SEEDS]]
    common = CommonSpace().fit({name: space.take(space.rows(fitted)) for name, space in spaces.items()}, seeds=known)
    tested = {name: space.take(space.rows(stored)) for name, space in spaces.items()}
    print(f"{describe_machine('cpu')}\n\n{markdown_header(COLUMNS)}", flush=True)
    results = []
    for metric in METRICS:
        documents = np.concatenate(
            [common.project(tested[name], space=name, metric=metric) for name in ("minilm", "e5")]
        )
        queries = common.project(tested["e5-french"], space="e5-french", query=True, metric=metric)[:ASKED]
        exact = exact_search(queries, documents, metric)
        for reach in (None, 500):
            found = ask_chroma(queries, documents, metric, reach)
            met = [len(set(one) & set(other)) / K for one, other in zip(found.tolist(), exact.tolist(), strict=True)]
            row = {"by": metric, "ef_search": reach, "exact": first(exact), "first": first(found)}
            results.append(row | {"recall": float(np.mean(met))})
            print(markdown_row([str(value) for value in results[-1].values()]), flush=True)
    if arguments.json:
        write_json(arguments.json, {"machine": describe_machine("cpu"), "rows": results})


def exact_search(
    queries: NDArray[np.float32], documents: NDArray[np.float32], metric: CommonMetric
) -> NDArray[np.int64]:
    """The best K documents (q, K) of each query (q, c)."""
    scores = queries @ documents.T
    if metric == "l2":
        scores = 2 * scores - (documents**2).sum(axis=1)
    return np.argsort(-scores, axis=1)[:, :K]


def ask_chroma(
    queries: NDArray[np.float32], documents: NDArray[np.float32], metric: CommonMetric, reach: int | None
) -> NDArray[np.int64]:
    """The K documents (q, K) that a collection finds for each query (q, c)."""
    graph = {"space": metric} | ({"ef_search": reach} if reach else {})
    collection = chromadb.EphemeralClient().create_collection(f"{metric}-{reach}", configuration={"hnsw": graph})
    for start in range(0, len(documents), 1000):
        rows = range(start, min(start + 1000, len(documents)))
        collection.add(ids=[str(row) for row in rows], embeddings=documents[rows.start : rows.stop])
    found = collection.query(query_embeddings=queries, n_results=K)["ids"]
    return np.array(found, dtype=np.int64)


def first(found: NDArray[np.int64]) -> float:
    """How often the first (q, K) is the query's own text, by either encoder."""
    return float((found[:, 0] % STORED == np.arange(len(found))).mean())


if __name__ == "__main__":
    main()
