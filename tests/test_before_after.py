"""`benchmarks/before_after.py`: what counts as the same answer, and fits by two checkouts."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import rotated_spaces

import before_after
from before_after import Answer, Case, compare, draw, fit, largest_difference, list_cases, main
from kedge import Embeddings, write_embeddings
from paper.pairs_of_spaces import SpacePair

ROOT = Path(__file__).parents[1]
QUERIES = 20

# A kedge of some time ago, as far as the comparison needs one: other verdicts, another method for the way back.
EARLIER_KEDGE = """
from types import SimpleNamespace
import numpy as np

class Embeddings:
    def __init__(self, keys, vectors):
        self.keys, self.vectors = keys, vectors

class AnchorDiscovery:
    def __init__(self, random_state, device):
        assert (random_state, device) == (3, "cpu")
    def fit(self, x, y, seeds):
        self.pairs_ = np.concatenate([seeds, (seeds + 1) % len(y.keys)])  # the seeds too, as some time ago
        self.pair_keys_ = [(x.keys[a], y.keys[b]) for a, b in self.pairs_.tolist()]
        self.pair_confidence_ = np.full(len(self.pairs_), 0.5, dtype=np.float32)
        self.match_, self.confidence_ = np.zeros(len(x.keys), dtype=np.int64), np.zeros(len(x.keys), dtype=np.float32)
        right, wrong = SimpleNamespace(verdict="right", score=0.9), SimpleNamespace(verdict="not right", score=0.1)
        self.health_ = SimpleNamespace(map=right, pairs=wrong)
    def translate(self, vectors):
        return vectors + 1
    def translate_back(self, vectors):
        return vectors - 1
"""


@pytest.fixture
def pair(monkeypatch) -> SpacePair:
    """Two small spaces with the same 600 things."""
    monkeypatch.setattr(before_after, "QUERIES", QUERIES)
    keys = [f"word {row}" for row in range(600)]
    x, y = rotated_spaces(n=600, dim=12, noise=0.05)
    return SpacePair("made up", Embeddings(keys, x), Embeddings(keys, y), "X", "Y")


@pytest.fixture
def answer() -> Answer:
    """Some answer."""
    chance = np.random.default_rng(0)
    return Answer(
        pairs={("a", "b"): 0.9, ("c", "d"): 0.8},
        match=np.arange(5),
        confidence=chance.random(5, dtype=np.float32),
        forth=chance.random((4, 3), dtype=np.float32),
        back=chance.random((4, 2), dtype=np.float32),
        verdicts={"map": "ok", "pairs": "uncertain"},
        scores={"map": 0.9, "pairs": 0.5},
        seconds=2.0,
    )


def moved(array: np.ndarray, by: float) -> np.ndarray:
    """With another number in its first place."""
    changed = array.copy()
    changed.flat[0] += by
    return changed


def test_an_answer_is_the_same_as_itself(answer):
    compared = compare(answer, replace(answer, seconds=3.0))
    assert compared.same(0.0)
    assert (compared.pairs_before, compared.pairs_after, compared.pairs_in_one) == (2, 2, 0)
    assert (compared.seconds_before, compared.seconds_after) == (2.0, 3.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: {"pairs": answer.pairs | {("e", "f"): 0.7}},
        lambda answer: {"pairs": {("a", "b"): 0.9}},
        lambda answer: {"pairs": answer.pairs | {("a", "b"): 0.9001}},
        lambda answer: {"match": moved(answer.match, 1)},
        lambda answer: {"confidence": moved(answer.confidence, 1e-4)},
        lambda answer: {"confidence": answer.confidence[1:]},
        lambda answer: {"forth": moved(answer.forth, 1e-4)},
        lambda answer: {"back": moved(answer.back, -1e-4)},
        lambda answer: {"back": moved(answer.back, np.nan)},
        lambda answer: {"verdicts": answer.verdicts | {"pairs": "ok"}},
        lambda answer: {"scores": answer.scores | {"map": 0.8999}},
    ],
)
def test_every_difference_counts(answer, change):
    changed = replace(answer, **change(answer))
    assert not compare(answer, changed).same(1e-5)
    assert not compare(changed, answer).same(1e-5)


def test_small_differences_are_tolerated(answer):
    changed = replace(answer, forth=moved(answer.forth, 5e-6), scores=answer.scores | {"map": 0.900001})
    assert compare(answer, changed).same(1e-5)
    assert not compare(answer, changed).same(1e-6)
    missing = np.array([np.nan, 1.0], dtype=np.float32)
    assert largest_difference(missing, missing) == 0.0


def test_the_grid():
    cases = list_cases(before_after.PAIRS, quick=False, rows=None, random_state=0)
    assert len(set(cases)) == 24
    assert {case.pair for case in cases} == {"easy", "medium", "vit", "texts"}
    quick = list_cases(["easy", "vit"], quick=True, rows=300, random_state=1)
    assert [(case.pair, case.rows, case.random_state) for case in quick] == [("easy", 300, 1), ("vit", 300, 1)]


@pytest.mark.parametrize(("share", "seeds", "common"), [(1.0, 15, 200), (0.5, 0, 100), (0.0, 15, 15), (0.0, 0, 0)])
def test_spaces_share_what_they_should(pair, share, seeds, common):
    spaces = draw(pair, Case("made up", seeds, share, 200))
    keys_x, keys_y = spaces["keys_x"].tolist(), spaces["keys_y"].tolist()
    assert len(keys_x) == len(keys_y) == 200
    assert len(set(keys_x) & set(keys_y)) == common
    assert [keys_x[a] for a, _ in spaces["seeds"]] == [keys_y[b] for _, b in spaces["seeds"]]
    assert len(spaces["seeds"]) == seeds
    seen = {tuple(row) for row in spaces["x"].tolist()}
    assert not seen & {tuple(row) for row in spaces["queries_x"].tolist()}
    assert len(spaces["queries_y"]) == QUERIES


def test_this_checkout_agrees_with_itself(pair, tmp_path):
    spaces = draw(pair, Case("made up", 15, 1.0, 200))
    first, second = (fit(ROOT, spaces, 1, tmp_path) for _ in range(2))
    compared = compare(first, second)
    assert compared.same(0.0), compared
    assert compared.pairs_before > 150
    assert first.forth.shape == first.back.shape == (QUERIES, 12)
    assert set(first.verdicts.values()) <= {"ok", "uncertain", "failed"}


def test_a_checkout_with_earlier_names(pair, tmp_path):
    checkout = tmp_path / "earlier"
    (checkout / "src" / "kedge").mkdir(parents=True)
    (checkout / "src" / "kedge" / "__init__.py").write_text(EARLIER_KEDGE)
    spaces = draw(pair, Case("made up", 5, 0.0, 200, random_state=3))
    answer = fit(checkout, spaces, 1, tmp_path)
    assert answer.verdicts == {"map": "ok", "pairs": "failed"}
    assert set(answer.pairs.values()) == {0.5}
    np.testing.assert_array_equal(answer.forth, spaces["queries_x"] + 1)
    np.testing.assert_array_equal(answer.back, spaces["queries_y"] - 1)


def test_a_fit_that_fails_is_shown(pair, tmp_path):
    (tmp_path / "src" / "kedge").mkdir(parents=True)
    (tmp_path / "src" / "kedge" / "__init__.py").write_text("raise RuntimeError('broken checkout')")
    with pytest.raises(SystemExit, match="broken checkout"):
        fit(tmp_path, draw(pair, Case("made up", 5, 1.0, 200)), 1, tmp_path)


def test_the_command(pair, answer, tmp_path, capsys, monkeypatch):
    (tmp_path / "images").mkdir()
    write_embeddings(pair.x, tmp_path / "images" / "cifar10-vit-a-128.npz")
    write_embeddings(pair.y, tmp_path / "images" / "cifar10-vit-b-128.npz")
    asked = []
    answers = iter([answer, answer, answer, replace(answer, forth=moved(answer.forth, 1e-4))])
    monkeypatch.setattr(before_after, "fit", lambda checkout, *_: asked.append(checkout) or next(answers))
    before = tmp_path / "before"
    (before / "src" / "kedge").mkdir(parents=True)
    (before / "src" / "kedge" / "__init__.py").touch()
    command = ["before_after.py", "--before", str(before), "--data", str(tmp_path), "--pairs", "vit", "--quick"]
    command += ["--rows", "200", "--json", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", command)
    assert main() == 0
    assert asked == [before, ROOT]
    assert "1 of 1 cases have the same answers" in capsys.readouterr().out
    (written,) = json.loads((tmp_path / "out.json").read_text())
    assert (written["pair"], written["same"], written["forth"]) == ("vit", True, 0.0)
    assert main() == 1
    shown = capsys.readouterr().out
    assert "DIFFERENT" in shown
    assert "0 of 1 cases" in shown
    monkeypatch.setattr(sys, "argv", [*command, "--before", str(tmp_path)])
    with pytest.raises(SystemExit, match="no checkout of kedge"):
        main()
