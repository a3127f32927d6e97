"""Native and translated rows in one index: neither kind crowds out the other."""

from __future__ import annotations

import pytest
import torch

from kedge import InputError
from kedge.geometry import unit
from kedge.tasks.rehearsal.mixed_index import ScoreCalibration, fit_calibration, search_mixed

UNTOUCHED = ScoreCalibration(0.0)


def noisy(rows: torch.Tensor, noise: float, seed: int) -> torch.Tensor:
    return unit(rows + noise * torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed)))


@pytest.fixture(scope="module")
def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Texts (3000, 16) in groups, native and translated; the map loses some of what they have in common."""
    centers = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
    native = noisy(unit(centers).repeat_interleave(50, dim=0), 0.12, 1)[torch.randperm(3000)]
    return native, noisy(native, 0.2, 2)


def share_of_native(found: torch.Tensor, native: torch.Tensor) -> float:
    return float(native[found].double().mean())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_calibration_makes_it_fair(share, texts):
    native_rows, translated = (rows[:2000] for rows in texts)
    native = torch.rand(2000, generator=torch.Generator().manual_seed(3)) < share
    index = torch.where(native[:, None], native_rows, translated)
    queries = noisy(native_rows[:300], 0.1, 4)
    before = share_of_native(search_mixed(queries, index, native, UNTOUCHED), native)
    calibration = fit_calibration(texts[0][2000:], texts[1][2000:])
    after = share_of_native(search_mixed(queries, index, native, calibration), native)
    assert before > share + 0.05
    assert abs(after - share) < 0.05
    assert calibration.offset > 0


def test_two_searches_merged_are_one_search(texts):
    native = torch.arange(3000) % 3 == 0
    index = torch.where(native[:, None], *texts)
    queries = texts[0][:40]
    for calibration in (UNTOUCHED, ScoreCalibration(0.03), ScoreCalibration(-0.03)):
        scores = calibration(queries @ index.T, native)
        assert torch.equal(search_mixed(queries, index, native, calibration), scores.topk(10, dim=1).indices)


def test_an_index_of_one_kind(texts):
    every = torch.ones(3000, dtype=torch.bool)
    for native in (every, ~every):
        found = search_mixed(texts[0][:5], texts[0], native, ScoreCalibration(0.1))
        assert found[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_too_few_texts_are_refused(texts):
    with pytest.raises(InputError, match="at least 100 texts in both forms, got 20 native and 20"):
        fit_calibration(texts[0][:20], texts[1][:20])
