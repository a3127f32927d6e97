"""Translations with the probability that they are acceptable: the numerics, the table and the commands."""

from __future__ import annotations

import json
import pickle
import shutil
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import kedge
from kedge import AnchorDiscovery, Embeddings, Schedule, load, read_pairs
from kedge.cli.main import main
from kedge.errors import InputError
from kedge.judging.acceptability import KnownRows, answer_lexicon, judge_by_unseen, learn_sharpness, trust_in
from kedge.judging.health import Answer, Health
from kedge.matching import CandidateComparison, ExactComparison, find_candidates
from kedge.spaces.pairs import read_table
from kedge.tasks import calibration_error, make_lexicon, reliability

OK_MAP = Answer(1.0, "ok", "It is.", "Use it.")
NOTHING = KnownRows(torch.empty(0, 32), torch.empty(0, 32, dtype=torch.bool))


def made_up(sharpness: float, rows: int = 2000, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of the best 32 of 300 candidates per row, best first, and which of them is right, drawn by the law."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(rows, 300, generator=generator).log().neg()
    ranked = values.topk(32, dim=1).values
    right = (sharpness * ranked).softmax(dim=1).multinomial(1, generator=generator)
    return ranked, torch.arange(32) == right


def error_of(probabilities: torch.Tensor, right: torch.Tensor) -> float:
    return calibration_error(reliability(probabilities.flatten().numpy(), right.flatten().numpy()))


@pytest.mark.parametrize("sharpness", [0.7, 1.0, 2.0])
def test_known_pairs_calibrate(sharpness):
    ranked, right = made_up(sharpness)
    learned = {
        known: learn_sharpness(ranked, 0.0, 1.0, KnownRows(ranked[:known], right[:known]), 300)
        for known in (0, 60, 1000)
    }
    errors = {known: error_of(each.probabilities(ranked)[1000:, 0], right[1000:, 0]) for known, each in learned.items()}
    assert learned[1000].mean == pytest.approx(sharpness, rel=0.15)
    assert errors[1000] < 0.04
    assert errors[60] < max(0.08, errors[0])
    for each in learned.values():
        assert each.weights.sum() == pytest.approx(1)
        assert (each.probabilities(ranked).diff(dim=1) <= 1e-6).all()


def test_recognition_counts_where_it_asks_for_more():
    ranked, right = made_up(3.0)
    share = float(right[:, 0].float().mean())
    without, with_it = (learn_sharpness(ranked, recognised, 1.0, NOTHING, 300) for recognised in (0.0, share))
    assert with_it.mean > without.mean
    assert with_it.mean == pytest.approx(3.0, rel=0.25)


def test_rows_that_y_may_lack_are_less_probable():
    ranked, _ = made_up(0.5)
    complete, partial = (learn_sharpness(ranked, 0.3, overlap, NOTHING, 2001) for overlap in (1.0, 0.5))
    assert complete.odds == 0
    assert partial.odds == 1
    assert (partial.probabilities(ranked)[:, 0] < complete.probabilities(ranked)[:, 0]).all()


def test_candidates_that_are_missing_have_no_probability():
    ranked, _ = made_up(0.5, rows=200)
    ranked[:, 20:] = -torch.inf
    probabilities = learn_sharpness(ranked, 0.0, 0.5, NOTHING, 2001).probabilities(ranked)
    assert (probabilities[:, 20:] == 0).all()
    assert probabilities.isfinite().all()


def test_the_lexicon_has_a_verdict_of_its_own():
    probabilities = torch.tensor([[0.9, 0.1], [0.7, 0.2], [0.1, 0.1]])
    known = KnownRows(torch.zeros(2, 2), torch.tensor([[True, False], [False, True]]))
    answer = answer_lexicon(probabilities, known, OK_MAP, 0.5)
    assert answer.verdict == "ok"
    assert "2 rows have one that is at least 50% probable; of 2 known pairs, held out in turn, 1 come first" in (
        answer.reason
    )
    failed = Answer(0.05, "failed", "It is not.", "Give seeds.")
    assert trust_in(failed) == trust_in(replace(failed, score=0.24)) == 0  # as a map judged by known pairs may be
    assert answer.basis == "2 known pairs, held out in turn"
    assert answer_lexicon(probabilities, NOTHING, OK_MAP, 0.5).basis == "how far first candidates lead"


@pytest.mark.parametrize(("verdict", "score"), [("failed", 0.05), ("uncertain", 0.15), ("uncertain", 0.0)])
def test_of_a_map_that_is_not_trusted_no_translation_is_assessed(verdict, score):
    """Under a map that was uncertain, it said that 0 % of the translations are acceptable, as if that were known."""
    answer = answer_lexicon(torch.zeros(3, 2), NOTHING, Answer(score, verdict, "It is not.", "Give seeds."), 0.5)
    assert (answer.verdict, answer.advice) == (verdict, "Give seeds.")
    assert answer.reason == f"Translations cannot be assessed, because the map is {verdict}. It is not."


def test_a_lexicon_is_judged_by_what_it_lists():
    """It was OK with nothing listed, and failed where a few of many rows have a translation that is probable."""
    few = torch.full((100, 2), 0.05)
    few[:5, 0] = 0.9
    assert answer_lexicon(few, NOTHING, OK_MAP, 0.5).verdict == "ok"
    assert answer_lexicon(few, NOTHING, OK_MAP, 0.0).verdict == "failed"
    for share, verdict in ((0.4, "uncertain"), (0.1, "failed")):
        nothing = answer_lexicon(torch.full((100, 2), share), NOTHING, OK_MAP, 0.5)
        assert nothing.verdict == verdict
        assert "0 rows have one that is at least 50% probable" in nothing.reason


def test_a_lexicon_is_no_better_than_its_map():
    """Where only known pairs showed that the map is right, 74 translations were listed, and .15 of them right."""
    probable = torch.full((100, 2), 0.66)
    answer = answer_lexicon(probable, NOTHING, replace(OK_MAP, verdict="uncertain", score=0.6), 0.5)
    assert (answer.verdict, answer.score) == ("uncertain", 0.6)


def test_known_pairs_that_are_no_seeds_say_whether_the_map_is_right():
    failed = Answer(0.05, "failed", "It is not.", "Give seeds.")
    ranked, right = torch.zeros(30, 2), torch.zeros(30, 2, dtype=torch.bool)
    right[:12, 0] = True
    assert trust_in(judge_by_unseen(failed, KnownRows(ranked, right))) == 1
    assert judge_by_unseen(failed, KnownRows(ranked[:19], right[:19])) is failed
    wrong = judge_by_unseen(OK_MAP, KnownRows(ranked, torch.zeros_like(right)))
    assert (wrong.verdict, trust_in(wrong)) == ("failed", 0)


def test_seeds_cannot_make_a_lexicon_of_noise(rotated):
    """What is found in noise leans towards the seeds: read without themselves, nearly all of them come first."""
    chance = np.random.default_rng(0)
    x, y = (chance.standard_normal((300, 48)) for _ in range(2))
    discovery = AnchorDiscovery(n_anchors=20, schedule=Schedule(), device="cpu").fit(x, y, [(i, i) for i in range(20)])
    lexicon = make_lexicon(discovery, x, y)
    assert discovery.health_.judged.verdict == lexicon.answer.verdict == "failed"
    assert lexicon.translations.known_first > 6
    assert not list(lexicon.entries())


def test_a_lexicon_asks_whether_the_map_is_right_and_not_how_searches_do(fitted, words):
    """With plain cosine at .24, pairs were ok, and nothing could be said of translations."""
    poor = copy(fitted)
    searching = Answer(0.24, "failed", "Poor by cosine.", "Do not search.")
    poor.health_ = replace(fitted.health_, searching=searching)
    assert make_lexicon(poor, *words).answer.verdict == "ok"
    poor.health_ = replace(poor.health_, judged=None)  # a run that was written before that was kept
    assert poor.health_.judgement == searching
    assert make_lexicon(poor, *words).answer.verdict == "failed"


def test_runs_written_before_the_map_was_judged_apart_still_load(run_files, tmp_path):
    folder = shutil.copytree(run_files[0], tmp_path / "run")
    stored = json.loads((folder / "run.json").read_text())
    assert stored["health"]["judged"]["verdict"] == "ok"
    assert Health.from_dict(stored["health"]).judged.score > 0.3
    del stored["health"]["judged"]
    assert Health.from_dict(stored["health"]).judged is None


def test_known_pairs_that_are_not_even_candidates_count_against_all():
    ranked, right = made_up(0.5, rows=40)
    assert KnownRows(ranked, right).trust == 1
    assert KnownRows(ranked, torch.zeros_like(right)).trust == 0
    assert KnownRows(ranked[:5], torch.zeros_like(right[:5])).trust == 1  # five say little


def test_ranked_gives_the_best_partners_in_order():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(50, 8, generator=generator), torch.randn(40, 8, generator=generator)
    compared = ExactComparison(x, y)
    match = compared.match()
    values, rows = compared.ranked(match, 5)
    similarity = x @ y.T - match.row_hubness[:, None] - match.column_hubness
    expected = similarity.topk(5, dim=1)
    assert torch.equal(rows, expected.indices)
    torch.testing.assert_close(values, expected.values)
    assert torch.equal(rows[:, 0], match.partner)
    among = CandidateComparison(x, y, find_candidates(x, y))
    assert torch.equal(among.ranked(among.match(), 3)[1][:, 0], among.match().partner)


def test_a_lexicon_of_real_words_is_calibrated(fitted, words):
    lexicon = make_lexicon(fitted, *words, top=5, min_confidence=0)
    entries = list(lexicon.entries())
    right = np.array([entry.source == entry.target for entry in entries])
    probability = np.array([entry.probability for entry in entries], dtype=np.float32)
    assert calibration_error(reliability(probability, right)) < 0.03
    first = np.array([entry.rank == 1 for entry in entries])
    assert right[first].mean() > 0.9
    assert len(entries) == 5 * 2000
    assert lexicon.answer.verdict == "ok"
    assert lexicon.translations.known == 15
    sure = list(lexicon.entries(0.9))
    assert 0 < len(sure) < first.sum()
    assert all(entry.probability >= 0.9 for entry in sure)


def test_a_row_with_several_right_answers_has_translations_and_no_pair():
    """Each of 300 rows of X has three counterparts in Y, of which a seed names one."""
    chance = np.random.default_rng(0)
    scales = np.geomspace(1, 0.3, 24)
    x = chance.standard_normal((300, 24)) * scales
    meaning = chance.permutation(np.repeat(np.arange(300), 3))
    turn, _ = np.linalg.qr(chance.standard_normal((24, 24)))
    y = (x[meaning] + 0.3 * chance.standard_normal((900, 24)) * scales) @ turn
    seeds = [(row, int(np.flatnonzero(meaning == row)[0])) for row in range(20)]
    discovery = AnchorDiscovery(n_anchors=20, schedule=Schedule(), device="cpu").fit(x, y, seeds)
    health = discovery.health_
    assert health.searching.verdict == "ok"
    found = discovery.pair_confidence_[discovery.pairs_[:, 0] >= len(seeds)]
    if len(found):  # with so few rows, rounding decides on which side of the limit they are; it is never far above
        assert found.mean() < 0.7
    else:  # so that the two answers do not contradict
        assert "several rows of Y fit equally well" in health.pairs.reason
    assert "contradicted" not in discovery.seed_opinion_
    lexicon = make_lexicon(discovery, x, y, top=3, min_confidence=0)
    assert lexicon.answer.verdict == "ok"
    assert (meaning[lexicon.translations.rows] == np.arange(300)[:, None]).mean() > 0.95


def test_lexicon_frame(fitted, words, tmp_path):
    pytest.importorskip("pandas", reason="needs pandas")
    frame = fitted.lexicon_frame()
    assert frame.columns.tolist() == ["source", "target", "probability", "rank"]
    assert (frame["probability"] >= 0.5).all()
    assert frame.groupby("source")["rank"].max().max() <= 3
    fitted.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    again = loaded.lexicon_frame(*words)
    assert again["target"].tolist() == frame["target"].tolist()
    with pytest.raises(InputError, match="x and y: a run that was loaded does not hold the vectors"):
        loaded.lexicon_frame()
    with pytest.raises(InputError, match="top must be from 1 to 32, got 0"):
        loaded.lexicon_frame(*words, top=0)
    with pytest.raises(InputError, match="min_confidence must be from 0 to 1"):
        loaded.lexicon_frame(*words, min_confidence=2)
    assert "_spaces" not in pickle.loads(pickle.dumps(fitted)).__dict__


def test_lexicon_command(run_files, tmp_path, capsys):
    out = tmp_path / "lexicon.tsv"
    assert main(["lexicon", *run_files, "-o", str(out), "--top", "2", "--min-confidence", "0.2"]) == 0
    printed = capsys.readouterr().out
    table = read_table(out)
    assert list(table[0]) == ["source", "target", "probability", "rank"]
    assert {row["rank"] for row in table} <= {"1", "2"}
    assert printed.startswith("Lexicon: OK")
    assert f"{len(table)} translations of " in printed
    assert "[by 15 known pairs, held out in turn]" in printed
    assert "List what is probable enough for you with --min-confidence" in printed
    assert main(["lexicon", *run_files, "-o", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["lexicon", *run_files, "-o", str(out), "--overwrite", "--top", "1", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    table = read_table(out)
    assert described["translations"] == described["rows"] == len(table)
    assert described["lexicon"]["verdict"] == "ok"
    assert all(float(row["probability"]) >= 0.5 for row in table)


def test_a_lexicon_that_is_not_ok_is_written_and_exits_with_three(small_files, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "lexicon.tsv"
    assert main(["discover", *small_files[:2], "--seeds", small_files[2], "-o", str(run), "--anchors", "20"]) == 0
    failed = load(run)
    answer = Answer(0.05, "failed", "It is not.", "Give more seeds.")
    failed.health_ = replace(failed.health_, searching=answer, judged=answer)
    failed.save(run, overwrite=True)
    capsys.readouterr()
    command = ["lexicon", str(run), *small_files[:2], "-o", str(out)]
    assert main(command) == 3
    assert read_table(out) == []
    captured = capsys.readouterr()
    assert captured.out.startswith("Lexicon: FAILED")
    assert "Translations cannot be assessed, because the map is failed. It is not." in captured.out
    assert "WARNING the verdict for a lexicon is failed: do not rely on it. Give more seeds." in captured.err
    assert main([*command, "--overwrite", "--ignore-verdict"]) == 0
    assert main([*command, "--overwrite", "--json"]) == 3


def test_a_lexicon_is_a_pair_file(tmp_path, rotated):
    x, y = (Embeddings([f"r{row}" for row in range(300)], vectors) for vectors in rotated())
    path = tmp_path / "lexicon.tsv"
    path.write_text("source\ttarget\tprobability\trank\nr1\tr1\t0.9\t1\nr2\tr5\t0.8\t1\n")
    assert read_pairs(path, x, y).tolist() == [[1, 1], [2, 5]]


def test_known_pairs_of_a_file_calibrate(run_files, tmp_path, capsys):
    known = tmp_path / "known.tsv"
    known.write_text("x\ty\nwater\twater\nno-such-word\twater\nmusic\tmusic\n")
    out = tmp_path / "lexicon.tsv"
    assert main(["lexicon", *run_files, "-o", str(out), "--known", str(known), "--json"]) == 0
    captured = capsys.readouterr()
    assert "known: 2 pairs (1 line skipped" in captured.err
    assert json.loads(captured.out)["known"] in (16, 17)


def test_any_confidence_without_a_new_discovery(rotated, tmp_path, capsys):
    x, y = rotated(noise=0.4)
    seeds = [(row, row) for row in range(15)]
    listed = {
        minimum: AnchorDiscovery(n_anchors=20, min_confidence=minimum, device="cpu").fit(x, y, seeds)
        for minimum in (0.0, 0.9)
    }
    again = listed[0.9].with_min_confidence(0.0)
    assert len(listed[0.9].pairs_) < len(listed[0.0].pairs_)
    assert set(map(tuple, again.pairs_.tolist())) == set(map(tuple, listed[0.0].pairs_.tolist()))
    assert set(again.x_.unmatched_keys) == set(listed[0.0].x_.unmatched_keys)
    assert set(again.y_.unmatched_keys) == set(listed[0.0].y_.unmatched_keys)
    assert listed[0.0].with_min_confidence(0.9).pairs_.tolist() == listed[0.9].pairs_.tolist()
    assert (again.pair_confidence_[1:] <= again.pair_confidence_[:-1]).all()
    listed[0.9].save(tmp_path / "run")
    out = tmp_path / "pairs.tsv"
    assert main(["pairs", str(tmp_path / "run"), "-o", str(out), "--min-confidence", "0"]) == 0
    assert capsys.readouterr().out.startswith(f"{len(again.pairs_)} pairs (about ")
    assert [(row["x"], row["y"]) for row in read_table(out)] == [(str(a), str(b)) for a, b in again.pair_keys_]
    with pytest.raises(InputError, match="min_confidence must be from 0 to 1, got 7"):
        again.with_min_confidence(7)


def test_answers_in_notebooks(fitted):
    assert "<b>ok</b>" in fitted.health_.map._repr_html_()
    assert "[by recognition; " in fitted.health_.map._repr_html_()
    spaces = (np.eye(3), np.eye(3))
    assert "<b>uncertain</b> (0.00): Nothing can be said" in kedge.judge(*spaces, np.eye(3))._repr_html_()
    page = fitted._repr_html_()
    assert "<th>Searching</th>" in page
    assert "<th>Pairs</th>" in page
    assert f"{len(fitted.pairs_)} pairs" in page
    assert "Not fitted yet" in AnchorDiscovery()._repr_html_()
    odd = Answer(0.5, "ok", "a < b", "<script>")
    assert "<script>" not in odd._repr_html_()
