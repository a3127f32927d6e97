"""The page of a run of many spaces."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kedge import CommonSpace
from kedge.cli.main import main


def test_the_page_shows_all_spaces_side_by_side(common_folder, three_spaces, common):
    pytest.importorskip("plotly")
    files = [str(common_folder / name) for name in ("run", "c.npz", "a.npz", "b.npz")]
    assert main(["report", *files, "-o", str(common_folder / "common.html")]) == 0
    page = (common_folder / "common.html").read_text()
    assert page.count("<canvas") == 3
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["keys"][0] == list(common.group_keys_[0])
    assert [len(points) for points in data["points"]] == [len(common.groups_)] * 3
    first = np.array([[points[group] for points in data["points"]] for group in range(20)])
    assert np.abs(first - first.mean(axis=1, keepdims=True)).max() < 0.3  # one item lies at one place in all panels
    assert "recognised" in page
    assert "come back" in page
    assert set(data["near"]) == {f"{s},{t}" for s in range(3) for t in range(3) if s != t}
    hits = [near[0] == group for group, near in enumerate(data["near"]["0,2"][:200]) if near]
    assert np.mean(hits) > 0.9  # from a, the likeliest row of c is that of its group


def test_the_page_marks_pairs_whose_loops_do_not_close(three_spaces, common, tmp_path):
    pytest.importorskip("plotly")
    from kedge.report import write_common_page

    write_common_page(tmp_path / "closed.html", common, three_spaces)
    assert "does not close" not in (tmp_path / "closed.html").read_text()
    broken = CommonSpace.load(_saved(common, tmp_path / "run"))
    broken.health_ = replace(broken.health_, loops=(replace(common.health_.loops[0], closed=False),))
    write_common_page(tmp_path / "broken.html", broken, three_spaces)
    assert (tmp_path / "broken.html").read_text().count("a loop through it does not close") == 6


def _saved(common, folder):
    common.save(folder)
    return folder


def test_keys_cannot_break_out_of_the_page(three_spaces, tmp_path, common):
    pytest.importorskip("plotly")
    from kedge.report import write_common_page

    bad = common.without("c")
    bad.group_keys_ = [("</script><b>", None), *bad.group_keys_[1:]]
    write_common_page(tmp_path / "page.html", bad, three_spaces)
    assert "</script><b>" not in (tmp_path / "page.html").read_text()
