import numpy as np
import pytest
import torch

from kedge import Embeddings, InputError


def test_keeps_float32_without_a_copy():
    vectors = np.ones((2, 3), dtype=np.float32)
    assert Embeddings(["a", "b"], vectors).vectors is vectors


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
def test_other_dtypes_become_float32(dtype):
    space = Embeddings(["a", "b"], np.array([[1, 2], [3, 4]], dtype=dtype))
    assert space.vectors.dtype == np.float32
    assert space.vectors.tolist() == [[1, 2], [3, 4]]


def test_rows_and_take():
    space = Embeddings(["a", "b", "c"], np.eye(3))
    assert space.rows(["c", "a"]).tolist() == [2, 0]
    part = space.take([2, 0])
    assert list(part.keys) == ["c", "a"]
    assert part.vectors.tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(InputError, match="unknown key 'd'"):
        space.rows(["d"])


@pytest.mark.parametrize(
    ("keys", "vectors", "message"),
    [
        ([], np.empty((0, 3)), "empty"),
        (["a"], np.empty((1, 0)), "empty"),
        (["a"], np.ones(3), "shape"),
        (["a", "b"], np.ones((3, 2)), "2 keys for 3 vectors"),
        (["a", "b", "a"], np.ones((3, 2)), "duplicate key 'a' in rows 0 and 2"),
        (["a", "\ud800"], np.ones((2, 2)), "key of row 1 is not valid Unicode"),
        (["a", ["b"]], np.ones((2, 2)), r"keys must be strings, .* hashable objects; row 1 has list .'b'."),
        (["a", None], np.ones((2, 2)), "row 1 has NoneType"),
        ([1, float("nan")], np.ones((2, 2)), "row 1 has float nan"),
        (["a", "b"], [[1, 2], [np.nan, 1]], "key 'b' .row 1. has NaN or infinite"),
        (["a", "b"], [[1, np.inf], [1, 1]], "key 'a' .row 0. has NaN or infinite"),
        (["a", "b"], [[1, 1], [0, 0]], "key 'b' .row 1. is a zero vector"),
        (["a"], [[1e300, 0]], "key 'a' .row 0. has NaN or infinite"),
        (["a"], [["x", "y"]], "real numbers"),
        (["a"], np.ones((1, 2), dtype=complex), "real numbers"),
    ],
)
def test_what_is_refused(keys, vectors, message):
    with pytest.raises(InputError, match=message):
        Embeddings(keys, np.asarray(vectors), "here")


def test_vectors_of_torch_and_sparse_ones():
    grown = torch.ones(2, 3, requires_grad=True)
    assert Embeddings(["a", "b"], grown).vectors.tolist() == [[1, 1, 1], [1, 1, 1]]
    with pytest.raises(InputError, match="here: is a sparse matrix"):
        Embeddings(["a", "b"], grown.detach().to_sparse(), "here")


def test_tiny_and_huge_values_are_no_zero_and_no_infinity():
    space = Embeddings(["tiny", "huge"], np.array([[1e-38, 0], [3e38, 3e38]], dtype=np.float32))
    assert len(space) == 2


def test_accepts_torch_in_fit_helpers():
    from kedge.spaces.conversion import as_space

    space = as_space(torch.ones(2, 3, dtype=torch.bfloat16), "x")
    assert space.vectors.dtype == np.float32
    assert list(space.keys) == ["0", "1"]
    with pytest.raises(InputError, match="x: rows must have the same"):
        as_space([[1.0], [1.0, 2.0]], "x")
