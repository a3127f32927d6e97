"""What a run looks like: both spaces in two dimensions, and figures as a user gets them."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from kedge import AnchorDiscovery, InputError
from kedge.cli.main import main
from kedge.errors import MissingExtraError
from kedge.report import (
    draw_confidence,
    draw_convergence,
    draw_sample,
    draw_spaces,
    project_to_plane,
    require_matplotlib,
    save_figure,
)
from kedge.report.picture.projection import VIEWS


def distance(left, right):
    """Root mean square distance of partners, in units of how far the points are spread."""
    return np.sqrt(np.mean((left - right) ** 2) / np.mean(left**2))


def test_partners_come_together_as_the_anchors_are_found(fitted, words):
    projection = project_to_plane(fitted, *words, draw_sample(fitted, *words, 1000))
    assert list(projection.views) == list(VIEWS)
    assert 0.45 * len(fitted.pairs_) < projection.pairs < 0.55 * len(fitted.pairs_)
    known = set(fitted.linked_pairs().keys)
    paired = slice(projection.pairs)
    assert all(pair in known for pair in zip(projection.keys_x[paired], projection.keys_y[paired], strict=True))
    unpaired = set(fitted.x_.unmatched_keys)
    assert all(key in unpaired for key in projection.keys_x[projection.pairs :])
    apart = {view: distance(*(side[paired] for side in sides)) for view, sides in projection.views.items()}
    assert apart[VIEWS[2]] < 0.5 < apart[VIEWS[1]]
    sizes = len(projection.keys_x), len(projection.keys_y)
    assert [side.shape for side in projection.views[VIEWS[0]]] == [(size, 2) for size in sizes]
    again = project_to_plane(fitted, *words, draw_sample(fitted, *words, 1000))
    np.testing.assert_array_equal(projection.views[VIEWS[2]][0], again.views[VIEWS[2]][0])


@pytest.mark.thorough
def test_without_seeds_and_without_pairs_there_is_less_to_see(rotated):
    x, y = (rotated(seed=seed)[0] for seed in (0, 1))  # unrelated
    nothing = AnchorDiscovery(n_anchors=20, device="cpu", min_confidence=1).fit(x, y)
    from kedge.spaces.conversion import as_space

    spaces = as_space(x, "x"), as_space(y, "y")
    projection = project_to_plane(nothing, *spaces, draw_sample(nothing, *spaces, 100))
    assert list(projection.views) == [VIEWS[0], VIEWS[2]]
    assert projection.pairs == 0
    draw_spaces(nothing, *spaces)
    draw_convergence(nothing)
    with pytest.raises(InputError, match="lists no pair"):
        draw_confidence(nothing)


@pytest.mark.parametrize("kind", ["spaces", "convergence", "confidence"])
@pytest.mark.parametrize(("suffix", "begins"), [(".pdf", b"%PDF"), (".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_plot_writes_the_same_figure_again(run_files, tmp_path, capsys, kind, suffix, begins):
    files = [tmp_path / f"{name}{suffix}" for name in ("one", "two")]
    for file in files:
        assert main(["plot", *run_files, "--kind", kind, "-o", str(file)]) == 0
    assert f"{kind}: {files[0]}" in capsys.readouterr().out
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(begins)
    assert first == second
    assert len(list(tmp_path.iterdir())) == 2


def test_the_paper_s_loss_is_drawn_too(rotated):
    from kedge import PaperSettings

    paper = AnchorDiscovery(n_anchors=20, method="paper", paper=PaperSettings(steps=2), device="cpu")
    figure = draw_convergence(paper.fit(*rotated(), [(row, row) for row in range(15)]))
    assert figure.axes[0].get_ylabel() == "loss"
    assert len(figure.axes[0].lines[0].get_xdata()) == 2


@pytest.mark.parametrize(
    ("out", "message"),
    [("fig.docx", "cannot be written as '.docx'"), ("no/fig.pdf", "does not exist; create it first")],
)
def test_a_bad_target_is_refused_at_once(run_files, tmp_path, capsys, out, message):
    assert main(["plot", "no-such-run", *run_files[1:], "-o", str(tmp_path / out)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    real = builtins.__import__

    def fails(name, *arguments, **options):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name, name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", fails)
    with pytest.raises(MissingExtraError, match=r"pip install 'kedge\[plot\]', or do without"):
        require_matplotlib(", or do without")
    with pytest.raises(MissingExtraError, match="kedge"):
        save_figure(None, tmp_path / "figure.pdf")
