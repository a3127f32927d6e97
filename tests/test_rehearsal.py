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
from kedge.spaces.pairs import write_table
from kedge.tasks import gold_by_key
from kedge.tasks.clusters import cluster_rows
from kedge.tasks.ways import bootstrap_interval

FIGURES = ("own_1", "own_10", "overlap", "ndcg")


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def values(figures):
    return [getattr(figures, name) and getattr(figures, name).estimate for name in FIGURES]


def plain(queries, index, reference_queries, reference_index, own=None):
    """The four figures with all similarities stored, query by query."""
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
    discovery.map_, discovery.map_back_ = rotation, rotation.T.copy()
    return discovery, *spaces


@pytest.fixture
def broken(turned):
    """The same with maps that are nothing of the kind."""
    discovery = copy(turned[0])
    chance = np.random.default_rng(1)
    discovery.map_, discovery.map_back_ = chance.standard_normal((2, 16, 16)).astype(np.float32)
    return discovery


# -- figures ---------------------------------------------------------------------------------------


def test_both_ways_against_the_plain_version(fitted, words, word_seeds):
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
    carried = fitted.translate_back(y.vectors[rows_y])
    expected = plain(fitted.translate(x.vectors[rows_x]), old, old[rows_y], old, rows_y)
    assert values(result.queries_across.figures) == pytest.approx(expected, abs=0.003)
    assert (result.queries_across.queries, result.queries_across.index) == (len(kept), 2000)
    expected = plain(new, carried, new, new, range(len(kept)))
    assert values(result.index_across.figures) == pytest.approx(expected, abs=0.003)
    assert (result.index_across.queries, result.index_across.index) == (len(kept), len(kept))
    expected = plain(unit(queries.vectors), carried, unit(queries.vectors), new)
    assert values(result.given_queries.figures) == pytest.approx(expected, abs=0.003)
    assert (result.given_queries.queries, result.given_queries.index) == (60, len(kept))


def test_a_perfect_map_loses_nothing(turned):
    discovery, x, y = turned
    result = rehearse(discovery, x, y, gold_by_key(x, y), queries=x.take(range(50)), device="cpu")
    for way in (result.queries_across, result.index_across, result.given_queries):
        for figures in (way.figures, *(cluster.figures for cluster in way.clusters)):
            for interval in figures.in_order():
                assert interval is None or (interval.estimate, interval.low, interval.high) == (1, 1, 1)
    assert len(result.ways) == 3
    assert result.judged().value == result.judged("ndcg").value == 1
    assert not result.is_estimate


def test_a_broken_map_loses_nearly_all(broken, turned):
    result = rehearse(broken, *turned[1:], gold_by_key(*turned[1:]), device="cpu")
    assert result.judged("own_1").value < 0.05
    assert result.judged("overlap").value < 0.2


def test_seeds_are_left_out_on_either_side(turned):
    discovery, x, y = turned
    known = [(key, key) for key in x.keys if key not in {"a1", "b1"}]
    known += [("a1", "b1")]  # which is wrong, but touches no seed
    result = rehearse(discovery, x, y, known, device="cpu")
    assert (result.pairs, result.seeds) == (299, 60)
    moved = [("a1", "a0"), ("a6", "a2")]  # each shares one row with a seed
    assert rehearse(discovery, x, y, moved, device="cpu").seeds == 2


def test_pairs_that_the_run_has_learnt_from_are_told(fitted, words, turned):
    x, y = words
    result = rehearse(fitted, x, y, gold_by_key(x, y), device="cpu")
    assert result.found == len(set(fitted.pair_keys_) & {(key, key) for key in x.keys} - set(fitted.seed_keys_))
    (remark,) = result.remarks
    assert f"{result.found} of these pairs the run found itself" in remark
    discovery = copy(turned[0])
    discovery.pair_keys_ = []
    assert rehearse(discovery, *turned[1:], gold_by_key(*turned[1:]), device="cpu").remarks == ()


def test_arrays_do_as_well(turned):
    discovery, x, y = turned
    discovery = copy(discovery)
    discovery.seed_keys_ = [("0", "0")]
    known = gold_by_key(x, y)
    by_rows = rehearse(discovery, x.vectors, torch.from_numpy(y.vectors), known, device="cpu")
    assert by_rows.seeds == int((known == 0).any(axis=1).sum())
    assert by_rows.judged().value == 1


def test_judged_is_the_smallest_of_the_ways_asked_for(fitted, words):
    x, y = words
    result = rehearse(fitted, x, y, gold_by_key(x, y)[:500], queries=x.take(range(100)), device="cpu")
    across, index, given = (way.figures for way in (result.queries_across, result.index_across, result.given_queries))
    assert result.judged("own_1", "queries") == ("own_1", "queries_across", across.own_1.estimate)
    assert result.judged("own_1", "index") == ("own_1", "index_across", index.own_1.estimate)
    assert result.judged("ndcg").value == min(each.ndcg.estimate for each in (across, index, given))
    with pytest.raises(InputError, match="by must be one of own_1, own_10, overlap, ndcg and way .* got 'mrr'"):
        result.judged("mrr")


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
    assert values(other.queries_across.figures) == values(first.queries_across.figures)
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
    for way in (result.queries_across, result.index_across):
        worst, *others = way.clusters
        assert {key[0] for key in worst.keys} == {"b"}
        assert worst.figures.own_1.estimate < 0.1
        assert others
        assert all(cluster.figures.own_1.estimate == 1 for cluster in others if cluster.keys[0][0] != "b")
        assert sum(cluster.queries for cluster in way.clusters) == result.pairs
        assert min(cluster.queries for cluster in way.clusters) >= 25
        kinds = [cluster.figures.ndcg.estimate for cluster in way.clusters]
        assert kinds == sorted(kinds)


def test_few_pairs_make_no_index_and_no_clusters(turned):
    discovery, x, y = turned
    known = [(key, key) for key in x.keys if key not in dict(discovery.seed_keys_)]
    result = rehearse(discovery, x, y, known[:99], queries=x.take(range(30)), device="cpu")
    assert result.index_across is result.given_queries is None
    assert list(result.ways) == ["queries_across"]
    assert result.judged(way="index") is None
    few = rehearse(discovery, x, y, known[:49], device="cpu")
    assert few.queries_across.clusters == ()
    assert few.queries_across.queries == 49


# -- estimates -------------------------------------------------------------------------------------


def test_without_pairs_there_is_an_estimate(fitted, words, word_seeds):
    x, y = words
    others = [(key, key) for key in x.keys if key not in dict(word_seeds)]
    for known in ((), word_seeds, word_seeds + others[:9]):
        result = rehearse(fitted, x, y, known, device="cpu")
        assert result.is_estimate
        assert result.ways == {}
        assert result.seeds == min(len(known), 15)
    scores = fitted.map_scores_
    assert result.held_out.queries_across.own_rank == scores["map"]["own_rank"]
    assert result.held_out.index_across.overlap == scores["map_back"]["overlap"]
    assert "easier than the rest" in result.held_out.caveat
    smaller = min(("queries_across", "map"), ("index_across", "map_back"), key=lambda way: scores[way[1]]["own_rank"])
    assert result.judged() == ("own_rank", smaller[0], scores[smaller[1]]["own_rank"])
    assert result.judged("overlap", "queries").value == scores["map"]["overlap"]
    assert result.judged("own_1") is result.judged("ndcg") is None
    assert not rehearse(fitted, x, y, others[:10], device="cpu").is_estimate


def test_an_estimate_says_what_it_is_worth(turned):
    discovery, x, y = turned
    held_out = rehearse(discovery, x, y, device="cpu").held_out
    assert held_out.telling
    assert held_out.caveat == "Measured by the discovery on seeds that it held out."
    wrong = copy(discovery)
    wrong.health_ = replace(wrong.health_, map=replace(wrong.health_.map, verdict="uncertain"))
    assert rehearse(wrong, x, y, device="cpu").held_out.telling  # seeds vouch for it
    wrong.seed_is_suspect_ = np.arange(60) < 11
    result = rehearse(wrong, x, y, device="cpu")
    assert not result.held_out.telling
    assert "fewer than 50 seeds" in result.held_out.caveat
    assert result.judged() is None
    small = copy(discovery)
    small.map_scores_ = {name: scores | {"own_rank": None} for name, scores in discovery.map_scores_.items()}
    assert "too few pairs to hold some out" in rehearse(small, x, y, device="cpu").held_out.caveat


# -- what is refused -------------------------------------------------------------------------------


def test_bad_input_is_refused_with_what_to_do(turned):
    discovery, x, y = turned
    with pytest.raises(InputError, match="contradict each other: number 1, .'a1', 'a1'., and number 2, .'a1', 'a2'."):
        rehearse(discovery, x, y, [("a1", "a1"), ("a1", "a2")], device="cpu")
    with pytest.raises(InputError, match="known pairs, number 1, .'z', 'a1'.: x .new.npz. has no key 'z'"):
        rehearse(discovery, x, y, [("z", "a1")], device="cpu")
    flat = Embeddings(y.keys, y.vectors[:, :8], "flat.npz")
    with pytest.raises(InputError, match="flat.npz: has 8 dimensions, Y, the old model's, has 16 in this run"):
        rehearse(discovery, x, flat, device="cpu")
    with pytest.raises(InputError, match="flat.npz: has 8 dimensions, X, the new model's, has 16"):
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
    assert lines[1].split() == ["way", "queries", "index", "own@1", "own@10", "overlap@10", "nDCG@10"]
    assert [line.split("  ")[0] for line in lines[2:5]] == [
        "queries across", "index across", "index across, your queries",
    ]  # fmt: skip
    assert lines[2].count(" to ") == 4
    assert "found itself" in lines[5]
    for way in ("queries across", "index across", "index across, your queries"):
        assert f"\n{way}, worst first" in output
    assert lines[-1].startswith("passed: own@10 of ")


def test_json_has_everything(run_files, tmp_path, words, capsys):
    write_table(tmp_path / "known.tsv", ("x", "y"), [(key, key) for key in [*words[0].keys[:300], "no-such-word"]])
    assert call(*run_files, "--known", tmp_path / "known.tsv", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    expected = rehearse(load(run_files[0]), *words, gold_by_key(*words)[:300], device="cpu")
    assert told["estimate"] is False
    assert told["known"] == {
        "pairs": expected.pairs, "seeds": 300 - expected.pairs, "found": expected.found, "skipped": 1,
    }  # fmt: skip
    assert told["queries_across"]["figures"]["own_10"]["low"] == expected.queries_across.figures.own_10.low
    assert told["index_across"]["clusters"][0]["keys"] == list(expected.index_across.clusters[0].keys)
    assert told["given_queries"] is None
    judged = expected.judged()
    assert told["judged"] == {
        "metric": "own_10", "direction": judged.way, "value": judged.value, "fail_under": None, "passed": None,
    }  # fmt: skip
    assert call(*run_files, "--known", tmp_path / "known.tsv", "--strict") == 2
    assert "no-such-word" in capsys.readouterr().err


def test_fail_under_exits_with_3_below_it(files, broken, tmp_path, capsys):
    assert call(*files, "--known", "keys", "--fail-under", "1") == 0
    broken.save(tmp_path / "broken")
    spaces = files[1:]
    assert call(tmp_path / "broken", *spaces, "--known", "keys") == 0  # nothing was asked for
    assert call(tmp_path / "broken", *spaces, "--known", "keys", "--fail-under", "0.9") == 3
    assert "WARNING own@10 of " in capsys.readouterr().err
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
    assert told["queries_across"] is None
    assert told["held_out"]["telling"] is True
    assert told["judged"]["value"] is None
    wrong = copy(turned[0])
    wrong.health_ = replace(wrong.health_, map=replace(wrong.health_.map, verdict="failed"))
    wrong.seed_is_suspect_ = np.arange(60) < 11
    wrong.save(tmp_path / "wrong")
    assert call(tmp_path / "wrong", *files[1:], "--fail-under", "0.1") == 3
    captured = capsys.readouterr()
    assert "held out says nothing" in captured.out
    assert "MRR" not in captured.out  # figures that say nothing are not shown
    assert "there is no value of --metric self-recall-10" in captured.err


def test_what_was_not_measured_is_told(files, turned, tmp_path, capsys):
    known = [(key, key) for key in turned[1].keys if key not in dict(turned[0].seed_keys_)][:60]
    write_table(tmp_path / "known.tsv", ("x", "y"), known)
    assert call(*files, "--known", tmp_path / "known.tsv", "--queries", files[1], "--fail-under", "0.9") == 0
    captured = capsys.readouterr()
    assert "Index across was not measured: 100 known texts are needed" in captured.out
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
    clusters = [cluster for way in result.ways.values() for cluster in way.clusters]
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
