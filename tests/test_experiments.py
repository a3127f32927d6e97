"""The paper's experiments: what a user sees of `kedge reproduce`, and the parts behind it."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kedge
from kedge import Embeddings, InputError, write_embeddings
from kedge.cli.main import main
from kedge.data import load_demo_words
from paper.pairs_of_spaces import SpacePair, draw_task, load_pair, load_published_words
from paper.plan import Parts
from paper.retrieval import retrieval_state
from paper.tables import Table, shown, summarise


def ignore(*_: object) -> None:
    """Nobody listens."""


def test_a_finished_part_is_not_done_again(tmp_path):
    calls = []

    def compute() -> dict:
        calls.append(1)
        return {"mrr": 0.5}

    begun = []
    parts = Parts(tmp_path / "parts", {"data": "a"}, lambda name, finished: begun.append((name, finished)))
    assert parts.get("one", compute) == parts.get("one", compute) == {"mrr": 0.5}
    assert len(calls) == 1
    assert begun == [("one", False), ("one", True)]
    Parts(tmp_path / "parts", {"data": "b"}, ignore).get("one", compute)
    assert len(calls) == 2, "other settings are other parts"
    assert len(list((tmp_path / "parts").iterdir())) == 2
    (written,) = (path for path in (tmp_path / "parts").iterdir() if parts._digest in path.name)
    written.write_text(written.read_text()[:5])
    parts.get("one", compute)
    assert len(calls) == 3, "a damaged part is not finished"


def test_a_part_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        Parts(tmp_path, {}, ignore).get("one", lambda: {"value": 1 / 0})
    assert not list(tmp_path.iterdir())


def test_tables():
    table = Table("a title", ("anchors", "MRR"), [("a|b", ".5")], ["a remark"])
    assert table.to_markdown() == "### a title\n\n| anchors | MRR |\n|---|---|\n| a\\|b | .5 |\n\na remark\n"
    assert shown([{"mean": 0.25, "std": 0.01}, {"mean": 1.0, "std": 0.02}]) == ".250 / 1.000 ±.020"
    summary = summarise([{"a": {"b": 1.0}, "verdict": "x"}, {"a": {"b": 3.0}, "verdict": "y"}])
    assert summary == {"a": {"b": {"mean": 2.0, "std": 1.0}}}


def test_the_papers_choice_of_words(tmp_path):
    chance = np.random.default_rng(0)
    words = ["".join(letters) for letters in itertools.product("abcdefghij", "klmnopqrst", "uvwxy", "abc")]
    x = Embeddings(["the", "a1b2", *words], chance.standard_normal((1502, 8)))
    y = Embeddings(words[::-1], chance.standard_normal((1500, 6)))
    write_embeddings(x, tmp_path / "x.vec")
    write_embeddings(y, tmp_path / "y.bin")
    pair = load_published_words(tmp_path / "x.vec", tmp_path / "y.bin")
    assert list(pair.x.keys) == list(pair.y.keys) == words[400:], "by X's frequency, the first 400 skipped"
    np.testing.assert_allclose(pair.y.vectors[0], y.vectors[y.row_of[words[400]]], rtol=1e-6)
    write_embeddings(x.take(range(600)), tmp_path / "few.vec")
    with pytest.raises(InputError, match="without the first 400: there are 198, at least 300 are needed"):
        load_published_words(tmp_path / "few.vec", tmp_path / "y.bin")


def test_a_task_gives_nothing_away():
    x, y = load_demo_words()
    pair = SpacePair("demo", x, y, "Word2Vec", "GloVe")
    task = draw_task(pair, 0)
    assert sorted(task.y.keys) == sorted(y.keys)
    assert sum(a == b for a, b in zip(task.x.keys, task.y.keys, strict=True)) < 10
    assert len(set(task.anchors)) == 300
    assert task.seeds == [(key, key) for key in task.anchors[:15]]
    again = draw_task(pair, 0)
    assert (again.anchors, list(again.y.keys)) == (task.anchors, list(task.y.keys))
    assert draw_task(pair, 1).anchors != task.anchors


@pytest.mark.thorough
def test_retrieval_state_on_real_words():
    x, y = (space.take(range(2000)) for space in load_demo_words())
    state = retrieval_state(SpacePair("demo", x, y, "Word2Vec", "GloVe"), 0, device="cpu", with_picture=True)
    scores = state["scores"]
    for optimised in ("x", "y"):
        for direction in ("x->y", "y->x"):
            gt, seed, found = (scores[name][optimised][direction] for name in ("GT", "Seed", "Found"))
            for metric in ("jaccard", "cosine"):
                assert found[metric] > gt[metric] > seed[metric] - 0.05
            assert found["mrr"] > gt["mrr"] - 0.01 > seed["mrr"]
        for name in ("GT", "Found"):
            same = scores[name][optimised]["x->x"]
            assert same == pytest.approx({"jaccard": 1, "mrr": 1, "cosine": 1}, abs=1e-3)
    assert state["pairs_precision"] > 0.99
    places = state["picture"]["Found"]["y"]
    assert len(places["groups"]["school"]) == 15
    assert np.isfinite(places["background"]).all()


@pytest.mark.parametrize("rows", [900, pytest.param(2200, marks=pytest.mark.thorough)])
def test_reproduce_words_from_files_and_again(tmp_path, capsys, rows):
    x, y = load_demo_words()
    write_embeddings(x.take(range(rows)), tmp_path / "x.vec")
    write_embeddings(y, tmp_path / "y.bin")
    command = ["reproduce", "words", "--x", str(tmp_path / "x.vec"), "--y", str(tmp_path / "y.bin"), "--out"]
    out = tmp_path / "new" / "out"
    assert main([*command, str(out), "--random-states", "0"]) == 0
    first = capsys.readouterr()
    assert "x.vec → y.bin" in first.out
    assert ".34 / .94 / .86" in first.out, "the paper's figures stand beside ours"
    assert "not run" in first.out, "the paper's optimiser, on a CPU"
    assert "done before" not in first.err
    names = {path.name for path in out.iterdir()}
    assert names >= {"words.md", "words.json", "words-files.png", "words-files.svg", "words-files-mrr.png"}
    details = json.loads((out / "words.json").read_text())["files"]
    found = details["summary"]["scores"]["Found"]["y"]["x->y"]["mrr"]["mean"]
    assert f"{found:.3f}".removeprefix("0") in (out / "words.md").read_text()
    assert (out / "words-files.png").read_bytes().startswith(b"\x89PNG")

    assert main([*command, str(out), "--random-states", "0", "--json"]) == 0
    again = capsys.readouterr()
    assert "words-files-state-0: done before" in again.err
    assert json.loads(again.out) == {"files": details}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["words", "--x", "a.vec"], "--x and --y go together"),
        (["words", "--data", "nowhere"], "nowhere: no such folder"),
        (["images", "--data", "{empty}"], "no such file"),
        (["reviews", "--data", "{empty}"], "no such file; give the folder of the data with --data or KEDGE_DATA"),
        (["words", "--random-states", "0", "0"], "--random-states: something is given twice: 0 0"),
        (["reviews", "--data", "{empty}", "--encoder-x", "m"], "--encoder-x and --encoder-y are for one task"),
        (["words"], "no data: give their folder with --data, or in the environment as KEDGE_DATA"),
    ],
)
def test_what_is_missing_is_said(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.delenv("KEDGE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["reproduce", *(argument.format(empty=tmp_path / "empty") for argument in arguments)]) == 2
    assert message in capsys.readouterr().err


def reproduce_elsewhere(package: Path, cwd: Path) -> subprocess.CompletedProcess:
    """`kedge reproduce` in a process of its own, which finds the package in that folder."""
    return subprocess.run(
        [sys.executable, "-m", "kedge", "reproduce", "words", "--data", "nowhere", "--no-figures"],
        env=os.environ | {"PYTHONPATH": str(package)},
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def test_reproduce_works_from_a_checkout_and_says_so_elsewhere(tmp_path):
    package = Path(kedge.__file__).parent
    found = reproduce_elsewhere(package.parent, tmp_path)
    assert (found.returncode, "nowhere: no such folder" in found.stderr) == (2, True), found.stderr
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "kedge").symlink_to(package)
    refused = reproduce_elsewhere(installed, tmp_path)
    assert refused.returncode == 2
    message = " ".join(refused.stderr.split())
    assert "kedge reproduce works from a checkout of kedge's source" in message
    assert "pip install --editable" in message
    assert "Traceback" not in refused.stderr


def write_lines(path, lines) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(line + "\n" for line in lines)


MOODS = {1: "bad", 2: "poor", 3: "fair", 4: "good", 5: "great"}


@pytest.fixture(scope="module")
def made_up_reviews(tmp_path_factory):
    """A folder of made-up reviews and parallel sentences; "Spanish" is English with other words."""
    folder, chance = tmp_path_factory.mktemp("data"), random.Random(0)
    things = [f"{a}{b}" for a in "bcdfg" for b in ("ag", "el", "in", "op", "ut")]
    languages = {"en": lambda word: word, "es": lambda word: word[::-1] + "o"}

    def sentence(stars: int) -> list[str]:
        return chance.choices(things, k=6) + [MOODS[stars]] * 2

    for language, spell in languages.items():
        for part, count in (("train", 400), ("test", 60)):
            lines = []
            for row in range(count):
                stars = 1 + row % 5
                text = " ".join(spell(word) for word in sentence(stars))
                lines.append(json.dumps({"id": row, "stars": stars, "text": text}))
            write_lines(folder / f"reviews/amazon-{language}-{part}.jsonl.gz", lines)
    parallel = (sentence(1 + row % 5) for row in range(400))
    lines = ["\t".join(" ".join(map(spell, words)) for spell in languages.values()) for words in parallel]
    write_lines(folder / "reviews/parallel-en-es-tatoeba.tsv.gz", lines)
    words = [*things, *MOODS.values()]
    return folder, {language: {spell(word) for word in words} for language, spell in languages.items()}


@pytest.mark.thorough
def test_reviews_by_transformers_models(tmp_path, capsys, made_up_reviews, make_roberta):
    """The path for those who have the paper's encoders, with tiny ones."""
    pytest.importorskip("transformers")
    folder, words = made_up_reviews
    models = [make_roberta(tmp_path / language, words[language]) for language in ("en", "es")]
    command = ["reproduce", "reviews", "--tasks", "amazon", "--data", str(folder), "--random-states", "0", "1"]
    command += ["--encoder-x", models[0], "--encoder-y", models[1], "--out", str(tmp_path / "out")]
    assert main(command) == 0
    first = capsys.readouterr()
    assert ".64 / .43" in first.out
    assert "weighted F1" in (tmp_path / "out/reviews.md").read_text() or "Weighted F1" in first.out
    summary = json.loads((tmp_path / "out/reviews.json").read_text())["amazon"]["summary"]
    # The first token of an untrained network separates stars well within a language, wherever it is trained.
    assert summary["scores"]["GT"]["en<-en"]["weighted_f1"]["mean"] > 0.4
    assert set(summary["scores"]) == {"GT", "Seed", "Found"}
    assert len(list((tmp_path / "out/encoded").glob("*.npy"))) == 2, "what was encoded is kept"
    encoded = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/encoded").iterdir()}
    assert main(command) == 0
    assert capsys.readouterr().err.count("done before") == 2
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out/encoded").iterdir()} == encoded
    next(iter(encoded)).write_bytes(b"damaged")
    assert main(command) == 0, "a damaged file is made again, to the same vectors"
    assert capsys.readouterr().err.count("done before") == 2


def test_damaged_reviews_are_named(tmp_path, capsys, made_up_reviews):
    folder = tmp_path / "data"
    for path in (made_up_reviews[0] / "reviews").iterdir():
        (folder / "reviews").mkdir(parents=True, exist_ok=True)
        (folder / "reviews" / path.name).write_bytes(path.read_bytes())
    (folder / "words").mkdir()
    chance = np.random.default_rng(0)
    for name in ("word2vec-googlenews-300", "fasttext-es-200"):
        write_embeddings(Embeddings(["bag", "del"], chance.standard_normal((2, 4))), folder / f"words/{name}.npz")
    bad = folder / "reviews/amazon-en-train.jsonl.gz"
    write_lines(bad, ['{"stars": 1, "text": "bag"}', '{"stars": 2}'])
    command = ["reproduce", "reviews", "--tasks", "amazon", "--data", str(folder), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert f"{bad}, line 2: a JSON object with text, stars is needed" in capsys.readouterr().err
    write_lines(bad, ['{"stars": 1, "text": "bag"}', '{"stars": 2, "text": null}'])
    assert main(command) == 2
    assert f"{bad}, line 2: 'text' must be a string that is not blank, got None" in capsys.readouterr().err
    bad.write_bytes(bad.read_bytes()[:20])
    assert main(command) == 2
    assert "not a readable gzip file of text" in capsys.readouterr().err


@pytest.mark.thorough
def test_reproduce_on_the_real_data(data_folder, tmp_path, capsys):
    """A quick setting of each experiment."""
    common = ["--data", str(data_folder), "--out", str(tmp_path), "--random-states", "0", "--no-figures"]
    assert main(["reproduce", "words", *common, "--limit", "3000", "--json"]) == 0
    words = json.loads(capsys.readouterr().out)
    assert main(["reproduce", "images", *common, "--limit", "3000", "--pairs", "vit", "--json"]) == 0
    images = json.loads(capsys.readouterr().out)
    for details in (words["easy"], words["medium"], images["vit"]):
        scores = details["summary"]["scores"]
        for optimised in ("x", "y"):
            for direction in ("x->y", "y->x"):
                for metric in ("jaccard", "mrr", "cosine"):
                    found, gt = (scores[name][optimised][direction][metric]["mean"] for name in ("Found", "GT"))
                    assert found > gt, (details["x"], optimised, direction, metric)

    tasks = ["--tasks", "amazon", "descriptions", "--limit", "3000"]
    assert main(["reproduce", "reviews", *common, *tasks, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)["descriptions"]["summary"]["scores"]
    for cross in ("en<-fr", "fr<-en"):
        gt, seed, found = (described[name][cross]["weighted_f1"]["mean"] for name in ("GT", "Seed", "Found"))
        assert found - seed > 0.6 * (gt - seed) > 0
    for same in ("en<-en", "fr<-fr"):
        assert described["Found"][same]["weighted_f1"]["mean"] > described["GT"][same]["weighted_f1"]["mean"] - 0.03


def test_pairs_of_the_data_folder(data_folder):
    easy, mobilenet = load_pair(data_folder, "easy"), load_pair(data_folder, "mobilenet", limit=500)
    assert len(easy.x) == 20_000
    assert list(easy.x.keys) == list(easy.y.keys)
    assert (len(mobilenet.y), mobilenet.y.dim) == (500, 1280)
