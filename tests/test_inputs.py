"""Inputs as people have them in Python: seeds, spaces, keys, vectors, random states, pipelines, tables."""

import json
import pickle
import sys
from operator import attrgetter

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import rotated_spaces
from scipy import sparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

import kedge
from kedge import AnchorDiscovery, Embeddings, InputError, KnownAnchors, Stitcher
from kedge.cli.main import main
from kedge.errors import MissingExtraError, NotFittedError
from kedge.estimators.fit_inputs import gather_inputs
from kedge.estimators.inputs import as_random_state
from kedge.report import Explorer, draw_spaces, write_report
from kedge.spaces.conversion import as_space
from kedge.tasks import Truth, evaluate, search, suggest

ROWS, SEEDS = 120, 20
WORDS_X = [f"x{row}" for row in range(ROWS)]
WORDS_Y = [f"y{row}" for row in range(ROWS)]
NUMBERS_X, NUMBERS_Y = list(range(1000, 1000 + ROWS)), list(range(5000, 5000 + ROWS))
MATRICES = rotated_spaces(n=ROWS)
NAMED = tuple(
    Embeddings(keys, matrix, side) for keys, matrix, side in zip((WORDS_X, WORDS_Y), MATRICES, "xy", strict=True)
)
FRAMES = tuple(pd.DataFrame(matrix, index=keys) for keys, matrix in zip((NUMBERS_X, NUMBERS_Y), MATRICES, strict=True))
PAIRS = [("x3", "y3"), ("x1", "y1"), ("x2", "y2")]


@pytest.fixture(scope="module")
def numbered() -> AnchorDiscovery:
    """A discovery between tables whose index are whole numbers, which a dict of them as seeds."""
    return AnchorDiscovery(device="cpu").fit(*FRAMES, dict(zip(NUMBERS_X[:SEEDS], NUMBERS_Y[:SEEDS], strict=True)))


# -- seeds ----------------------------------------------------------------------------------------


def rows_of(pairs, spaces=NAMED) -> list[list[int]]:
    known = KnownAnchors().fit(*spaces, pairs)
    return np.stack([known.anchors_x_, known.anchors_y_], axis=1).tolist()


LEFT, RIGHT = [x for x, _ in PAIRS], [y for _, y in PAIRS]


@pytest.mark.parametrize(
    "pairs",
    [
        PAIRS,
        tuple(PAIRS),
        [list(pair) for pair in PAIRS],
        dict(PAIRS),
        zip(LEFT, RIGHT, strict=True),
        (pair for pair in PAIRS),
        dict(PAIRS).items(),
        np.array(PAIRS),
        np.array(PAIRS, dtype=object),
        (LEFT, RIGHT),
        (np.array(LEFT), pd.Series(RIGHT)),
        pd.Series(RIGHT, index=LEFT),
        pd.DataFrame({"English": LEFT, "French": RIGHT}),
        pd.DataFrame({"confidence": 1.0, "y": RIGHT, "x": LEFT}),
        pd.DataFrame(PAIRS).itertuples(index=False),
        [("x3", 3), (1, "y1"), ("x2", np.int64(2))],
        np.array([[3, 3], [1, 1], [2, 2]], dtype=np.uint8),
        torch.tensor([[3, 3], [1, 1], [2, 2]]),
        (torch.tensor([3, 1, 2]), np.array([3, 1, 2])),
        {3: 3, 1: 1, 2: 2},
        [torch.tensor([3, 3]), np.array([1, 1]), (2, 2)],
    ],
    ids=lambda pairs: type(pairs).__name__,
)
def test_pairs_in_any_form(pairs):
    assert rows_of(pairs) == [[3, 3], [1, 1], [2, 2]]


@pytest.mark.parametrize("none", [None, (), [], {}, np.empty((0, 2)), zip(), pd.DataFrame({"x": [], "y": []})])
def test_no_pairs_in_any_form(none):
    with pytest.raises(InputError, match="needs at least 1 distinct pairs, got 0"):
        rows_of(none)


def test_two_pairs_are_not_taken_for_two_columns():
    two = [("x3", "y3"), ("x1", "y1")]
    for pairs in (two, tuple(two), [list(pair) for pair in two], np.array(two), [np.array(pair) for pair in two]):
        assert rows_of(pairs) == [[3, 3], [1, 1]]
    for unclear in ((["x3", "y3"], ["x1", "y1"]), (np.array([3, 1]), np.array([3, 1]))):
        with pytest.raises(
            InputError, match="two lists of two may be two pairs, or the keys of x and those of y apart"
        ):
            rows_of(unclear)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("x1", "pairs must be pairs of keys or rows, .*, got str 'x1'"),
        (7, "pairs must be pairs of keys or rows, .*, got int 7"),
        (("x1", "y1"), r"\(of x, of y\), number 1 is 'x1'"),
        ([("x1", "y1"), ("x1", "y1", 0.9)], r"number 2 is \('x1', 'y1', 0.9\)"),
        (
            [["x1", "x2", "x3"], ["y1", "y2", "y3"]],
            "number 1 is .*; those of x and those of y apart are given as a tuple",
        ),
        ((["x1", "x2", "x3"], ["y1"]), "as many are needed, .*, got 3 and 1"),
        (pd.DataFrame({"a": ["x1"]}), "a DataFrame needs two columns, .*, got 1: 'a'"),
        (
            [("x1", "y1"), ("x2", "y2"), ("x3", "Y3")],
            "pairs, number 3, .'x3', 'Y3'.: y has no key 'Y3'; .*did you mean 'y3'",
        ),
        ({"x1": "y1", "q": "y1"}, "pairs, number 2, .'q', 'y1'.: x has no key 'q'; it has 120 keys, e.g. 'x0'"),
        ([("x1", ["y1"])], r"y has no key \['y1'\]"),
        ([(0, 0), (1, 120)], "pairs, number 2, .1, 120.: 120 is no row of y; rows are 0 to 119"),
        ([(0, 0), (-1, 1)], "-1 is no row of x"),
        ([("x1", "y1"), ("x2", "y2"), ("x1", "y3")], "number 1, .'x1', 'y1'., and number 3, .'x1', 'y3'.; keep one"),
    ],
)
def test_bad_pairs_are_named_with_their_number_and_side(pairs, message):
    with pytest.raises(InputError, match=message):
        rows_of(pairs)


def test_whole_numbers_are_keys_where_the_space_has_them_and_rows_elsewhere():
    assert rows_of([(1003, 5004)], FRAMES) == [[3, 4]]
    assert rows_of([(3, 5004)], (MATRICES[0], FRAMES[1])) == [[3, 4]]
    assert rows_of(np.array([[1003, 5004]]), FRAMES) == [[3, 4]]
    with pytest.raises(InputError, match="x has no key 3; its keys are whole numbers, so that whole numbers name keys"):
        rows_of([(3, 5004)], FRAMES)
    with pytest.raises(InputError, match="y has no key 'y4'; it has 120 keys, e.g. 5000$"):
        rows_of([(1003, "y4")], FRAMES)
    counted = [pd.DataFrame(matrix) for matrix in MATRICES]  # whose index counts rows
    assert rows_of([(3, 4)], counted) == rows_of([("3", "4")], MATRICES) == [[3, 4]]


def test_anchors_in_any_form():
    x, y = NAMED
    for anchors in (
        ["x5", "x7"],
        iter(["x5", "x7"]),
        np.array(["x5", "x7"]),
        pd.Series([5, 7]),
        pd.Index(["x5", "x7"]),
    ):
        found = gather_inputs(AnchorDiscovery(device="cpu"), x, y, None, anchors)
        assert found.anchors.tolist() == [5, 7]
    for anchors, message in (
        ("x5", "anchors must be a list of keys or rows of x, got str 'x5'"),
        (["x5", "x5"], "'x5' is given twice, as number 1 and 2"),
        (["x5", "z"], "anchors, number 2: x has no key 'z'"),
    ):
        with pytest.raises(InputError, match=message):
            AnchorDiscovery(device="cpu").fit(x, y, anchors=anchors)


# -- spaces ---------------------------------------------------------------------------------------


class KeyedVectors:
    """What gensim calls what it calls so."""

    def __init__(self, keys, vectors):
        self.index_to_key, self.vectors = keys, vectors


@pytest.mark.parametrize(
    ("space", "keys"),
    [
        (pd.DataFrame([[1.0, 2], [3, 4]], index=[10, 20]), [10, 20]),
        (pd.DataFrame({"a": pd.array([1, 3], dtype="Int64"), "b": [2.0, 4.0]}), [0, 1]),
        (pd.DataFrame([[1, 2], [3, 4]], index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])), [("a", 1), ("b", 2)]),
        ({"p": [1, 2], "q": np.array([3, 4])}, ["p", "q"]),
        ({1: torch.tensor([1.0, 2.0], requires_grad=True), "1": (3, 4)}, [1, "1"]),
        (pd.Series({7: [1, 2], 8: [3, 4]}), [7, 8]),
        (KeyedVectors(["p", "q"], np.array([[1, 2], [3, 4]])), ["p", "q"]),
        ([[1, 2], [3, 4]], ["0", "1"]),
        ([torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3, 4])], ["0", "1"]),
        (torch.tensor([[1, 2], [3, 4]], dtype=torch.bfloat16).requires_grad_(), ["0", "1"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_spaces_in_any_form(space, keys):
    made = as_space(space, "x")
    assert list(made.keys) == keys
    assert all(type(made_key) is type(key) for made_key, key in zip(made.keys, keys, strict=True))
    assert made.vectors.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (sparse.eye_array(3).tocsr(), r"x: is a sparse matrix \(3, 3\), .* toarray\(\) .* TruncatedSVD"),
        (sparse.coo_matrix(np.eye(3)), "x: is a sparse matrix"),
        (torch.eye(3).to_sparse(), r"x: is a sparse matrix .*to_dense\(\)"),
        (
            pd.DataFrame({"id": ["a"], "one": [1.0], "day": [pd.Timestamp(0)]}),
            "the columns 'id', 'day' do not hold numbers",
        ),
        (pd.DataFrame([[1.0, np.nan]], index=["p"]), "x: the vector of key 'p' .row 0. has NaN"),
        (pd.DataFrame(np.eye(2), index=["p", "p"]), "duplicate key 'p' in rows 0 and 1"),
        (pd.DataFrame(np.eye(2), index=["p", None]), "row 1 has (float nan|NoneType None)"),  # pandas 3, or 2
        ({"p": [1, 2], "q": [1, 2, 3]}, r"x: each key needs one vector, .* \(3,\) for 'q' and \(2,\) for 'p'"),
        ({}, "x: the space is empty"),
        ("en.vec", "x: 'en.vec' is not an array; read the file first, with kedge.read_embeddings"),
        (None, "x: is None; give an array"),
    ],
)
def test_spaces_that_are_refused(space, message):
    with pytest.raises(InputError, match=message):
        AnchorDiscovery().fit(space, MATRICES[1])


def test_small_spaces_need_no_number_of_anchors():
    assert gather_inputs(AnchorDiscovery(), *MATRICES, None, None).n_anchors == ROWS
    large = rotated_spaces(n=400)
    assert gather_inputs(AnchorDiscovery(), *large, None, None).n_anchors == 300
    with pytest.raises(
        InputError, match=r"n_anchors must be between 1 and the rows of the smaller space \(120\), got 300"
    ):
        AnchorDiscovery(n_anchors=300).fit(*MATRICES)


def test_small_files_need_no_number_of_anchors(small_files, tmp_path, capsys):
    x, y, seeds = small_files
    assert main(["discover", x, y, "--seeds", seeds, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["anchors"] == 120


# -- keys that are no texts -----------------------------------------------------------------------


def test_numbers_as_keys_are_given_back(numbered):
    everything = list(zip(NUMBERS_X, NUMBERS_Y, strict=True))
    assert set(numbered.pair_keys_) == set(everything[SEEDS:])
    assert set(numbered.linked_pairs().keys) == set(everything)
    assert all(type(key) is int for pair in numbered.anchor_keys_ for key in pair)
    assert numbered.seed_found_keys_ == NUMBERS_Y[:SEEDS]
    assert len(numbered.anchors_x_) == ROWS  # 300 by default, but there are not as many


def test_numbers_as_keys_are_texts_in_files_and_on_pages(numbered, tmp_path):
    numbered.save(tmp_path / "run")
    assert numbered.pair_keys_[0][0] in NUMBERS_X  # saving changes nothing
    loaded = kedge.load(tmp_path / "run")
    assert loaded.pair_keys_ == [(str(left), str(right)) for left, right in numbered.pair_keys_]
    assert loaded.seed_found_keys_ == [str(key) for key in numbered.seed_found_keys_]

    for name, discovery in (("fitted", numbered), ("loaded", loaded)):
        discovery.require_spaces(*FRAMES)
        write_report(tmp_path / f"{name}.html", discovery, *FRAMES)
        draw_spaces(discovery, *FRAMES)
        explorer = Explorer(discovery, *(as_space(frame, "frame") for frame in FRAMES), run="RUN", max_rows=50)
        assert explorer.find("1003")[0]["key"] == "1003"
    assert (tmp_path / "fitted.html").read_text() == (tmp_path / "loaded.html").read_text()

    kedge.write_embeddings(FRAMES[0], tmp_path / "x.npz")
    assert kedge.read_embeddings(tmp_path / "x.npz").keys == [str(key) for key in NUMBERS_X]
    (tmp_path / "pairs.tsv").write_text("1003\t5004\n")
    assert kedge.read_pairs(tmp_path / "pairs.tsv", *FRAMES).tolist() == [[3, 4]]
    swapped = FRAMES[::-1]
    with pytest.raises(InputError, match="x: is not what this run had as X"):
        loaded.require_spaces(*swapped)


def test_tasks_take_tables_and_runs_with_texts(numbered, tmp_path):
    numbered.save(tmp_path / "run")
    known = {NUMBERS_X[row]: NUMBERS_Y[row] for row in range(SEEDS, 60)}
    truth = Truth(
        *(as_space(frame, "frame") for frame in FRAMES), np.array([[SEEDS, SEEDS], [SEEDS + 1, 2]]), complete=True
    )
    for discovery in (numbered, kedge.load(tmp_path / "run")):
        assert search(discovery, *FRAMES, [1042], k=1)[1042][0].key == 5042
        assert {suggestion.key for suggestion in suggest(discovery, *FRAMES, 100)} == set(NUMBERS_Y[SEEDS:])
        rehearsal = kedge.rehearse(discovery, *FRAMES, known, device="cpu", random_state=None)
        assert (rehearsal.pairs, rehearsal.seeds, rehearsal.found) == (40, 0, 40)
        assert evaluate(discovery, *FRAMES, known, complete=True).pairs_recall == 1
        assert [truth.judge(discovery.pair_keys_[number]) for number in np.argsort(discovery.pairs_[:, 0])[:2]] == [
            True,
            False,
        ]


def test_keys_of_one_text_are_refused_where_texts_are_needed(tmp_path):
    space = as_space({1: [1.0, 0], "1": [0, 1.0]}, "here")
    assert space.rows(["1", 1]).tolist() == [1, 0]
    with pytest.raises(InputError, match="the keys 1 and '1' become the same text in a file or on a page"):
        kedge.write_embeddings(space, tmp_path / "space.npz")
    assert not list(tmp_path.iterdir())


def test_a_run_whose_keys_have_one_text_is_not_saved(tmp_path):
    x = Embeddings([*NUMBERS_X[:-1], str(NUMBERS_X[0])], MATRICES[0])
    discovery = AnchorDiscovery(device="cpu").fit(x, FRAMES[1], zip(NUMBERS_X[:SEEDS], NUMBERS_Y, strict=False))
    with pytest.raises(InputError, match="x: the keys .*1000.* and .*1000.* become the same text"):
        discovery.save(tmp_path / "run")
    assert not list(tmp_path.iterdir())


# -- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transform", "translate", "x_.relative", "x_.shared", "x_.whiten", "x_.normalise"])
def test_vectors_in_any_form(numbered, name):
    method, rows = attrgetter(name)(numbered), MATRICES[0][:3]
    expected = method(rows)
    repeated = pd.DataFrame(rows, index=["same"] * 3)  # new vectors need no keys of their own
    for form in (rows.tolist(), torch.from_numpy(rows), repeated, {"a": rows[0], "b": rows[1], "c": rows[2]}):
        np.testing.assert_allclose(method(form), expected, rtol=1e-5, atol=1e-6)
    for one in (rows[1], rows[1].tolist(), torch.from_numpy(rows[1]), repeated.iloc[1]):
        np.testing.assert_allclose(method(one), expected[1], rtol=1e-4, atol=1e-5)


def test_vectors_of_the_other_side_are_told_where_to_go():
    x, y = MATRICES[0], MATRICES[1][:, :12]
    discovery = AnchorDiscovery(device="cpu", n_anchors=20).fit(x, y, [(row, row) for row in range(SEEDS)])
    with pytest.raises(
        InputError, match=r"12 dimensions, but X of this run has 16; .*; Y has 12: use `y_` .* with back=True"
    ):
        discovery.translate(y)
    with pytest.raises(
        InputError, match=r"16 dimensions, but Y of this run has 12; .*; X has 16: use `x_` .* without back"
    ):
        discovery.y_.relative(x[0])
    with pytest.raises(InputError, match=r"16 dimensions, but Y of this run has 12; .*; X has 16: use `x_`"):
        discovery.translate(x, back=True)
    with pytest.raises(InputError, match="give vectors of X's encoder$"):
        discovery.translate(np.ones(7))
    with pytest.raises(InputError, match="vectors: is a sparse matrix"):
        discovery.translate(sparse.csr_array(x))


def test_retrieval_scores_take_arrays(numbered):
    x, y = numbered.x_.relative(MATRICES[0]), numbered.y_.relative(MATRICES[1])
    assert kedge.retrieval_scores(x, y) == kedge.retrieval_scores(torch.from_numpy(x), torch.from_numpy(y))


# -- random states --------------------------------------------------------------------------------


def test_random_states():
    assert as_random_state(3) == as_random_state(np.int64(3)) == 3
    assert as_random_state(np.random.default_rng(5)) == as_random_state(np.random.default_rng(5))
    assert as_random_state(np.random.RandomState(5)) == as_random_state(np.random.RandomState(5))
    assert len({as_random_state(None) for _ in range(5)}) > 1
    for wrong in (-1, 2**63, 0.5, "0"):
        with pytest.raises(InputError, match="random_state must be a whole number of at least 0, None or a random gen"):
            AnchorDiscovery(random_state=wrong).fit(*MATRICES)


def test_a_drawn_random_state_is_kept(tmp_path):
    seeds = [(row, row) for row in range(SEEDS)]
    drawn = AnchorDiscovery(device="cpu", n_anchors=20, random_state=None).fit(*MATRICES, seeds)
    drawn.save(tmp_path / "run")
    assert json.loads((tmp_path / "run/run.json").read_text())["settings"]["random_state"] == drawn.random_state_
    loaded = kedge.load(tmp_path / "run")
    assert loaded.random_state_ == loaded.random_state == drawn.random_state_
    again = clone(loaded).fit(*MATRICES, seeds)
    assert again.anchors_x_.tolist() == drawn.anchors_x_.tolist()
    with pytest.raises(InputError, match="to go on from a checkpoint takes the same number again; give one"):
        AnchorDiscovery(random_state=None, checkpoint=tmp_path / "state").fit(*MATRICES)


# -- pipelines ------------------------------------------------------------------------------------


def test_in_a_pipeline():
    x, y = MATRICES
    steps = [("scale", Normalizer()), ("anchors", AnchorDiscovery(device="cpu", n_anchors=20))]
    pipeline = clone(Pipeline(steps)).set_params(anchors__n_anchors=30)
    with pytest.raises(Exception, match="not fitted yet"):
        check_is_fitted(pipeline)
    coordinates = pipeline.fit_transform(x, y, anchors__seeds={row: row for row in range(SEEDS)})
    check_is_fitted(pipeline)
    assert coordinates.shape == (ROWS, 30)
    np.testing.assert_allclose(pipeline.transform(x), coordinates, atol=1e-6)
    np.testing.assert_allclose(pipeline["anchors"].x_.relative(x), coordinates, atol=1e-5)  # lengths do not matter
    assert "AnchorDiscovery" in repr(pipeline)
    assert pipeline._repr_html_()


def test_fitted_in_a_pipeline_before_a_classifier(numbered):
    labels = (MATRICES[0][:, 0] > 0).astype(int)
    pipeline = make_pipeline(FrozenEstimator(numbered), LogisticRegression()).fit(FRAMES[0], labels)
    assert pipeline.score(FRAMES[0], labels) > 0.9
    stitcher = Stitcher(numbered, random_state=np.random.default_rng(0)).fit(FRAMES[0], pd.Series(labels))
    assert stitcher.score_y(FRAMES[1], labels).accuracy > 0.8


def test_pickles_and_clones(numbered):
    again = pickle.loads(pickle.dumps(numbered))
    assert again.pair_keys_ == numbered.pair_keys_
    assert clone(numbered).get_params() == numbered.get_params()
    with pytest.raises(NotFittedError, match="call fit first"):
        clone(numbered).transform(MATRICES[0])


# -- tables ---------------------------------------------------------------------------------------


def test_tables_of_what_was_found(numbered):
    pairs = numbered.pairs_frame()
    assert list(pairs.columns) == ["x", "y", "confidence"]
    assert list(zip(pairs.x, pairs.y, strict=True)) == numbered.pair_keys_
    assert numbered.anchors_frame().seed.sum() == SEEDS
    assert numbered.seeds_frame().columns.tolist() == ["x", "y", "opinion", "suspect", "rank", "found"]
    assert numbered.unmatched_frame().columns.tolist() == ["space", "key"]
    assert rows_of(pairs, FRAMES) == numbered.pairs_.tolist()  # a table of pairs serves as seeds
    with pytest.raises(NotFittedError, match="call fit first"):
        AnchorDiscovery().pairs_frame()


def test_tables_without_pandas(numbered, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        MissingExtraError, match=r"frames need pandas.*pip install 'kedge\[pandas\]', or use pair_keys_"
    ):
        numbered.pairs_frame()
