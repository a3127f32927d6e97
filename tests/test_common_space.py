"""`CommonSpace` and `kedge unite`: fitting, using, growing, keeping, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import kedge
from kedge import CommonSpace, Embeddings, InputError, write_embeddings
from kedge.cli.main import main
from kedge.many.seed_tuples import as_seed_tuples, read_seed_tuples
from kedge.spaces.pairs import write_table
from kedge.spaces.stores import open_store

NAMES = ("a", "b", "c")
ROWS, DIM = 400, 24


def turned(rows, dim, chance, noise=0.1):
    """The same rows in another space: rotated, with a little noise; of fewer dimensions without the last axes."""
    turn = np.linalg.qr(chance.standard_normal((rows.shape[1], rows.shape[1])))[0]
    return ((rows + noise * chance.standard_normal(rows.shape)) @ turn)[:, :dim].astype(np.float32)


@pytest.fixture(scope="module")
def spaces() -> dict[str, Embeddings]:
    """Three spaces of the same items, each in an order of its own and lacking some."""
    chance = np.random.default_rng(0)
    items = chance.standard_normal((ROWS, DIM)) * np.geomspace(1, 0.2, DIM)
    found = {}
    for place, name in enumerate(NAMES):
        kept = np.setdiff1d(chance.permutation(ROWS), np.arange(20 + 5 * place, 25 + 5 * place), assume_unique=True)
        vectors = turned(items, DIM, chance)[kept]
        found[name] = Embeddings([f"i{row}" for row in kept], vectors, name)
    return found


@pytest.fixture(scope="module")
def seeds() -> list[tuple[str, ...]]:
    return [(f"i{row}",) * 3 for row in range(15)]


@pytest.fixture(scope="module")
def common(spaces, seeds) -> CommonSpace:
    return CommonSpace(device="cpu").fit(spaces, seeds)


def truth(spaces, first, second):
    return np.array([spaces[second].row_of.get(key, -1) for key in spaces[first].keys])


def test_all_pairs_are_ok_and_the_loop_closes(common):
    health = common.health_
    assert health.map.verdict == health.pairs.verdict == "ok"
    assert [one.map.verdict for one in health.each] == ["ok"] * 3
    assert health.left_out == {}
    (loop,) = health.loops
    assert loop.closed
    assert loop.back > 0.7
    assert loop.kept > 0.95
    assert loop.chance < 0.1


def test_groups_hold_the_rows_of_one_item(common, spaces):
    for first, second in combinations(NAMES, 2):
        expected = truth(spaces, first, second)
        assert (common.match(first, second) == expected)[expected >= 0].mean() > 0.95
        assert (common.matches_[first, second] == expected)[expected >= 0].mean() > 0.95
    for keys in common.group_keys_[:50]:
        assert len({key for key in keys if key is not None}) == 1
    for place in range(3):
        there = common.groups_[:, place][common.groups_[:, place] >= 0]
        assert sorted(there) == list(range(common.members_[NAMES[place]].rows))
    sizes = (common.groups_ >= 0).sum(axis=1)
    assert (np.diff(sizes) <= 0).all()
    frame = common.groups_frame()
    assert list(frame.columns) == ["probability", *NAMES]
    assert len(frame) == (sizes > 1).sum()


def test_any_space_is_translated_into_any_other(common, spaces):
    for first, second in (("a", "c"), ("c", "a"), ("b", "c")):
        expected = truth(spaces, first, second)
        there = common.translate(spaces[first], source=first, target=second)
        assert np.allclose(np.linalg.norm(there, axis=1), 1, atol=1e-4)
        index = spaces[second].vectors / np.linalg.norm(spaces[second].vectors, axis=1, keepdims=True)
        assert ((there @ index.T).argmax(axis=1) == expected)[expected >= 0].mean() > 0.95
    one = common.translate(spaces["a"].vectors[0], source="a", target="b", scale="raw")
    assert one.shape == (DIM,)
    assert np.linalg.norm(one) == pytest.approx(common.members_["b"].mean_norm, rel=1e-4)


def test_one_index_answers_queries_of_any_space(common, spaces):
    index = np.concatenate([common.project(spaces[name], space=name) for name in ("a", "b")])
    keys = np.array([*spaces["a"].keys, *spaces["b"].keys])
    queries = common.project(spaces["c"], space="c", query=True)
    in_both = [
        row for row, key in enumerate(spaces["c"].keys) if key in spaces["a"].row_of and key in spaces["b"].row_of
    ]
    first, second = np.argsort(-(queries @ index.T), axis=1)[:, :2].T
    own = np.array(spaces["c"].keys)
    assert (keys[first] == own)[in_both].mean() > 0.9
    assert (keys[second] == own)[in_both].mean() > 0.7  # of the other encoder, with a comparable score


def test_common_coordinates_are_nearly_the_likelihood_of_the_two(common, spaces):
    pair = common.between("a", "b")
    exact = pair.x_.shared(spaces["a"]) @ pair.y_.shared(spaces["b"]).T
    found = common.project(spaces["a"], space="a", query=True) @ common.project(spaces["b"], space="b").T
    assert np.corrcoef(exact.ravel(), found.ravel())[0, 1] > 0.99


def test_a_run_is_read_back_as_it_was(common, spaces, tmp_path):
    common.save(tmp_path / "run")
    same = CommonSpace.load(tmp_path / "run")
    assert same.health_ == common.health_
    assert same.group_keys_ == common.group_keys_
    assert np.array_equal(same.groups_, common.groups_)
    assert np.array_equal(same.project(spaces["b"], space="b"), common.project(spaces["b"], space="b"))
    first = common.translate(spaces["a"], source="a", target="c")
    assert np.array_equal(same.translate(spaces["a"], source="a", target="c"), first)
    with pytest.raises(InputError, match="already holds a run"):
        common.save(tmp_path / "run")
    same.save(tmp_path / "run", overwrite=True)
    with pytest.raises(InputError, match=r"holds a common space.*kedge\.CommonSpace\.load"):
        kedge.load(tmp_path / "run")


@pytest.mark.parametrize("name", ["groups.tsv", "unmatched.tsv", "common.safetensors"])
def test_a_run_that_has_changed_is_refused(common, tmp_path, name):
    common.save(tmp_path / "run")
    path = tmp_path / "run" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=f"{name}: has changed"):
        CommonSpace.load(tmp_path / "run")


def test_a_space_joins_without_moving_the_others(common, spaces, seeds):
    smaller = common.without("c")
    assert list(smaller.members_) == ["a", "b"]
    assert smaller.groups_.shape[1] == 2
    grown = smaller.add(spaces, seeds)
    assert list(grown.members_) == ["a", "b", "c"]
    for name in ("a", "b"):
        before, after = (one.project(spaces[name], space=name) for one in (common, grown))
        assert np.array_equal(before, after)
    expected = truth(spaces, "a", "c")
    assert (grown.match("a", "c") == expected)[expected >= 0].mean() > 0.95
    there = grown.translate(spaces["c"], source="c", target="a")
    index = spaces["a"].vectors / np.linalg.norm(spaces["a"].vectors, axis=1, keepdims=True)
    back = truth(spaces, "c", "a")
    assert ((there @ index.T).argmax(axis=1) == back)[back >= 0].mean() > 0.95
    queries, index = grown.project(spaces["c"], space="c", query=True), grown.project(spaces["b"], space="b")
    back = truth(spaces, "c", "b")
    assert ((queries @ index.T).argmax(axis=1) == back)[back >= 0].mean() > 0.9


def test_other_vectors_are_no_member(common, spaces):
    with pytest.raises(InputError, match="is not what 'a' was"):
        common.without("c").add({"a": spaces["b"], "c": spaces["c"]})
    with pytest.raises(InputError, match="at least one member"):
        common.add({"x": spaces["a"], "y": spaces["b"]})


@pytest.mark.thorough
def test_noise_is_named_and_left_out(spaces, seeds, common):
    chance = np.random.default_rng(1)
    noise = Embeddings(spaces["a"].keys, chance.standard_normal((len(spaces["a"]), 20)).astype(np.float32), "noise")
    found = CommonSpace(device="cpu").fit({"a": spaces["a"], "b": spaces["b"], "noise": noise}, seeds)
    assert list(found.health_.left_out) == ["noise"]
    assert list(found.members_) == ["a", "b"]
    assert "noise is left out" in found.health_.map.reason
    expected = truth(spaces, "a", "b")
    assert (found.match("a", "b") == expected)[expected >= 0].mean() > 0.95
    with pytest.raises(InputError, match="it was left out"):
        found.translate(noise, source="noise", target="a")


@pytest.mark.thorough
def test_where_nothing_fits_nothing_is_united(tmp_path):
    chance = np.random.default_rng(2)
    noise = {name: chance.standard_normal((120, 8)).astype(np.float32) for name in ("x", "y")}
    found = CommonSpace(device="cpu").fit(noise)
    assert found.health_.map.verdict == "failed"
    assert set(found.health_.left_out) == {"x", "y"}
    found.save(tmp_path / "run")
    assert CommonSpace.load(tmp_path / "run").members_ == {}


def test_seeds_in_all_forms(spaces):
    pandas = pytest.importorskip("pandas")
    expected = [[spaces[name].row_of["i1"] for name in NAMES], [spaces["a"].row_of["i2"], spaces["b"].row_of["i2"], -1]]
    for given in (
        [("i1", "i1", "i1"), ("i2", "i2", None)],
        [{"a": "i1", "b": "i1", "c": "i1"}, {"a": "i2", "b": "i2"}],
        pandas.DataFrame({"a": ["i1", "i2"], "b": ["i1", "i2"], "c": ["i1", None]}),
        {("a", "b"): [("i1", "i1"), ("i2", "i2")], ("b", "c"): [("i1", "i1")]},
        expected,
    ):
        found = as_seed_tuples(given, spaces)
        assert sorted(found.tolist()) == sorted(expected)
    assert as_seed_tuples(None, spaces).shape == (0, 3)


def test_seeds_that_make_no_sense_are_refused(spaces, tmp_path):
    for given, message in (
        ([("i1", "i1")], "needs 3 keys or rows"),
        ([("i1", "nobody", None)], "b has no key 'nobody'"),
        ({("a", "x"): []}, "names of two spaces"),
        ([("i1", "i1", None), ("i2", None, "i2"), (None, "i1", "i2")], "contradict each other"),
        ("i1", "must be tuples"),
    ):
        with pytest.raises(InputError, match=message):
            as_seed_tuples(given, spaces)
    write_table(tmp_path / "s.tsv", ("a", "z"), [("i1", "i1")])
    with pytest.raises(InputError, match="must name two spaces or more"):
        read_seed_tuples(tmp_path / "s.tsv", spaces)


def test_what_is_no_set_of_spaces_is_refused(spaces, common):
    for given in ([spaces["a"]], {"a": spaces["a"]}, {1: spaces["a"], 2: spaces["b"]}):
        with pytest.raises(InputError, match="must be a dict from names"):
            CommonSpace().fit(given)
    with pytest.raises(InputError, match="no space 'd'"):
        common.translate(spaces["a"], source="a", target="d")
    with pytest.raises(InputError, match="both 'a'"):
        common.translator(source="a", target="a")
    with pytest.raises(InputError, match="has 5 dimensions"):
        common.project(np.ones((2, 5)), space="a")
    with pytest.raises(kedge.KedgeError, match="not fitted"):
        CommonSpace().project(np.ones((2, 5)), space="a")


# -- the command line --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory, spaces, seeds):
    path = tmp_path_factory.mktemp("unite")
    for name, space in spaces.items():
        write_embeddings(space, path / f"{name}.npz")
    write_table(path / "seeds.tsv", NAMES, seeds)
    files = [str(path / f"{name}.npz") for name in NAMES]
    assert main(["unite", *files, "--seeds", str(path / "seeds.tsv"), "-o", str(path / "run"), "--device", "cpu"]) == 0
    return path


def run(folder, *arguments):
    files = (".npz", ".tsv", ".html", "run", "run2", "run3")
    return main([str(folder / one) if one.endswith(files) and "=" not in one else one for one in arguments])


def test_unite_writes_groups(folder, capsys):
    lines = (folder / "run" / "groups.tsv").read_text().splitlines()
    assert lines[0] == "probability\ta\tb\tc"
    assert len(set(lines[1].split("\t")[1:])) == 1
    assert run(folder, "info", "run", "--json", "--verify") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [member["name"] for member in shown["members"]] == list(NAMES)
    assert shown["verified"] is True
    assert run(folder, "info", "run") == 0
    assert "% of the rows come back" in capsys.readouterr().out


def test_a_run_of_many_translates_projects_and_searches(folder, spaces, common, capsys):
    assert run(folder, "translate", "run", "a.npz", "--from", "a", "--to", "c", "-o", "t.npz") == 0
    translated = kedge.read_embeddings(folder / "t.npz").vectors
    assert np.allclose(translated, common.translate(spaces["a"], source="a", target="c"), atol=1e-4)
    assert run(folder, "project", "run", "b", "b.npz", "-o", "p.npz", "--query") == 0
    projected = kedge.read_embeddings(folder / "p.npz").vectors
    assert np.allclose(projected, common.project(spaces["b"], space="b", query=True), atol=1e-3)
    capsys.readouterr()
    assert run(folder, "search", "run", "a.npz", "b.npz", "i0", "--from", "a", "--to", "b", "--json") == 0
    assert json.loads(capsys.readouterr().out)["i0"][0]["key"] == "i0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "run", "a.npz", "-o", "new.npz"), "name two of them by --from and --to"),
        (("translate", "run", "a.npz", "--back", "--from", "a", "--to", "b", "-o", "new.npz"), "--back: a run of many"),
        (("project", "run", "a", "a.npz", "-o", "new.npz", "--coordinates", "shared"), "common coordinates only"),
        (("project", "run", "z", "a.npz", "-o", "new.npz"), "no space 'z'"),
        (("report", "run", "a.npz", "b.npz", "-o", "new.html"), "needs all of its members; also give that of c"),
        (("report", "run", "a.npz", "seeds.npz", "-o", "new.html"), "no such file"),
        (("lexicon", "run", "a.npz", "b.npz", "-o", "new.tsv"), "holds a common space"),
        (("export", "run", "-o", "new.npz"), "name two of them by --from and --into"),
        (("export", "run", "-o", "new.npz", "--from", "a", "--into", "a"), "both 'a'"),
        (("export", "run", "a.npz", "b.npz", "-o", "new.parquet"), "embedding-atlas shows two"),
        (("compare", "run"), "at least two runs"),
        (("compare", "run", "run"), "is the same run"),
        (("evaluate", "run", "a.npz", "seeds.tsv", "--gold", "keys"), "seeds.tsv"),
        (("search", "run", "a.npz", "b.npz", "i0", "--from", "a"), "numbers per row, common coordinates"),
        (("unite", "a.npz", "a.npz", "-o", "new-run"), "is called 'a' already"),
        (("unite", "a.npz", "-o", "new-run"), "one space is alone"),
        (("unite", "a.npz", "b.npz", "-o", "run"), "already exists"),
    ],
)
def test_what_a_run_of_many_cannot_do_is_said(folder, capsys, arguments, message):
    assert run(folder, *arguments) == 2
    assert message in capsys.readouterr().err


def test_names_are_refused_for_a_run_of_two(run_files, capsys):
    folder, x, y = run_files
    assert main(["search", folder, x, y, "water", "--from", "a", "--to", "b"]) == 2
    assert "is a run of two spaces" in capsys.readouterr().err
    assert main(["project", folder, "a", x, "-o", "new.npz"]) == 2
    assert "give X or Y" in capsys.readouterr().err


def test_a_space_is_added_on_the_command_line(folder, spaces, capsys):
    first = ["unite", "a.npz", "b.npz", "--seeds", "ab.tsv", "-o", "run2", "--device", "cpu"]
    write_table(folder / "ab.tsv", ("a", "b"), [(f"i{row}",) * 2 for row in range(15)])
    assert run(folder, *first) == 0
    before = (CommonSpace.load(folder / "run2")).project(spaces["a"], space="a")
    more = ["unite", "a.npz", f"new={folder / 'c.npz'}", "--add", "run2", "-o", "run3", "--device", "cpu"]
    assert run(folder, *more) == 0
    assert "a, new" in capsys.readouterr().out
    grown = CommonSpace.load(folder / "run3")
    assert list(grown.members_) == ["a", "b", "new"]
    assert np.array_equal(grown.project(spaces["a"], space="a"), before)


def test_the_page_shows_all_spaces_side_by_side(folder, spaces, common):
    pytest.importorskip("plotly")
    assert run(folder, "report", "run", "c.npz", "a.npz", "b.npz", "-o", "common.html") == 0
    page = (folder / "common.html").read_text()
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


def test_the_page_marks_pairs_whose_loops_do_not_close(spaces, common, tmp_path):
    pytest.importorskip("plotly")
    from kedge.report import write_common_page

    write_common_page(tmp_path / "closed.html", common, spaces)
    assert "does not close" not in (tmp_path / "closed.html").read_text()
    broken = CommonSpace.load(_saved(common, tmp_path / "run"))
    broken.health_ = replace(broken.health_, loops=(replace(common.health_.loops[0], closed=False),))
    write_common_page(tmp_path / "broken.html", broken, spaces)
    assert (tmp_path / "broken.html").read_text().count("a loop over it does not close") == 6


def _saved(common, folder):
    common.save(folder)
    return folder


def test_keys_cannot_break_out_of_the_page(spaces, tmp_path, common):
    pytest.importorskip("plotly")
    from kedge.report import write_common_page

    bad = common.without("c")
    bad.group_keys_ = [("</script><b>", None), *bad.group_keys_[1:]]
    write_common_page(tmp_path / "page.html", bad, spaces)
    assert "</script><b>" not in (tmp_path / "page.html").read_text()


# -- one index for all -------------------------------------------------------------------------------


def test_coordinates_by_distance_have_the_order_of_the_likelihood(common, spaces):
    queries = common.project(spaces["c"], space="c", query=True)
    documents = np.concatenate([common.project(spaces[name], space=name) for name in NAMES])
    near_queries = common.project(spaces["c"], space="c", query=True, metric="l2").astype(np.float64)
    near = np.concatenate([common.project(spaces[name], space=name, metric="l2") for name in NAMES]).astype(np.float64)
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
        common.project(spaces["c"], space="c", metric="cosine")


@pytest.mark.parametrize("kind", ["chroma", "lancedb", "sqlite-vec", "parquet"])
def test_one_store_holds_documents_of_several_encoders(kind, folder, spaces, common, tmp_path, capsys):
    """Documents of a and b in one store; queries of c are answered by it, with comparable scores."""
    place = {"sqlite-vec": "all.db#docs", "parquet": "all"}.get(kind, "all#docs")
    target = f"{kind}:{tmp_path / place}"
    given = ["--run", str(folder / "run"), "--append", "--mark", "encoder"]

    def migrate(name, *more):
        return main(["migrate", str(folder / f"{name}.npz"), target, *given, "--from", name, *more])

    code = migrate("a", "--id-prefix", "a/")
    said = capsys.readouterr()
    if code == 2 and "pip install" in said.err:
        pytest.skip(said.err)
    assert code == 0, said
    by = "distance" if kind == "sqlite-vec" else "inner product"
    assert f"search it by {by}" in said.out
    assert migrate("b", "--id-prefix", "a/") == 2
    assert "--id-prefix" in capsys.readouterr().err
    assert migrate("b", "--id-prefix", "b/", "--dry-run") == 0
    assert f"would add {len(spaces['b'])} rows" in capsys.readouterr().out
    assert migrate("b", "--id-prefix", "b/") == 0
    assert f"checked: {len(spaces['b'])} rows on both sides" in capsys.readouterr().out
    assert migrate("b", "--id-prefix", "b/", "--resume") == 0  # all of them are there
    capsys.readouterr()

    keys = [f"i{row}" for row in range(100, 130)]
    search = ["search", str(folder / "run"), str(folder / "c.npz"), target, *keys, "--from", "c", "-k", "2", "--json"]
    assert main(search) == 0
    found = json.loads(capsys.readouterr().out)
    firsts = [found[key][0]["key"][2:] == key for key in keys]
    both = [{one["key"] for one in found[key]} == {f"a/{key}", f"b/{key}"} for key in keys]
    assert np.mean(firsts) > 0.9
    assert np.mean(both) > 0.6
    exact = common.between("c", "a")
    ratio = exact.x_.shared(spaces["c"].take(spaces["c"].rows(keys))) @ exact.y_.shared(spaces["a"]).T
    near = [one["log_likelihood_ratio"] for key in keys for one in found[key] if one["key"] == f"a/{key}"]
    assert np.median(near) == pytest.approx(np.median(ratio.max(axis=1)), rel=0.2)

    with open_store(target) as store:
        about = store.describe()
        payloads = [payload for batch in store.read(500) for payload in batch.payloads]
    assert about.rows == len(spaces["a"]) + len(spaces["b"])
    assert {payload["encoder"] for payload in payloads} == {"a", "b"}
    assert about.metric in {"chroma": ("ip",), "sqlite-vec": ("l2",)}.get(kind, (None, "ip"))


def test_a_store_of_common_coordinates_takes_in_a_space_that_joined(folder, spaces, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    target = f"parquet:{tmp_path / 'all'}"
    write_table(tmp_path / "ab.tsv", ("a", "b"), [(f"i{row}",) * 2 for row in range(15)])
    files = {name: str(folder / f"{name}.npz") for name in NAMES}
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
    other = ["--run", str(folder / "run"), "--from", "b", "--append", "--id-prefix", "b/"]
    assert main(["migrate", files["b"], target, *other]) == 2  # those of another run do not compare
    assert "holds other coordinates" in capsys.readouterr().err


def test_a_store_is_translated_from_one_of_many_into_another(folder, spaces, common, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    run_of_many = ["--run", str(folder / "run")]
    target = f"parquet:{tmp_path / 'in-b'}"
    assert main(["migrate", str(folder / "a.npz"), target, *run_of_many, "--from", "a", "--to", "b"]) == 0
    carried = kedge.read_embeddings(target)
    expected = common.translate(spaces["a"], source="a", target="b", scale="raw")
    assert np.allclose(carried.vectors[carried.rows(spaces["a"].keys)], expected, atol=1e-3)
    capsys.readouterr()
    for more, message in (
        ([], "name the one that"),
        (["--from", "z"], "no space 'z'"),
        (["--from", "a", "--to", "b", "--append"], "--append: only common coordinates"),
        (["--from", "a", "--back"], "--back: a run of many"),
    ):
        assert main(["migrate", str(folder / "a.npz"), f"parquet:{tmp_path / 'new'}", *run_of_many, *more]) == 2
        assert message in capsys.readouterr().err
    whole = ["migrate", str(folder / "a.npz"), str(tmp_path / "all.npz"), *run_of_many, "--from", "a", "--append"]
    assert main(whole) == 0
    assert main([*whole, "--id-prefix", "b/"]) == 2
    assert "is written whole" in capsys.readouterr().err


def test_a_member_leaves_on_the_command_line(folder, spaces, common, tmp_path, capsys):
    assert main(["unite", "b", "--remove", str(folder / "run"), "-o", str(tmp_path / "left")]) == 0
    assert "1 of 1 pairs of spaces are ok" in capsys.readouterr().out
    left = CommonSpace.load(tmp_path / "left")
    assert list(left.members_) == ["a", "c"]
    assert np.array_equal(left.project(spaces["a"], space="a"), common.project(spaces["a"], space="a"))
    assert main(["unite", "z", "--remove", str(folder / "run"), "-o", str(tmp_path / "none")]) == 2
    assert "no space 'z'" in capsys.readouterr().err
    assert main(["unite", "a", "b", "--remove", str(folder / "run"), "-o", str(tmp_path / "none")]) == 2
    assert "needs two members" in capsys.readouterr().err


# -- looking at it, and handing it on ----------------------------------------------------------------


def test_every_two_members_are_evaluated(folder, capsys):
    assert run(folder, "evaluate", "run", "b.npz", "a.npz", "c.npz", "--gold", "keys", "--device", "cpu", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(one["first"], one["second"]) for one in shown["pairs"]] == list(combinations(NAMES, 2))
    for one in shown["pairs"]:
        assert one["queries"] == 390 - 15
        assert one["shared"]["p_at_1"] > 0.95
        assert one["map"]["p_at_1"] > 0.9
        assert one["pairs_precision"] > 0.95
        assert one["pairs_recall"] > 0.95
    assert run(folder, "evaluate", "run", "a.npz", "b.npz", "--gold", "seeds.tsv", "--device", "cpu") == 2
    assert "must name two spaces or more" in capsys.readouterr().err  # a column of one that is not given
    write_table(folder / "gold.tsv", ("b", "a"), [(f"i{row}",) * 2 for row in range(10, 18)])
    assert run(folder, "evaluate", "run", "a.npz", "b.npz", "--gold", "gold.tsv", "--device", "cpu") == 0
    assert re.search(r"a, b\s+3\s+1\.000", capsys.readouterr().out)  # the others of the eight are seeds


def test_a_run_of_many_is_exported(folder, spaces, common, capsys):
    assert run(folder, "export", "run", "--from", "b", "--into", "c", "-o", "b-to-c.npz") == 0
    assert "translation of b to c" in capsys.readouterr().out
    translate = kedge.load_translator(folder / "b-to-c.npz")
    expected = common.translate(spaces["b"], source="b", target="c")
    assert np.allclose(translate(spaces["b"].vectors), expected, atol=1e-4)
    assert run(folder, "export", "run", "--to", "pairs", "-o", "groups.tsv") == 0
    assert (folder / "groups.tsv").read_text() == (folder / "run" / "groups.tsv").read_text()
    assert run(folder, "export", "run", "--to", "pairs", "--from", "a", "--into", "c", "-o", "two.tsv") == 0
    lines = (folder / "two.tsv").read_text().splitlines()
    assert lines[0] == "probability\ta\tc"
    assert len(lines) - 1 == (common.match("a", "c") >= 0).sum()


def test_runs_of_many_are_compared(folder, common, run_files, tmp_path, capsys):
    changed = CommonSpace.load(folder / "run").without("c")
    rows = changed.groups_[:, 0].copy()
    changed.groups_[:10, 1] = np.roll(changed.groups_[:10, 1], 1)
    assert np.array_equal(rows, changed.groups_[:, 0])
    changed.group_keys_ = [
        (keys[0], changed.group_keys_[(place - 1) % 10][1]) if place < 10 else keys
        for place, keys in enumerate(changed.group_keys_)
    ]
    changed.save(tmp_path / "changed")
    assert main(["compare", str(folder / "run"), str(tmp_path / "changed"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["trusted"] == str(folder / "run")
    same, contradicted, unknown = shown["agreements"][1][0]
    assert (contradicted, unknown) == (10, 0)
    assert same == (common.match("a", "b") >= 0).sum() - 10
    assert main(["compare", str(folder / "run"), str(tmp_path / "changed")]) == 0
    assert "Trust" in capsys.readouterr().out
    assert main(["compare", str(folder / "run"), run_files[0]]) == 2
    assert "compare runs of the same kind" in capsys.readouterr().err
