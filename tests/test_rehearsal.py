"""Rehearsals: what searches would lose, against plain NumPy, and what is said of it."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery, Embeddings, InputError, load, rehearse, write_embeddings
from kedge.cli.main import main
from kedge.models.maps.linear import LinearMap
from kedge.spaces.pairs import write_table
from kedge.tasks import METRIC_NAMES, gold_by_key
from kedge.tasks.rehearsal.metrics import bootstrap_interval
from kedge.tasks.rehearsal.outcome import Rehearsal
from kedge.tasks.row_clusters import cluster_rows


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def values(metrics):
    return [getattr(metrics, name) and getattr(metrics, name).estimate for name in METRIC_NAMES]


def plain(queries, index, reference_queries, reference_index, own=None):
    """The four metrics with all similarities stored, query by query."""
    rows = []
    for number, (scores, wanted) in enumerate(
        zip(queries @ index.T, reference_queries @ reference_index.T, strict=True)
    ):
        ten = np.argsort(-scores)[:10].tolist()
        reference = set(np.argsort(-wanted)[:10].tolist())
        gains = [1 / np.log2(rank + 1) for rank in range(1, 11)]
        ndcg = sum(gain for gain, row in zip(gains, ten, strict=True) if row in reference) / sum(gains)
        place = None if own is None else own[number]
        rows.append([ten[0] == place, place in ten, len(reference.intersection(ten)) / 10, ndcg])
    found = np.mean(rows, axis=0).tolist()
    return [None, None, *found[2:]] if own is None else found


@pytest.fixture(scope="module")
def turned():
    """A space of three heaps and its rotation, the rows shuffled; a discovery that has the rotation itself as map."""
    chance = np.random.default_rng(0)
    heaps = 3 * np.eye(3, 16)
    x = (np.repeat(heaps, 120, axis=0) + 0.5 * chance.standard_normal((360, 16))).astype(np.float32)
    rotation, _ = np.linalg.qr(chance.standard_normal((16, 16)))
    rotation = rotation.astype(np.float32)
    keys = [f"{name}{row}" for name in "abc" for row in range(120)]
    order = chance.permutation(360)
    spaces = Embeddings(keys, x, "new.npz"), Embeddings([keys[row] for row in order], (x @ rotation)[order], "old.npz")
    seeds = [(key, key) for key in keys[::6]]
    discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(*spaces, seeds)
    discovery.map_, discovery.map_back_ = LinearMap(rotation), LinearMap(rotation.T.copy())
    return discovery, *spaces


@pytest.fixture
def broken(turned):
    """The same with maps that are nothing of the kind."""
    discovery = copy(turned[0])
    chance = np.random.default_rng(1)
    discovery.map_, discovery.map_back_ = map(LinearMap, chance.standard_normal((2, 16, 16)).astype(np.float32))
    return discovery


# -- figures ---------------------------------------------------------------------------------------


def test_both_directions_against_the_plain_version(fitted, words, word_seeds):
    x, y = words
    chance = np.random.default_rng(4)
    known = gold_by_key(x, y)[chance.permutation(2000)[:400]]
    queries = Embeddings([f"q{row}" for row in range(60)], unit(x.vectors[:60]) + unit(x.vectors[60:120]), "q")
    result = rehearse(fitted, x, y, known, queries=queries, device="cpu")

    seeds = {left for left, _ in word_seeds}
    kept = np.array([pair for pair in known.tolist() if x.keys[pair[0]] not in seeds])
    assert (result.pairs, result.seeds) == (len(kept), 400 - len(kept))
    assert result.seeds > 0
    rows_x, rows_y = kept.T
    old, new = unit(y.vectors), unit(x.vectors[rows_x])
    translated = fitted.translate(y.vectors[rows_y], back=True)
    expected = plain(fitted.translate(x.vectors[rows_x]), old, old[rows_y], old, rows_y)
    assert values(result.translated_queries.metrics) == pytest.approx(expected, abs=0.003)
    assert (result.translated_queries.queries, result.translated_queries.index) == (len(kept), 2000)
    expected = plain(new, translated, new, new, range(len(kept)))
    assert values(result.translated_index.metrics) == pytest.approx(expected, abs=0.003)
    assert (result.translated_index.queries, result.translated_index.index) == (len(kept), len(kept))
    expected = plain(unit(queries.vectors), translated, unit(queries.vectors), new)
    assert values(result.given_queries.metrics) == pytest.approx(expected, abs=0.003)
    assert (result.given_queries.queries, result.given_queries.index) == (60, len(kept))


def test_a_perfect_map_loses_nothing(turned):
    discovery, x, y = turned
    result = rehearse(discovery, x, y, gold_by_key(x, y), queries=x.take(range(50)), device="cpu")
    for direction in (result.translated_queries, result.translated_index, result.given_queries):
        for metrics in (direction.metrics, *(cluster.metrics for cluster in direction.clusters)):
            for interval in metrics.in_order():
                assert interval is None or (interval.estimate, interval.low, interval.high) == (1, 1, 1)
    assert len(result.directions) == 3
    assert result.lowest().value == result.lowest("ndcg").value == 1
    assert not result.is_estimate


def test_a_broken_map_loses_nearly_all(broken, turned):
    result = rehearse(broken, *turned[1:], gold_by_key(*turned[1:]), device="cpu")
    assert result.lowest("self_recall_1").value < 0.05
    assert result.lowest("overlap").value < 0.2


def test_seeds_are_left_out_on_either_side(turned):
    discovery, x, y = turned
    known = [(key, key) for key in x.keys if key not in {"a1", "b1"}]
    known += [("a1", "b1")]  # which is wrong, but touches no seed
    result = rehearse(discovery, x, y, known, device="cpu")
    assert (result.pairs, result.seeds) == (299, 60)
    moved = [("a1", "a0"), ("a6", "a2")]  # each shares one row with a seed
    assert rehearse(discovery, x, y, moved, device="cpu").seeds == 2


def test_pairs_that_the_run_has_learnt_from_are_reported(fitted, words, turned):
    x, y = words
    result = rehearse(fitted, x, y, gold_by_key(x, y), device="cpu")
    assert result.found == len(set(fitted.pair_keys_) & {(key, key) for key in x.keys} - set(fitted.seed_keys_))
    flattery, remark = result.remarks
    assert "such figures flatter" in flattery
    assert f"The run found {result.found} of these pairs itself" in remark
    discovery = copy(turned[0])
    discovery.pair_keys_ = []
    assert rehearse(discovery, *turned[1:], gold_by_key(*turned[1:]), device="cpu").remarks == (flattery,)


@pytest.mark.parametrize(
    ("flattery", "said"),
    [
        (0.031, "That flatters: they find themselves among ten more often than your queries find what is relevant"),
        (-0.031, "That understates: they find themselves among ten less often than your queries find what is relevant"),
    ],
)
def test_texts_may_also_be_harder_than_queries(turned, monkeypatch, flattery, said):
    discovery, x, y = turned
    result = rehearse(discovery, x, y, gold_by_key(x, y), device="cpu")
    monkeypatch.setattr(Rehearsal, "flattery", flattery)
    assert result.remarks[0].endswith(f"{said}, by 0.031.")


def test_arrays_do_as_well(turned):
    discovery, x, y = turned
    discovery = copy(discovery)
    discovery.seed_keys_ = [("0", "0")]
    known = gold_by_key(x, y)
    by_rows = rehearse(discovery, x.vectors, torch.from_numpy(y.vectors), known, device="cpu")
    assert by_rows.seeds == int((known == 0).any(axis=1).sum())
    assert by_rows.lowest().value == 1


def test_the_lowest_is_over_the_directions_asked_for(fitted, words):
    x, y = words
    result = rehearse(fitted, x, y, gold_by_key(x, y)[:500], queries=x.take(range(100)), device="cpu")
    queries, index, given = (direction.metrics for direction in result.directions.values())
    lowest = result.lowest("self_recall_1", "queries")
    assert lowest == ("self_recall_1", "translated_queries", queries.self_recall_1.estimate)
    lowest = result.lowest("self_recall_1", "index")
    assert lowest == ("self_recall_1", "translated_index", index.self_recall_1.estimate)
    assert result.lowest("ndcg").value == min(each.ndcg.estimate for each in (queries, index, given))
    with pytest.raises(
        InputError, match="metric must be one of self_recall_1, .*, overlap, ndcg, .*judged_ndcg, got 'mrr'"
    ):
        result.lowest("mrr")
    with pytest.raises(InputError, match="direction must be one of both, queries, index, got 'across'"):
        result.lowest(direction="across")


# -- intervals and clusters ------------------------------------------------------------------------


def test_intervals_are_as_wide_as_chance_makes_them():
    chance = np.random.default_rng(0)
    draws = (chance.random(400) < 0.7).astype(float)
    interval = bootstrap_interval(draws, np.random.default_rng(1))
    assert interval.estimate == pytest.approx(draws.mean())
    error = draws.std() / np.sqrt(400)
    assert (interval.low, interval.high) == pytest.approx(
        (draws.mean() - 1.645 * error, draws.mean() + 1.645 * error), abs=0.2 * error
    )
    assert interval == bootstrap_interval(draws, np.random.default_rng(1))
    held = [
        interval.low <= 0.7 <= interval.high
        for values in (chance.random((200, 300)) < 0.7).astype(float)
        for interval in [bootstrap_interval(values, chance)]
    ]
    assert 0.84 <= np.mean(held) <= 0.96  # 90 % intervals


def test_the_same_state_gives_the_same_rehearsal(fitted, words):
    known = gold_by_key(*words)[:300]
    first, second = (rehearse(fitted, *words, known, device="cpu") for _ in range(2))
    assert first == second
    other = rehearse(fitted, *words, known, device="cpu", random_state=5)
    assert values(other.translated_queries.metrics) == values(first.translated_queries.metrics)
    assert other != first


def test_heaps_are_found_and_small_ones_joined():
    chance = np.random.default_rng(0)
    centers = np.eye(4, 12)
    heap = np.repeat(np.arange(4), (100, 100, 100, 6))
    rows = unit(centers[heap] + 0.1 * chance.standard_normal((306, 12))).astype(np.float32)
    cluster, found = cluster_rows(torch.from_numpy(rows), 4, 1)
    assert len(found) == 4
    assert len({(a, b) for a, b in zip(heap.tolist(), cluster.tolist(), strict=True)}) == 4
    cluster, found = cluster_rows(torch.from_numpy(rows), 4, 25)
    assert np.bincount(cluster).min() >= 25
    assert len(found) == 3
    cluster, found = cluster_rows(torch.ones(60, 5) / 5**0.5, 3, 25)  # nothing tells them apart
    assert cluster.tolist() == [0] * 60


def test_the_kind_of_query_that_suffers_comes_first(turned):
    discovery, x, y = turned
    damaged = y.vectors.copy()
    suffering = np.array([row for row, key in enumerate(y.keys) if key.startswith("b")])
    damaged[suffering] = damaged[np.roll(suffering, 1)]  # each has the vector of another
    result = rehearse(discovery, x, Embeddings(y.keys, damaged, "old.npz"), gold_by_key(x, y), device="cpu")
    for direction in (result.translated_queries, result.translated_index):
        worst, *others = direction.clusters
        assert {key[0] for key in worst.keys} == {"b"}
        assert worst.metrics.self_recall_1.estimate < 0.1
        assert others
        assert all(cluster.metrics.self_recall_1.estimate == 1 for cluster in others if cluster.keys[0][0] != "b")
        assert sum(cluster.queries for cluster in direction.clusters) == result.pairs
        assert min(cluster.queries for cluster in direction.clusters) >= 25
        kinds = [cluster.metrics.ndcg.estimate for cluster in direction.clusters]
        assert kinds == sorted(kinds)


def test_few_pairs_make_no_index_and_no_clusters(turned):
    discovery, x, y = turned
    known = [(key, key) for key in x.keys if key not in dict(discovery.seed_keys_)]
    result = rehearse(discovery, x, y, known[:99], queries=x.take(range(30)), device="cpu")
    assert result.translated_index is result.given_queries is None
    assert list(result.directions) == ["translated_queries"]
    assert result.lowest(direction="index") is None
    few = rehearse(discovery, x, y, known[:49], device="cpu")
    assert few.translated_queries.clusters == ()
    assert few.translated_queries.queries == 49


# -- estimates -------------------------------------------------------------------------------------


def test_without_pairs_there_is_an_estimate(fitted, words, word_seeds):
    x, y = words
    others = [(key, key) for key in x.keys if key not in dict(word_seeds)]
    for known in ((), word_seeds, word_seeds + others[:9]):
        result = rehearse(fitted, x, y, known, device="cpu")
        assert result.is_estimate
        assert result.directions == {}
        assert result.seeds == min(len(known), 15)
    scores = fitted.map_scores_
    assert result.held_out.translated_queries.mrr == scores["map"]["mrr"]
    assert result.held_out.translated_index.overlap == scores["map_back"]["overlap"]
    assert "easier than the rest" in result.held_out.caveat
    smaller = min(
        ("translated_queries", "map"), ("translated_index", "map_back"), key=lambda each: scores[each[1]]["mrr"]
    )
    assert result.lowest() == ("mrr", smaller[0], scores[smaller[1]]["mrr"])
    assert result.lowest("overlap", "queries").value == scores["map"]["overlap"]
    assert result.lowest("self_recall_1") is result.lowest("ndcg") is None
    assert not rehearse(fitted, x, y, others[:10], device="cpu").is_estimate


def test_an_estimate_says_what_it_is_worth(turned):
    discovery, x, y = turned
    held_out = rehearse(discovery, x, y, device="cpu").held_out
    assert held_out.meaningful
    assert held_out.caveat == "Measured by the discovery on seeds that it held out."
    wrong = copy(discovery)
    wrong.health_ = replace(wrong.health_, searching=replace(wrong.health_.map, verdict="uncertain"))
    assert rehearse(wrong, x, y, device="cpu").held_out.meaningful  # the seeds are enough
    wrong.seed_is_suspect_ = np.arange(60) < 11
    result = rehearse(wrong, x, y, device="cpu")
    assert not result.held_out.meaningful
    assert "fewer than 50 seeds" in result.held_out.caveat
    assert result.lowest() is None
    small = copy(discovery)
    small.map_scores_ = {name: scores | {"mrr": None} for name, scores in discovery.map_scores_.items()}
    assert "too few certain pairs to hold some out" in rehearse(small, x, y, device="cpu").held_out.caveat


# -- what is refused -------------------------------------------------------------------------------


def test_bad_input_is_refused_with_what_to_do(turned):
    discovery, x, y = turned
    with pytest.raises(InputError, match="contradict each other: number 1, .'a1', 'a1'., and number 2, .'a1', 'a2'."):
        rehearse(discovery, x, y, [("a1", "a1"), ("a1", "a2")], device="cpu")
    with pytest.raises(InputError, match="known pairs, number 1, .'z', 'a1'.: x .new.npz. has no key 'z'"):
        rehearse(discovery, x, y, [("z", "a1")], device="cpu")
    flat = Embeddings(y.keys, y.vectors[:, :8], "flat.npz")
    with pytest.raises(InputError, match="flat.npz: has 8 dimensions, but Y, the old model's, has 16 in this run"):
        rehearse(discovery, x, flat, device="cpu")
    with pytest.raises(InputError, match="flat.npz: has 8 dimensions, but X, the new model's, has 16"):
        rehearse(discovery, x, y, queries=flat, device="cpu")


# -- the command line ------------------------------------------------------------------------------


def call(*arguments):
    return main(["rehearse", *(str(argument) for argument in arguments), "--device", "cpu"])


@pytest.fixture(scope="module")
def files(tmp_path_factory, turned):
    """A run that loses nothing, and the files of its spaces."""
    folder = tmp_path_factory.mktemp("rehearsal")
    discovery, x, y = turned
    discovery.save(folder / "run")
    write_embeddings(x, folder / "new.npz")
    write_embeddings(y, folder / "old.npz")
    return [str(folder / name) for name in ("run", "new.npz", "old.npz")]


def test_the_command_prints_both_directions_and_the_worst_kinds(run_files, tmp_path, words, capsys):
    write_embeddings(words[0].take(range(200)), tmp_path / "asked.npz")
    assert call(*run_files, "--known", "keys", "--queries", tmp_path / "asked.npz", "--fail-under", "0.9") == 0
    output = capsys.readouterr().out
    lines = output.splitlines()
    assert lines[0] == "known: 2000 pairs; 15 of them share a row with a seed and are left out"
    assert lines[1].split() == [
        "direction",
        "queries",
        "index",
        "self-recall@1",
        "self-recall@10",
        "overlap@10",
        "nDCG@10",
    ]
    assert [line.split("  ")[0] for line in lines[2:5]] == [
        "translated queries", "translated index", "translated index, your queries",
    ]  # fmt: skip
    assert lines[2].count(" to ") == 4
    assert "texts of the index, not what people ask" in lines[5]
    assert "of these pairs itself" in lines[6]
    for direction in ("translated queries", "translated index", "translated index, your queries"):
        assert f"\n{direction}, worst first" in output
    assert lines[-1].startswith("passed: self-recall@10 of ")


def test_json_has_everything(run_files, tmp_path, words, capsys):
    write_table(tmp_path / "known.tsv", ("x", "y"), [(key, key) for key in [*words[0].keys[:300], "no-such-word"]])
    assert call(*run_files, "--known", tmp_path / "known.tsv", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    expected = rehearse(load(run_files[0]), *words, gold_by_key(*words)[:300], device="cpu")
    assert told["estimate"] is False
    assert told["known"] == {
        "pairs": expected.pairs, "seeds": 300 - expected.pairs, "found": expected.found, "skipped": 1,
    }  # fmt: skip
    assert (
        told["translated_queries"]["metrics"]["self_recall_10"]["low"]
        == expected.translated_queries.metrics.self_recall_10.low
    )
    assert told["translated_index"]["clusters"][0]["keys"] == list(expected.translated_index.clusters[0].keys)
    assert told["given_queries"] is None
    judged = expected.lowest()
    assert told["judged"] == {
        "metric": "self_recall_10", "direction": judged.direction, "value": judged.value, "fail_under": None,
        "passed": None,
    }  # fmt: skip
    assert call(*run_files, "--known", tmp_path / "known.tsv", "--strict") == 2
    assert "no-such-word" in capsys.readouterr().err


def test_fail_under_exits_with_3_below_it(files, broken, tmp_path, capsys):
    assert call(*files, "--known", "keys", "--fail-under", "1") == 0
    broken.save(tmp_path / "broken")
    spaces = files[1:]
    assert call(tmp_path / "broken", *spaces, "--known", "keys") == 0  # nothing was asked for
    assert call(tmp_path / "broken", *spaces, "--known", "keys", "--fail-under", "0.9") == 3
    assert "WARNING self-recall@10 of " in capsys.readouterr().err
    assert (
        call(tmp_path / "broken", *spaces, "--known", "keys", "--fail-under", "0.9", "--metric", "ndcg", "--json") == 3
    )
    judged = json.loads(capsys.readouterr().out)["judged"]
    assert (judged["metric"], judged["passed"]) == ("ndcg", False)
    assert judged["value"] < 0.9


def test_an_estimate_is_called_so(files, turned, tmp_path, capsys):
    assert call(*files, "--fail-under", "0.5") == 0
    output = capsys.readouterr().out
    assert "known: no pairs" in output
    assert "ESTIMATE" in output
    assert "on seeds that it held out" in output
    assert "passed: MRR of " in output
    assert call(*files, "--json", "--fail-under", "0.5", "--metric", "self-recall-1") == 3
    told = json.loads(capsys.readouterr().out)
    assert told["estimate"] is True
    assert told["translated_queries"] is None
    assert told["held_out"]["meaningful"] is True
    assert told["judged"]["value"] is None
    wrong = copy(turned[0])
    wrong.health_ = replace(wrong.health_, searching=replace(wrong.health_.map, verdict="failed"))
    wrong.seed_is_suspect_ = np.arange(60) < 11
    wrong.save(tmp_path / "wrong")
    assert call(tmp_path / "wrong", *files[1:], "--fail-under", "0.1") == 3
    captured = capsys.readouterr()
    assert "held out says nothing" in captured.out
    assert "MRR" not in captured.out  # figures that say nothing are not shown
    assert "there is no value of --metric self-recall-10" in captured.err


def test_what_was_not_measured_is_reported(files, turned, tmp_path, capsys):
    known = [(key, key) for key in turned[1].keys if key not in dict(turned[0].seed_keys_)][:60]
    write_table(tmp_path / "known.tsv", ("x", "y"), known)
    assert call(*files, "--known", tmp_path / "known.tsv", "--queries", files[1], "--fail-under", "0.9") == 0
    captured = capsys.readouterr()
    assert "The translated index was not measured: that needs at least 100 known texts." in captured.out
    assert "--queries: not used" in captured.err
    assert call(*files, "--known", tmp_path / "known.tsv", "--fail-under", "0.9", "--direction", "index") == 3
    assert "no value of --metric self-recall-10 --direction index" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--known", "absent.tsv"], "no such file"),
        (["--known", "keys", "--fail-under", "90"], "expected a number from 0 to 1"),
        (["--known", "keys", "--queries", "absent.npz"], "absent.npz"),
    ],
)
def test_bad_arguments_are_one_line(files, capsys, arguments, message):
    try:
        code = call(*files, *arguments)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_known_by_keys_needs_keys_in_common(files, turned, tmp_path, capsys):
    other = Embeddings([f"other {key}" for key in turned[2].keys], turned[2].vectors)
    write_embeddings(other, tmp_path / "other.npz")
    assert call(files[0], files[1], tmp_path / "other.npz", "--known", "keys") == 2
    assert "known: " in (told := capsys.readouterr().err)
    assert "have no key in common; give known pairs in a file" in told


# -- the page --------------------------------------------------------------------------------------


def test_the_page_has_a_rehearsal_where_it_is_asked_for(files, turned, tmp_path, capsys):
    pytest.importorskip("plotly")
    out = tmp_path / "report.html"
    assert main(["report", *files, "-o", str(out)]) == 0
    assert 'id="rehearsal"' not in out.read_text()
    assert main(["report", *files, "--known", "keys", "-o", str(out), "--overwrite", "--device", "cpu"]) == 0
    assert "known: 360 pairs" in capsys.readouterr().err
    page = out.read_text()
    assert 'href="#rehearsal"' in page
    assert "60 known pairs share a row with a seed" in page
    assert "<td>1.000 <small>1.000 to 1.000</small></td>" in page
    result = rehearse(*turned, gold_by_key(*turned[1:]), device="cpu")
    clusters = [cluster for direction in result.directions.values() for cluster in direction.clusters]
    assert page.count('class="bar"') == len(clusters) > 2
    assert all(f"<bdi>{key}</bdi>" in page for cluster in clusters for key in cluster.keys)


def test_an_estimate_is_called_so_on_the_page(files, turned, tmp_path):
    pytest.importorskip("plotly")
    write_table(tmp_path / "seeds.tsv", ("x", "y"), turned[0].seed_keys_)
    out = tmp_path / "report.html"
    assert main(["report", *files, "--known", str(tmp_path / "seeds.tsv"), "-o", str(out)]) == 0
    page = out.read_text()
    assert "This is an estimate." in page
    assert "on seeds that it held out" in page
    assert "90 % intervals" not in page
