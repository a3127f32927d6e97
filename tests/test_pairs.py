import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge import Embeddings, InputError, read_pairs
from kedge.spaces.pairs import read_dictionary, read_key_list, read_table, rows_from_key_pairs, write_table

X = Embeddings(["a", "b", "c", '"', "x"], np.ones((5, 2)))
Y = Embeddings(["A", "B", "C", "y"], np.ones((4, 2)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.tsv", "a\tB\nc\tA\n"),
        ("p.tsv", "x\ty\na\tB\nc\tA\n"),
        ("p.tsv", "y\tnote\tx\nB\t-\ta\nA\t-\tc\n"),
        ("p.tsv", "x_row\ty_row\n0\t1\n2\t0\n"),
        ("p.csv", 'x,y\na,B\n"c",A\n'),
        ("p.txt", "a B\nc   A\n"),
        ("p.tsv", "a\tB\r\nc\tA\r\n"),
        ("p.tsv", "\ufeffa\tB\n\nc\tA\na\tB"),
    ],
)
def test_accepted_forms(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_pairs(tmp_path / name, X, Y).tolist() == [[0, 1], [2, 0]]


def test_by_row_and_bare_quotes(tmp_path):
    (tmp_path / "rows.tsv").write_text("0\t1\n2\t0\n")
    assert read_pairs(tmp_path / "rows.tsv", X, Y, by="row").tolist() == [[0, 1], [2, 0]]
    (tmp_path / "quote.tsv").write_text('"\tA\nb\tB\n')
    assert read_pairs(tmp_path / "quote.tsv", X, Y).tolist() == [[3, 0], [1, 1]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.tsv", "a\tB\nz\tA\n", "line 2: X .* has no key 'z'"),
        ("p.tsv", "a\tQ\n", "line 1: Y .* has no key 'Q'"),
        ("p.tsv", "a\n", "line 1: two columns are needed, got 1"),
        ("p.txt", "a B c\n", "line 1: two columns are needed, got 3"),
        ("p.tsv", "x_row\ty_row\n\u00b2\t0\n", "line 2: '\u00b2' is not a row of X"),
        ("p.tsv", "", "holds no pair"),
        ("p.tsv", "x\ty\n", "a header and no pair"),
        ("p.tsv", "x_row\ty_row\n0\t9\n", "line 2: '9' is not a row of Y .* 0 to 3"),
        ("p.tsv", "x_row\ty_row\n-1\t0\n", "line 2: '-1' is not a row of X"),
        ("p.csv", 'x,y\n"a,B\n', "line 2: two columns are needed, got 1"),
    ],
)
def test_errors_name_the_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_pairs(tmp_path / name, X, Y)
    assert str(tmp_path / name) in str(caught.value)


def test_a_dictionary_may_name_what_the_spaces_lack(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("a B\nz A\nc Q\nz Q\nc A\na B\n")
    dictionary = read_dictionary(path, X, Y)
    assert dictionary.pairs.tolist() == [[0, 1], [2, 0]]
    assert (dictionary.skipped, dictionary.lines) == (3, 6)
    path.write_text("a B\n")
    assert read_dictionary(path, X, Y)[1:] == (0, 1)
    path.write_text("x_row y_row\n0 1\n5 1\n0 4\n")
    assert (read_dictionary(path, X, Y).pairs.tolist(), read_dictionary(path, X, Y).skipped) == ([[0, 1]], 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B a\nA c\n", "none of its 2 lines names a key of X .*, with keys such as 'a'.* line 1 holds 'B' and 'a'"),
        ("x y\n", "a header and no pair"),
        ("a\n", "line 1: two columns are needed"),
        ("x_row y_row\nfive 1\n", "line 2: 'five' is not a row of X"),
    ],
)
def test_a_dictionary_must_be_of_use_and_well_formed(tmp_path, text, message):
    (tmp_path / "p.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_dictionary(tmp_path / "p.txt", X, Y)


def test_not_text_and_not_there(tmp_path):
    (tmp_path / "p.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not valid UTF-8"):
        read_pairs(tmp_path / "p.tsv", X, Y)
    with pytest.raises(InputError, match="no such file"):
        read_pairs(tmp_path / "absent.tsv", X, Y)
    with pytest.raises(InputError, match="by must be"):
        read_pairs(tmp_path / "p.tsv", X, Y, by="name")


def test_key_lists_and_key_pairs(tmp_path):
    (tmp_path / "keys.txt").write_text("b\n\na\n")
    assert read_key_list(tmp_path / "keys.txt") == ["b", "a"]
    assert rows_from_key_pairs([("b", "C")], X, Y).tolist() == [[1, 2]]
    with pytest.raises(InputError, match="unknown key 'Z'"):
        rows_from_key_pairs([("b", "Z")], X, Y)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.just("end")), max_size=5))
def test_any_text_survives_a_table(tmp_path, rows):
    write_table(tmp_path / "t.tsv", ("x", "y"), rows)
    assert [(row["x"], row["y"]) for row in read_table(tmp_path / "t.tsv")] == rows
