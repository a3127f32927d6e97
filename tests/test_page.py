"""The page of a run, and the server of the live one: what is in them, apart from how they look in a browser."""

from __future__ import annotations

import base64
import builtins
import gzip
import html
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from copy import copy
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the page needs kedge[report]")

from kedge import AnchorDiscovery, Embeddings, InputError, load, read_embeddings
from kedge.cli.main import main
from kedge.errors import MissingExtraError
from kedge.report import Explorer, GoldComparison, RowTexts, draw_sample, write_report
from kedge.report.live.thumbnails import Thumbnails
from kedge.report.page.run_data import data_of
from kedge.report.page.run_page import live_page
from kedge.report.picture.neighbourhoods import Neighbourhoods
from kedge.report.picture.row_groups import groups_by_cluster, groups_by_label
from kedge.report.picture.tsne import LAYOUT_DESCRIPTION, lay_out
from kedge.spaces.conversion import as_space
from kedge.spaces.labels import read_labels_of_both
from kedge.tasks import Truth, as_percent, evaluate, gold_by_key, search

OKLAB_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OKLAB_AXES = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def unpacked(page, name):
    """What the page carries under a name."""
    packed = re.search(rf'<script type="application/gzip" id="{name}">([^<]*)</script>', page)[1]
    return gzip.decompress(base64.b64decode(packed)).decode()


def cosines(left, right):
    left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right))
    return left @ right.T


@pytest.fixture(scope="module")
def page(tmp_path_factory, fitted, words):
    """The page of 2,000 words, as text."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(path, fitted, *words)
    return path.read_text()


def test_the_page_says_what_the_run_says(page, fitted, words):
    assert f'<span class="badge">{fitted.health_.map.verdict}</span>' in page
    text = html.unescape(page)
    assert fitted.health_.map.reason in text
    assert fitted.health_.pairs.advice in text
    assert f"<b>{len(fitted.pairs_):,}</b>" in page
    data = json.loads(unpacked(page, "contents"))
    drawn = list(zip(*data["keys"], strict=False))[: data["pairs"]]
    assert drawn == [*fitted.pair_keys_, *fitted.seed_keys_]  # the seeds come after what was found
    assert len(data["confidence"]) == len(fitted.pairs_)
    assert sorted(data["keys"][0]) == sorted(words[0].keys)  # all rows are there, also those in no pair
    np.testing.assert_allclose(data["confidence"], fitted.pair_confidence_, atol=1e-4)
    assert [row[:2] for row in data["anchors"]] == [list(pair) for pair in fitted.anchor_keys_]
    assert [row[2] is None for row in data["anchors"]] == fitted.anchor_is_seed_.tolist()  # those were given
    assert sum(data["confidence_charts"]["counts"]) == len(fitted.pairs_)
    assert data["confidence_charts"]["precision"][-1] == pytest.approx(fitted.pair_confidence_.mean(), abs=1e-4)


def test_other_pairs_than_those_of_the_run_are_counted_beside_its_answer(page, fitted, words, tmp_path):
    assert "at --min-confidence" not in page
    sure = fitted.with_min_confidence(0.99995)
    assert 0 < len(sure.pairs_) < len(fitted.pairs_)
    write_report(tmp_path / "sure.html", sure, *words)
    right = f"{len(sure.pairs_):,} pairs, about {sure.pair_confidence_.mean():.0%} of them right."
    assert f"On this page, at --min-confidence 0.99995: {right}" in (tmp_path / "sure.html").read_text()


def test_files_of_one_index_at_two_times_are_sent_to_drift(page, rotated, tmp_path):
    assert "kedge drift" not in page  # of other dimensions
    keys = [f"r{row}" for row in range(300)]
    x, y = (Embeddings(keys, vectors, name) for vectors, name in zip(rotated(), "xy", strict=True))
    fitted = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    write_report(tmp_path / "same.html", fitted, x, y)
    same = (tmp_path / "same.html").read_text()
    assert "300 ids are in both files, with equal dimensions." in same
    assert "<code>kedge drift X Y</code>" in same


def test_the_page_needs_nothing_else(page):
    outside = re.sub(r"<script type=.application/gzip.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", outside)
    assert "@import" not in outside
    assert "url(" not in outside
    assert "default-src &#39;none&#39;" in page  # and a browser would refuse to fetch anything
    assert unpacked(page, "plotly").lstrip().startswith("/**\n* plotly.js")


def test_the_same_run_gives_the_same_page(page, fitted, words, tmp_path):
    write_report(tmp_path / "again.html", fitted, *words)
    assert (tmp_path / "again.html").read_text() == page


def test_neighbours_are_the_nearest(fitted, words):
    x, y = words
    neighbourhoods = Neighbourhoods(fitted, x, y)
    rows = np.array([0, 17, 1999])
    left, right = fitted.x_.shared(x), fitted.y_.shared(y)
    ratios, alike = left @ right.T, cosines(left[:, :-2], right[:, :-2])
    for side, space, likely, similar in (
        ("x", fitted.x_.normalise(x), ratios[rows], alike[rows]),
        ("y", fitted.y_.normalise(y), ratios.T[rows], alike.T[rows]),
    ):
        inside = cosines(space, space)[rows]
        inside[np.arange(3), rows] = -2
        within, across = neighbourhoods.within(side, rows, 5), neighbourhoods.across(side, rows, 5)
        np.testing.assert_allclose(within.similarity, -np.sort(-inside)[:, :5], atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(inside, within.rows, 1), within.similarity, atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(likely, across.rows, 1), -np.sort(-likely)[:, :5], atol=1e-3)
        np.testing.assert_allclose(np.take_along_axis(similar, across.rows, 1), across.similarity, atol=1e-5)


def test_equal_rows_are_neighbours_but_not_of_themselves(rotated):
    x, y = rotated()
    x[1:20] = x[0]  # more equal rows than neighbours asked for
    fitted = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(30, 50)])
    near = Neighbourhoods(fitted, as_space(x, "x"), as_space(y, "y"))
    found = near.within("x", np.arange(20), 5)
    assert found.rows.shape == (20, 5)
    assert not (found.rows == np.arange(20)[:, None]).any()
    np.testing.assert_allclose(found.similarity, 1, atol=1e-5)


def test_large_spaces_are_shown_in_part(fitted, words, tmp_path):
    write_report(tmp_path / "part.html", fitted, *words, max_rows=500)
    page = (tmp_path / "part.html").read_text()
    data = json.loads(unpacked(page, "contents"))
    assert [len(keys) for keys in data["keys"]] == [500, 500]
    assert max(json.loads(unpacked(page, "near"))["across"][0]["rows"]) < 500
    assert "a random sample of" in page


def test_with_gold_the_page_compares(fitted, words, tmp_path):
    gold = gold_by_key(*words)
    evaluation = evaluate(fitted, *words, gold, complete=True, device="cpu")
    truth = Truth(*words, gold, complete=True)
    write_report(tmp_path / "gold.html", fitted, *words, gold=GoldComparison(evaluation, truth, "A note & more."))
    page = (tmp_path / "gold.html").read_text()
    assert f"<td>{evaluation.found.mrr:.3f}</td>" in page
    assert "A note &amp; more." in page
    data = json.loads(unpacked(page, "contents"))
    assert np.mean(data["right"]) == pytest.approx(evaluation.pairs_precision)
    bins = data["reliability"]["bins"]
    assert sum(count for *_, count in bins) == len(fitted.pairs_)
    assert sum(right * count for _, right, _, _, count in bins) == pytest.approx(sum(data["right"]), abs=1)
    assert all(low <= right <= high for _, right, low, high, _ in bins)


def test_pairs_of_which_nothing_is_known_are_not_judged(fitted, words):
    x, y = words
    gold = gold_by_key(x, y)[:1000]
    truth = Truth(x, y, gold, complete=False)
    evaluation = evaluate(fitted, x, y, gold, complete=False, device="cpu")
    data = data_of(fitted, x, y, draw_sample(fitted, x, y, 100), GoldComparison(evaluation, truth))
    known = {x.keys[row] for row in gold[:, 0]}
    assert [right is None for right in data["right"]] == [
        key not in known for key in data["keys"][0][: len(data["confidence"])]
    ]
    judged = sum(count for *_, count in data["reliability"]["bins"])
    assert judged == sum(left in known for left, _ in fitted.pair_keys_)


@pytest.mark.parametrize(("seeds", "anchors"), [(1, 1), (1, 20), (20, 1)])
def test_one_seed_or_anchor_is_enough_for_a_picture(rotated, tmp_path, seeds, anchors):
    keys = [f"r{row}" for row in range(300)]
    x, y = (Embeddings(keys, vectors, name) for vectors, name in zip(rotated(), "xy", strict=True))
    one = AnchorDiscovery(n_anchors=anchors, device="cpu").fit(x, y, [(row, row) for row in range(seeds)])
    write_report(tmp_path / "one.html", one, x, y)
    page = (tmp_path / "one.html").read_text()
    views = json.loads(unpacked(page, "contents"))["views"]
    assert [[len(side) for side in view["places"]] for view in views] == [[300] * 4] * 3
    assert f"besides the {'1 seed' if seeds == 1 else '20 seeds'}, in " in page


def test_a_small_space_is_drawn_whole_beside_a_large_one(rotated):
    x, y = rotated(n=2000)
    x = x[:100]
    unequal = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    spaces = as_space(x, "x"), as_space(y, "y")
    sample = draw_sample(unequal, *spaces, 300)
    assert (len(sample.rows_x), len(sample.rows_y)) == (100, 300)
    assert len(sample.pair_numbers) == len(unequal.linked_pairs().rows) >= 50
    few = draw_sample(unequal, *spaces, 10)
    assert (len(few.rows_x), len(few.rows_y)) == (10, 10)


def test_a_diverged_loss_is_no_number_but_a_page(fitted, words):
    diverged = copy(fitted)
    diverged.history_ = tuple(
        replace(step, figures=dict.fromkeys(step.figures, float("nan"))) for step in fitted.history_
    )
    data = data_of(diverged, *words, draw_sample(diverged, *words, 100), None)
    assert set(data["convergence"][0]["curves"][0]["values"]) == {None}


def test_other_files_than_the_run_s_are_refused(run_files, fitted, words, tmp_path, capsys):
    out = ["-o", str(tmp_path / "page.html")]
    assert main(["report", run_files[0], run_files[2], run_files[1], *out]) == 2
    assert "y.npz: is not what this run had as X; give its files whole, X first and then Y" in capsys.readouterr().err
    assert main(["report", *run_files, "--limit", "100", *out]) == 2
    assert "x.npz: is not what this run had as X" in capsys.readouterr().err
    x, y = words
    chance = np.random.default_rng(0)
    others = Embeddings(y.keys, y.vectors[chance.permutation(len(y))], "others")  # keys and dimensions fit
    with pytest.raises(InputError, match="others: is not what this run had as Y"):
        Explorer(fitted, x, others, run="RUN", max_rows=100)
    assert not list(tmp_path.iterdir())


def test_a_page_does_not_go_into_a_run(run_files, capsys):
    assert main(["report", *run_files, "-o", f"{run_files[0]}/report.html"]) == 2
    assert "is inside a run folder" in capsys.readouterr().err


def test_what_a_run_was_made_with_is_cited(small_files, tmp_path):
    folder = tmp_path / "a $(run)"
    files = [*small_files[:2], "--limit", "100"]
    command = ["discover", *files, "--anchors", "20", "--out", str(folder), "--ignore-verdict"]
    assert main([*command, "--report", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    for shown in ("SHA-256", "fit seconds", "first rows read", "<dt>torch</dt>", "none were needed"):
        assert shown in page, shown
    assert "kedge search &#39;" in page  # a name like that can be pasted into a shell
    older = load(folder)
    older.provenance_ = older.provenance_ | {"kedge": "0.0.7"}
    x, y = (read_embeddings(file, limit=100) for file in small_files[:2])
    write_report(tmp_path / "again.html", older, x, y)
    assert "Made by kedge 0.0.7," in (tmp_path / "again.html").read_text()


def test_only_what_is_whole_is_called_so():
    assert [as_percent(share) for share in (None, 0.5, 0.9994, 0.99996, 1.0)] == [
        "-", "50.0%", "99.9%", ">99.9%", "100.0%",
    ]  # fmt: skip


def test_a_run_that_failed_says_so_and_shows_what_there_is(rotated, tmp_path):
    keys = [f"r{row}" for row in range(100)]
    x, y = (Embeddings(keys, rotated(n=100, seed=seed)[0], name) for seed, name in enumerate("xy"))  # unrelated
    nothing = AnchorDiscovery(n_anchors=20, device="cpu", min_confidence=1).fit(x, y)
    gold = gold_by_key(x, y)
    truth = GoldComparison(evaluate(nothing, x, y, gold, complete=True), Truth(x, y, gold, complete=True))
    write_report(tmp_path / "failed.html", nothing, x, y, gold=truth)
    page = (tmp_path / "failed.html").read_text()
    assert nothing.health_.map.verdict != "ok"
    assert f'<span class="badge">{nothing.health_.map.verdict}</span>' in page
    assert "It worked." not in page
    assert "No pair that was found is probable enough" in page
    assert "none were given" in page
    assert 'id="seeds"' not in page
    data = json.loads(unpacked(page, "contents"))
    assert data["pairs"] == 0
    assert data["confidence_charts"] is None
    assert data["reliability"]["bins"] == []


def test_the_command_writes_the_page(run_files, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", *run_files, "--gold", "keys", "-o", str(out)]) == 0
    assert f"page: {out}" in capsys.readouterr().out
    assert "Against the gold pairs" in out.read_text()
    assert f"kedge search {run_files[0]} {run_files[1]} {run_files[2]} KEY" in out.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "page.pdf"], "give it the suffix .html"),
        (["-o", "no/page.html"], "does not exist; create it first"),
        (["-o", "page.html", "--gold", "absent.tsv"], "no such file"),
    ],
)
def test_bad_arguments_leave_nothing(run_files, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *run_files, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_discover_writes_it_too_and_refuses_a_bad_name_before_the_work(small_files, tmp_path, capsys):
    *files, seeds = small_files
    command = ["discover", *files, "--seeds", seeds, "--anchors", "20", "--ignore-verdict"]
    command += ["--out", str(tmp_path / "run")]
    assert main([*command, "--report", str(tmp_path / "page.txt")]) == 2
    assert "give it the suffix .html" in capsys.readouterr().err
    assert main([*command, "--report", str(tmp_path / "page.html")]) == 0
    assert f"page: {tmp_path / 'page.html'}" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "run"]


def test_without_plotly_the_extra_is_named(monkeypatch, tmp_path, fitted, words):
    real = builtins.__import__

    def fails(name, *arguments, **options):
        if name.split(".")[0] == "plotly":
            raise ModuleNotFoundError(name, name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", fails)
    with pytest.raises(MissingExtraError, match=r"pip install 'kedge\[report\]'"):
        write_report(tmp_path / "report.html", fitted, *words)


# -- what points are coloured by, and where they lie ---------------------------------------------------


def test_labels_are_groups_the_most_frequent_first():
    labels = {"a": "rare", "b": "often", "c": "often", "d": "often"}
    assert groups_by_label(labels, ["a", "b", "e"], ["c", "d"]) == (["often", "rare"], [1, 0, -1], [0, 0])
    many = {f"k{number}": f"label {number}" for number in range(13)} | {"again": "label 12"}
    groups = groups_by_label(many, list(many), ["k0"])
    assert groups.names[:2] == ["label 0", "label 12"]
    assert groups.names[10:] == ["3 other labels"]
    assert sorted(groups.of_x) == [0, 1, 1, *range(2, 10), 10, 10, 10]


def test_clusters_hold_both_spaces(fitted, words):
    x, y = words
    groups = groups_by_cluster(fitted, x, y)
    assert 2 <= len(groups.names) <= 10
    counts = np.bincount(groups.of_x + groups.of_y)
    assert list(counts) == sorted(counts, reverse=True)
    together = [groups.of_x[left] == groups.of_y[right] for left, right in fitted.pairs_]
    assert np.mean(together) > 0.8  # partners are of one kind
    assert all(name.split(", ")[0] in x.row_of for name in groups.names)  # named by keys


def test_a_file_labels_keys_of_either_space(tmp_path, words):
    x, y = words
    file = tmp_path / "labels.tsv"
    file.write_text("key\tlabel\nwater\twet\nabsent\tdry\n")
    assert read_labels_of_both(file, x, y) == {"water": "wet"}
    for text, message in (
        ("absent\tdry\n", "no line labels a key of"),
        ("water\twet\nwater\tdry\n", "line 2: 'water' is labelled 'wet' already, got 'dry'"),
        ("water\n", "line 1: a key and a label are needed"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            read_labels_of_both(file, x, y)


@pytest.mark.thorough
def test_the_layout_brings_partners_together_the_same_way_again(fitted, words):
    pytest.importorskip("openTSNE", reason="needs kedge[layout]")
    rows = fitted.pairs_[:150]
    x, y = words[0].take(rows[:, 0]), words[1].take(rows[:, 1])
    left, right = lay_out(fitted, x, y)
    assert left.shape == right.shape == (150, 2)
    nearest = np.linalg.norm(left[:, None] - right[None], axis=2).argmin(axis=1)
    assert np.mean(nearest == np.arange(150)) > 0.8
    np.testing.assert_array_equal(lay_out(fitted, x, y)[0], left)


def test_the_page_has_labels_and_the_layout_where_asked(run_files, tmp_path, words, capsys):
    pytest.importorskip("openTSNE", reason="needs kedge[layout]")
    labels, out = tmp_path / "labels.tsv", tmp_path / "report.html"
    labels.write_text("".join(f"{key}\t{len(key)} letters\n" for key in words[0].keys[:1000]))
    options = ["--labels", str(labels), "--layout", "tsne", "--rows", "100", "-o", str(out)]
    assert main(["report", *run_files, *options]) == 0
    assert "labels: 1000 of 2000 rows of X and 1000 of 2000 of Y" in capsys.readouterr().err
    data = json.loads(unpacked(out.read_text(), "contents"))
    assert [group["name"] for group in data["groups"]] == ["label", "cluster"]
    for key, kind in zip(data["keys"][1], data["groups"][0]["of"][1], strict=True):
        assert (kind >= 0) == (key in words[0].keys[:1000])
    assert data["views"][-1]["description"] == LAYOUT_DESCRIPTION
    assert [len(side) for side in data["views"][-1]["places"]] == [100] * 4
    assert data["views"][data["shown"]]["name"] == "relative to the anchors found"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colour_blind_readers_can_distinguish_the_groups(scheme):
    style = (resources.files("kedge.report") / "assets" / "page.css").read_text()
    found = dict.fromkeys(range(10))
    for number in found:
        found[number] = re.findall(rf"--group-{number}: #([0-9a-f]{{6}})", style)[scheme == "dark"]
    shown = np.array([[int(text[place : place + 2], 16) / 255 for place in (0, 2, 4)] for text in found.values()])
    light = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    # Without red, without green (Machado and others, 2009), and with all.
    for eyes in (
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        np.eye(3),
    ):
        cones = np.clip(light @ np.array(eyes).T, 0, 1) @ OKLAB_CONES.T
        seen = np.cbrt(cones) @ OKLAB_AXES.T
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2) + np.eye(10)
        assert apart.min() > 0.1, (scheme, np.unravel_index(apart.argmin(), apart.shape))


def test_thumbnails_come_from_their_folder_and_nowhere_else(tmp_path, explorer, words, fitted):
    image = pytest.importorskip("PIL.Image", reason="thumbnails need Pillow")
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    image.new("RGB", (400, 200), "red").save(inside / "deep" / "wide.png")
    image.new("RGB", (4, 4), "red").save(tmp_path / "outside.png")
    (inside / "link.png").symlink_to(tmp_path / "outside.png")
    (inside / "text.png").write_text("no image")
    os.mkfifo(inside / "pipe.png")
    thumbnails = Thumbnails(inside)
    with image.open(io.BytesIO(thumbnails.get("deep/wide.png"))) as made:
        assert (made.format, made.size) == ("PNG", (128, 64))
    for key in (
        "../outside.png", "deep/../../outside.png", str(tmp_path / "outside.png"), "link.png", "text.png", "pipe.png",
        "deep", "", "a\0b", "a" * 5000,
    ):  # fmt: skip
        assert thumbnails.get(key) is None, key
    with pytest.raises(InputError, match="no such folder"):
        Thumbnails(tmp_path / "absent")
    image.new("RGB", (4, 4)).save(inside / "water", "PNG")
    image.new("RGB", (4, 4)).save(inside / "stranger", "PNG")
    pictured = Explorer(fitted, *words, run="RUN", max_rows=100, images=inside)
    assert pictured.thumbnail("water")
    assert pictured.thumbnail("stranger") is None  # it is no key
    assert explorer.thumbnail("water") is None  # there is no folder
    assert "img-src &#39;self&#39; data: blob:" in live_page(pictured.words)
    assert "img-src data: blob:" in live_page(explorer.words)


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [("openTSNE", ["report", "--layout", "tsne"], "layout"), ("PIL", ["explore", "--images", "."], "report")],
)
def test_what_is_not_installed_is_named(monkeypatch, run_files, capsys, module, arguments, extra):
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def fails(name, *more, **options):
        if name.split(".")[0] == module:
            raise ModuleNotFoundError(name, name=name)
        return real(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", fails)
    command, *options = arguments
    assert main([command, *run_files, *options]) == 2
    assert f"{module}: pip install 'kedge[{extra}]'" in capsys.readouterr().err


# -- live ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explorer(fitted, words):
    return Explorer(fitted, *words, run="RUN", max_rows=300)


def test_any_key_is_found_drawn_or_not(explorer, words):
    x, _ = words
    drawn = set(explorer.contents["keys"][0])
    assert len(drawn) == 300
    hidden = next(key for key in x.keys if key not in drawn)
    (first, *_) = explorer.find(f" {hidden.upper()} ")
    assert (first["side"], first["key"], first["place"]) == ("x", hidden, None)
    for side, keys in zip("xy", explorer.contents["keys"], strict=True):
        seen = explorer.look_up(side, keys[5])
        assert (seen["side"], seen["place"]) == (side, 5)
    assert explorer.find("") == []
    assert explorer.find("no such key") == []
    hits = [hit["key"] for hit in explorer.find("wa")]
    assert hits == sorted(hits, key=lambda key: not key.startswith("wa"))  # those that begin with it come first
    assert {hit["side"] for hit in explorer.find("wa")} == {"x", "y"}


def test_texts_of_rows_are_shown_and_found(fitted, words):
    x, y = words
    (left, right), *_ = fitted.pair_keys_
    texts = RowTexts({left: "A  Zebra\ncrossing"}, {right: "un passage pour zèbres", "water": "zebra"})
    explorer = Explorer(fitted, x, y, run="RUN", max_rows=300, texts=texts)
    entry = explorer.look_up("x", left)
    assert (entry["text"], entry["partner_text"]) == ("A Zebra crossing", "un passage pour zèbres")
    back = explorer.look_up("y", right)
    assert (back["text"], back["partner_text"]) == ("un passage pour zèbres", "A Zebra crossing")
    found = explorer.find("ZEBRA")
    assert [(hit["side"], hit["key"]) for hit in found] == [("x", left), ("y", "water")]
    assert explorer.find("water")[0]["key"] == "water"  # keys come before texts
    place = explorer.contents["keys"][0].index(left) if left in explorer.contents["keys"][0] else None
    assert place is None or explorer.contents["texts"][0][place] == "A Zebra crossing"
    near_x, near_y = explorer.neighbours("x", str(x.row_of[left]))
    assert all({"text", "partner_text"} <= set(each) for each in near_x + near_y)
    page = live_page(explorer.words)
    assert "Key or text of X or Y" in page
    assert "Keys or texts containing" in page


def test_explore_reads_texts_and_lists_what_min_confidence_asks_for(run_files, monkeypatch, capsys):
    def busy(explorer, port):
        shown.append(explorer)
        raise OSError(98, "in use")

    shown = []
    texts = RowTexts({"water": "a text"}, {})
    monkeypatch.setattr("kedge.report.serve", busy)
    monkeypatch.setattr("kedge.cli.look.explore.read_row_texts", lambda *_: texts)
    for options in ([], ["--min-confidence", "0.99995"]):
        assert main(["explore", *run_files, "--rows", "100", *options]) == 2
    every, sure = shown
    assert every.look_up("x", "water")["text"] == "a text"
    assert every.words["numbers"][0][1] != sure.words["numbers"][0][1]
    assert sure.words["listed_now"].startswith("On this page, at --min-confidence 0.99995: ")


def test_the_key_that_was_typed_comes_first(rotated):
    twins = ["polish", "POLISH", "Polish", "caf\u00e9", "cafe\u0301"]
    x, y = (
        Embeddings(twins + [f"r{row}" for row in range(295)], vectors, name)
        for vectors, name in zip(rotated(), "xy", strict=True)
    )
    fitted = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    explorer = Explorer(fitted, x, y, run="RUN", max_rows=300)
    for key in twins:
        assert [hit["key"] for hit in explorer.find(key)[:2]] == [key, key]  # of X, then of Y
    assert len(explorer.find("polish")) == 6


def test_neighbours_are_those_of_the_command_line(explorer, fitted, words):
    x, y = words
    row = x.row_of["water"]
    near_x, near_y = explorer.neighbours("x", str(row))
    expected = search(fitted, x, y, ["water"], 12)["water"]
    assert [entry["key"] for entry in near_y] == [near.key for near in expected]
    assert [entry["percent"] for entry in near_y] == [round(100 * near.similarity) for near in expected]
    assert "water" not in {entry["key"] for entry in near_x}
    back_x, _ = explorer.neighbours("y", str(y.row_of["water"]))
    assert back_x[0]["key"] == "water"


def test_old_and_new_results_are_those_of_the_two_searches(explorer, fitted, words):
    x, y = words
    row = x.row_of["water"]
    results = explorer.results(str(row))
    for query, space, entries in (
        (x.vectors[row], x, results["new"]),
        (fitted.translate(x.vectors[row]), y, results["old"]),
    ):
        cosines = space.vectors @ query / np.linalg.norm(space.vectors, axis=1) / np.linalg.norm(query)
        best = np.argsort(-cosines)[:10]
        assert [entry["row"] for entry in entries] == best.tolist()
        assert [entry["percent"] for entry in entries] == np.rint(100 * cosines[best]).astype(int).tolist()
    assert results["new"][0]["key"] == "water"  # it finds itself
    same = set(fitted.linked_pairs().keys) | {(key, key) for key in x.keys}
    found = [[entry["key"] for entry in results[which]] for which in ("new", "old")]
    assert [entry["both"] for entry in results["new"]] == [
        any((key, other) in same for other in found[1]) for key in found[0]
    ]
    assert [entry["both"] for entry in results["old"]] == [
        any((other, key) in same for other in found[0]) for key in found[1]
    ]
    assert {entry["both"] for entry in results["new"]} == {True, False}


@pytest.mark.parametrize(("names", "least", "partner"), [("xy", 0.5, "y70"), ("rr", 1.0, None)])
def test_items_are_the_same_by_partner_or_by_key(rotated, names, least, partner):
    x, y = (
        Embeddings([f"{name}{row}" for row in range(300)], each, name)
        for name, each in zip(names, rotated(), strict=True)
    )
    fitted = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    found = Explorer(fitted.with_min_confidence(least), x, y, run="RUN", max_rows=50).results("70")
    assert found["new"][0]["partner"] == partner
    assert [found[which][0]["key"] for which in ("new", "old")] == [f"{name}70" for name in names]
    assert [found[which][0]["both"] for which in ("new", "old")] == [True, True]


def test_the_picture_changes_with_the_anchors(explorer, words):
    found = explorer.view("found", "", "")
    assert found["places"] == explorer.contents["views"][explorer.contents["shown"]]["places"]
    few = explorer.view("found", "3", "")
    assert few["name"] == "relative to 3 anchors (found)"
    assert few["places"] != found["places"]
    assert explorer.view("seeds", "", "")["places"] == explorer.contents["views"][1]["places"]
    keys = explorer.view("keys", "", "water\nmusic\n\nyears\n")
    assert keys["name"] == "relative to 3 keys you chose"
    assert [len(side) for side in keys["places"]] == [300] * 4


def test_keys_as_anchors_see_rows_as_the_run_s_own_do(rotated):
    keys = [f"r{row}" for row in range(300)]
    x, y = (Embeddings(keys, vectors, name) for vectors, name in zip(rotated(), "xy", strict=True))
    whitened = AnchorDiscovery(n_anchors=20, whiten=0.8, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    assert set(whitened.anchor_keys_) <= set(whitened.linked_pairs().keys)
    explorer = Explorer(whitened, x, y, run="RUN", max_rows=300)
    chosen = explorer.view("keys", "", "\n".join(left for left, _ in whitened.anchor_keys_))
    np.testing.assert_allclose(chosen["places"], explorer.view("snapped", "", "")["places"], atol=2)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda explorer: explorer.view("found", "1", ""), "at least 2 anchors"),
        (lambda explorer: explorer.view("found", "101", ""), "whole number below 101"),
        (lambda explorer: explorer.view("best", "", ""), "got 'best'"),
        (lambda explorer: explorer.view("keys", "", "water\nqqq"), "unknown key 'qqq'"),
        (lambda explorer: explorer.neighbours("z", "0"), "side must be x or y"),
        (lambda explorer: explorer.neighbours("x", "2000"), "row must be a whole number below 2000"),
        (lambda explorer: explorer.neighbours("x", "-1"), "row must be a whole number"),
        (lambda explorer: explorer.neighbours("x", "9" * 5000), "row must be a whole number below 2000, got '9999"),
        (lambda explorer: explorer.results("2000"), "row must be a whole number below 2000"),
        (lambda explorer: explorer.results(""), "row must be a whole number"),
        (lambda explorer: explorer.view("keys", "", "water\r\nwater\r\n"), "at least 2 anchors"),
        (lambda explorer: explorer.look_up("y", "qqq"), "unknown key 'qqq'"),
        (lambda explorer: explorer.look_up("z", "water"), "side must be x or y"),
    ],
)
def test_bad_questions_get_clear_answers(explorer, question, message):
    with pytest.raises(InputError, match=message):
        question(explorer)


def test_the_layout_is_computed_while_others_are_answered(explorer):
    pytest.importorskip("openTSNE", reason="needs kedge[layout]")
    assert explorer.contents["views"][-1]["places"] is None
    while (places := explorer.layout()["places"]) is None:
        assert explorer.find("water")
        time.sleep(0.1)
    assert [len(side) for side in places] == [300] * 4
    assert explorer.layout()["places"] == places


def test_a_layout_that_fails_says_why(fitted, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    explorer = Explorer(fitted, *words, run="RUN", max_rows=100)
    with pytest.raises(InputError, match="the layout needs openTSNE"):
        while explorer.layout()["places"] is None:
            time.sleep(0.1)


def test_a_key_without_a_partner_is_no_anchor(explorer, fitted):
    unmatched = fitted.x_.unmatched_keys[0]
    with pytest.raises(InputError, match="is in no pair"):
        explorer.view("keys", "", f"water\n{unmatched}")


@pytest.fixture(scope="module")
def live(run_files):
    """The address of `kedge explore`, and its process."""
    command = [sys.executable, "-m", "kedge", "explore", *run_files, "--json", "--rows", "300", "--gold", "keys"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    printed = next(lines)
    while not printed.rstrip().endswith("}"):
        printed += next(lines)
    yield json.loads(printed)["url"], process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()


def status_of(request):
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_it_answers_and_refuses(live):
    address, _ = live
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    status, body = status_of(address)
    assert (status, body[:15]) == (200, b"<!doctype html>")
    assert b"Against the gold pairs" in body
    assert set(json.loads(status_of(f"{address}contents.json")[1])["right"]) <= {True, False}
    assert json.loads(status_of(f"{address}key?side=y&key=water")[1])["entry"]["side"] == "y"
    assert status_of(f"{address}image?key=water")[0] == 404  # no folder was named
    status, body = status_of(f"{address}keys?text=water")
    assert json.loads(body)["hits"][0]["key"] == "water"
    status, body = status_of(f"{address}near?side=x&row=x")
    assert (status, "row must be" in json.loads(body)["error"]) == (400, True)
    assert status_of(f"{address}run.json")[0] == 404
    assert status_of(f"{address}../../etc/passwd")[0] == 404
    status, body = status_of(f"{address}keys?text={'a' * 70_000}")
    assert (status, set(json.loads(body))) == (414, {"error"})
    assert status_of(f"{address}near?{'&'.join('side=x' for _ in range(9000))}")[0] == 400
    assert status_of(urllib.request.Request(address, method="HEAD")) == (200, b"")
    for method in ("POST", "PUT", "DELETE"):
        status, body = status_of(urllib.request.Request(address, method=method, data=b"x"))
        assert (status, set(json.loads(body))) == (501, {"error"})
    elsewhere = urllib.request.Request(address, headers={"Host": "evil.example"})
    assert status_of(elsewhere)[0] == 403


def test_it_listens_on_loopback_only(live):
    port = int(live[0].rsplit(":", 1)[1].rstrip("/"))
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), port, type=socket.SOCK_STREAM)}
    for host in sorted(others - {"127.0.0.1"}):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.settimeout(5)
            assert probe.connect_ex((host, port)) != 0
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


def test_a_port_in_use_is_refused(live, run_files, capsys):
    port = live[0].rsplit(":", 1)[1].rstrip("/")
    assert main(["explore", *run_files, "--port", port, "--rows", "100"]) == 2
    assert f"--port {port}: cannot be used" in capsys.readouterr().err


def test_ctrl_c_ends_it_in_peace(live):
    _, process = live
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert errors.endswith("kedge: stopped\n")
    assert "Traceback" not in errors
