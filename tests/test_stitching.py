"""Zero-shot stitching: heads, scores, known anchors, and labels that cross from one real space to the other."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error
from sklearn.neighbors import KNeighborsClassifier

from kedge import AnchorDiscovery, Embeddings, InputError, KnownAnchors, Stitcher, write_embeddings
from kedge.cli.main import main
from kedge.errors import NotFittedError
from kedge.spaces import read_labels, write_table
from kedge.spaces.pairs import read_table
from kedge.tasks import MLPHead, stitch_scores

CLASSES = 5


@pytest.fixture(scope="module")
def topics(words) -> dict[str, str]:
    """A label for every word: its cluster among the Word2Vec vectors."""
    x = words[0].vectors / np.linalg.norm(words[0].vectors, axis=1, keepdims=True)
    clusters = KMeans(CLASSES, n_init=1, random_state=0).fit_predict(x - x.mean(axis=0))
    return {key: f"topic {cluster}" for key, cluster in zip(words[0].keys, clusters, strict=True)}


@pytest.fixture(scope="module")
def split(words, topics):
    """Words of X to train on and others of Y to test on, with their labels."""
    x, y = words
    train, test = x.take(range(0, 2000, 2)), y.take(y.rows(x.keys[1::2]))
    return train, [topics[key] for key in train.keys], test, [topics[key] for key in test.keys]


@pytest.fixture
def blobs():
    """Coordinates around one center a class, and their labels."""
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 3, 600)
    coordinates = chance.standard_normal((3, 10))[labels] + 0.3 * chance.standard_normal((600, 10))
    return coordinates.astype(np.float32), labels


# -- heads --------------------------------------------------------------------------------------------


def test_the_network_learns_and_repeats_itself(blobs):
    coordinates, labels = blobs
    names = np.array(["a", "b", "c"])[labels]
    before = torch.random.get_rng_state()
    head = MLPHead(epochs=30, random_state=1).fit(coordinates[:400], names[:400])
    assert torch.equal(torch.random.get_rng_state(), before)  # torch's own state is left alone
    torch.manual_seed(5)
    again, other = (MLPHead(epochs=30, random_state=state).fit(coordinates[:400], names[:400]) for state in (1, 2))
    probabilities = head.predict_proba(coordinates[400:])
    np.testing.assert_array_equal(probabilities, again.predict_proba(coordinates[400:]))
    assert not np.array_equal(probabilities, other.predict_proba(coordinates[400:]))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert head.classes_.tolist() == ["a", "b", "c"]
    assert np.mean(head.predict(coordinates[400:]) == names[400:]) > 0.95


def test_the_network_is_the_papers():
    head = MLPHead(epochs=1).fit(np.eye(12, 7, dtype=np.float32), np.arange(12) % 4)
    shapes = [tuple(parameter.shape) for parameter in head.network_.parameters()]
    assert shapes == [(7,), (7,), (7, 7), (7,), (7, 7), (7,), (4, 7), (4,)]
    assert [type(layer).__name__ for layer in head.network_] == [
        "LayerNorm", "Linear", "SiLU", "Linear", "SiLU", "Linear",
    ]  # fmt: skip


def test_the_network_predicts_in_batches(blobs, monkeypatch):
    coordinates, labels = blobs
    head = MLPHead().fit(coordinates, labels)
    whole = head.predict_proba(coordinates)
    monkeypatch.setattr("kedge.tasks.stitching.heads._PREDICT_ROWS", 77)
    np.testing.assert_allclose(head.predict_proba(coordinates), whole, atol=1e-6)


def test_the_network_refuses_what_makes_no_sense(blobs):
    with pytest.raises(NotFittedError, match="call fit first"):
        MLPHead().predict(blobs[0])
    with pytest.raises(InputError, match="got 5 for 600 rows"):
        MLPHead().fit(blobs[0], blobs[1][:5])
    for wrong in ({"epochs": 0}, {"batch_size": 0.5}, {"random_state": -1}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} must be a whole number"):
            MLPHead(**wrong).fit(*blobs)


# -- scores -------------------------------------------------------------------------------------------


def test_scores_agree_with_scikit_learn():
    chance = np.random.default_rng(1)
    for classes in (2, 5, 40):
        truth, guess = chance.integers(-1, classes, (2, 200))
        guess[:50] = classes + 3  # never true, and some true ones are never guessed
        scores = stitch_scores(truth, guess)
        assert scores.weighted_f1 == pytest.approx(f1_score(truth, guess, average="weighted", zero_division=0))
        assert scores.accuracy == pytest.approx(accuracy_score(truth, guess))
        assert scores.mae == pytest.approx(mean_absolute_error(truth, guess))
        as_text = stitch_scores([str(label) for label in truth], [str(label) for label in guess])
        assert as_text.weighted_f1 == pytest.approx(scores.weighted_f1)
        assert as_text.mae is None


def test_labels_come_in_many_guises():
    expected = stitch_scores([1, 2, 3], [1, 2, 2])
    tensor, objects = torch.tensor([1, 2, 3]), np.array([1, np.int8(2), 3.0], dtype=object)
    for truth in (tensor, objects, np.array([1.0, 2.0, 3.0]), (1, 2, 3), np.array([1, 2, 3], dtype=np.uint8)):
        assert stitch_scores(truth, [1, 2, 2]) == expected
    assert stitch_scores(np.array(["long name", "b"], dtype=object), np.array(["b", "b"])).accuracy == 0.5


# -- known anchors ------------------------------------------------------------------------------------


def test_known_anchors_give_the_coordinates_of_a_discovery(words, fitted, word_seeds):
    x, y = words
    pairs = np.stack([fitted.anchors_x_, fitted.anchors_y_], axis=1)
    by_row, by_key = KnownAnchors().fit(x, y, pairs), KnownAnchors().fit(x, y, fitted.anchor_keys_)
    for known in (by_row, by_key):
        np.testing.assert_allclose(known.x_.relative(x), fitted.x_.relative(x), atol=1e-6)
        np.testing.assert_allclose(known.y_.relative(y), fitted.y_.relative(y, anchors="snapped"), atol=1e-6)
        assert known.anchor_keys_ == fitted.anchor_keys_
    seeds = KnownAnchors().fit(x.vectors, y.vectors, fitted.seeds_)
    np.testing.assert_allclose(seeds.x_.relative(x.vectors), fitted.x_.relative(x, anchors="seeds"), atol=1e-6)
    np.testing.assert_allclose(seeds.y_.relative(y.vectors), fitted.y_.relative(y, anchors="seeds"), atol=1e-6)
    assert seeds.x_.relative(x).dtype == np.float32


def test_known_anchors_without_centering_are_plain_cosines(rotated):
    x, y = rotated(n=40)
    known = KnownAnchors(center=False).fit(x, y, [(3, 3)])
    unit_x = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(known.x_.relative(x), unit_x @ unit_x[[3]].T, atol=1e-6)
    np.testing.assert_allclose(known.y_.relative(y), known.x_.relative(x), atol=1e-5)
    assert known.x_.center is None
    assert repr(known) == "KnownAnchors(center=False)"
    assert clone(known).get_params() == {"center": False}


def test_known_anchors_refuse_what_makes_no_sense(rotated):
    x, y = rotated(n=40)
    for pairs, message in (
        ([], "pairs: this method needs at least 1 distinct pairs, got 0"),
        ([(0, 40)], "pairs, number 1, .0, 40.: 40 is no row of y"),
        ([(0, 1), (0, 2)], "pairs contradict each other"),
        ([(0.5, 1.0)], "pairs, number 1, .0.5, 1.0.: x has no key 0.5"),
    ):
        with pytest.raises(InputError, match=message):
            KnownAnchors().fit(x, y, pairs)
    with pytest.raises(InputError, match="y: all rows point the same way"):
        KnownAnchors().fit(x, np.ones((40, 3)), [(0, 0)])
    with pytest.raises(NotFittedError, match="call fit first"):
        KnownAnchors().x_.relative(x)
    with pytest.raises(InputError, match="has 3 dimensions, but Y of this run has 16"):
        KnownAnchors().fit(x, y, [(0, 0)]).y_.relative(np.ones((1, 3)))
    with pytest.raises(InputError, match="KnownAnchors has no parameter 'centered'; it has center"):
        KnownAnchors().set_params(centered=False)


# -- stitching ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["logistic", "mlp"])
def test_a_head_trained_on_x_serves_y(fitted, split, head):
    train, train_labels, test, test_labels = split
    found = Stitcher(fitted, head=head).fit(train, train_labels).score_y(test, test_labels)
    seeds = Stitcher(fitted, head=head, anchors="seeds").fit(train, train_labels).score_y(test, test_labels)
    chance = max(np.unique(test_labels, return_counts=True)[1]) / len(test_labels)
    assert found.accuracy > chance + 0.3
    assert found.weighted_f1 > seeds.weighted_f1 + 0.1
    assert found.mae is None


def test_known_anchors_stitch_too_and_the_same_space_is_the_upper_bound(words, fitted, split):
    x, y = words
    train, train_labels, test, test_labels = split
    truth = KnownAnchors().fit(x, y, [(key, key) for key, _ in fitted.anchor_keys_])
    stitcher = Stitcher(truth).fit(train, train_labels)
    across = stitcher.score_y(test, test_labels)
    within = stitcher.score_x(x.take(x.rows(test.keys)), test_labels)
    assert within.weighted_f1 > across.weighted_f1 > 0.6
    assert across == stitcher.score(test, test_labels, "y")


def test_from_y_to_x(fitted, words, split):
    _, _, test, test_labels = split
    train, labels = words[0].take(range(0, 2000, 2)), split[1]
    stitcher = Stitcher(fitted, space="y", anchors="snapped").fit(test, test_labels)
    assert stitcher.score_x(train, labels).accuracy > 0.6
    np.testing.assert_array_equal(stitcher.predict_x(train), stitcher.predict(train.vectors, "x"))


def test_numbers_stay_numbers_and_have_an_error(fitted, split):
    train, train_labels, test, test_labels = split
    numbers, truth = ([int(label[-1]) for label in labels] for labels in (train_labels, test_labels))
    stitcher = Stitcher(fitted).fit(train, numbers)
    predicted = stitcher.predict_y(test)
    assert predicted.dtype.kind == "i"
    assert stitcher.score_y(test, truth).mae == pytest.approx(mean_absolute_error(truth, predicted))
    unknown = stitcher.score_y(test, [99] * len(test))  # never seen in training: all misses
    assert (unknown.weighted_f1, unknown.accuracy) == (0, 0)
    with pytest.raises(InputError, match="strings and numbers cannot be compared, got 'topic"):
        stitcher.score_y(test, test_labels)


def test_a_classifier_of_ones_own_is_copied(fitted, split):
    train, labels, test, test_labels = split
    own = KNeighborsClassifier(7)
    stitcher = Stitcher(fitted, head=own).fit(train, labels)
    assert stitcher.head_ is not own
    assert not hasattr(own, "classes_")
    assert stitcher.head_.n_neighbors == 7
    assert stitcher.score_y(test, test_labels).accuracy > 0.5
    weighted = LogisticRegression(class_weight=dict.fromkeys(set(labels), 1.0), max_iter=1000)
    assert Stitcher(fitted, head=weighted).fit(train, labels).classes_.tolist() == sorted(set(labels))
    network = MLPHead(epochs=1, random_state=4)
    stitcher = Stitcher(fitted, head=network).fit(train, labels)
    assert (stitcher.head_.epochs, stitcher.head_.random_state) == (1, 4)
    assert not hasattr(network, "network_")


def test_probabilities_where_the_head_has_them(fitted, split):
    train, labels, test, _ = split
    stitcher = Stitcher(fitted).fit(train, labels)
    probabilities = stitcher.predict_proba(test, "y")
    assert probabilities.shape == (1000, CLASSES)
    np.testing.assert_array_equal(stitcher.classes_[probabilities.argmax(axis=1)], stitcher.predict_y(test))
    with pytest.raises(InputError, match="gives no probabilities"):
        Stitcher(fitted, head=RidgeClassifier()).fit(train, labels).predict_proba(test, "y")


def test_stitcher_refuses_what_makes_no_sense(fitted, split, words, rotated):
    train, labels, test, _ = split
    for wrong, message in (
        (labels[:-1], "one for each row is needed, got 999 for 1000 rows"),
        (["same"] * 1000, "at least two classes are needed, all 1000 are 'same'"),
        ([1.0, float("nan")] * 500, "row 1 has float nan"),
        (["a", float("nan")] * 500, "row 1 has float nan|row 0 has str 'a'"),
        (["a", None] * 500, "row 0 has str 'a'"),
        ([1, None] * 500, "row 1 has NoneType None"),
        ([1, 2.5] * 500, "row 1 has float 2.5"),
        (np.ones((1000, 2)), r"got shape \(1000, 2\)"),
    ):
        with pytest.raises(InputError, match=message):
            Stitcher(fitted).fit(train, wrong)
    for head, message in (
        ("forest", "head must be 'logistic', 'mlp' or a scikit-learn classifier, got 'forest'"),
        (3, "or a scikit-learn classifier, got 3"),
        (LinearRegression(), "head must be a classifier"),
    ):
        with pytest.raises(InputError, match=message):
            Stitcher(fitted, head=head).fit(train, labels)
    with pytest.raises(InputError, match="space must be 'x' or 'y', got 'z'"):
        Stitcher(fitted, space="z").fit(train, labels)
    with pytest.raises(InputError, match="anchors must be one of free, snapped, seeds, got 'all'"):
        Stitcher(fitted, anchors="all").fit(train, labels)
    with pytest.raises(InputError, match="KnownAnchors have only one kind"):
        Stitcher(KnownAnchors().fit(*words, fitted.seeds_), anchors="free").fit(train, labels)
    with pytest.raises(NotFittedError, match="this Stitcher is not fitted yet"):
        Stitcher(fitted).predict_y(test)
    with pytest.raises(NotFittedError, match="this AnchorDiscovery is not fitted yet"):
        Stitcher(AnchorDiscovery()).fit(train, labels)
    with pytest.raises(InputError, match="has 100 dimensions, but X of this run has 300"):
        Stitcher(fitted).fit(test, labels)
    with pytest.raises(InputError, match="labels: none are given"):
        stitch_scores([], [])


def test_without_seeds_there_are_no_seed_coordinates(rotated):
    x, y = rotated()
    discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y)
    with pytest.raises(InputError, match="anchors='seeds': this run has no such anchors"):
        Stitcher(discovery, anchors="seeds").fit(x, [0, 1] * 150)


def test_the_network_does_without_scikit_learn():
    script = """
import sys
sys.modules["sklearn"] = None
import numpy as np
import kedge
x = np.random.default_rng(0).standard_normal((60, 4))
known = kedge.KnownAnchors().fit(x, x, [(row, row) for row in range(8)])
labels = ["left" if row[0] < 0 else "right" for row in x]
print(kedge.Stitcher(known, head="mlp").fit(x, labels).score_y(x, labels).mae)
try:
    kedge.Stitcher(known).fit(x, labels)
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    none, message = done.stdout.splitlines()
    assert none == "None"
    assert message.startswith("MissingExtraError")
    assert "kedge[stitch]" in message


# -- files and the command line -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory, fitted, split):
    """A run, vectors to train on and to predict, and the labels of both."""
    path = tmp_path_factory.mktemp("stitch")
    train, train_labels, test, test_labels = split
    fitted.save(path / "run")
    write_embeddings(train, path / "train.npz")
    write_embeddings(test, path / "test.vec")
    write_table(path / "train.tsv", ("key", "label"), zip(train.keys, train_labels, strict=True))
    write_table(path / "test.tsv", ("key", "label"), zip(test.keys, test_labels, strict=True))
    return path


def stitch(folder, out, *options, labels="train.tsv") -> int:
    files = {"--train": folder / "train.npz", "--labels": folder / labels, "--predict": folder / "test.vec"}
    given = [part for pair in files.items() for part in pair]
    arguments = ["stitch", folder / "run", *given, "-o", out, "--overwrite", *options]
    return main([str(argument) for argument in arguments])


def test_stitch_writes_predictions_and_scores_them(folder, split, fitted, tmp_path, capsys):
    train, train_labels, test, test_labels = split
    out = tmp_path / "predictions.tsv"
    assert stitch(folder, out, "--gold", folder / "test.tsv") == 0
    output = capsys.readouterr().out
    scores = Stitcher(fitted).fit(train, train_labels).score_y(test, test_labels)
    assert f"labels for 1000 rows of Y, {CLASSES} classes, in {out}" in output
    expected = f"weighted F1 {scores.weighted_f1:.3f}, accuracy {scores.accuracy:.3f}, over 1000 of 1000 rows"
    assert expected in output
    rows = read_table(out)
    assert [row["key"] for row in rows] == list(test.keys)
    assert np.mean([row["label"] == label for row, label in zip(rows, test_labels, strict=True)]) == scores.accuracy
    assert all(1 / CLASSES <= float(row["probability"]) <= 1 for row in rows)
    assert read_labels(out, test)  # can be read back as labels
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.tsv"]


def test_stitch_json_numbers_and_options(folder, split, tmp_path, capsys):
    train, train_labels, test, test_labels = split
    (tmp_path / "train.csv").write_text(
        "".join(f"{key},{label[-1]}\n" for key, label in zip(train.keys, train_labels, strict=True))
    )
    some = [f"{key} {label[-1]}\n" for key, label in zip(test.keys, test_labels, strict=True)][:300]
    (tmp_path / "gold.txt").write_text("".join(some))
    out = tmp_path / "out.tsv"
    options = ["--gold", tmp_path / "gold.txt", "--head", "mlp", "--anchors", "snapped", "--random-state", "3"]
    assert stitch(folder, out, *options, "--json", labels=tmp_path / "train.csv") == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"out", "rows", "classes", "scored", "scores"}
    assert (result["rows"], result["classes"], result["scored"]) == (1000, CLASSES, 300)
    assert result["scores"]["weighted_f1"] > 0.5
    assert result["scores"]["mae"] > 0
    assert stitch(folder, out, *options, labels=tmp_path / "train.csv") == 0
    assert f"MAE {result['scores']['mae']:.3f}, over 300 of 1000 rows" in capsys.readouterr().out


def test_stitch_from_y_and_within_a_space(folder, tmp_path, capsys):
    out = tmp_path / "out.tsv"
    arguments = ["stitch", folder / "run", "--from", "Y", "--train", folder / "test.vec"]
    arguments += ["--labels", folder / "test.tsv", "-o", out, "--overwrite", "--json", "--predict"]
    for target, name in (((), "train"), (("--to", "Y"), "test")):
        suffix = ".npz" if name == "train" else ".vec"
        parts = [*arguments, folder / f"{name}{suffix}", *target, "--gold", folder / f"{name}.tsv"]
        assert main([str(part) for part in parts]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["scores"]["accuracy"] > 0.6
    assert stitch(folder, out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"] is None


def test_stitch_fails_clearly_and_writes_nothing(folder, split, tmp_path, capsys):
    train, labels = split[0], split[1]
    lines = [f"{key}\t{label}\n" for key, label in zip(train.keys, labels, strict=True)]
    first = train.keys[0]
    cases = [
        (lines[1:], f"1 of 1000 keys of {folder / 'train.npz'} have no label, the first is {first!r}"),
        ([*lines, "not-a-word\tx\n"], "labels.tsv, line 1001: "),
        ([*lines, "not-a-word\tx\n"], "has no key 'not-a-word'"),
        ([*lines, f"{first}\tother\n"], f"line 1001: {first!r} is labelled"),
        ([*lines[:5], "lonely\n", *lines[5:]], "line 6: a key and a label are needed, got 1 columns"),
        ([f"{first}\t\n", *lines[1:]], f"line 1: the label of {first!r} is empty"),
        (["key\tlabel\n"], "holds no label"),
        ([f"{key}\tsame\n" for key in train.keys], "at least two classes are needed"),
    ]
    (tmp_path / "out").mkdir()
    for content, message in cases:
        (tmp_path / "labels.tsv").write_text("".join(content))
        assert stitch(folder, tmp_path / "out" / "p.tsv", labels=tmp_path / "labels.tsv") == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert stitch(folder, tmp_path / "out" / "p.csv") == 2
    assert "a name that ends in .tsv" in capsys.readouterr().err
    assert stitch(folder, tmp_path / "out" / "p.tsv", "--gold", folder / "train.tsv") == 2
    assert f"{folder / 'train.tsv'}, line 2: {folder / 'test.vec'} has no key" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_labels_choose_their_columns_by_name(tmp_path):
    space = Embeddings(["a", "b"], np.eye(2))
    (tmp_path / "labels.csv").write_text("label,other,key\nred,1,b\nblue,2,a\nred,1,b\n")
    assert list(read_labels(tmp_path / "labels.csv", space).items()) == [("a", "blue"), ("b", "red")]
    (tmp_path / "labels.tsv").write_text("b\tdark red\n")
    assert read_labels(tmp_path / "labels.tsv", space, complete=False) == {"b": "dark red"}
