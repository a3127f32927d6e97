"""`kedge.judge` says of anybody's map whether it is right; and the method takes any judge, or anybody's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import kedge
from kedge import InputError
from kedge.geometry import unit
from kedge.judging.judge import Judgement, LabelFreeJudge
from kedge.matching import DEFAULT_BUDGET, Comparison, Match, Problem
from kedge.solving.attempts import solve
from kedge.solving.schedule import Schedule
from kedge.solving.steps import Log

ROWS, DIM = 500, 12


@pytest.fixture(scope="module")
def spaces() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two spaces of which one is the other turned, with noise and in another order, and the matrix that turns it."""
    chance = np.random.default_rng(0)
    x = chance.standard_normal((ROWS, DIM)) * np.geomspace(1, 0.3, DIM)
    turn, _ = np.linalg.qr(chance.standard_normal((DIM, DIM)))
    y = (x @ turn + 0.05 * chance.standard_normal((ROWS, DIM)))[chance.permutation(ROWS)]
    return x.astype(np.float32), y.astype(np.float32), turn.astype(np.float32)


def random_turn(seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((DIM, DIM)))[0].astype(np.float32)


# -- right and wrong maps -------------------------------------------------------------------------


def test_a_right_map_is_ok(spaces):
    x, y, turn = spaces
    judgement = kedge.judge(x, y, turn, device="cpu")
    assert isinstance(judgement, Judgement)
    assert (judgement.verdict, judgement.ok) == ("ok", True)
    assert judgement.score > 0.5
    assert judgement.recognised > 0.3
    assert "recognise their counterpart" in judgement.reason
    assert judgement.advice


@pytest.mark.parametrize("seed", range(3))
def test_a_random_map_is_not(spaces, seed):
    x, y, _ = spaces
    judgement = kedge.judge(x, y, random_turn(seed), device="cpu")
    assert judgement.verdict == "failed"
    assert judgement.score < 0.15
    assert "Give more seeds" in judgement.advice


def test_a_wrong_map_is_not(spaces):
    """One that is right in some directions and wrong in the others, and one that is right but turned inside out."""
    x, y, turn = spaces
    half = turn.copy()
    half[:, ::2] *= -1
    for wrong in (half, turn[::-1].copy()):
        assert not kedge.judge(x, y, wrong, device="cpu").ok


def test_between_unrelated_spaces_no_map_is_right(spaces):
    x = spaces[0]
    noise = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
    best, *_ = np.linalg.lstsq(x, noise, rcond=None)  # what looks best
    assert kedge.judge(x, noise, best.astype(np.float32), device="cpu").verdict == "failed"


def test_a_map_learned_by_heart_is_not_taken_for_a_right_one():
    """Least squares between rows that have nothing to do with each other, almost as many dimensions as rows."""
    chance = np.random.default_rng(0)
    x, y = (chance.standard_normal((120, 60)).astype(np.float32) for _ in range(2))
    best, *_ = np.linalg.lstsq(x, y, rcond=None)
    assert not kedge.judge(x, y, best.astype(np.float32), device="cpu").ok


@pytest.mark.thorough
def test_real_words(words, fitted, word_seeds):
    x, y = words
    for options in ({}, {"seeds": word_seeds}):
        assert kedge.judge(x, y, fitted.translator(), device="cpu", **options).verdict == "ok"
    assert kedge.judge(y, x, fitted.translator(back=True), device="cpu").verdict == "ok"
    wrong, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((300, 100)))
    assert kedge.judge(x, y, wrong, seeds=word_seeds, device="cpu").verdict == "failed"


# -- forms ----------------------------------------------------------------------------------------


def test_a_map_in_any_form_gets_one_judgement(spaces):
    x, y, turn = spaces
    expected = kedge.judge(x, y, turn, device="cpu")
    seen = []

    def function(rows: np.ndarray) -> np.ndarray:
        seen.append(rows.shape)
        return rows @ turn

    for given in (function, turn.tolist(), torch.from_numpy(turn), turn.astype(np.float64)):
        assert kedge.judge(x, y, given, device="cpu") == expected
    assert seen == [(ROWS, DIM)]
    # How long vectors are does not matter.
    longer = kedge.judge(x, y, lambda rows: 7 * (rows @ turn), device="cpu")
    assert (longer.verdict, longer.score) == (expected.verdict, pytest.approx(expected.score, abs=0.02))


def test_a_translator_is_judged(rotated):
    x, y = rotated(n=300)
    discovery = kedge.AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(15)])
    for given in (discovery.translator(), discovery.translator(scale="raw"), discovery.translate):
        assert kedge.judge(x, y, given, device="cpu").ok
    assert kedge.judge(y, x, discovery.translator(back=True), device="cpu").ok


def test_spaces_and_seeds_in_any_form(spaces):
    import pandas as pd

    x, y, turn = spaces
    expected = kedge.judge(x, y, turn, device="cpu")
    frames = [pd.DataFrame(side, index=[f"{name}{row}" for row in range(ROWS)]) for side, name in ((x, "x"), (y, "y"))]
    assert kedge.judge(*frames, turn, device="cpu") == expected
    order = (x @ turn @ y.T).argmax(axis=1)
    seeds = {f"x{row}": f"y{order[row]}" for row in range(3)}
    seeded = kedge.judge(*frames, turn, seeds=seeds, device="cpu")
    assert seeded.verdict == "ok"
    assert seeded.closeness is None  # rows that recognise each other are proof enough: no mirror image is possible


def test_the_same_number_gives_the_same_judgement(spaces):
    x, y, turn = spaces
    one, again, other = (kedge.judge(x, y, turn, random_state=state, device="cpu") for state in (3, 3, 4))
    assert one == again
    assert one.verdict == other.verdict == "ok"


def test_of_many_rows_a_sample_is_judged(spaces, monkeypatch):
    from kedge.estimators import judge_map

    x, y, turn = spaces
    monkeypatch.setattr(judge_map, "_MAX_ROWS", 300)
    monkeypatch.setattr(judge_map, "_ROWS", 128)
    order = (x @ turn @ y.T).argmax(axis=1)
    seen = []

    def function(rows: np.ndarray) -> np.ndarray:
        seen.append(len(rows))
        return rows @ turn

    judgement = kedge.judge(x, y, function, seeds=[(row, int(order[row])) for row in range(490, 500)], device="cpu")
    assert max(seen) == 128
    assert 300 <= sum(seen) <= 310  # with the seeds
    assert judgement.recognition.rows_x <= 310


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            np.eye(DIM + 1),
            r"map must be a matrix of shape \(12, 12\), from X's dimensions to Y's, .*; got shape \(13, 13\)",
        ),
        (np.ones(DIM), r"got shape \(12,\)"),
        (
            lambda rows: rows[:, :5],
            r"map must give finite vectors of shape \(500, 12\) for 500 rows of X, got shape \(500, 5\)",
        ),
        (lambda rows: rows[0], r"got shape \(12,\)"),
        (lambda rows: rows * np.nan, "with NaN or infinite values"),
        (np.full((DIM, DIM), np.inf), "with NaN or infinite values"),
    ],
)
def test_what_is_no_map_is_refused(spaces, given, message):
    x, y, _ = spaces
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        kedge.judge(x, y, given, device="cpu")


def test_what_are_no_spaces_or_seeds_is_refused(spaces):
    x, y, turn = spaces
    with pytest.raises(InputError, match="y: all rows point the same way"):
        kedge.judge(x, np.ones_like(y), turn, device="cpu")
    with pytest.raises(InputError, match="x: is None; give an array"):
        kedge.judge(None, y, turn)
    with pytest.raises(InputError, match="500 is no row of x"):
        kedge.judge(x, y, turn, seeds=[(500, 0)])
    with pytest.raises(InputError, match="random_state must be"):
        kedge.judge(x, y, turn, random_state=-1)


def test_of_few_rows_nothing_can_be_said(spaces):
    x, _, turn = spaces
    judgement = kedge.judge(x[:30], x[:30] @ turn, turn, device="cpu")
    assert judgement.verdict == "uncertain"
    assert "Nothing can be said of fewer than 50 rows" in judgement.reason


# -- another judge --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stated:
    """An opinion that was made up."""

    score: float
    ok: bool
    significant: bool
    recognised: float


class Stub:
    """A judge who has made up his mind, and remembers what he was asked."""

    def __init__(self, *opinions: Stated, probable: bool = True) -> None:
        self._opinions, self._probable = list(opinions), probable
        self.judged: list[tuple[Problem, Match]] = []
        self.asked = 0

    def judge(self, problem: Problem, match: Match, rotation: torch.Tensor | None = None) -> Stated:
        self.judged.append((problem, match))
        return self._opinions[min(len(self.judged), len(self._opinions)) - 1]

    def probable(self, compared: Comparison, match: Match) -> torch.Tensor:
        self.asked += 1
        assert len(compared.x) == len(match.partner)
        return match.mutual if self._probable else torch.zeros_like(match.mutual)


GOOD = Stated(0.9, True, True, 0.9)
BAD = Stated(0.05, False, False, 0.5)
FEW = Stated(0.9, True, True, 0.01)
SCHEDULES = (Schedule(anneal_rounds=3), Schedule(anneal_rounds=4), Schedule(anneal_rounds=5))


@pytest.fixture(scope="module")
def problem() -> Problem:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(200, 8, generator=chance) * torch.logspace(0, -0.7, 8)
    turn, _ = torch.linalg.qr(torch.randn(8, 8, generator=chance))
    return Problem(unit(x), unit(x @ turn), torch.arange(12), torch.arange(12), DEFAULT_BUDGET)


def solved(problem: Problem, judge: Stub) -> tuple[list[str], torch.Tensor]:
    """What was tried, and what came of it."""
    log = Log()
    alignment = solve(problem, SCHEDULES, judge, torch.Generator().manual_seed(0), log)
    return list(dict.fromkeys(step.attempt for step in log.history)), alignment.match.partner


def test_a_judge_who_is_content_ends_the_search(problem):
    judge = Stub(GOOD)
    tried, partner = solved(problem, judge)
    assert [attempt.split(":")[0] for attempt in tried] == ["attempt 1 of 3"]
    assert judge.asked > 0
    assert (partner == torch.arange(200)).float().mean() > 0.95


def test_a_judge_who_is_never_content_sees_every_attempt(problem):
    judge = Stub(BAD)
    tried, partner = solved(problem, judge)
    assert [attempt.split(":")[0] for attempt in tried] == [f"attempt {number} of 3" for number in (1, 2, 3)]
    assert len(judge.judged) >= 3
    assert len(partner) == 200


def test_of_several_attempts_the_one_that_the_judge_prefers_is_taken(problem):
    better, worse = Stated(0.1, False, True, 0.5), Stated(0.01, False, True, 0.5)
    judge = Stub(worse, better, worse)
    log = Log()
    alignment = solve(problem, SCHEDULES, judge, torch.Generator().manual_seed(0), log)
    assert alignment.match is judge.judged[1][1]


def test_where_the_judge_sees_hardly_a_row_recognised_it_is_finished_softly(problem):
    def rounds(judge: Stub) -> list[int]:
        log = Log()
        solve(problem, SCHEDULES[:1], judge, torch.Generator().manual_seed(0), log)
        return [step.total for step in log.history if step.stage == "anneal"]

    assert set(rounds(Stub(GOOD))) == {3}
    assert set(rounds(Stub(FEW))) == {3, 60}  # a soft finish is more annealing


def test_pairs_that_the_judge_thinks_improbable_are_learned_from_only_together(problem):
    for probable in (True, False):
        _, partner = solved(problem, Stub(GOOD, probable=probable))
        assert (partner == torch.arange(200)).float().mean() > 0.95


def test_the_label_free_judge_gives_one_match_one_judgement(problem):
    _, partner = solved(problem, Stub(GOOD))
    margin = torch.ones(200)
    match = Match(partner, margin, torch.zeros(200), torch.zeros(200))
    judge = LabelFreeJudge(problem, 0, Log())
    first = judge.judge(problem, match)
    assert judge.judge(problem, match) is first
    assert LabelFreeJudge(problem, 0, Log()).judge(problem, match) == first
    assert first.ok
