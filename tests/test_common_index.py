"""One index for several encoders: common coordinates in stores, and stores translated from one member to another."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kedge
from kedge import CommonSpace, Embeddings, InputError
from kedge.cli.main import main
from kedge.spaces.pairs import write_table
from kedge.spaces.stores import open_store

NAMES = ("a", "b", "c")


def test_coordinates_by_distance_have_the_order_of_the_likelihood(common, three_spaces):
    queries = common.project(three_spaces["c"], space="c", query=True)
    documents = np.concatenate([common.project(three_spaces[name], space=name) for name in NAMES])
    near_queries = common.project(three_spaces["c"], space="c", query=True, metric="l2").astype(np.float64)
    near = np.concatenate([common.project(three_spaces[name], space=name, metric="l2") for name in NAMES]).astype(
        np.float64
    )
    ratios = queries @ documents.T

    distances = (near_queries**2).sum(axis=1)[:, None] + (near**2).sum(axis=1) - 2 * near_queries @ near.T
    best = ratios.max(axis=1)
    chosen = ratios[np.arange(len(ratios)), distances.argmin(axis=1)]
    assert np.allclose(chosen, best, atol=1e-2)
    constant = (2 * ratios + distances).astype(np.float64)
    assert np.ptp(constant, axis=1).max() < 0.05  # of each query the same for documents of all spaces
    back = common.members_["a"].as_documents(Embeddings(range(len(near)), near.astype(np.float32)))
    assert np.allclose(back, documents, atol=1e-2)
    with pytest.raises(InputError, match="metric must be"):
        common.project(three_spaces["c"], space="c", metric="cosine")


@pytest.mark.parametrize("kind", ["chroma", "lancedb", "sqlite-vec", "parquet"])
def test_one_store_holds_documents_of_several_encoders(kind, common_folder, three_spaces, common, tmp_path, capsys):
    """Documents of a and b in one store; queries of c are answered by it, with comparable scores."""
    place = {"sqlite-vec": "all.db#docs", "parquet": "all"}.get(kind, "all#docs")
    target = f"{kind}:{tmp_path / place}"
    given = ["--run", str(common_folder / "run"), "--append", "--mark", "encoder"]

    def migrate(name, *more):
        return main(["migrate", str(common_folder / f"{name}.npz"), target, *given, "--from", name, *more])

    code = migrate("a", "--id-prefix", "a/")
    said = capsys.readouterr()
    if code == 2 and "pip install" in said.err:
        pytest.skip(said.err)
    assert code == 0, said
    by = "distance" if kind in ("chroma", "sqlite-vec") else "inner product"
    assert f"search it by {by}" in said.out
    assert migrate("b", "--id-prefix", "a/") == 2
    assert "--id-prefix" in capsys.readouterr().err
    assert migrate("b", "--id-prefix", "b/", "--dry-run") == 0
    assert f"would add {len(three_spaces['b'])} rows" in capsys.readouterr().out
    assert migrate("b", "--id-prefix", "b/") == 0
    assert f"checked: {len(three_spaces['b'])} rows on both sides" in capsys.readouterr().out
    assert migrate("b", "--id-prefix", "b/", "--resume") == 0  # all of them are there
    capsys.readouterr()

    keys = [f"i{row}" for row in range(100, 130)]
    search = [
        "search",
        str(common_folder / "run"),
        str(common_folder / "c.npz"),
        target,
        *keys,
        "--from",
        "c",
        "-k",
        "2",
        "--json",
    ]
    assert main(search) == 0
    found = json.loads(capsys.readouterr().out)
    firsts = [found[key][0]["key"][2:] == key for key in keys]
    both = [{one["key"] for one in found[key]} == {f"a/{key}", f"b/{key}"} for key in keys]
    assert np.mean(firsts) > 0.9
    assert np.mean(both) > 0.6
    exact = common.between("c", "a")
    ratio = exact.x_.shared(three_spaces["c"].take(three_spaces["c"].rows(keys))) @ exact.y_.shared(three_spaces["a"]).T
    near = [one["log_likelihood_ratio"] for key in keys for one in found[key] if one["key"] == f"a/{key}"]
    assert np.median(near) == pytest.approx(np.median(ratio.max(axis=1)), rel=0.2)

    with open_store(target) as store:
        about = store.describe()
        payloads = [payload for batch in store.read(500) for payload in batch.payloads]
    assert about.rows == len(three_spaces["a"]) + len(three_spaces["b"])
    assert {payload["encoder"] for payload in payloads} == {"a", "b"}
    assert about.metric in {"chroma": ("l2",), "sqlite-vec": ("l2",)}.get(kind, (None, "ip"))


def test_chroma_itself_finds_what_an_exact_search_does(common_folder, three_spaces, common, tmp_path):
    """Its graph of neighbours is made of distances; one of inner products leads elsewhere."""
    chromadb = pytest.importorskip("chromadb")
    given = ["--run", str(common_folder / "run"), "--from", "a"]
    assert main(["migrate", str(common_folder / "a.npz"), f"chroma:{tmp_path / 'all'}#docs", *given]) == 0
    queries = common.project(three_spaces["c"], space="c", query=True, metric="l2")
    documents = common.project(three_spaces["a"], space="a", metric="l2")
    exact = (2 * queries @ documents.T - (documents**2).sum(axis=1)).argmax(axis=1)
    collection = chromadb.PersistentClient(str(tmp_path / "all")).get_collection("docs")
    found = collection.query(query_embeddings=queries, n_results=1)["ids"]
    assert np.mean([one == three_spaces["a"].keys[row] for (one,), row in zip(found, exact, strict=True)]) > 0.95


def test_a_store_of_common_coordinates_takes_in_a_space_that_joined(common_folder, three_spaces, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    target = f"parquet:{tmp_path / 'all'}"
    write_table(tmp_path / "ab.tsv", ("a", "b"), [(f"i{row}",) * 2 for row in range(15)])
    files = {name: str(common_folder / f"{name}.npz") for name in NAMES}
    device = ["--device", "cpu"]
    first, grown, left = (str(tmp_path / name) for name in ("first", "grown", "left"))
    assert main(["unite", files["a"], files["b"], "--seeds", str(tmp_path / "ab.tsv"), "-o", first, *device]) == 0
    assert main(["migrate", files["a"], target, "--run", first, "--from", "a"]) == 0
    assert main(["unite", files["a"], files["c"], "--add", first, "-o", grown, *device]) == 0
    more = ["--from", "c", "--append", "--id-prefix", "c/"]
    assert main(["migrate", files["c"], target, "--run", grown, *more]) == 0
    assert main(["unite", "b", "--remove", grown, "-o", left]) == 0
    assert list(CommonSpace.load(left).members_) == ["a", "c"]
    assert main(["migrate", files["a"], target, "--run", left, "--from", "a", "--append", "--resume"]) == 0
    capsys.readouterr()
    other = ["--run", str(common_folder / "run"), "--from", "b", "--append", "--id-prefix", "b/"]
    assert main(["migrate", files["b"], target, *other]) == 2  # those of another run do not compare
    assert "does not hold coordinates of this run" in capsys.readouterr().err


def test_a_store_is_translated_from_one_of_many_into_another(common_folder, three_spaces, common, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    run_of_many = ["--run", str(common_folder / "run")]
    target = f"parquet:{tmp_path / 'in-b'}"
    assert main(["migrate", str(common_folder / "a.npz"), target, *run_of_many, "--from", "a", "--to", "b"]) == 0
    carried = kedge.read_embeddings(target)
    expected = common.translate(three_spaces["a"], source="a", target="b", scale="raw")
    assert np.allclose(carried.vectors[carried.rows(three_spaces["a"].keys)], expected, atol=1e-3)
    capsys.readouterr()
    for more, message in (
        ([], "name the space of"),
        (["--from", "z"], "no space 'z'"),
        (["--from", "a", "--to", "b", "--append"], "--append: only common coordinates"),
        (["--from", "a", "--back"], "--back: a run of many"),
    ):
        assert main(["migrate", str(common_folder / "a.npz"), f"parquet:{tmp_path / 'new'}", *run_of_many, *more]) == 2
        assert message in capsys.readouterr().err
    whole = [
        "migrate",
        str(common_folder / "a.npz"),
        str(tmp_path / "all.npz"),
        *run_of_many,
        "--from",
        "a",
        "--append",
    ]
    assert main(whole) == 0
    assert main([*whole, "--id-prefix", "b/"]) == 2
    assert "is written whole" in capsys.readouterr().err
