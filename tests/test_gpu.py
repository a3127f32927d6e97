"""The same answer on a GPU; run with `pytest -m gpu` where there is one."""

from __future__ import annotations

import pytest
import torch

from kedge import AnchorDiscovery, retrieval_scores

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_same_pairs_as_on_the_cpu(words, word_seeds, fitted):
    on_gpu = AnchorDiscovery(n_anchors=100, device="cuda").fit(*words, word_seeds)
    ours, theirs = set(on_gpu.pair_keys_), set(fitted.pair_keys_)
    assert len(ours & theirs) >= 0.999 * len(ours | theirs)
    assert on_gpu.health_.verdict == "aligned"
    again = AnchorDiscovery(n_anchors=100, device="cuda").fit(*words, word_seeds)
    assert again.pair_keys_ == on_gpu.pair_keys_


def test_paper_method_runs_there(words, word_seeds):
    from kedge import PaperSettings

    settings = PaperSettings(steps=3)
    run = AnchorDiscovery(n_anchors=50, method="paper", paper=settings, device="cuda").fit(*words, word_seeds)
    assert run.n_iter_ == 3


def test_same_scores_as_on_the_cpu():
    source = torch.randn(500, 20, generator=torch.Generator().manual_seed(0))
    target = source + 0.5 * torch.randn(500, 20, generator=torch.Generator().manual_seed(1))
    on_cpu, on_gpu = retrieval_scores(source, target), retrieval_scores(source.cuda(), target.cuda())
    assert on_gpu.mrr == pytest.approx(on_cpu.mrr, abs=0.01)
    assert on_gpu.foscttm == pytest.approx(on_cpu.foscttm, abs=1e-4)
