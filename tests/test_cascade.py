"""Four strategies for a new model, priced: stay, bridge, cascade, re-encode."""

from __future__ import annotations

import copy
import json
import re

import numpy as np
import pytest
import torch

from kedge import InputError, write_embeddings
from kedge.cli.main import main
from kedge.geometry import unit
from kedge.judging.health import Interval
from kedge.spaces.pairs import write_table
from kedge.tasks.rehearsal import Relevance, cascade
from kedge.tasks.rehearsal.cascade import (
    STRATEGIES,
    PricedStrategy,
    compare_strategies,
    judged_pairs,
    rank_candidates,
    recall_of,
    recommend,
    rehearse_strategies,
)


@pytest.fixture(scope="module")
def spaces() -> dict[str, torch.Tensor]:
    """An index of 500 texts by two models, the new one better, and a bridge that is worse than either."""
    chance = torch.Generator().manual_seed(0)

    def noisy(rows: torch.Tensor, noise: float) -> torch.Tensor:
        return unit(rows + noise * torch.randn(rows.shape, generator=chance))

    meaning = unit(torch.randn(500, 24, generator=chance))
    asked = noisy(meaning[:200], 0.1)
    old_index = noisy(meaning, 0.12)
    return {
        "translated": noisy(asked, 0.25),
        "new_queries": asked,
        "old_queries": noisy(asked, 0.12),
        "old_index": old_index,
        "new_index": noisy(meaning, 0.02),
        "judged": torch.arange(200)[:, None],
    }


def test_candidates_are_ranked_as_a_loop_would(spaces):
    candidates = torch.stack([torch.randperm(500)[:40] for _ in range(200)])
    ranked = rank_candidates(candidates, spaces["new_queries"], spaces["new_index"], k=5)
    for row, query in enumerate(spaces["new_queries"]):
        scores = {int(c): float(query @ spaces["new_index"][c]) for c in candidates[row]}
        assert ranked[row].tolist() == sorted(scores, key=scores.__getitem__, reverse=True)[:5]


def test_a_cascade_over_everything_is_a_new_index(spaces):
    whole = compare_strategies(**spaces, candidates=500)
    found = {each.name: each for each in whole.strategies}
    assert found["cascade"].recall.estimate == found["re-encode"].recall.estimate
    assert found["cascade"].texts_per_query == 500


def test_a_cascade_repairs_what_the_bridge_loses(spaces):
    compared = compare_strategies(**spaces, candidates=100, seconds_per_text=0.01)
    assert [each.name for each in compared.strategies] == list(STRATEGIES)
    found = {each.name: each for each in compared.strategies}
    recall = {name: each.recall.estimate for name, each in found.items()}
    assert recall["bridge"] < recall["stay"] < recall["re-encode"]
    assert recall["bridge"] + 0.05 < recall["cascade"] <= recall["re-encode"]
    assert (found["re-encode"].texts, found["cascade"].texts_per_query) == (500, 100)
    assert found["cascade"].seconds_per_query >= 1.0 > found["bridge"].seconds_per_query
    assert (compared.queries, compared.index, len(compared.table())) == (200, 500, 4)


def test_without_judgements_the_new_model_is_the_judge(spaces):
    given = {name: rows for name, rows in spaces.items() if name not in ("judged", "old_queries")}
    compared = compare_strategies(**given)
    assert [each.name for each in compared.strategies] == ["bridge", "cascade", "re-encode"]
    assert compared.strategies[-1].recall.estimate == 1


def test_recall_counts_what_is_right():
    found = torch.tensor([[3, 1], [5, 6], [7, 8]])
    judged = torch.tensor([[1, -1, -1], [5, 9, -1], [7, 8, 9]])
    np.testing.assert_array_equal(recall_of(found, judged), [1, 0.5, 1])


def priced(**recalls: float) -> tuple[PricedStrategy, ...]:
    return tuple(
        PricedStrategy(
            name := key.replace("_", "-"),
            Interval(value, value, value),
            texts=1000 if name == "re-encode" else 0,
            texts_per_query=100 if name == "cascade" else 0,
            seconds_per_query=0.5 if name == "cascade" else 0.001,
        )
        for key, value in recalls.items()
    )


@pytest.mark.parametrize(
    ("recalls", "max_seconds", "chosen", "said"),
    [
        ({"stay": 0.80, "bridge": 0.70, "cascade": 0.81, "re_encode": 0.815}, None, "stay", "nothing changes"),
        ({"stay": 0.60, "bridge": 0.80, "cascade": 0.81, "re_encode": 0.815}, None, "bridge", "no text is encoded"),
        ({"stay": 0.60, "bridge": 0.70, "cascade": 0.81, "re_encode": 0.82}, None, "cascade", "100 texts are encoded"),
        (
            {"stay": 0.60, "bridge": 0.70, "cascade": 0.81, "re_encode": 0.82},
            0.1,
            "re-encode",
            "cascade would take too",
        ),
        ({"stay": 0.60, "bridge": 0.50, "cascade": 0.70, "re_encode": 0.82}, None, "re-encode", "all 1000 texts"),
    ],
)
def test_the_cheapest_that_is_good_enough_is_recommended(recalls, max_seconds, chosen, said):
    name, reason = recommend(priced(**recalls), max_seconds)
    assert name == chosen
    assert said in reason


def test_the_command_compares_strategies(run_files, words, tmp_path, capsys):
    asked = tmp_path / "asked.npz"
    write_embeddings(words[0].take(range(100)), asked)
    command = ["rehearse", *run_files, "--known", "keys", "--queries", str(asked), "--device", "cpu"]
    assert main([*command, "--cascade", "50", "--seconds-per-text", "0.01", "--max-seconds", "0.1"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^re-encode +1\.000 .* 2000 +0 ", printed, re.MULTILINE)
    assert re.search(r"^cascade .* 0 +50 +0\.50", printed, re.MULTILINE)
    assert re.search(r"^recommended: .*cascade would take too long", printed, re.MULTILINE)
    assert main([*command, "--cascade", "50", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["strategies"]
    recalls = {each["name"]: each["recall"]["estimate"] for each in compared["strategies"]}
    assert recalls["bridge"] < recalls["cascade"] < recalls["re-encode"] == 1


def test_the_command_goes_by_judgements_and_prices_staying(run_files, words, tmp_path, capsys):
    """The old model alone finds what the judgements ask for, so nothing should change."""
    x, y = words
    asked, old, known = x.take(range(120)), y.take(y.rows(x.keys[119::-1])), x.keys[20:]
    files = {name: str(tmp_path / f"{name}.npz") for name in ("asked", "old")}
    write_embeddings(asked, files["asked"])
    write_embeddings(old, files["old"])
    texts = [*asked.keys[:100], *y.keys[:20]]  # of the last queries, the new model finds another word
    write_table(tmp_path / "qrels.tsv", ("query", "doc"), list(zip(asked.keys, texts, strict=True)))
    pairs = [(key, key) for key in known]
    write_table(tmp_path / "known.tsv", ("x", "y"), [*pairs, *pairs[:3]])
    command = ["rehearse", *run_files, "--known", str(tmp_path / "known.tsv"), "--queries", files["asked"]]
    command += ["--relevant", str(tmp_path / "qrels.tsv"), "--old-queries", files["old"], "--cascade", "50"]
    assert main([*command, "--device", "cpu", "--json"]) == 0
    told = capsys.readouterr()
    compared = json.loads(told.out)["strategies"]
    judged = 80 + len(set(texts[100:]) & set(known))
    recalls = {each["name"]: each["recall"]["estimate"] for each in compared["strategies"]}
    assert list(recalls) == list(STRATEGIES)
    assert recalls["stay"] == pytest.approx(recalls["re-encode"], abs=0.05)
    assert recalls["bridge"] <= recalls["re-encode"] < 1
    assert (compared["judged"], compared["queries"], compared["index"]) == (True, judged, len(known))
    assert f"--cascade: {120 - judged} of 120 queries are left out, which have no relevant text among" in told.err
    assert main([*command, "--device", "cpu"]) == 0
    assert f"strategies, by the judgements: {judged} queries" in capsys.readouterr().out


def test_judgements_are_about_pairs():
    pairs = np.stack([np.arange(30), np.arange(39, 9, -1)], axis=1)  # pair p holds row 39 - p of y
    queries = np.repeat(np.arange(12), 2)
    rows = np.r_[np.arange(22) + 9, 99, 98]  # row 9 is in no pair, nor is what query 11 should find
    relevance = Relevance(queries, rows, np.ones(24, np.int64), {})
    asked, judged = judged_pairs(relevance, pairs)
    assert asked.tolist() == list(range(11))
    assert judged.tolist() == [[29, -1], *([30 - 2 * query, 29 - 2 * query] for query in range(1, 11))]
    with pytest.raises(InputError, match="relevant: 9 queries have a relevant text among the 16 known pairs"):
        judged_pairs(relevance, pairs[14:])


def test_the_command_needs_queries(run_files, capsys):
    assert main(["rehearse", *run_files, "--known", "keys", "--cascade", "50"]) == 2
    assert "give --queries too" in capsys.readouterr().err


def test_judgements_and_old_queries(fitted, words):
    x, y = words
    pairs = np.stack([np.arange(len(x)), y.rows(x.keys)], axis=1)
    asked = np.arange(100)
    compared = rehearse_strategies(
        fitted,
        x,
        y,
        pairs,
        x.take(asked),
        old_queries=y.take(y.rows([x.keys[row] for row in asked])),
        judged=asked[:, None],
        device="cpu",
    )
    recalls = {each.name: each.recall.estimate for each in compared.strategies}
    assert recalls["stay"] == recalls["re-encode"] == 1
    assert compared.recommended == "stay"
    with pytest.raises(InputError, match="at least 100 known texts, got 50"):
        rehearse_strategies(fitted, x, y, pairs[:50], x.take(asked))


def test_queries_are_translated_as_such_where_the_run_has_some(fitted, words):
    x, y = words
    pairs = np.stack([np.arange(len(x)), y.rows(x.keys)], axis=1)
    discovery, kinds = copy.copy(fitted), []
    discovery.translate = lambda vectors, kind="text": kinds.append(kind) or fitted.translate(vectors)
    for queries in (None, object()):
        discovery.queries_ = queries
        rehearse_strategies(discovery, x, y, pairs, x.take(range(20)), device="cpu")
    assert kinds == ["text", "query"]


def test_the_first_search_does_not_pay_for_warming_up(spaces, monkeypatch):
    """By a clock that only searches move on, the first of all by far the most."""
    now, slow, search = [0.0], iter([100.0]), cascade._nearest

    def nearest(*arguments):
        now[0] += next(slow, 0.001)
        return search(*arguments)

    monkeypatch.setattr(cascade, "_nearest", nearest)
    monkeypatch.setattr(cascade.time, "perf_counter", lambda: now[0])
    compared = compare_strategies(**spaces)
    assert [each.seconds_per_query for each in compared.strategies] == pytest.approx([0.001 / 200] * 4)


def test_what_cannot_be_compared_is_refused(spaces):
    with pytest.raises(InputError, match="candidates must be at least 10"):
        compare_strategies(**spaces, candidates=5)
    with pytest.raises(InputError, match="500 and 499 texts"):
        compare_strategies(**spaces | {"new_index": spaces["new_index"][1:]})
