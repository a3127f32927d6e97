"""The same answer on a GPU; run with `pytest -m gpu` where there is one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery, retrieval_scores
from kedge.geometry import unit
from kedge.matching import BlockedSoftmin, best_partners, match_csls, top_k, transport_step, use_fused, using_precision

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_same_pairs_as_on_the_cpu(words, word_seeds, fitted):
    on_gpu = AnchorDiscovery(n_anchors=100, device="cuda").fit(*words, word_seeds)
    ours, theirs = set(on_gpu.pair_keys_), set(fitted.pair_keys_)
    assert len(ours & theirs) >= 0.999 * len(ours | theirs)
    assert on_gpu.health_.map.verdict == "ok"
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
    assert on_gpu.jaccard == pytest.approx(on_cpu.jaccard, abs=1e-3)
    assert retrieval_scores(source.cuda(), source.cuda()).jaccard == 1
    assert on_gpu.foscttm == pytest.approx(on_cpu.foscttm, abs=1e-4)


# Rows, columns, coordinates: ragged edges, one tile and many, more than the widest step.
SHAPES = [(1000, 777, 300), (130, 2049, 384), (33, 65, 20), (5, 20_000, 1536), (20_000, 3, 768), (1, 1, 4)]
# How far products of numbers of so many bits may be off.
TOLERANCES = {"float32": 2e-6, "tf32": 3e-4, "bf16": 3e-3}


def two_spaces(n: int, m: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n + m + d)
    return tuple(unit(torch.randn(count, d, generator=generator)) for count in (n, m))


@pytest.fixture(params=TOLERANCES)
def precision(request):
    with using_precision(request.param):
        yield request.param


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_top_k_against_torch(shape, precision):
    a, b = two_spaces(*shape)
    dense = a @ b.T
    for k in (1, 10, 16):
        values, rows = top_k(a.cuda(), b.cuda(), k)
        expected = dense.topk(min(k, len(b)), dim=1).values
        torch.testing.assert_close(values.cpu(), expected, rtol=0, atol=TOLERANCES[precision])
        torch.testing.assert_close(dense.gather(1, rows.cpu()), expected, rtol=0, atol=2 * TOLERANCES[precision])
        assert all(len(set(row)) == len(row) for row in rows[:50].tolist())


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_partners_and_margins_against_torch(shape, precision):
    a, b = two_spaces(*shape)
    penalties = torch.rand(len(a) + len(b), generator=torch.Generator().manual_seed(0))
    arguments = (a, b, penalties[: len(a)], penalties[len(a) :])
    partner, margin = best_partners(*arguments)
    on_gpu = best_partners(*(argument.cuda() for argument in arguments))
    dense = a @ b.T - penalties[len(a) :]
    chosen = dense.gather(1, on_gpu[0].cpu()[:, None])
    torch.testing.assert_close(chosen, dense.amax(dim=1, keepdim=True), rtol=0, atol=2 * TOLERANCES[precision])
    same = on_gpu[0].cpu() == partner
    assert same.float().mean() > 0.98
    # A margin depends on the rivals' choices too, which may differ where two columns are as good as equal.
    close = (on_gpu[1].cpu() - margin).abs() <= 4 * TOLERANCES[precision]
    assert (close | margin.isinf())[same].float().mean() > 0.95


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_softmin_against_torch(shape, precision):
    a, b = two_spaces(*shape)
    weights = torch.randn(len(b), generator=torch.Generator().manual_seed(0)) - math.log(len(b))
    ours = BlockedSoftmin(a.cuda(), b.cuda()).rows(0.05, weights.cuda()).cpu()
    torch.testing.assert_close(ours, BlockedSoftmin(a, b).rows(0.05, weights), rtol=0, atol=TOLERANCES[precision])


@pytest.mark.parametrize("width", [3, 150])
@pytest.mark.parametrize("shape", SHAPES)
def test_fused_transport_step_against_torch(shape, width):
    a, b = two_spaces(*shape)
    potential = 0.1 * torch.rand(len(b), generator=torch.Generator().manual_seed(0))
    values = torch.randn(len(b), width, generator=torch.Generator().manual_seed(1))
    plain = transport_step(a, b, potential, 0.05, values=values)
    ours = transport_step(a.cuda(), b.cuda(), potential.cuda(), 0.05, values=values.cuda())
    off = (ours.targets.cpu() - plain.targets).square().mean().sqrt()
    assert off < 0.05 * plain.targets.square().mean().sqrt()
    torch.testing.assert_close(ours.potential.cpu(), plain.potential, rtol=0, atol=0.01)
    assert ours.sharpness == pytest.approx(plain.sharpness, rel=0.05)


def test_which_path_ran(words, word_seeds):
    from kedge.matching.kernels import fused

    x = torch.randn(10, 4)
    assert not use_fused(x)
    assert not use_fused(x.cuda().double())
    assert use_fused(x.cuda())
    fused.CALLS.clear()
    AnchorDiscovery(n_anchors=50, device="cuda").fit(*words, word_seeds)
    assert all(fused.CALLS[name] for name in ("top_k", "best_two", "barycenters", "log_sum_exp")), fused.CALLS


def test_the_default_precision_keeps_the_pairs_of_float32(words):
    x, y = (unit(torch.from_numpy(space.vectors).cuda()) for space in words)
    y = torch.nn.functional.pad(y, (0, x.shape[1] - y.shape[1]))
    with using_precision("float32"):
        exact = match_csls(x, y)
    default = match_csls(x, y)
    assert (default.partner == exact.partner).float().mean() >= 0.995
    assert (default.mutual == exact.mutual).float().mean() >= 0.995


@pytest.mark.parametrize("room", [163, 99])
def test_kernels_fit_on_smaller_chips(monkeypatch, room):
    """As much shared memory as an A100 has, or a consumer card: less comes at a time, and the results are the same."""
    from kedge.matching.kernels import fused

    a, b = (rows.cuda() for rows in two_spaces(1000, 777, 300))
    bias, values = torch.zeros(777, device="cuda"), torch.randn(777, 200, device="cuda")
    launch, compiled = fused._launch, []
    monkeypatch.setattr(fused, "shared_memory", lambda device: room * 1024 - 4096)
    monkeypatch.setattr(fused, "_launch", lambda *given, **more: compiled.append(launch(*given, **more)))
    for precision in ("bf16", "tf32", "float32"):
        similarity, tolerance = a @ b.T, 2 * TOLERANCES[precision]
        total = fused.log_sum_exp(a, b, 1.0, bias, precision=precision)
        torch.testing.assert_close(total, similarity.logsumexp(dim=1), rtol=0, atol=tolerance)
        best = fused.best_two(a, b, bias, precision=precision)[1]
        torch.testing.assert_close(best, similarity.amax(dim=1), rtol=0, atol=tolerance)
        nearest = fused.top_k(a, b, 10, precision=precision)[0]
        torch.testing.assert_close(nearest, similarity.topk(10, dim=1).values, rtol=0, atol=tolerance)
        means = fused.barycenters(a, b, values, 1.0, bias, precision=precision)[0]
        torch.testing.assert_close(means, similarity.softmax(dim=1) @ values, rtol=0, atol=tolerance)
    assert max(kernel.metadata.shared for kernel in compiled) <= room * 1024


def test_a_discovery_that_was_stopped_there_goes_on_to_the_same_bytes(tmp_path, words, word_seeds):
    def fit(**options) -> AnchorDiscovery:
        found = AnchorDiscovery(n_anchors=50, device="cuda", checkpoint=tmp_path / "states", **options)
        return found.fit(*words, word_seeds)

    def stop(step) -> None:
        if (step.stage, step.index) == ("finish", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(on_step=stop)
    fit().save(tmp_path / "resumed")
    AnchorDiscovery(n_anchors=50, device="cuda").fit(*words, word_seeds).save(tmp_path / "undisturbed")
    for path in (tmp_path / "undisturbed").iterdir():
        assert path.read_bytes() == (tmp_path / "resumed" / path.name).read_bytes(), path.name


def test_candidates_there_lead_to_what_an_exact_comparison_does(monkeypatch, words, word_seeds):
    from kedge.matching import candidates

    exact = AnchorDiscovery(n_anchors=50, device="cuda").fit(*words, word_seeds)
    monkeypatch.setattr(candidates, "_QUICK", {"cuda": 0})
    for once in (0, 2000**2):  # by clusters, and by comparing all rows once
        monkeypatch.setattr(candidates, "_QUICK_ONCE", {"cuda": once})
        found = AnchorDiscovery(n_anchors=50, device="cuda").fit(*words, word_seeds)
        assert found.candidate_recall_.share > 0.98
        assert np.mean(found.match_ == exact.match_) > 0.99


def test_a_map_is_judged_there_as_on_the_cpu(words, word_seeds, fitted):
    from kedge import judge

    verdicts = [judge(*words, fitted.translator(), seeds=word_seeds, device=device) for device in ("cpu", "cuda")]
    assert verdicts[0].verdict == verdicts[1].verdict == "ok"
    assert verdicts[0].score == pytest.approx(verdicts[1].score, abs=0.05)
