"""Rehearsals by what people ask: judgements, metrics against plain Python, stand-ins for queries, the command line."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from kedge import AnchorDiscovery, Embeddings, InputError, read_relevance, rehearse, write_embeddings
from kedge.cli.main import main
from kedge.spaces.pairs import write_table
from kedge.tasks.rehearsal import JUDGED_METRIC_NAMES, Relevance, make_proxies


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def change():
    """300 texts by two models, of which one marks queries; 120 queries, each about one text or two."""
    chance = np.random.default_rng(0)
    latent = chance.standard_normal((300, 20)) * np.geomspace(1, 0.4, 20)
    rotation, _ = np.linalg.qr(chance.standard_normal((20, 20)))
    mark, off = unit(chance.standard_normal((2, 20)))
    keys = [f"t{row}" for row in range(300)]
    new = Embeddings(keys, (latent + 0.1 * chance.standard_normal((300, 20)) + off).astype(np.float32), "new.npz")
    order = chance.permutation(300)
    old_rows = (latent @ rotation + 0.1 * chance.standard_normal((300, 20)))[order]
    old = Embeddings([keys[row] for row in order], old_rows.astype(np.float32), "old.npz")
    asked = latent[:120] + 0.4 * chance.standard_normal((120, 20))
    names = [f"q{row}" for row in range(120)]
    queries = Embeddings(names, (asked + 3 * mark + off).astype(np.float32), "asked.npz")
    queries_old = Embeddings(names[::-1], (asked @ rotation)[::-1].astype(np.float32), "asked-old.npz")
    relevant = {name: {f"t{row}": 2, f"t{row + 150}": 1} for row, name in enumerate(names)}
    seeds = [(key, key) for key in keys[:60]]
    discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(new, old, seeds)
    return SimpleNamespace(
        discovery=discovery, new=new, old=old, queries=queries, queries_old=queries_old, relevant=relevant
    )


def judged(change, **more):
    pairs = [(key, key) for key in change.new.keys]
    options = {"queries": change.queries, "relevant": change.relevant, "queries_old": change.queries_old} | more
    return rehearse(change.discovery, change.new, change.old, pairs, device="cpu", **options)


def read_all(change):
    """All judgements, as they are read from a file."""
    queries, texts, grades = zip(
        *((query, text, grade) for query, some in change.relevant.items() for text, grade in some.items()), strict=True
    )
    return Relevance(change.queries.rows(queries), change.old.rows(texts), np.asarray(grades), {})


def plain(vectors, index, keys, relevant, names):
    """Recall at 1 and at 10, and nDCG with linear gain, query by query."""
    rows = []
    for name, scores in zip(names, vectors @ index.T, strict=True):
        ten = [keys[row] for row in np.argsort(-scores)[:10]]
        grades = relevant[name]
        gain = sum(grades.get(key, 0) / math.log2(rank + 2) for rank, key in enumerate(ten))
        best = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(grades.values(), reverse=True)[:10]))
        found = [key in grades for key in ten]
        rows.append([found[0] / len(grades), sum(found) / len(grades), gain / best])
    return np.mean(rows, axis=0)


def estimates(search):
    return [metric.estimate for metric in search.metrics.in_order()]


# -- figures ---------------------------------------------------------------------------------------


def test_all_searches_against_the_plain_version(change):
    result = judged(change).judged_queries
    names, discovery = change.queries.keys, change.discovery
    new, old = unit(change.queries.vectors), unit(change.old.vectors)
    expected = {
        "old": (unit(change.queries_old.vectors[::-1]), old),
        "translated_queries": (discovery.translate(change.queries), old),
        "translated_index": (new, discovery.translate(change.old, back=True)),
        "new": (new, unit(change.new.vectors[change.new.rows(change.old.keys)])),
    }
    assert list(result.searches) == list(expected)
    for name, (vectors, index) in expected.items():
        figures = plain(vectors, index, change.old.keys, change.relevant, names)
        assert estimates(result.searches[name]) == pytest.approx(figures, abs=0.01)
        assert (result.searches[name].queries, result.searches[name].index) == (120, 300)
        for metric in result.searches[name].metrics.in_order():
            assert metric.low <= metric.estimate <= metric.high
    assert (result.queries, result.judgements, result.skipped) == (120, 240, 0)


def test_where_few_texts_are_encoded_anew_the_same_texts_are_compared(change):
    known = [(key, key) for key in change.new.keys[:140]]
    relevant = {name: f"t{row}" for row, name in enumerate(change.queries.keys)}
    result = rehearse(
        change.discovery, change.new, change.old, known, queries=change.queries, relevant=relevant, device="cpu"
    )
    searches = result.judged_queries.searches
    assert list(searches) == [
        "translated_queries", "translated_index", "partly_reencoded", "new", "translated_queries_among_these",
    ]  # fmt: skip
    assert [searches[name].index for name in searches] == [300, 300, 300, 140, 140]
    own = unit(change.new.vectors[:140])
    grades = {name: {text: 1} for name, text in relevant.items()}
    new = unit(change.queries.vectors)
    expected = plain(new, own, change.new.keys, grades, change.queries.keys)
    assert estimates(searches["new"]) == pytest.approx(expected, abs=0.01)
    mixed = change.discovery.translate(change.old, back=True)
    mixed[change.old.rows(change.new.keys[:140])] = own
    expected = plain(new, mixed, change.old.keys, grades, change.queries.keys)
    assert estimates(searches["partly_reencoded"]) == pytest.approx(expected, abs=0.01)
    alone = rehearse(change.discovery, change.new, change.old, queries=change.queries, relevant=relevant, device="cpu")
    assert alone.is_estimate
    assert list(alone.judged_queries.searches) == ["translated_queries", "translated_index"]


def test_a_discovery_that_was_given_queries_translates_them_as_such(change):
    seeds = change.discovery.seed_keys_
    asked = AnchorDiscovery(n_anchors=20, device="cpu").fit(change.new, change.old, seeds, queries=change.queries)
    before = judged(change).judged_queries
    after = judged(SimpleNamespace(**(vars(change) | {"discovery": asked}))).judged_queries
    assert (before.as_queries, after.as_queries) == (False, True)
    assert after.value("translated_queries", "ndcg") > before.value("translated_queries", "ndcg") + 0.02
    assert after.value("old", "recall_10") == before.value("old", "recall_10")


def test_texts_in_place_of_queries_are_called_flattery(change):
    result = judged(change)
    itself = result.translated_queries.metrics.self_recall_10.estimate
    assert result.flattery == pytest.approx(itself - result.judged_queries.value("translated_queries", "recall_10"))
    assert result.flattery > 0.2
    assert f"by {result.flattery:.3f}." in result.remarks[0]
    without = rehearse(change.discovery, change.new, change.old, [(k, k) for k in change.new.keys], device="cpu")
    assert without.flattery is without.judged_queries is None
    assert "texts of the index, not what people ask, and such figures flatter" in without.remarks[0]


def test_kinds_of_queries_have_figures_of_their_own(change):
    kinds = {name: "easy" if row < 60 else "hard" for row, name in enumerate(change.queries.keys)}
    hard = change.queries.vectors.copy()
    hard[60:] = np.random.default_rng(1).standard_normal(hard[60:].shape)
    queries = Embeddings(change.queries.keys, hard, "asked.npz")
    search = judged(change, queries=queries, kinds=kinds).judged_queries.searches["new"]
    assert [(each.kind, each.queries) for each in search.kinds] == [("hard", 60), ("easy", 60)]
    worse, better = (each.metrics.recall_10.estimate for each in search.kinds)
    assert worse < better
    assert search.metrics.recall_10.estimate == pytest.approx((worse + better) / 2)


def test_the_lowest_of_judged_metrics(change):
    result = judged(change)
    values = {
        name: result.judged_queries.value(name, "recall_10") for name in ("translated_queries", "translated_index")
    }
    lowest = result.lowest("recall_10")
    assert (lowest.metric, lowest.value) == ("recall_10", min(values.values()))
    assert result.lowest("judged_ndcg", "index").value == result.judged_queries.value("translated_index", "ndcg")
    without = rehearse(change.discovery, change.new, change.old, [(k, k) for k in change.new.keys], device="cpu")
    assert without.lowest("recall_1") is None


# -- judgements ------------------------------------------------------------------------------------

TREC = "q0 0 t0 2\nq0 0 t150 1\nq1 0 t1 0\nq1 0 t2 1\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qrels.txt", TREC),
        ("qrels.tsv", TREC.replace(" ", "\t")),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq0\tt0\t2\nq0\tt150\t1\nq1\tt1\t0\nq1\tt2\t1\n"),
        ("qrels.csv", "doc,query,grade\nt0,q0,2\nt150,q0,1\nt1,q1,0\nt2,q1,1\n"),
        ("qrels.txt", "q0 t0 2\nq0 t150 1\n\nq1 t1 0\nq1 t2 1\nq1 t2 1\n"),
    ],
)
def test_judgements_of_every_form(change, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    read = read_relevance(tmp_path / name, change.queries, change.old)
    found = {
        (change.queries.keys[query], change.old.keys[row]): grade
        for query, row, grade in zip(read.queries, read.rows, read.grades, strict=True)
    }
    assert found == {("q0", "t0"): 2, ("q0", "t150"): 1, ("q1", "t2"): 1}
    assert read.skipped == 0


def test_two_columns_and_kinds(change, tmp_path):
    (tmp_path / "pairs.tsv").write_text("q0\tt0\nq3\tt3\nnobody\tt1\nq1\tnothing\n")
    read = read_relevance(tmp_path / "pairs.tsv", change.queries, change.old)
    assert read.grades.tolist() == [1, 1]
    assert read.skipped == 2
    (tmp_path / "kinds.tsv").write_text("query\tdoc\tkind\nq0\tt0\tlong\nq1\tt1\t\n")
    assert read_relevance(tmp_path / "kinds.tsv", change.queries, change.old).kinds == {0: "long"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "qrels.tsv: holds no judgement"),
        ("q0\n", "qrels.tsv, line 1: two columns .* got 1: .'q0'."),
        ("q0 0 t0 1 x\n", "qrels.tsv, line 1: two columns .* got 5"),
        ("q0 0 t0 1\nq1 t1\n", "qrels.tsv, line 2: 4 columns are needed, as in the first line, got 2"),
        ("q0 0 t0 1\nq1 0 t1 -1\n", "qrels.tsv, line 2: a grade is a whole number from 0 .* got '-1'"),
        ("q0 0 t0 high\n", "qrels.tsv, line 1: a grade is a whole number from 0 .* got 'high'"),
        ("q0 0 t0 1\nq0 0 t0 2\n", "qrels.tsv, line 2: the text 't0' has grade 1 for the query 'q0' already, got 2"),
        ("q0 0 t0 0\n", "qrels.tsv: no text is relevant for any query, all grades are 0"),
        ("a 0 t0 1\nb 0 t1 1\n", "qrels.tsv: none of its 2 judgements names .* line 1 holds 'a' and 't0'"),
        (
            "query\tdoc\tkind\nq0\tt0\ta\nq0\tt1\tb\n",
            "qrels.tsv, line 3: the query 'q0' is of kind 'a' already, got 'b'",
        ),
    ],
)
def test_bad_judgements_are_refused_with_file_and_line(change, tmp_path, text, message):
    (tmp_path / "qrels.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_relevance(tmp_path / "qrels.tsv", change.queries, change.old)


def test_unknown_ids_are_refused_where_nothing_may_be_skipped(change, tmp_path):
    (tmp_path / "qrels.tsv").write_text("q0 0 t0 1\nq1 0 t999 1\n")
    with pytest.raises(InputError, match="qrels.tsv, line 2: old.npz has no key 't999'"):
        read_relevance(tmp_path / "qrels.tsv", change.queries, change.old, strict=True)
    (tmp_path / "qrels.tsv").write_text("q0 0 t0 1\nq999 0 t1 1\n")
    with pytest.raises(InputError, match="qrels.tsv, line 2: asked.npz has no key 'q999'"):
        read_relevance(tmp_path / "qrels.tsv", change.queries, change.old, strict=True)


def test_bad_arguments_are_refused(change):
    with pytest.raises(InputError, match="relevant: also give `queries`"):
        judged(change, queries=None)
    with pytest.raises(InputError, match="relevant: 3 queries have a relevant text, at least 10 are needed"):
        judged(change, relevant=[("q0", "t0"), ("q1", "t1"), ("q2", "t2", 3)])
    with pytest.raises(InputError, match=r"relevant, number 1: .query, text. or .query, text, grade. is needed, got"):
        judged(change, relevant=[("q0",)])
    with pytest.raises(InputError, match="relevant, number 1: a grade is a whole number"):
        judged(change, relevant=[("q0", "t0", -2)])
    few = change.queries.take(range(20))
    for queries, index in ((few, change.old), (change.queries, change.old.take(range(150)))):
        with pytest.raises(InputError, match="relevant: was read for other queries or another index"):
            rehearse(change.discovery, change.new, index, queries=queries, relevant=read_all(change), device="cpu")
    few = change.queries_old.take(range(100))
    with pytest.raises(InputError, match="asked-old.npz: lacks 20 of the 120 queries of asked.npz, the first is 'q0'"):
        judged(change, queries_old=few)
    narrow = Embeddings(change.queries_old.keys, change.queries_old.vectors[:, :7], "narrow.npz")
    with pytest.raises(InputError, match="narrow.npz: has 7 dimensions, but Y, the old model's, has 20"):
        judged(change, queries_old=narrow)


# -- stand-ins -------------------------------------------------------------------------------------


def test_stand_ins_are_second_sentences_that_no_other_text_has():
    texts = [
        "Reads a file. It opens the file for reading only. Then it closes it.",
        "One sentence only.",
        "Writes a file. It is a part of the library. Nothing is written twice here.",
        "Copies a file. It is a part of the library. Short one.",
        "First part\n\nThe second paragraph has no full stop",
    ]
    proxies = make_proxies(list("abcde"), texts)
    assert dict(zip(proxies.keys, proxies.texts, strict=True)) == {
        "a": "It opens the file for reading only.",
        "c": "Nothing is written twice here.",
        "e": "The second paragraph has no full stop",
    }
    assert proxies.left_out == 2
    titles = make_proxies(list("abcde"), texts, ["Reader", "Thing", "Writer", "Thing", ""])
    assert dict(zip(titles.keys, titles.texts, strict=True)) == {"a": "Reader", "c": "Writer"}


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory, change):
    folder = tmp_path_factory.mktemp("judged")
    change.discovery.save(folder / "run")
    for name in ("new", "old", "queries", "queries_old"):
        write_embeddings(getattr(change, name), folder / f"{name}.npz")
    lines = [f"{query} 0 {text} {grade}" for query, some in change.relevant.items() for text, grade in some.items()]
    (folder / "qrels.txt").write_text("\n".join([*lines, "q0 0 not-here 1"]) + "\n")
    kinds = [(name, "early" if int(name[1:]) < 40 else "late") for name in change.queries.keys]
    write_table(folder / "kinds.tsv", ("key", "label"), kinds)
    return folder


def call(folder, *more):
    arguments = ["rehearse", folder / "run", folder / "new.npz", folder / "old.npz", *more, "--device", "cpu"]
    return main([str(argument) for argument in arguments])


def test_the_command_measures_what_queries_find(files, change, capsys):
    asked = "--queries", files / "queries.npz", "--relevant", files / "qrels.txt"
    old = "--old-queries", files / "queries_old.npz"
    assert call(files, "--known", "keys", *asked, *old, "--query-kinds", files / "kinds.tsv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("judged: 120 queries, 240 relevant texts; 1 judgements name a query or text")
    assert lines[2].split() == ["search", "queries", "index", *JUDGED_METRIC_NAMES.values()]
    rows = [line.split("  ")[0] for line in lines[3:7]]
    assert rows == ["old model alone", "translated queries", "translated index", "new model alone (re-encoded)"]
    assert lines[3].count(" to ") == 3
    assert any(line.startswith("translated queries, by kind") for line in lines)
    assert any("not what people ask. That flatters" in line for line in lines)

    assert call(files, *asked, *old, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    expected = judged(change).judged_queries
    search = told["judged_queries"]["searches"]["old"]
    assert search["metrics"]["recall_10"]["estimate"] == expected.value("old", "recall_10")
    assert told["judged_queries"]["skipped"] == 1


def test_fail_under_is_about_judged_queries_where_there_are_some(files, change, capsys):
    asked = "--queries", files / "queries.npz", "--relevant", files / "qrels.txt"
    value = judged(change).lowest("recall_10").value
    assert call(files, *asked, "--fail-under", f"{value - 0.01:.3f}") == 0
    assert "passed: recall@10 of " in capsys.readouterr().out
    assert call(files, *asked, "--fail-under", f"{value + 0.01:.3f}") == 3
    assert "WARNING recall@10 of " in capsys.readouterr().err
    assert call(files, *asked, "--fail-under", "1", "--metric", "judged-ndcg", "--direction", "index", "--json") == 3
    verdict = json.loads(capsys.readouterr().out)["judged"]
    assert (verdict["metric"], verdict["direction"]) == ("judged_ndcg", "translated_index")
    assert call(files, "--known", "keys", "--fail-under", "0.1", "--metric", "recall-10") == 3
    assert "there is no value of --metric recall-10" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--relevant", "qrels.txt"], "--relevant: says something about queries .* give --queries too"),
        (["--queries", "queries.npz", "--old-queries", "queries_old.npz"], "--old-queries: .* give --relevant too"),
        (["--queries", "queries.npz", "--relevant", "absent.txt"], "absent.txt: no such file"),
        (["--queries", "queries.npz", "--relevant", "qrels.txt", "--strict"], "qrels.txt, line 241: .*'not-here'"),
        (["--proxy-model", "m"], "--proxy-model is for stand-ins; name their texts with --proxy"),
        (["--proxy", "texts.jsonl"], "give either --proxy-model, X's model, .* or --proxy-out"),
        (["--proxy", "t.txt", "--proxy-out", "p", "--queries", "queries.npz"], "omit one of the two"),
    ],
)
def test_options_that_make_no_sense_are_refused(files, capsys, monkeypatch, more, message):
    import re

    monkeypatch.chdir(files)
    assert call(files, *more) == 2
    assert re.search(message, capsys.readouterr().err)


def test_stand_ins_are_written_for_an_encoder(files, tmp_path, capsys):
    texts = tmp_path / "texts.jsonl"
    rows = [{"id": f"t{row}", "text": f"Text {row}. The second sentence is about {row}."} for row in range(40)]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = "--proxy", texts, "--key-field", "id", "--proxy-out", tmp_path / "asked"
    assert call(files, *options) == 0
    output = capsys.readouterr().out
    assert "40 stand-ins for queries in " in output
    assert "rehearse" in output.splitlines()[-1]
    first = json.loads((tmp_path / "asked.jsonl").read_text().splitlines()[0])
    assert first == {"id": "proxy:t0", "text": "The second sentence is about 0."}
    assert (tmp_path / "asked.qrels.tsv").read_text().splitlines()[:2] == ["query\tdoc", "proxy:t0\tt0"]
    assert call(files, *options) == 2
    assert "asked.jsonl: already exists; choose another name, or replace it with --overwrite" in capsys.readouterr().err
    assert call(files, *options, "--overwrite", "--json") == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 40


def test_stand_ins_are_encoded_where_the_model_is_named(files, change, tmp_path, capsys, monkeypatch):
    """By an encoder that looks the vectors up: what a text says is its row."""
    seen = []

    def encode(texts):
        seen.extend(texts)
        rows = [int(text.rstrip(".").split()[-1]) for text in texts]
        return change.new.vectors[rows]

    from kedge.spaces import encoders

    monkeypatch.setattr(encoders, "load_text_encoder", lambda *_, **__: SimpleNamespace(encode=encode))
    rows = [{"id": f"t{row}", "text": f"Text {row}. The second sentence is about {row}."} for row in range(40)]
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = "--proxy-model", "some-model", "--prefix", "query: "
    assert call(files, "--proxy", texts, "--key-field", "id", *model, "--fail-under", "0.5") == 0
    output = capsys.readouterr().out
    assert seen[0] == "query: The second sentence is about 0."
    assert "judged: 40 queries, 40 relevant texts" in output
    assert call(files, "--proxy", texts, *model) == 2
    assert "none of its keys is" in capsys.readouterr().err
