"""The page of a run, and the server of the live one: what is in them, apart from how they look in a browser."""

from __future__ import annotations

import base64
import builtins
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the page needs kedge[report]")

from kedge import AnchorDiscovery, Embeddings, InputError
from kedge.cli.main import main
from kedge.discovery.inputs import as_space
from kedge.errors import MissingExtraError
from kedge.report import Comparison, Explorer, draw_sample, write_report
from kedge.report.contents import data_of
from kedge.report.neighbourhoods import Neighbourhoods
from kedge.tasks import Truth, as_percent, evaluate, gold_by_key, search


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
    assert fitted.health_.map.reason in page
    assert fitted.health_.pairs.advice in page
    assert f"<b>{len(fitted.pairs_):,}</b>" in page
    data = json.loads(unpacked(page, "contents"))
    assert list(zip(*data["keys"], strict=False))[: data["pairs"]] == fitted.pair_keys_
    assert sorted(data["keys"][0]) == sorted(words[0].keys)  # all rows are there, also those in no pair
    np.testing.assert_allclose(data["confidence"], fitted.pair_confidence_, atol=1e-4)
    assert [row[:2] for row in data["anchors"]] == [list(pair) for pair in fitted.anchor_keys_]
    assert [row[:2] for row in data["seeds"]] == [list(pair) for pair in fitted.seed_keys_]
    assert sum(data["sureness"]["counts"]) == len(fitted.pairs_)
    assert data["sureness"]["precision"][-1] == pytest.approx(fitted.pair_confidence_.mean(), abs=1e-4)


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
    left, right = fitted.shared_x(x), fitted.shared_y(y)
    ratios, alike = left @ right.T, cosines(left[:, :-2], right[:, :-2])
    for side, space, likely, similar in (
        ("x", fitted.normalise_x(x), ratios[rows], alike[rows]),
        ("y", fitted.normalise_y(y), ratios.T[rows], alike.T[rows]),
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
    write_report(tmp_path / "part.html", fitted, *words, most=500)
    page = (tmp_path / "part.html").read_text()
    data = json.loads(unpacked(page, "contents"))
    assert [len(keys) for keys in data["keys"]] == [500, 500]
    assert max(data["near"]["across"][0]["rows"]) < 500
    assert "taken at random" in page


def test_with_gold_the_page_compares(fitted, words, tmp_path):
    gold = gold_by_key(*words)
    evaluation = evaluate(fitted, *words, gold, complete=True, device="cpu")
    truth = Truth(*words, gold, complete=True)
    write_report(tmp_path / "gold.html", fitted, *words, gold=Comparison(evaluation, truth, "A note & more."))
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
    data = data_of(fitted, x, y, draw_sample(fitted, x, y, 100), Comparison(evaluation, truth))
    known = {x.keys[row] for row in gold[:, 0]}
    assert [right is None for right in data["right"]] == [key not in known for key in data["keys"][0][: data["pairs"]]]
    judged = sum(count for *_, count in data["reliability"]["bins"])
    assert judged == sum(left in known for left, _ in fitted.pair_keys_)


@pytest.mark.parametrize(("seeds", "anchors"), [(1, 1), (1, 20), (20, 1)])
def test_one_seed_or_anchor_is_enough_for_a_picture(rotated, tmp_path, seeds, anchors):
    keys = [f"r{row}" for row in range(300)]
    x, y = (Embeddings(keys, vectors, name) for vectors, name in zip(rotated(), "xy", strict=True))
    one = AnchorDiscovery(n_anchors=anchors, device="cpu").fit(x, y, [(row, row) for row in range(seeds)])
    write_report(tmp_path / "one.html", one, x, y)
    views = json.loads(unpacked((tmp_path / "one.html").read_text(), "contents"))["views"]
    assert [[len(side) for side in view["places"]] for view in views] == [[300] * 4] * 3


def test_a_small_space_is_drawn_whole_beside_a_large_one(rotated):
    x, y = rotated(n=2000)
    x = x[:100]
    unequal = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    spaces = as_space(x, "x"), as_space(y, "y")
    sample = draw_sample(unequal, *spaces, 300)
    assert (len(sample.rows_x), len(sample.rows_y)) == (100, 300)
    assert len(sample.pair_numbers) == len(unequal.pairs_)
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
        Explorer(fitted, x, others, run="RUN", most=100)
    assert not list(tmp_path.iterdir())


def test_a_page_does_not_go_into_a_run(run_files, capsys):
    assert main(["report", *run_files, "-o", f"{run_files[0]}/report.html"]) == 2
    assert "is inside a run folder" in capsys.readouterr().err


def test_what_a_run_was_made_with_is_cited(small_files, tmp_path):
    folder = tmp_path / "a $(run)"
    files = [*small_files[:2], "--limit", "100"]
    command = ["discover", *files, "--anchors", "20", "--out", str(folder), "--force"]
    assert main([*command, "--report", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    for told in ("SHA-256", "fit seconds", "first rows read", "<dt>torch</dt>", "none were needed"):
        assert told in page, told
    assert "kedge search &#39;" in page  # a name like that can be pasted into a shell
    described = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(described | {"kedge": "0.0.7"}))
    assert main(["report", str(folder), *files, "-o", str(tmp_path / "again.html")]) == 0
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
    truth = Comparison(evaluate(nothing, x, y, gold, complete=True), Truth(x, y, gold, complete=True))
    write_report(tmp_path / "failed.html", nothing, x, y, gold=truth)
    page = (tmp_path / "failed.html").read_text()
    assert nothing.health_.map.verdict != "right"
    assert f'<span class="badge">{nothing.health_.map.verdict}</span>' in page
    assert "It worked." not in page
    assert "No pair is probable enough" in page
    assert "none were given" in page
    assert 'value="seeds"' not in page
    data = json.loads(unpacked(page, "contents"))
    assert data["pairs"] == 0
    assert data["sureness"] is None
    assert data["reliability"]["bins"] == []


def test_the_verb_writes_the_page(run_files, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", *run_files, "--gold", "keys", "-o", str(out)]) == 0
    assert f"page: {out}" in capsys.readouterr().out
    assert "Against the truth" in out.read_text()
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
    command = ["discover", *files, "--seeds", seeds, "--anchors", "20", "--force"]
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
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", fails)
    with pytest.raises(MissingExtraError, match=r"pip install 'kedge\[report\]'"):
        write_report(tmp_path / "report.html", fitted, *words)


# -- live ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explorer(fitted, words):
    return Explorer(fitted, *words, run="RUN", most=300)


def test_any_key_is_found_drawn_or_not(explorer, words):
    x, _ = words
    drawn = set(explorer.contents["keys"][0])
    assert len(drawn) == 300
    hidden = next(key for key in x.keys if key not in drawn)
    (first, *_) = explorer.find(f" {hidden.upper()} ")
    assert (first["side"], first["key"], first["place"]) == ("x", hidden, None)
    seen = explorer.look_up(explorer.contents["keys"][0][5])
    assert seen["place"] == 5
    assert explorer.find("") == []
    assert explorer.find("no such key") == []
    hits = [hit["key"] for hit in explorer.find("wa")]
    assert hits == sorted(hits, key=lambda key: not key.startswith("wa"))  # those that begin with it come first
    assert {hit["side"] for hit in explorer.find("wa")} == {"x", "y"}


def test_the_key_that_was_typed_comes_first(rotated):
    twins = ["polish", "POLISH", "Polish", "caf\u00e9", "cafe\u0301"]
    x, y = (
        Embeddings(twins + [f"r{row}" for row in range(295)], vectors, name)
        for vectors, name in zip(rotated(), "xy", strict=True)
    )
    fitted = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    explorer = Explorer(fitted, x, y, run="RUN", most=300)
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


def test_the_picture_changes_with_the_anchors(explorer, words):
    found = explorer.view("found", "", "")
    assert found["places"] == explorer.contents["views"][-1]["places"]
    few = explorer.view("found", "3", "")
    assert few["name"] == "relative to 3 anchors (found)"
    assert few["places"] != found["places"]
    assert explorer.view("seeds", "", "")["places"] == explorer.contents["views"][1]["places"]
    keys = explorer.view("keys", "", "water\nmusic\n\nyears\n")
    assert keys["name"] == "relative to 3 keys of yours"
    assert [len(side) for side in keys["places"]] == [300] * 4


def test_keys_as_anchors_see_rows_as_the_run_s_own_do(rotated):
    keys = [f"r{row}" for row in range(300)]
    x, y = (Embeddings(keys, vectors, name) for vectors, name in zip(rotated(), "xy", strict=True))
    whitened = AnchorDiscovery(n_anchors=20, whiten=0.8, device="cpu").fit(x, y, [(row, row) for row in range(50)])
    assert set(whitened.anchor_keys_) <= set(whitened.pair_keys_)
    explorer = Explorer(whitened, x, y, run="RUN", most=300)
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
        (lambda explorer: explorer.view("keys", "", "water\r\nwater\r\n"), "at least 2 anchors"),
        (lambda explorer: explorer.look_up("qqq"), "unknown key 'qqq'"),
    ],
)
def test_bad_questions_get_clear_answers(explorer, question, message):
    with pytest.raises(InputError, match=message):
        question(explorer)


def test_a_key_without_a_partner_is_no_anchor(explorer, fitted):
    alone = fitted.unmatched_keys_x_[0]
    with pytest.raises(InputError, match="is in no pair"):
        explorer.view("keys", "", f"water\n{alone}")


@pytest.fixture(scope="module")
def live(run_files):
    """The address of `kedge explore`, and its process."""
    command = [sys.executable, "-m", "kedge", "explore", *run_files, "--json", "--rows", "300"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    told = next(lines)
    while not told.rstrip().endswith("}"):
        told += next(lines)
    yield json.loads(told)["url"], process
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
