"""All rows matched by a run, over batches: against a plain reference, by both engines, and after interruptions."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from kedge import Embeddings, load, write_embeddings
from kedge.cli.main import main
from kedge.data import load_demo_words
from kedge.engines.job_folder import job_folder
from kedge.engines.local_engine import LocalEngine
from kedge.errors import InputError
from kedge.matching import match_csls
from kedge.models.confidence_curve import ConfidenceCurve
from kedge.spaces.row_ranges import open_ranges
from kedge.tasks.all_rows import PAIRS, Arrival, comparing, match_all, match_plan, merging, ranked_rows

pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'kedge[parquet]'")


@pytest.fixture(scope="module")
def all_words(tmp_path_factory, run_files) -> dict[str, Path]:
    """A run of 2,000 words, and the files of all 5,000, the second shuffled."""
    folder = tmp_path_factory.mktemp("all")
    x, y = load_demo_words()
    shuffled = y.take(np.random.default_rng(5).permutation(len(y)))
    write_embeddings(x, folder / "x.npy")
    write_embeddings(shuffled, folder / "y.parquet")
    return {"run": Path(run_files[0]), "x": folder / "x.npy", "y": folder / "y.parquet"}


@pytest.fixture
def small_buckets(monkeypatch):
    """Several of everything, though rows are few."""
    monkeypatch.setattr(merging, "BUCKET", 1024)
    monkeypatch.setattr("kedge.tasks.all_rows.pairing.BUCKET", 1024)
    monkeypatch.setattr("kedge.tasks.all_rows.match_job.BUCKET", 1024)
    monkeypatch.setattr(match_plan, "BATCH", 700)
    monkeypatch.setattr(match_plan, "_ROWS_IN_A_CLUSTER", 128)
    monkeypatch.setattr(match_plan, "_GROUP_BYTES", 2**20)


def matched(files: dict[str, Path], out: Path, engine=None, **options) -> dict[str, tuple]:
    """The partner, margin, mutual and confidence of each key of X, and what the job says of itself under ""."""
    with job_folder(
        out, PAIRS, resume=out.with_name(f"{out.name}.unfinished").exists(), overwrite=False, activity="match"
    ) as folder:
        spaces = (open_ranges(files[name], folder, name) for name in ("x", "y"))
        summary = match_all(load(files["run"]), *spaces, folder, engine or LocalEngine(folder), **options)
    return read_pairs(out) | {"": summary}


def read_pairs(out: Path) -> dict[str, tuple]:
    rows = pq.read_table(out).to_pylist()
    return {row["x"]: (row["y"], row["margin"], row["mutual"], row["confidence"]) for row in rows}


def test_partners_are_those_of_comparing_all_with_all(all_words, tmp_path, small_buckets):
    found = matched(all_words, tmp_path / "pairs")
    summary = found.pop("")
    run, (x, y) = load(all_words["run"]), load_demo_words()
    expected = match_csls(*(torch.from_numpy(side.shared(space)) for side, space in ((run.x_, x), (run.y_, y))))
    assert len(found) == len(x) == summary.rows_x == summary.listed
    partners = [y.keys[row] for row in expected.partner.tolist()]
    same = np.array([found[key][0] == partner for key, partner in zip(x.keys, partners, strict=True)])
    assert same.mean() > 0.995
    margins = np.array([found[key][1] for key in x.keys])
    error = np.abs(margins - expected.margin.numpy())[same]
    assert np.quantile(error, 0.9) < 2  # of margins of 50: some rivals, or some of the ten nearest, were not met
    assert summary.met > 0.99
    assert summary.clusters > summary.probes
    mutual = np.array([found[key][2] for key in x.keys])
    assert (mutual == expected.mutual.numpy()).mean() > 0.99
    right = np.array([found[key][0] == key for key in x.keys])
    assert right.mean() > 0.98
    confidence = np.array([found[key][3] for key in x.keys])
    assert abs(confidence[mutual].mean() - right[mutual].mean()) < 0.01
    assert (confidence[~mutual] < confidence[mutual].min()).all()


def test_what_the_run_was_given_is_marked_and_not_counted_as_found(all_words, tmp_path, small_buckets):
    summary = matched(all_words, tmp_path / "pairs", min_confidence=0.5)[""]
    rows = pq.read_table(tmp_path / "pairs").to_pylist()
    given = dict(load(all_words["run"]).seed_keys_)
    assert {row["x"] for row in rows if row["seed"]} == {row["x"] for row in rows if given.get(row["x"]) == row["y"]}
    assert summary.seeds == sum(row["seed"] for row in rows) > 10
    found = [row["confidence"] for row in rows if not row["seed"]]
    assert summary.listed == len(found) + summary.seeds
    assert summary.expected_right == pytest.approx(sum(found), rel=1e-5)


def test_the_curve_gives_the_run_s_own_confidence(fitted):
    curve = fitted.confidence_curve_
    assert list(curve.margins) == sorted(curve.margins)
    assert list(curve.probabilities) == sorted(curve.probabilities)
    found = curve.confidence(np.array([-1.0, -1.0, 0.0, 1e6], dtype=np.float32), np.array([True, False, True, True]))
    least, most = curve.probabilities[0], curve.probabilities[-1]
    np.testing.assert_allclose(found, [0.2 * least, 0.7 * least, 0.2 * least, most], rtol=1e-6)
    pairs = fitted.pair_confidence_
    assert least - 1e-6 <= pairs.min() <= pairs.max() <= most + 1e-6


def test_a_run_keeps_its_curve(fitted, run_files, tmp_path, all_words):
    assert load(run_files[0]).confidence_curve_ == fitted.confidence_curve_
    old = tmp_path / "old"
    shutil.copytree(run_files[0], old)
    stored = json.loads((old / "run.json").read_text())
    del stored["confidence_curve"]
    (old / "run.json").write_text(json.dumps(stored))
    from kedge.runs.folder import seal

    seal(old)
    assert load(old).confidence_curve_ is None
    with pytest.raises(InputError, match="does not say how probable a match"):
        matched(all_words | {"run": old}, tmp_path / "pairs")
    assert not (tmp_path / "pairs.unfinished").exists()


@pytest.mark.parametrize("curve", [
    {"margins": [0.0, 1.0], "probabilities": [0.5]},
    {"margins": [1.0, 0.0], "probabilities": [0.5, 0.6]},
    {"margins": [], "probabilities": []},
    {"margins": [0.0], "probabilities": [1.5]},
    "steep",
])  # fmt: skip
def test_a_curve_that_cannot_be_is_refused(run_files, curve):
    from kedge.runs.description import describe

    stored = json.loads((Path(run_files[0]) / "run.json").read_text())
    with pytest.raises(InputError, match="confidence_curve"):
        describe(stored | {"confidence_curve": curve}, "run.json:")


def test_curves_of_nothing_give_nothing():
    assert not ConfidenceCurve().confidence(np.array([-1.0, 5.0]), np.array([False, True])).any()


class StoppedError(Exception):
    """What a killed process does, as far as files go."""


class StoppingEngine(LocalEngine):
    """Fails after so many groups."""

    def __init__(self, scratch, groups):
        super().__init__(scratch)
        self.left = groups

    def regroup(self, tasks, split, finish, groups):
        def stop_or_finish(group, table):
            self.left -= 1
            if self.left < 0:
                raise StoppedError
            return finish(group, table)

        return super().regroup(tasks, split, stop_or_finish, groups)


class CountingEngine(LocalEngine):
    """Counts the groups that it finishes."""

    finished = 0

    def regroup(self, tasks, split, finish, groups):
        for result in super().regroup(tasks, split, finish, groups):
            self.finished += 1
            yield result


def test_an_interrupted_match_does_only_what_is_missing(all_words, tmp_path, small_buckets):
    whole = CountingEngine(tmp_path)
    expected = matched(all_words, tmp_path / "pairs", whole)
    assert whole.finished > 15
    for stopped_after in (whole.finished // 3, whole.finished - 1):
        out = tmp_path / f"pairs-{stopped_after}"
        with pytest.raises(StoppedError):
            matched(all_words, out, StoppingEngine(tmp_path, stopped_after))
        assert not out.exists()
        again = CountingEngine(tmp_path)
        assert matched(all_words, out, again) == expected
        assert again.finished == whole.finished - stopped_after
        assert not out.with_name(f"{out.name}.unfinished").exists()


def test_another_call_does_not_go_on(all_words, tmp_path, small_buckets):
    with pytest.raises(StoppedError):
        matched(all_words, tmp_path / "pairs", StoppingEngine(tmp_path, 3))
    with pytest.raises(InputError, match="was begun with another min_confidence"):
        matched(all_words, tmp_path / "pairs", min_confidence=0.5)
    with (
        pytest.raises(InputError, match="continue it with --resume"),
        job_folder(tmp_path / "pairs", PAIRS, resume=False, overwrite=False, activity="match"),
    ):
        pass


@pytest.mark.parametrize("change", ["another file", "changed"])
def test_copied_files_must_be_the_same_to_go_on(run_files, words, tmp_path, small_buckets, capsys, change):
    run, x, y = run_files
    files = {"run": Path(run), "x": tmp_path / "x.npz", "y": Path(y)}
    shutil.copy(x, files["x"])
    with pytest.raises(StoppedError):
        matched(files, tmp_path / "pairs", StoppingEngine(tmp_path, 3))
    other = files["x"] if change == "changed" else tmp_path / "other.npz"
    write_embeddings(words[0].take(range(1999, -1, -1)), other)
    arguments = ["match", run, str(other), y, "-o", str(tmp_path / "pairs"), "--resume"]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert f"{other}: " + ("has changed since" if change == "changed" else "the job in") in said
    assert not (tmp_path / "pairs").exists()
    if change == "another file":
        assert matched(files, tmp_path / "pairs")[""].listed == 2000


def test_a_rewriting_goes_on_with_the_same_file_only(run_files, words, tmp_path, short_ranges, capsys, monkeypatch):
    shutil.copy(run_files[1], tmp_path / "x.npz")
    arguments = ["translate", run_files[0], str(tmp_path / "x.npz"), "-o", f"parquet:{tmp_path / 'out'}"]
    arguments += ["--engine", "local"]
    with monkeypatch.context() as patched:
        patched.setattr("kedge.tasks.all_rows.rewriting._TOLERANCE", -1.0)  # so that nothing is alike
        assert main(arguments) == 2
    write_embeddings(words[0].take(range(1999, -1, -1)), tmp_path / "other.npz")
    capsys.readouterr()
    assert main([*arguments[:2], str(tmp_path / "other.npz"), *arguments[3:], "--resume"]) == 2
    assert "was begun with" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0


def test_what_a_killed_process_regrouped_through_is_deleted(tmp_path):
    left = tmp_path / "pairs.unfinished" / "groups-abc"
    left.mkdir(parents=True)
    (left / "00000").write_bytes(b"rows")
    with (
        pytest.raises(StoppedError),
        job_folder(tmp_path / "pairs", PAIRS, resume=True, overwrite=False, activity="match") as folder,
    ):
        (folder / "call.json").write_text("{}")
        assert not left.exists()
        engine = LocalEngine(folder)
        split, seen = partial(_one_message, folder), []
        list(engine.regroup([0], split, lambda *_: seen.append(list(folder.glob("groups-*"))), 1))
        assert len(seen[0]) == 1  # what is deleted above is named as what an engine makes
        raise StoppedError


def _one_message(folder, _task):
    import pyarrow as pa

    yield 0, pa.table({"row": [1]})


def test_the_command_writes_pairs(all_words, tmp_path, capsys):
    arguments = ["match", *(str(all_words[name]) for name in ("run", "x", "y")), "-o", str(tmp_path / "pairs")]
    assert main([*arguments, "--min-confidence", "0.9", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    rows = pq.read_table(tmp_path / "pairs").to_pylist()
    assert said["listed"] == len(rows) > 4900
    assert all(row["mutual"] and row["confidence"] >= 0.9 for row in rows)
    assert main(arguments) == 2
    assert "already exists" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0
    assert len(read_pairs(tmp_path / "pairs")) == 5000


@pytest.mark.parametrize(("option", "message"), [
    (["--ray", "host:1"], "--ray: is for --engine ray"),
    (["--resume"], "there is nothing to resume"),
    (["--engine", "ray", "--ray", "host:1", "--workers", "2"], "has its own"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(all_words, tmp_path, capsys, option, message):
    arguments = ["match", *(str(all_words[name]) for name in ("run", "x", "y")), "-o", str(tmp_path / "pairs")]
    assert main([*arguments, *option]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_spaces_the_wrong_way_round_are_refused(all_words, tmp_path, capsys):
    assert main(["match", *(str(all_words[name]) for name in ("run", "y", "x")), "-o", str(tmp_path / "pairs")]) == 2
    assert "give X first and then Y" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# -- into how many clusters rows look


class PlainSide:
    """A side whose shared coordinates are the vectors themselves, with two biases that change nothing."""

    def __init__(self) -> None:
        self.transformed = 0

    def shared(self, vectors):
        self.transformed += len(vectors)
        return np.concatenate(
            [vectors, np.ones((len(vectors), 1)), np.zeros((len(vectors), 1))], axis=1, dtype=np.float32
        )


def read_sides(folder: Path, *spaces: np.ndarray) -> list[match_plan.ReadSide]:
    for name, space in zip("xy", spaces, strict=True):
        np.save(folder / f"{name}.npy", space.astype(np.float32))
    return [match_plan.ReadSide(open_ranges(folder / f"{name}.npy", folder, name), PlainSide()) for name in "xy"]


def normal_spaces(rows: int, shared: int, dim: int = 48) -> list[np.ndarray]:
    """Two spaces: the first rows of X are those of Y, with noise, and the others have no counterpart."""
    chance = np.random.default_rng(0)
    x = chance.standard_normal((rows, dim))
    return [x, x[:shared] + 0.4 * chance.standard_normal((shared, dim))]


def test_rows_without_a_counterpart_do_not_make_all_rows_look_everywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(match_plan, "_ROWS_IN_A_CLUSTER", 64)
    x, y = read_sides(tmp_path, *normal_spaces(10_000, 5000))
    plan, checked = match_plan.make_plan(x, y, LocalEngine(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(match_plan, "_MANY_PROBES", np.inf)  # all checked rows count, as they did once
        before, all_checked = match_plan.make_plan(x, y, LocalEngine(tmp_path))
    assert before.probes > 25
    assert plan.probes < 12
    assert all_checked.counts.all()
    paired = checked.rows < 5000
    assert (checked.counts == paired).mean() > 0.99
    # Rows that have a counterpart meet it as often as was promised.
    looks_x = plan.looks(torch.from_numpy(x.side.shared(np.load(tmp_path / "x.npy")[:5000])))
    looks_y = plan.looks(torch.from_numpy(y.side.shared(np.load(tmp_path / "y.npy"))))
    met = (looks_x == looks_y[:, :1]).any(axis=1) | (looks_y == looks_x[:, :1]).any(axis=1)
    assert met.mean() > 0.995


def test_where_all_rows_have_a_counterpart_all_count(tmp_path, monkeypatch):
    monkeypatch.setattr(match_plan, "_ROWS_IN_A_CLUSTER", 64)
    plan, checked = match_plan.make_plan(*read_sides(tmp_path, *normal_spaces(4000, 4000)), LocalEngine(tmp_path))
    assert plan.probes < 12
    assert checked.counts.all()
    assert (checked.rows == checked.nearest).mean() > 0.99


def test_more_slack_than_any_row_needs_is_not_given():
    behind = torch.tensor([[0.0, 1.0, 5.0, 9.0]])
    needed = torch.tensor([0.0, 1.0, torch.inf, torch.inf])
    assert match_plan._enough_slack(needed, behind) == (1.0, 2.0)
    assert match_plan._enough_slack(needed[2:], behind) == (0.0, 1.0)
    assert match_plan._enough_slack(torch.arange(1000.0), behind)[0] == 997


def test_the_summary_says_which_rows_were_judged(capsys):
    import argparse
    from dataclasses import fields, replace

    from kedge.cli.use.match import _print_summary
    from kedge.tasks.all_rows import MatchSummary

    arguments = argparse.Namespace(json=False, out="pairs", min_confidence=None)
    ten = MatchSummary(**{each.name: 10 for each in fields(MatchSummary)})
    some = replace(ten, checked=2000, met=0.95, counted=1000, met_counted=0.998, probes=7.5, clusters=40)
    _print_summary(arguments, some, 1.0)
    said = capsys.readouterr().out
    assert "99.8% of 1000 checked rows that probably have a counterpart met their nearest of all 10 rows of Y" in said
    assert "(95.0% of all 2000 checked rows); a row looks into 7.5 of 40 clusters" in said
    _print_summary(arguments, replace(some, counted=2000, met_counted=0.95), 1.0)
    assert "95.0% of 2000 checked rows met their nearest of all 10 rows of Y; a row" in capsys.readouterr().out


@pytest.mark.parametrize("groups", [1, 7, 5000])
def test_rows_are_sent_to_all_groups_that_they_look_into(groups):
    chance = np.random.default_rng(0)
    table = np.where(chance.random((300, 8)) < 0.4, chance.integers(groups, size=(300, 8)), -1)
    found = dict(comparing._rows_of_groups(table))
    assert sorted(found) == list(found) == np.unique(table[table >= 0]).tolist()
    for group, rows in found.items():
        assert rows.tolist() == np.flatnonzero((table == group).any(axis=1)).tolist()
    assert not dict(comparing._rows_of_groups(np.full((3, 2), -1)))


@pytest.mark.parametrize("few", [0, 5, 10**6])
@pytest.mark.parametrize("copied", [0.0, 1.0])
@pytest.mark.parametrize("transposed", [False, True])
def test_ranked_rows_are_the_nearest_of_all_they_met(monkeypatch, few, copied, transposed):
    monkeypatch.setattr(ranked_rows, "_FEW", few)
    monkeypatch.setattr(ranked_rows, "_COPIED", copied)
    chance = torch.Generator().manual_seed(0)
    similarity = torch.randn(90, 480, generator=chance) * torch.linspace(0.2, 3, 90)[:, None]  # some gain, some do not
    one, two = ranked_rows.Ranked.nothing(90), ranked_rows.Ranked.nothing(90)
    for begin in range(0, 480, 60):
        others = torch.arange(begin, begin + 60)
        table, besides = (one, two) if begin % 120 else (two, one)
        for some in torch.randperm(90, generator=chance).split(50):
            block = similarity[some[:, None], others]
            table.update(some, block.T.contiguous().T if transposed else block, others, besides)
    monkeypatch.setattr(ranked_rows, "_MERGED", 40)
    found = ranked_rows.merge(torch.cat([one.rows, two.rows], dim=1), torch.cat([one.values, two.values], dim=1))
    values, rows = similarity.topk(found.rows.shape[1], dim=1)
    assert torch.equal(found.values, values)
    assert torch.equal(found.rows, rows)


def test_only_rows_of_the_sample_get_coordinates(tmp_path, monkeypatch):
    monkeypatch.setattr(match_plan, "BATCH", 300)
    x, _ = read_sides(tmp_path, *normal_spaces(5000, 10))
    numbers, coordinates = match_plan._sample(x, 500, 0)
    # The sample as it was when all rows that are read were transformed first.
    expected = np.concatenate([np.arange(begin, min(begin + 300, 5000))[::10] for begin in range(0, 5000, 300)])
    assert numbers.tolist() == expected.tolist()
    assert x.side.transformed == len(numbers) < 600
    np.testing.assert_array_equal(coordinates[:, :-2], np.load(tmp_path / "x.npy")[numbers])


# -- other vectors for all rows


def payload_folder(path: Path, space: Embeddings) -> str:
    """A folder of Parquet files with whole numbers as ids and one more column, in several row groups."""
    import pyarrow as pa

    path.mkdir()
    flat = pa.array(space.vectors.reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, space.dim)
    rows = pa.table({"id": range(len(space)), "vector": lists, "word": list(space.keys)})
    pq.write_table(rows[:700], path / "1.parquet", row_group_size=300)
    pq.write_table(rows[700:], path / "2.parquet")
    return f"parquet:{path}"


@pytest.fixture
def short_ranges(monkeypatch):
    monkeypatch.setattr("kedge.tasks.all_rows.rewriting.BATCH", 128)


def test_migration_in_batches_keeps_everything(run_files, words, tmp_path, short_ranges, capsys):
    run = run_files[0]
    source, target = payload_folder(tmp_path / "old", words[0]), f"parquet:{tmp_path / 'new'}"
    assert main(["migrate", source, target, "--run", run, "--engine", "local"]) == 0
    assert len(list((tmp_path / "new").glob("*.parquet"))) > 2
    rows = {row["id"]: row for row in pq.read_table(tmp_path / "new").to_pylist()}
    expected = load(run).translate(words[0], scale="raw")
    assert sorted(rows) == list(range(len(expected)))
    np.testing.assert_allclose([rows[number]["vector"] for number in rows], expected[list(rows)], atol=1e-3)
    assert [rows[number]["word"] for number in sorted(rows)] == list(words[0].keys)
    # What a migration in one go says of its target, this one says too: neither is translated twice.
    assert main(["migrate", target, f"parquet:{tmp_path / 'again'}", "--run", run]) == 2
    capsys.readouterr()
    assert main(["migrate", source, target, "--run", run, "--engine", "local"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_translation_and_projection_in_batches_are_the_same(run_files, words, tmp_path, short_ranges):
    run, x, y = run_files
    discovery = load(run)
    for arguments, expected, space in (
        (["translate", run, x], discovery.translate(words[0]), words[0]),
        (["project", run, "Y", y, "--coordinates", "shared"], discovery.y_.shared(words[1]), words[1]),
        (["project", run, "X", x], discovery.x_.relative(words[0]), words[0]),
    ):
        out = tmp_path / arguments[0] / str(len(arguments))
        out.parent.mkdir(exist_ok=True)
        assert main([*arguments, "-o", f"parquet:{out}", "--engine", "local"]) == 0
        from kedge import read_embeddings

        found = read_embeddings(f"parquet:{out}")
        np.testing.assert_allclose(found.vectors[found.rows(space.keys)], expected, rtol=1e-4, atol=1e-4)


def test_a_rewriting_goes_on(run_files, words, tmp_path, short_ranges):
    from kedge.tasks.all_rows import PARTS, rewrite_all

    write_embeddings(words[0], tmp_path / "x.npy")
    calls: list[int] = []

    def transform(vectors):
        calls.append(len(vectors))
        if len(calls) == 6:
            raise StoppedError
        return 2 * vectors

    for resume in (False, True):
        try:
            with job_folder(tmp_path / "out", PARTS, resume=resume, overwrite=False, activity="job") as folder:
                rows = open_ranges(tmp_path / "x.npy", folder, "x")
                assert rewrite_all(rows, transform, rows.dim, folder, LocalEngine(folder)) == 2000
        except StoppedError:
            assert not (tmp_path / "out").exists()
    assert sum(calls) < 2000 + 4 * 128 + 128  # of what was begun, one range was done again
    table = pq.read_table(tmp_path / "out")
    assert table["id"].to_pylist() == list(words[0].keys)


@pytest.mark.parametrize("damage", ["vector", "word", "id", "row"])
def test_what_arrived_otherwise_is_noticed(words, tmp_path, short_ranges, monkeypatch, damage):
    from kedge.spaces.stores.address import Address
    from kedge.tasks.all_rows import PARTS, compare_all, rewrite_all

    monkeypatch.setattr("kedge.tasks.all_rows.rewriting._COMPARED", 128)
    rows = open_ranges(Address.parse(payload_folder(tmp_path / "old", words[0])), tmp_path, "source")
    engine = LocalEngine(tmp_path)
    rewrite_all(rows, np.negative, rows.dim, tmp_path, engine)
    found = compare_all(rows, np.negative, tmp_path, engine)
    assert found == Arrival(len(words[0]), len(words[0]), len(words[0]), 0)
    part = sorted((tmp_path / PARTS).glob("*.parquet"))[1]
    table = pq.read_table(part)
    there = table.to_pylist()
    if damage == "row":
        del there[-1]
    else:
        changed = {"vector": [-number for number in there[5]["vector"]], "word": "another", "id": 10**6}
        there[5][damage] = changed[damage]
    pq.write_table(type(table).from_pylist(there, table.schema), part, row_group_size=128)
    found = compare_all(rows, np.negative, tmp_path, engine)
    assert (found.rows - found.arrived, found.different) == ((1, 0) if damage == "row" else (0, 1))


def test_a_migration_in_batches_is_checked(run_files, words, tmp_path, short_ranges, monkeypatch, capsys):
    arguments = ["migrate", payload_folder(tmp_path / "old", words[0]), f"parquet:{tmp_path / 'new'}"]
    arguments += ["--run", run_files[0], "--engine", "local"]
    with monkeypatch.context() as patched:
        patched.setattr("kedge.tasks.all_rows.rewriting._TOLERANCE", -1.0)  # so that nothing is alike
        assert main(arguments) == 2
    assert re.search(r"2000 of 2000 rows are there, and (\d+) of \1 compared rows differ", capsys.readouterr().err)
    assert not (tmp_path / "new").exists()
    assert main([*arguments, "--resume"]) == 0
    assert re.search(r"checked: 2000 rows on both sides, \d{3} of them compared and equal", capsys.readouterr().out)


@pytest.mark.parametrize(("arguments", "message"), [
    (["translate", "RUN", "X", "-o", "OUT.npy", "--engine", "local"], "write parquet:FOLDER"),
    (["translate", "RUN", "X", "-o", "parquet:OUT", "--engine", "local", "--limit", "5"], "--limit cannot be used"),
    (["translate", "RUN", "X", "-o", "parquet:OUT", "--resume"], "--resume: is for --engine"),
    (["project", "RUN", "X", "X", "-o", "parquet:OUT", "--ray", "a:1"], "--ray: is for --engine ray"),
    (["migrate", "X", "parquet:OUT", "--run", "RUN", "--engine", "local", "--mark", "m"], "--mark: cannot be used"),
    (["migrate", "X", "parquet:OUT", "--run", "RUN", "--workers", "2"], "are for --engine ray"),
])  # fmt: skip
def test_what_engines_cannot_do_is_refused(run_files, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    named = {"RUN": run_files[0], "X": run_files[1]}
    given = [
        "X" if place == 2 and arguments[0] == "project" else named.get(one, one) for place, one in enumerate(arguments)
    ]
    assert main(given) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_payload_that_an_engine_leaves_behind_is_mentioned(run_files, tmp_path, short_ranges, capsys):
    for package in ("apsw", "sqlite_vec"):
        pytest.importorskip(package, reason="needs sqlite-vec: pip install 'kedge[sqlite-vec]'")
    source = f"sqlite-vec:{tmp_path / 'old.db'}#t"
    assert main(["convert", run_files[1], source]) == 0
    assert main(["migrate", source, f"parquet:{tmp_path / 'new'}", "--run", run_files[0], "--engine", "local"]) == 0
    assert "takes ids and vectors only, no payload" in capsys.readouterr().err


# -- rows that are read a range at a time


def test_ranges_of_every_kind_hold_the_same(tmp_path):
    chance = np.random.default_rng(0)
    space = Embeddings([f"é{row}" for row in range(300)], chance.standard_normal((300, 5)).astype(np.float32))
    places = [tmp_path / "a.npy", tmp_path / "a.parquet", tmp_path / "a.vec"]
    for place in places:
        write_embeddings(space, place)
    import pyarrow as pa

    cut = pq.read_table(tmp_path / "a.parquet")
    (tmp_path / "parts").mkdir()
    pq.write_table(cut[:120], tmp_path / "parts/1.parquet", row_group_size=50)
    pq.write_table(cut[120:], tmp_path / "parts/2.parquet")
    from kedge.spaces.stores.address import Address

    for number, place in enumerate([*places, Address.parse(f"parquet:{tmp_path / 'parts'}")]):
        rows = open_ranges(place, tmp_path, f"copy-{number}")
        assert (rows.rows, rows.dim) == (300, 5)
        ranges = rows.ranges(64)
        assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        blocks = [block for some in ranges for block in rows.blocks(some, 30)]
        assert [begin for begin, _ in blocks] == np.cumsum([0, *(len(part) for _, part in blocks[:-1])]).tolist()
        assert max(len(part) for _, part in blocks) <= 30
        np.testing.assert_allclose(np.concatenate([part for _, part in blocks]), space.vectors, rtol=1e-5)
        assert isinstance(rows.keys((0, 1)), pa.Array)
        for begin, end in ((0, 300), (49, 51), (119, 130), (299, 300)):
            assert rows.keys((begin, end)).to_pylist() == list(space.keys[begin:end])
        assert rows.identity() == open_ranges(place, tmp_path, f"copy-{number}").identity()


def lance_table(folder: Path, space: Embeddings, **columns: list) -> str:
    """A table that was written in two parts, from which a row was taken out again."""
    lancedb = pytest.importorskip("lancedb", reason="needs lancedb: pip install 'kedge[lancedb]'")
    import pyarrow as pa

    keys, vectors = [*space.keys, "to be deleted"], np.concatenate([space.vectors, space.vectors[:1]])
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), space.dim)
    rows = pa.table({"id": keys, "vector": lists} | {name: [*values, values[0]] for name, values in columns.items()})
    order = np.r_[:100, len(space), 100 : len(space)]
    table = lancedb.connect(folder).create_table("t", rows.take(order[:150]))
    table.add(rows.take(order[150:]))
    table.delete("id = 'to be deleted'")
    return f"lancedb:{folder}#t"


def test_ranges_of_a_lance_table_are_read_in_place(tmp_path):
    from kedge.spaces.stores.address import Address

    chance = np.random.default_rng(0)
    space = Embeddings([f"é{row}" for row in range(300)], chance.standard_normal((300, 5)).astype(np.float32))
    address = Address.parse(lance_table(tmp_path / "lance", space))
    rows = pickle.loads(pickle.dumps(open_ranges(address, tmp_path, "copy")))
    assert not (tmp_path / "copy.parquet").exists()
    assert (rows.rows, rows.dim, rows.numbered) == (300, 5, False)
    blocks = [block for some in rows.ranges(64) for block in rows.blocks(some, 30)]
    assert [begin for begin, _ in blocks] == np.cumsum([0, *(len(part) for _, part in blocks[:-1])]).tolist()
    assert max(len(part) for _, part in blocks) <= 30
    np.testing.assert_array_equal(np.concatenate([part for _, part in blocks]), space.vectors)
    for begin, end in ((0, 300), (49, 51), (99, 102), (149, 151), (299, 300)):
        assert rows.keys((begin, end)).to_pylist() == list(space.keys[begin:end])
    # What is added meanwhile does not count, and is another source for the next call.
    import lancedb

    lancedb.connect(tmp_path / "lance").open_table("t").delete("id = 'é0'")
    assert rows.keys((0, 2)).to_pylist() == ["é0", "é1"]
    assert rows.identity() != open_ranges(address, tmp_path, "copy").identity()


def test_a_lance_table_migrates_with_its_payload(run_files, words, tmp_path, short_ranges, capsys):
    source = lance_table(tmp_path / "lance", words[0], word=list(words[0].keys))
    target = tmp_path / "new"
    assert main(["migrate", source, f"parquet:{target}", "--run", run_files[0], "--engine", "local"]) == 0
    assert "compared and equal" in capsys.readouterr().out
    rows = {row["id"]: row for row in pq.read_table(target).to_pylist()}
    expected = load(run_files[0]).translate(words[0], scale="raw")
    assert list(rows) == list(words[0].keys)
    assert all(row["word"] == row["id"] for row in rows.values())
    np.testing.assert_allclose([row["vector"] for row in rows.values()], expected, atol=1e-3)


def test_rows_without_a_direction_are_named(tmp_path):
    vectors = np.ones((10, 3), dtype=np.float32)
    vectors[7] = 0
    np.save(tmp_path / "x.npy", vectors)
    rows = open_ranges(tmp_path / "x.npy", tmp_path, "x")
    with pytest.raises(InputError, match=r"x.npy: the vector of key '7' \(row 7\) is a zero vector"):
        list(rows.blocks((4, 10), 2))


def test_too_few_keys_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((10, 3), dtype=np.float32))
    (tmp_path / "x.keys.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match="one key per line is needed for the 10 rows of x.npy, got 2"):
        open_ranges(tmp_path / "x.npy", tmp_path, "x")
