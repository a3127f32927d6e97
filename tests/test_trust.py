"""How far to trust one translation, and what makes scores of native and translated rows comparable."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kedge
from kedge.cli.main import main
from kedge.models.mixed_scores import measure_offset
from kedge.models.translation_trust import MIN_PAIRS, TrustEvidence, weigh_evidence
from kedge.models.translator import Normaliser, unit_vectors


def half_noisy(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two spaces (n, 24) in two groups that lie apart, and which rows are of the one that the models disagree about."""
    chance = np.random.default_rng(seed)
    hard = chance.random(n) < 0.5
    rows = chance.standard_normal((n, 24)) + np.where(hard, 3.0, -3.0)[:, None] * (np.arange(24) < 3)
    rotation = np.linalg.qr(np.random.default_rng(9).standard_normal((24, 24)))[0]
    noise = np.where(hard, 1.6, 0.1)[:, None] * chance.standard_normal((n, 24))
    return rows.astype(np.float32), ((rows + noise) @ rotation).astype(np.float32), hard


@pytest.fixture(scope="module")
def discovery() -> kedge.AnchorDiscovery:
    x, y, _ = half_noisy(900, 0)
    return kedge.AnchorDiscovery(device="cpu").fit(x, y, [(row, row) for row in range(300)])


@pytest.fixture(scope="module")
def searched(discovery):
    """Vectors that the run has not seen, whether each finds its own, and which are of the hard group."""
    x, y, hard = half_noisy(600, 1)
    scores = discovery.translate(x) @ unit_vectors(y).T
    return x, (scores > np.diagonal(scores)[:, None]).sum(axis=1) < 10, hard


def test_trust_is_what_is_found(discovery, searched):
    x, found, hard = searched
    trust = discovery.trust(x)
    assert trust.probability.shape == trust.familiarity.shape == (600,)
    assert ((trust.probability > 0) & (trust.probability < 1)).all()
    for group in (hard, ~hard):
        assert abs(trust.probability[group].mean() - found[group].mean()) < 0.1
    assert trust.probability[~hard].mean() > trust.probability[hard].mean() + 0.1
    right, wrong = trust.probability[found], trust.probability[~found]
    assert (right[:, None] > wrong).mean() + (right[:, None] == wrong).mean() / 2 > 0.65


def test_what_was_never_seen_is_unfamiliar(discovery, searched):
    x = searched[0]
    strange = np.random.default_rng(2).standard_normal((200, 24)).astype(np.float32)
    strange[:, :3] *= 0.1  # between the two groups
    strange[:, 12:] = 8
    assert np.median(discovery.trust(x).familiarity) > 0.25
    assert np.median(discovery.trust(strange).familiarity) < 0.02


def test_a_loaded_run_and_the_translator_say_the_same(discovery, searched, tmp_path):
    x = searched[0]
    discovery.save(tmp_path / "run")
    expected = discovery.trust(x)
    for given in (kedge.load(tmp_path / "run"), kedge.load_translator(tmp_path / "run", scale="raw")):
        np.testing.assert_array_equal(given.trust(x).probability, expected.probability)
        np.testing.assert_array_equal(given.trust(x).familiarity, expected.familiarity)
    one = kedge.load_translator(tmp_path / "run").trust(x[3])
    assert one.probability.shape == ()
    assert float(one.probability) == pytest.approx(float(expected.probability[3]))
    assert kedge.load_translator(tmp_path / "run").trust(x[:0]).probability.shape == (0,)
    offset = kedge.load_translator(tmp_path / "run", back=True).score_offset
    assert offset == discovery.score_offsets_.to_x
    stored = json.loads((tmp_path / "run/run.json").read_text())
    assert stored["trust"] == {"pairs": len(discovery.trust_.pairs), "seen": len(discovery.trust_.seen)}


def test_what_knows_nothing_of_it_says_so(discovery, rotated):
    with pytest.raises(kedge.InputError, match="at least 40 pairs could be held out"):
        discovery.translator(back=True).trust(np.ones((1, 24)))
    chain = discovery.translator().then(discovery.translator(back=True))
    assert chain.evidence is None
    assert chain.score_offset is None
    x, y = rotated(n=30)
    small = kedge.AnchorDiscovery(device="cpu").fit(x, y, [(row, row) for row in range(10)])
    assert small.trust_ is None
    assert small.score_offsets_ is None


def test_few_pairs_are_no_evidence():
    rows = unit_vectors(np.random.default_rng(0).standard_normal((MIN_PAIRS, 4)).astype(np.float32))
    margins, directions = rows[:, 0], np.eye(4, dtype=np.float32)
    correlations = np.full(4, 0.5, np.float32)
    assert weigh_evidence(rows[1:], margins[1:], rows, directions, correlations) is None
    assert isinstance(weigh_evidence(rows, margins, rows, directions, correlations), TrustEvidence)


def test_equal_margins_give_one_probability():
    """Nothing to tell rows apart by: all are found, or none."""
    rows = unit_vectors(np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32))
    plain = Normaliser(np.zeros(4, np.float32))
    for margin, expected in ((0.3, 40.5 / 41), (-0.3, 0.5 / 41)):
        evidence = TrustEvidence(rows, np.full(60, margin, np.float32), rows, np.eye(4, dtype=np.float32))
        np.testing.assert_allclose(evidence(plain, rows).probability, expected, rtol=1e-6)


def test_translate_writes_trust(discovery, searched, tmp_path, capsys):
    discovery.save(tmp_path / "run")
    np.save(tmp_path / "q.npy", searched[0][:5])
    call = ["translate", str(tmp_path / "run"), str(tmp_path / "q.npy"), "-o", str(tmp_path / "t.npy")]
    assert main([*call, "--trust", str(tmp_path / "trust.tsv")]) == 0
    lines = [line.split("\t") for line in (tmp_path / "trust.tsv").read_text().splitlines()]
    assert lines[0] == ["key", "probability", "familiarity"]
    assert [line[0] for line in lines[1:]] == list("01234")
    expected = discovery.trust(searched[0][:5]).probability
    np.testing.assert_allclose([float(line[1]) for line in lines[1:]], expected, atol=1e-4)
    assert "of 5 translations are doubtful" in capsys.readouterr().err
    assert main([*call, "--overwrite", "--trust", str(tmp_path / "trust.tsv"), "--back"]) == 2
    assert "--trust: is about vectors of X" in capsys.readouterr().err


def test_an_offset_makes_both_kinds_equal():
    """Native rows in groups; translated ones lose some of what they have in common, and sink."""
    chance = np.random.default_rng(0)
    native = np.repeat(chance.standard_normal((50, 16)), 50, axis=0)
    native = chance.permutation(native + 0.4 * chance.standard_normal(native.shape)).astype(np.float32)
    translated = native[:1600] + 0.6 * chance.standard_normal((1600, 16)).astype(np.float32)
    offset = measure_offset(native[1600:], translated, np.full(900, -1), 1600)
    assert offset is not None
    assert offset > 0.02
    queries, index = unit_vectors(native[1600:]), unit_vectors(np.concatenate([native[:800], translated[800:]]))
    scores = queries @ index.T
    before, after = ((np.argsort(-each, axis=1)[:, :10] < 800).mean() for each in (scores, scores + _to_last(offset)))
    assert before > 0.6
    assert abs(after - 0.5) < 0.05


def test_no_text_finds_itself():
    chance = np.random.default_rng(0)
    native = chance.standard_normal((600, 16)).astype(np.float32)
    partners = np.arange(600)
    assert abs(measure_offset(native, native, partners, 6000)) < 0.02
    assert measure_offset(native, native, np.full(600, -1), 6000) < -0.1  # where they do, they are always first
    assert measure_offset(native[:50], native, partners[:50], 600) is None


def _to_last(offset: float) -> np.ndarray:
    return np.where(np.arange(1600) < 800, 0, offset)
