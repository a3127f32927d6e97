"""Run folders: everything comes back, damage is named, nothing is lost."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import asdict, fields

import numpy as np
import pytest
import torch

import kedge
from kedge import AnchorDiscovery, InputError, Schedule
from kedge.models.side import Side
from kedge.models.translation_trust import TrustEvidence
from kedge.runs.folder import SUMS, changed_files, seal
from kedge.spaces.pairs import read_table


def assert_same_arrays(ours, theirs) -> None:
    """Arrays, or dicts of them, with the same numbers of the same type."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            assert_same_arrays(array, theirs[name])
    else:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture
def run(fitted, tmp_path):
    fitted.save(tmp_path / "run")
    return tmp_path / "run"


def test_everything_comes_back(fitted, words, run):
    again = kedge.load(run)
    for name in vars(fitted):
        if name.endswith("_"):
            ours, theirs = getattr(fitted, name), getattr(again, name)
            if name == "model_":
                assert ours.ridge == theirs.ridge
                for part in ("directions_x", "directions_y", "correlations"):
                    torch.testing.assert_close(getattr(ours, part), getattr(theirs, part), rtol=0, atol=0)
            elif isinstance(ours, np.ndarray):
                np.testing.assert_array_equal(ours, theirs, err_msg=name)
            elif name in ("map_", "map_back_"):
                assert type(ours) is type(theirs)
                assert_same_arrays(ours.state(), theirs.state())
            elif isinstance(ours, TrustEvidence):
                assert_same_arrays(asdict(ours), asdict(theirs))
            elif isinstance(ours, Side):
                for field in fields(Side):
                    left, right = getattr(ours, field.name), getattr(theirs, field.name)
                    if isinstance(left, np.ndarray | dict):
                        assert_same_arrays(left, right)
                    else:
                        assert left == right, field.name
            else:
                assert ours == theirs or name == "provenance_", name
    assert again.get_params() == fitted.get_params()
    np.testing.assert_array_equal(again.translate(words[0]), fitted.translate(words[0]))
    np.testing.assert_array_equal(again.y_.relative(words[1]), fitted.y_.relative(words[1]))


def test_a_loaded_run_can_be_saved_again(fitted, tmp_path):
    run = tmp_path / "run"
    inputs = {"x": {"file": "x.npz", "sha256": "0" * 64}}
    fitted.save(run, extra={"inputs": inputs, "limit": None, "timings": {"fit_seconds": 1.0}})
    kedge.load(run).save(tmp_path / "copy")
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in (tmp_path / "copy").iterdir())
    for path in run.iterdir():
        assert path.read_bytes() == (tmp_path / "copy" / path.name).read_bytes(), path.name


def test_files_are_readable_by_other_tools(run, fitted):
    assert {path.name for path in run.iterdir()} == {
        "anchors.tsv",
        "pairs.tsv",
        "seeds.tsv",
        "unmatched.tsv",
        "anchors.safetensors",
        "map.safetensors",
        "match.safetensors",
        "model.safetensors",
        "run.json",
        "SHA256SUMS",
    }
    anchors = read_table(run / "anchors.tsv")
    assert list(anchors[0]) == ["x", "y", "confidence", "seed"]
    assert sum(row["seed"] == "1" for row in anchors) == 15
    seeds = read_table(run / "seeds.tsv")
    assert list(seeds[0]) == ["x", "y", "opinion", "suspect", "rank", "found"]
    assert all(float(row["rank"]) >= 1 for row in seeds)
    pairs = read_table(run / "pairs.tsv")
    assert list(pairs[0]) == ["x", "y", "confidence"]
    confidences = [float(row["confidence"]) for row in pairs]
    assert confidences == sorted(confidences, reverse=True)
    description = json.loads((run / "run.json").read_text())
    assert description["format"] == 6
    assert description["kedge"] == kedge.__version__
    assert description["health"]["searching"]["verdict"] == "ok"
    assert description["settings"]["n_anchors"] == 100
    assert description["iterations"] == len(description["history"]) == fitted.n_iter_


def test_nothing_is_overwritten_unasked(fitted, run, tmp_path):
    with pytest.raises(InputError, match="already holds a run"):
        fitted.save(run)
    fitted.save(run, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not empty and holds no run"):
        fitted.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").exists()
    (tmp_path / "empty").mkdir()
    fitted.save(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        fitted.save(tmp_path / "file")
    with pytest.raises(InputError, match="does not exist"):
        fitted.save(tmp_path / "no" / "such" / "parent")


def test_damaged_runs_are_named(run, tmp_path):
    with pytest.raises(InputError, match="no such run folder"):
        kedge.load(tmp_path / "absent")
    with pytest.raises(InputError, match="holds no run.json"):
        kedge.load(tmp_path)
    (run / "map.safetensors").write_bytes(b"junk")
    with pytest.raises(InputError, match="map.safetensors: has changed since it was written .see SHA256SUMS.; restore"):
        kedge.load(run)
    seal(run)
    with pytest.raises(InputError, match="map.safetensors: cannot be read"):
        kedge.load(run)
    (run / "map.safetensors").unlink()
    with pytest.raises(InputError, match="map.safetensors: is missing .see SHA256SUMS"):
        kedge.load(run)
    (run / "run.json").write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        kedge.load(run)
    (run / "run.json").write_text("{}")
    with pytest.raises(InputError, match="format 6 is needed"):
        kedge.load(run)


@pytest.mark.parametrize(
    ("file", "name", "change"),
    [
        ("map.safetensors", "map.matrix", lambda array: array * np.float32(np.nan)),
        ("map.safetensors", "map_back.matrix", lambda array: array.astype(np.float64)),
        ("map.safetensors", "center_x", None),
        ("anchors.safetensors", "free_anchors", lambda array: array[:3]),
        ("anchors.safetensors", "anchor_is_seed", lambda array: array[:3]),
        ("match.safetensors", "pairs", lambda array: array.ravel()),
    ],
)
def test_arrays_that_do_not_fit_are_refused(run, file, name, change):
    from safetensors.numpy import load_file, save_file

    tensors = load_file(run / file)
    if change is None:
        del tensors[name]
    else:
        tensors[name] = np.ascontiguousarray(change(tensors[name]))
    save_file(tensors, run / file)
    seal(run)
    with pytest.raises(InputError, match=f"{file}: {name} (must|has|is missing)"):
        kedge.load(run)


@pytest.mark.parametrize("part", ["map", "map_back"])
def test_maps_that_do_not_fit_are_refused(run, part):
    from safetensors.numpy import load_file, save_file

    tensors = load_file(run / "map.safetensors")
    matrix = tensors[f"{part}.matrix"]
    shape = tuple(matrix.shape)
    for name, changed in (("matrix", matrix[:3].copy()), ("matrices", matrix)):
        others = {stored: array for stored, array in tensors.items() if stored != f"{part}.matrix"}
        save_file(others | {f"{part}.{name}": changed}, run / "map.safetensors")
        seal(run)
        told = rf"map.safetensors: {part}: a linear map needs a matrix of shape \({shape[0]}, {shape[1]}\), got {name}"
        with pytest.raises(InputError, match=told):
            kedge.load(run)
        with pytest.raises(InputError, match=told):
            kedge.load_translator(run)


def test_tables_that_do_not_fit_are_refused(run):
    lines = (run / "pairs.tsv").read_text().splitlines(keepends=True)
    (run / "pairs.tsv").write_text("".join(lines[:-1]))
    seal(run)
    with pytest.raises(InputError, match=rf"pairs.tsv: must have {len(lines) - 1} rows, as run.json says, got"):
        kedge.load(run)


def test_numpy_numbers_survive(rotated, tmp_path):
    schedule = Schedule(sample_size=np.int64(200), epsilon_end=np.float32(0.05))
    seeds = [(row, row) for row in range(15)]
    discovery = AnchorDiscovery(n_anchors=np.int64(20), schedule=schedule, device="cpu").fit(*rotated(), seeds)
    discovery.save(tmp_path / "run")
    again = kedge.load(tmp_path / "run")
    assert again.n_anchors == 20
    assert again.schedule == Schedule(sample_size=200, epsilon_end=float(np.float32(0.05)))


def test_files_in_a_run_folder_that_are_not_ours_are_kept(fitted, run):
    (run / "notes.txt").write_text("precious")
    with pytest.raises(InputError, match="also holds 'notes.txt'"):
        fitted.save(run, overwrite=True)
    assert (run / "notes.txt").read_text() == "precious"


def test_a_linked_folder_stays_a_link(fitted, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    fitted.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "run.json").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "link"}


def test_a_failed_save_leaves_the_old_run(fitted, run, monkeypatch):
    from kedge.runs import folder as storage

    before = {path.name: path.read_bytes() for path in run.iterdir()}

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "serialize", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted.save(run, overwrite=True)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert [path.name for path in run.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("text", ["space\tkey\nX\tnope\n", "space\tkey\nQ\tnope\n", "space\tkey\n" + "X\tnope\n" * 99])
def test_a_damaged_table_of_unmatched_rows_is_refused(run, text):
    (run / "unmatched.tsv").write_text(text)
    seal(run)
    with pytest.raises(InputError, match="unmatched.tsv: (must name the|space must be X or Y)"):
        kedge.load(run)


# -- checksums ------------------------------------------------------------------------------------


def test_the_checksums_are_those_of_all_other_files(run):
    lines = (run / SUMS).read_text().splitlines()
    listed = dict(reversed(line.split("  ")) for line in lines)
    assert set(listed) == {path.name for path in run.iterdir()} - {SUMS}
    for name, digest in listed.items():
        assert hashlib.sha256((run / name).read_bytes()).hexdigest() == digest
    assert changed_files(run) == {}


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_sha256sum_reads_the_checksums(run):
    assert subprocess.run(["sha256sum", "--check", "--strict", "--quiet", SUMS], cwd=run).returncode == 0
    with (run / "pairs.tsv").open("a") as stream:
        stream.write("\n")
    done = subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=run, capture_output=True, text=True)
    assert "pairs.tsv: FAILED" in done.stdout


def test_without_checksums_nothing_is_loaded(run):
    for damage in (lambda: (run / SUMS).write_bytes(b"\xff"), (run / SUMS).unlink):
        damage()
        for load in (kedge.load, kedge.load_translator):
            with pytest.raises(InputError, match="SHA256SUMS: cannot be read, so it is not known whether"):
                load(run)
    (run / SUMS).write_text("")
    for load in (kedge.load, kedge.load_translator):
        with pytest.raises(InputError, match=r"(anchors.safetensors|map.safetensors): has no checksum in SHA256SUMS"):
            load(run)


def test_what_changed_is_listed(run):
    (run / "pairs.tsv").write_text("")
    (run / "seeds.tsv").unlink()
    assert changed_files(run) == {"pairs.tsv": "has changed since it was written", "seeds.tsv": "is missing"}
    assert changed_files(run, {"map.safetensors"}) == {}
    assert kedge.load_translator(run).dims == (300, 100)  # which reads neither
