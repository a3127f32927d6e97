"""`kedge compare`: several runs side by side, what they agree upon, and which to trust."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from kedge import AnchorDiscovery, Embeddings
from kedge.cli.main import main
from kedge.errors import InputError
from kedge.report import write_comparison
from kedge.tasks import Truth, compare_runs, keys_of_runs
from kedge.tasks.run_comparison import PairAgreement


def with_partners_moved(run, count, confidence=None):
    """The same run, but that each of its first pairs has the partner of the next one of them."""
    other = copy(run)
    other.pairs_ = run.pairs_.copy()
    other.pairs_[:count, 1] = np.roll(run.pairs_[:count, 1], -1)
    keys_y = [right for _, right in run.pair_keys_]
    keys_y[:count] = keys_y[1:count] + keys_y[:1]
    other.pair_keys_ = [(left, right) for (left, _), right in zip(run.pair_keys_, keys_y, strict=True)]
    other.match_ = run.match_.copy()
    other.match_[other.pairs_[:, 0]] = other.pairs_[:, 1]
    return other if confidence is None else with_confidence(other, confidence)


def with_confidence(run, confidence):
    """The same run with pairs of this confidence."""
    other = copy(run)
    other.pair_confidence_ = np.full_like(run.pair_confidence_, confidence)
    return other


def without_pairs_after(run, count):
    """The same run with its first pairs alone; the rows of the others have no match."""
    other = copy(run)
    dropped = run.pairs_[count:]
    other.pairs_, other.pair_keys_ = run.pairs_[:count], run.pair_keys_[:count]
    other.pair_confidence_ = run.pair_confidence_[:count]
    unmatched = []
    for side in (0, 1):
        key_of = dict(zip(dropped[:, side].tolist(), (pair[side] for pair in run.pair_keys_[count:]), strict=True))
        unmatched.append([key_of[row] for row in sorted(key_of)])
    return with_unmatched(other, *unmatched)


def with_unmatched(run, keys_x, keys_y):
    """The same run with other keys that have no match."""
    run.x_, run.y_ = replace(run.x_, unmatched_keys=tuple(keys_x)), replace(run.y_, unmatched_keys=tuple(keys_y))
    return run


def judged(run, map_verdict, pairs_verdict):
    """The same run with other answers to "did it work?"."""
    scores = {"ok": 0.9, "uncertain": 0.2, "failed": 0.05}
    other = copy(run)
    answers = {
        name: replace(getattr(run.health_, name), verdict=verdict, score=scores[verdict])
        for name, verdict in (("searching", map_verdict), ("pairs", pairs_verdict))
    }
    other.health_ = replace(run.health_, **answers)
    return other


@pytest.fixture(scope="module")
def run(rotated_small):
    return AnchorDiscovery(n_anchors=20, device="cpu").fit(
        *rotated_small, [(f"r{row}", f"R{row}") for row in range(120, 135)]
    )


@pytest.fixture(scope="module")
def rotated_small():
    """Two spaces of 135 rows, the second the first rotated; its rows are in another order."""
    from conftest import rotated_spaces

    x, y = rotated_spaces(n=135)
    order = np.random.default_rng(1).permutation(135)
    return Embeddings([f"r{row}" for row in range(135)], x), Embeddings([f"R{row}" for row in order], y[order])


def test_all_pairs_are_found_to_begin_with(run):
    assert len(run.pairs_) == 120
    assert (run.health_.map.verdict, run.health_.pairs.verdict) == ("ok", "ok")


def test_what_is_the_same_and_what_contradicts(run):
    moved, few = with_partners_moved(run, 30), without_pairs_after(run, 50)
    compared = compare_runs({"a": run, "b": moved, "c": few})
    assert compared.agreements[0][1] == PairAgreement(90, 30, 0)
    assert compared.agreements[1][0] == PairAgreement(90, 30, 0)
    assert compared.agreements[0][2] == PairAgreement(50, 0, 70)
    # The first thirty pairs of "b" have rows that are in pairs of "c", with others.
    assert compared.agreements[1][2] == PairAgreement(20, 30, 70)
    assert compared.agreements[2][1] == PairAgreement(20, 30, 0)
    assert [round(each.agreement, 3) for each in compared.runs] == [round(140 / 170, 3), round(110 / 170, 3), 0.7]
    assert (compared.agreed, compared.disputed) == (20, 30)
    assert compared.agreed_confidence == pytest.approx(
        np.mean([each.pair_confidence_[30:50] for each in (run, moved, few)]), abs=1e-6
    )


def test_a_row_of_y_with_another_partner_contradicts_too(run):
    """Where (a, b) is a pair of one run, b has another partner in the other, and a has none."""
    one, other = without_pairs_after(run, 1), copy(run)
    other.pair_keys_ = [(run.pair_keys_[5][0], run.pair_keys_[0][1])]
    other.pairs_ = np.array([[run.pairs_[5, 0], run.pairs_[0, 1]]])
    other.pair_confidence_ = run.pair_confidence_[:1]
    unmatched = [key for key in (f"r{row}" for row in range(120)) if key != run.pair_keys_[5][0]]
    with_unmatched(other, unmatched, [right for _, right in run.pair_keys_[1:]])
    compared = compare_runs({"one": one, "other": other})
    assert compared.agreements[0][1] == PairAgreement(0, 1, 0)
    assert compared.disputed == 0  # no row of X has two partners


def test_disagreements_of_which_both_are_sure_come_first(run):
    run = with_confidence(run, 0.9)
    moved = with_partners_moved(run, 30)
    moved.pair_confidence_ = run.pair_confidence_.copy()
    moved.pair_confidence_[:30] = np.linspace(0.5, 0.6, 30)
    compared = compare_runs({"a": run, "b": moved}, examples=4)
    assert [each.key for each in compared.disagreements] == [left for left, _ in run.pair_keys_[29:25:-1]]
    first = compared.disagreements[0]
    assert first.partners[0].key == run.pair_keys_[29][1]
    assert first.partners[1] == (run.pair_keys_[0][1], pytest.approx(0.6))
    assert compared.disputed == 30


def test_the_run_with_most_right_pairs_is_trusted(run):
    run = with_confidence(run, 0.9)
    compared = compare_runs(
        {"few": without_pairs_after(run, 80), "all": run, "unsure": with_partners_moved(run, 2, 0.6)}
    )
    assert (compared.trust.run, compared.trust.what) == (1, "pairs")
    right = round(float(run.pair_confidence_.sum()))
    assert f"about {right} of its 120 pairs are expected to be right" in compared.trust.reason
    assert "no other run that can be trusted has as many" in compared.trust.reason


def test_of_runs_with_as_many_the_one_nearest_to_the_others_is_trusted(run):
    runs = {"odd": with_partners_moved(run, 40), "a": run, "b": with_partners_moved(run, 2)}
    compared = compare_runs(runs)
    assert compared.names[compared.trust.run] != "odd"
    assert "of 3 runs with about as many it agrees best with the others" in compared.trust.reason


def test_two_that_say_they_are_right_and_contradict_each_other_are_not_trusted(run):
    compared = compare_runs({"a": run, "b": with_partners_moved(run, 100)})
    assert (compared.trust.run, compared.trust.what) == (None, None)
    assert "a, b all report that they are ok, but they contradict each other" in compared.trust.reason


def test_one_that_the_others_contradict_is_named(run):
    runs = {"wrong": with_partners_moved(run, 120, 1.0), "a": run, "b": with_partners_moved(run, 2)}
    compared = compare_runs(runs)
    assert compared.names[compared.trust.run] in ("a", "b")
    assert "Do not trust wrong: contradicted by the others." in compared.trust.reason


@pytest.mark.parametrize(
    ("verdicts", "trusted", "message"),
    [
        (
            [("failed", "failed"), ("uncertain", "uncertain")],
            None,
            "No run found a map that is ok; b comes",
        ),
        ([("failed", "failed"), ("ok", "uncertain")], (1, "map"), "no run has pairs that can be trusted"),
        ([("ok", "ok"), ("failed", "failed")], (0, "pairs"), "its map and its pairs are ok"),
    ],
)
def test_what_runs_say_of_themselves_counts(run, verdicts, trusted, message):
    one, other = (judged(each, *verdict) for each, verdict in zip((run, copy(run)), verdicts, strict=True))
    compared = compare_runs({"a": one, "b": other})
    assert compared.trust[:2] == (trusted or (None, None))
    assert message in compared.trust.reason


def test_pairs_count_whatever_searches_do(run):
    """Searches are by plain cosine; pairs that are right were not trusted where these do not do well."""
    poor, other = judged(run, "failed", "ok"), judged(copy(run), "failed", "failed")
    compared = compare_runs({"a": poor, "b": other})
    assert compared.trust[:2] == (0, "pairs")
    assert "its pairs are ok (" in compared.trust.reason
    assert "for searching it is failed" in compared.trust.reason
    poor.health_ = replace(poor.health_, judged=replace(poor.health_.searching, score=0.0))
    assert compare_runs({"a": poor, "b": other}).trust.run is None


def test_the_truth_decides(run):
    wrong, right = with_partners_moved(run, 100), judged(without_pairs_after(run, 60), "uncertain", "uncertain")
    x, y = keys_of_runs([wrong, right])
    truth = Truth(x, y, np.array([(x.row_of[f"r{row}"], y.row_of[f"R{row}"]) for row in range(120)]), complete=True)
    compared = compare_runs({"wrong": wrong, "right": right}, truth=truth)
    assert compared.runs[0].gold == (pytest.approx(20 / 120), pytest.approx(20 / 120))
    assert compared.runs[1].gold == (1, 0.5)
    assert compared.names[compared.trust.run] == "right"
    assert "by the gold pairs, its precision is 100.0% and its recall 50.0%" in compared.trust.reason
    assert "Its own verdict on its pairs is uncertain." in compared.trust.reason
    both_wrong = compare_runs({"wrong": wrong, "worse": with_partners_moved(run, 120)}, truth=truth)
    assert both_wrong.trust.run is None


def test_keys_are_in_the_order_of_the_first_run(run, rotated_small):
    x, y = keys_of_runs([without_pairs_after(run, 50)])
    assert (list(x.keys), list(y.keys)) == (list(rotated_small[0].keys), list(rotated_small[1].keys))


def test_runs_over_other_spaces_are_refused_or_reported(run):
    with pytest.raises(InputError, match="at least two runs are needed"):
        compare_runs({"a": run})
    other = copy(run)
    other.pair_keys_, other.seed_keys_ = (
        [(f"other {left}", right) for left, right in pairs] for pairs in (run.pair_keys_, run.seed_keys_)
    )
    with pytest.raises(InputError, match="b: its X and that of a have no key in common"):
        compare_runs({"a": run, "b": other})
    other.pair_keys_ = [(left if row < 100 else f"other {left}", right)
                        for row, (left, right) in enumerate(run.pair_keys_)]  # fmt: skip
    assert compare_runs({"a": run, "b": other}).remarks == ("X has 135 keys in a and 135 in b; 100 are in both.",)


@pytest.mark.thorough
def test_a_million_pairs_are_compared(run):
    """Nothing here takes the square of the pairs."""
    large = copy(run)
    rows = np.arange(1_000_000)
    large.pairs_ = np.stack([rows, rows], axis=1)
    large.pair_keys_ = [(f"x{row}", f"y{row}") for row in rows]
    large.pair_confidence_ = np.linspace(1, 0.5, len(rows), dtype=np.float32)
    large.seeds_, large.seed_keys_, large.seed_opinion_ = run.seeds_[:0], [], run.seed_opinion_[:0]
    with_unmatched(large, [], [])
    moved = copy(large)
    moved.pair_keys_ = [*large.pair_keys_[:-2], ("x999998", "y999999"), ("x999999", "y999998")]
    compared = compare_runs({"a": large, "b": moved})
    assert (compared.agreed, compared.disputed) == (999_998, 2)
    assert compared.agreements[0][1] == PairAgreement(999_998, 2, 0)


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(run, tmp_path_factory):
    """Three run folders: one, one that differs in two pairs, and one that is not right."""
    path = tmp_path_factory.mktemp("runs")
    runs = {"one": run, "two": with_partners_moved(run, 2), "bad": judged(run, "failed", "failed")}
    timings = {"read_seconds": 0.5, "fit_seconds": 1.0}
    for number, (name, each) in enumerate(runs.items()):
        digest = ("b" if name == "bad" else "a") * 64
        inputs = {side: {"file": f"{side}.npz", "sha256": digest} for side in ("x", "y")}
        saved = copy(each)
        saved.random_state_ = number
        saved.save(path / name, extra={"inputs": inputs, "timings": timings})
    return [str(path / name) for name in ("one", "two", "bad")]


def test_compare_prints_tables_and_which_to_trust(folders, capsys):
    one, _, bad = folders
    assert main(["compare", *folders]) == 0
    out = capsys.readouterr().out
    lines = {line.split("  ")[0]: line for line in reversed(out.splitlines())}
    assert lines["run"].split()[:4] == ["run", "searching", "pairs", "found"]
    assert lines[one].endswith("1.5")
    assert "98.3% of 120" in out
    assert f"X of {bad} was read from another file (x.npz) than X of {one}." in out
    assert "With different partners: 2 rows of X." in out
    assert "different partners, most confident first" in out
    assert f"Trust the pairs of {one}: its map and its pairs are ok" in out


def test_compare_as_json(folders, capsys):
    assert main(["compare", *folders, "--json", "--examples", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {
        "trust", "runs", "between", "agreed", "disputed", "settings", "remarks", "out",
    }  # fmt: skip
    assert result["trust"]["run"] == folders[0]
    assert result["trust"]["for"] == "pairs"
    assert [run["name"] for run in result["runs"]] == folders
    assert result["runs"][0]["searching"]["verdict"] == "ok"
    assert result["runs"][0]["inputs"]["x"]["sha256"] == "a" * 64
    assert result["runs"][0]["gold"] is None
    assert len(result["between"]) == 6
    assert result["between"][0] == {
        "pairs_of": folders[0], "in": folders[1], "same": 118, "contradicted": 2, "unknown": 0,
        "share": pytest.approx(118 / 120),
    }  # fmt: skip
    assert result["disputed"]["rows"] == 2
    assert len(result["disputed"]["examples"]) == 1
    assert result["settings"] == {"random_state": [0, 1, 2]}


def test_compare_with_the_truth(folders, tmp_path, capsys):
    gold = tmp_path / "gold.tsv"
    gold.write_text("x\ty\n" + "".join(f"r{row}\tR{row}\n" for row in range(120)))
    assert main(["compare", folders[1], folders[0], "--gold", str(gold)]) == 0
    out = capsys.readouterr()
    assert "gold: 120 pairs" in out.err
    assert f"Trust the pairs of {folders[0]}: by the gold pairs, its precision is 100.0%" in out.out
    assert "precision  recall" in out.out


def test_compare_says_where_none_can_be_trusted(run, folders, tmp_path, capsys):
    other = judged(run, "uncertain", "failed")
    other.save(tmp_path / "uncertain")
    assert main(["compare", folders[2], str(tmp_path / "uncertain")]) == 3
    assert "No run can be trusted. No run found a map that is ok" in capsys.readouterr().out


def test_compare_refuses(folders, tmp_path, capsys):
    one, two, _ = folders
    assert main(["compare", one]) == 2
    assert "at least two runs are needed" in capsys.readouterr().err
    assert main(["compare", one, two, one + "/"]) == 2
    assert "name each once" in capsys.readouterr().err
    assert main(["compare", one, str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    assert main(["compare", one, two, "-o", str(tmp_path / "page.txt")]) == 2
    assert "give it the suffix .html" in capsys.readouterr().err
    (tmp_path / "page.html").write_text("mine")
    assert main(["compare", one, two, "-o", str(tmp_path / "page.html")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert (tmp_path / "page.html").read_text() == "mine"


def test_the_page_needs_nothing_and_escapes_everything(run, tmp_path):
    pytest.importorskip("jinja2")
    evil = copy(run)
    evil.pair_keys_ = [(run.pair_keys_[0][0], "<script>alert(1)</script>"), *run.pair_keys_[1:]]
    compared = compare_runs({"a & b": run, "<b>": evil})
    write_comparison(tmp_path / "page.html", compared)
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "a &amp; b" in page
    assert "default-src &#39;none&#39;" in page


def test_the_command_line_writes_the_page(folders, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["compare", *folders, "-o", str(page), "--gold", "keys"]) == 2  # X and Y share no key
    assert not page.exists()
    assert main(["compare", *folders, "-o", str(page)]) == 0
    assert f"page: {page}" in capsys.readouterr().out
    text = page.read_text()
    for shown in ("Which of 3 runs to trust?", "Where they differ", "118 same", "was read from another file"):
        assert shown in text
