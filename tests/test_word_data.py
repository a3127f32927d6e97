"""The acceptance figures of the words, on the real data (set KEDGE_DATA); minutes on two cores."""

from __future__ import annotations

import pytest

from kedge import AnchorDiscovery
from kedge.tasks import evaluate, gold_by_key
from paper.pairs_of_spaces import draw_task, load_pair


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mrr", "jaccard", "exact", "precision", "recall"),
    [("easy", 0.92, 0.34, 0.92, 0.99, 0.95), ("medium", 0.58, 0.18, 0.50, 0.85, 0.60)],
)
def test_acceptance(data_folder, name, mrr, jaccard, exact, precision, recall):
    task = draw_task(load_pair(data_folder, name), 0)
    discovery = AnchorDiscovery().fit(task.x, task.y, task.seeds, anchors=task.anchors)
    result = evaluate(discovery, task.x, task.y, gold_by_key(task.x, task.y), complete=True)
    assert discovery.health_.map.verdict == "ok"
    assert result.found.mrr >= mrr
    assert result.found.jaccard >= jaccard
    assert result.anchors_exact >= exact
    assert result.pairs_precision >= precision
    assert result.pairs_recall >= recall


@pytest.mark.thorough
def test_part_of_the_medium_pair(data_folder):
    """Half a minute, and harder than the words inside the package."""
    task = draw_task(load_pair(data_folder, "medium", limit=4000), 0)
    discovery = AnchorDiscovery().fit(task.x, task.y, task.seeds, anchors=task.anchors)
    result = evaluate(discovery, task.x, task.y, gold_by_key(task.x, task.y), complete=True)
    assert discovery.health_.map.verdict == "ok"
    assert result.pairs_precision > 0.97
    assert result.found.mrr > result.gt.mrr > result.seed.mrr
