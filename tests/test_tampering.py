"""Run folders and checkpoints that somebody, or a disk, has changed: they are sound, or refused in a line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from mutations import mutate, read_tensors, write_tensors

import kedge
from kedge import AnchorDiscovery, InputError, Schedule
from kedge.cli.main import main
from kedge.runs.folder import SUMS, seal
from kedge.storage.checksum import file_sha256

INPUTS = {"x": {"file": "x.npz", "sha256": "0" * 64, "rows": 57, "dimensions": 8}}


def fit(rotated, states: Path | None, noise: float = 0.3) -> AnchorDiscovery:
    """A discovery, with so much noise in so few rows that all of it is done that can be."""
    x, y = rotated(n=60, dim=8, noise=noise)
    schedule = Schedule(anneal_rounds=4, fingerprints=True)
    discovery = AnchorDiscovery(n_anchors=10, device="cpu", schedule=schedule, checkpoint=states)
    return discovery.fit(x[:57], y, [(row, row) for row in range(6)])


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> Path:
    """A folder with a small run, and with another and the states that led to it."""
    from conftest import rotated_spaces

    folder = tmp_path_factory.mktemp("originals")
    fit(rotated_spaces, folder / "states").save(folder / "other")
    found = fit(rotated_spaces, None, noise=0.05)
    timings = {"read_seconds": 0.1, "fit_seconds": 1.0}
    found.save(folder / "run", extra={"inputs": INPUTS, "limit": None, "timings": timings, "machine": {"torch": "2"}})
    return folder


@pytest.fixture
def run(originals, tmp_path) -> Path:
    return shutil.copytree(originals / "run", tmp_path / "run")


@pytest.fixture
def states(originals, tmp_path) -> Path:
    return shutil.copytree(originals / "states", tmp_path / "states")


def assert_sound(found: AnchorDiscovery) -> None:
    """What every discovery that is used must be."""
    linked = found.linked_pairs()
    n, m = len(found.match_), len(linked.rows) + len(found.y_.unmatched_keys)
    for name, rows in (("match_", m), ("anchors_x_", n), ("anchors_y_", m)):
        assert ((getattr(found, name) >= 0) & (getattr(found, name) < rows)).all(), name
    for name in ("confidence_", "pair_confidence_", "anchor_confidence_"):
        assert ((getattr(found, name) >= 0) & (getattr(found, name) <= 1)).all(), name
    for answer in (found.health_.map, found.health_.pairs):
        assert 0 <= answer.score <= 1
        assert answer.verdict in ("ok", "uncertain", "failed")
    assert len({x for x, _ in linked.keys} | set(found.x_.unmatched_keys)) == n
    assert set(found.seed_opinion_.tolist()) <= {"agrees", "near", "contradicted", "unknown"}
    for array in (found.map_.matrix, found.map_back_.matrix, found.y_.anchors["free"], found.seed_rank_):
        assert np.isfinite(array).all()
    assert np.isfinite(found.translate(np.eye(8, dtype=np.float32))).all()
    assert str(found.health_.overlap)


# -- run.json ---------------------------------------------------------------------------------------


def changed(document: dict, path: str, value: object) -> str:
    """A JSON document with another value at a path; without it, if that is `...`."""
    document = json.loads(json.dumps(document))
    *holders, name = path.split(".")
    place = document
    for holder in holders:
        place = place[int(holder) if isinstance(place, list) else holder]
    if value is ...:
        del place[name]
    else:
        place[name] = value
    return json.dumps(document)


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("kedge", ..., "kedge: is missing"),
        ("kedge", None, "kedge: must be text, got null"),
        ("settings", [], "settings: must be an object, got a list"),
        ("settings.method", "magic", "settings.method: must be 'alternate' or 'paper', got \"magic\""),
        ("settings.n_anchors", -5, "settings.n_anchors: must be a whole number from 0 to .*, got -5"),
        ("settings.n_anchors", True, "settings.n_anchors: must be a whole number"),
        ("settings.center", 1, "settings.center: must be true or false, got 1"),
        ("settings.whiten", 3, "settings.whiten: must be a number from 0 to 1 or 'auto', got 3"),
        ("settings.schedule.rank", "many", 'settings.schedule.rank: must be a whole number, got "many"'),
        ("settings.schedule.rank", 0, "settings.schedule: Schedule: rank must be at least 1, got 0"),
        ("settings.schedule.speed", 9, "settings.schedule.speed: is not a field"),
        ("settings.min_confidence", 7, "settings.min_confidence: must be a number from 0 to 1, got 7"),
        ("settings.random_state", ..., "settings.random_state: is missing"),
        ("settings.on_step", "print", "settings.on_step: is no setting"),
        ("counts.rows_x", -1, "counts.rows_x: must be a whole number from 0"),
        ("counts.rows_x", 10**400, "counts.rows_x: must be a whole number"),
        ("counts.rows_y", 10**9, "unmatched.tsv: must name the"),
        ("counts.dim_x", 2.5, "counts.dim_x: must be a whole number"),
        ("counts.pairs", 3, "match.safetensors: pairs must have shape"),
        ("inputs.x", {}, "inputs.x.file: is missing"),
        ("inputs.x.sha256", 5, "inputs.x.sha256: must be text, got 5"),
        ("inputs", 5, "inputs: must be an object, got 5"),
        ("health", None, "health: must be an object, got null"),
        ("health.searching.score", 7, "health.searching.score: must be a number from 0 to 1, got 7"),
        ("health.searching.score", NAN, "not valid JSON .NaN is not a number"),
        (
            "health.searching.verdict",
            "fine",
            "health.searching.verdict: must be 'ok' or 'uncertain' or 'failed', got \"fine\"",
        ),
        ("health.pairs.reason", ["a"], "health.pairs.reason: must be text, got a list"),
        ("health.overlap.x.low", INFINITE, "not valid JSON .Infinity is not a number"),
        ("health.overlap.y.high", -0.1, "health.overlap.y.high: must be a number from 0 to 1"),
        ("health.closeness", "close", 'health.closeness: must be a number, got "close"'),
        ("iterations", "8", "iterations: must be a whole number"),
        ("converged", 1, "converged: must be true or false"),
        ("whitening", 0.5, "map.safetensors: whitening_x is missing"),
        ("ridge", -1, "ridge: must be a number from 0"),
        ("maps.map.kind", None, "maps.map.kind: must be text, got null"),
        ("maps.map_back", ..., "maps.map_back: is missing"),
        ("maps.map.family", ..., "maps.map.family: is missing"),
        ("maps.map.family", "magic", "map.safetensors: map: there is no family of maps 'magic'; the families are"),
        ("mean_norm_x", 10**400, "mean_norm_x: must be a number"),
        ("history.0", 5, r"history\[0\]: must be an object, got 5"),
        ("history.0.figures", [], r"history\[0\].figures: must be an object"),
        ("history.0.index", None, r"history\[0\].index: must be a whole number, got null"),
        ("timings.fit_seconds", "long", "timings.fit_seconds: must be a number"),
        ("machine", [], "machine: must be an object"),
        ("format", 5, "format 6 is needed"),
    ],
)
def test_every_edit_of_run_json_is_refused_by_its_field(run, capsys, path, value, told):
    document = json.loads((run / "run.json").read_text())
    if path.startswith("history.0"):
        holder = path.removeprefix("history.0").lstrip(".")
        document["history"][0] = value if not holder else document["history"][0] | {holder: value}
        text = json.dumps(document)
    else:
        text = changed(document, path, value)
    (run / "run.json").write_text(text)
    seal(run)
    with pytest.raises(InputError, match=told) as error:
        kedge.load(run)
    assert str(error.value).startswith(str(run))
    assert "\n" not in str(error.value)
    # It reads nothing but run.json, and shows settings without using them.
    if ".tsv" not in told and ".safetensors" not in told and (value is ... or not path.startswith("settings.")):
        assert main(["info", str(run)]) == 2


def test_what_others_have_added_to_run_json_is_theirs(run):
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(changed(document, "note", [[["any"]]]))
    seal(run)
    assert_sound(kedge.load(run))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (lambda text: text.replace('"ridge"', '"kedge": "9", "ridge"'), "'kedge' occurs twice"),
        (lambda text: text.replace('"ridge": ', '"ridge": 1e999, "more": '), "ridge: must be a number"),
        (lambda text: text.replace('"kedge": "', '"kedge": "\\ud800'), "kedge: must be text"),
        (lambda text: '{"format": 6, "note": ' + "[" * 900 + "]" * 900 + "}", "nested more than|not valid JSON"),
        (lambda text: "[" * 100_000, "not valid JSON"),
        (lambda text: "[]", "format 6 is needed"),
        (lambda text: text.encode() + b"\xff", "not valid JSON"),
    ],
)
def test_json_that_is_odd_is_refused(run, text, told):
    made = text((run / "run.json").read_text())
    (run / "run.json").write_bytes(made if isinstance(made, bytes) else made.encode())
    seal(run)
    with pytest.raises(InputError, match=told):
        kedge.load(run)


# -- arrays and tables ------------------------------------------------------------------------------


def first(value: float):
    def change(array: np.ndarray) -> np.ndarray:
        array.reshape(-1)[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("file", "name", "change", "told"),
    [
        ("match", "confidence", first(7), "confidence must lie between 0 and 1, got .* to 7.0"),
        ("match", "pair_confidence", first(0.123), "pair_confidence must agree with match and confidence"),
        ("match", "match", first(60), "match must lie between 0 and 59, got .* to 60"),
        ("match", "match", first(-1), "match must lie between 0 and 59, got -1"),
        ("match", "pairs", first(57), r"pairs must lie between 0 and \(56, 59\)"),
        ("match", "pairs", lambda pairs: pairs[::-1].copy(), "pairs and pair_confidence must agree with"),
        ("match", "match", lambda match: match.astype(np.int32), "match must be of dtype I64, got I32"),
        ("match", "match", lambda match: match.astype(np.float64), "match must be of dtype I64, got F64"),
        ("anchors", "anchors_x", lambda rows: np.full_like(rows, 3), "anchors_x must be distinct rows"),
        ("anchors", "anchors_x", lambda rows: rows[::-1].copy(), "anchors.tsv: has .* where the rows are"),
        ("anchors", "anchor_is_seed", lambda seed: ~seed, "anchors.tsv: has .* where the arrays say"),
        ("anchors", "seed_rank", first(np.inf), "seed_rank has NaN or infinite values"),
        ("anchors", "seed_rank", first(0), "seed_rank must lie between 1 and 61, got 0.0 to"),
        ("anchors", "seeds", first(59), r"seeds must lie between 0 and \(56, 59\)"),
        ("model", "correlations", first(1), "correlations must lie between 0 and 0.99"),
        ("model", "directions_x", lambda array: array.T[:-1], "directions_x must have shape"),
        ("map", "map.matrix", first(np.nan), "map.matrix has NaN or infinite values"),
        ("map", "map_back.matrix", first(1e10), "map_back.matrix must lie between -1000000000.0 and 1000000000.0"),
        ("map", "center_x", first(2), "center_x must lie between -1 and 1"),
        ("map", "map.matrix", lambda matrix: matrix[1:], r"map: a linear map needs a matrix of shape \(8, 8\), got"),
    ],
)
def test_arrays_that_cannot_be_are_refused(run, file, name, change, told):
    path = run / f"{file}.safetensors"
    tensors, metadata = read_tensors(path)
    tensors[name] = change(tensors[name])
    write_tensors(path, tensors, metadata)
    seal(run)
    with pytest.raises(InputError, match=told) as error:
        kedge.load(run)
    assert str(error.value).startswith(str(run))


def test_a_tensor_file_that_claims_more_than_it_holds_is_refused(run):
    path = run / "map.safetensors"
    path.write_bytes(path.read_bytes().replace(b"[8,8]", b"[9,8]"))
    seal(run)
    with pytest.raises(InputError, match="map.safetensors: cannot be read"):
        kedge.load(run)


@pytest.mark.parametrize(
    ("table", "change", "told"),
    [
        (
            "pairs",
            lambda lines: [lines[0], lines[1][:-6] + "7.0000", *lines[2:]],
            r"pairs.tsv: has \(.*'7.0000'\) where",
        ),
        ("pairs", lambda lines: [lines[0], lines[1][:-6] + "nan", *lines[2:]], "pairs.tsv: has .*'nan'"),
        ("pairs", lambda lines: [lines[0], lines[-1], *lines[2:-1], lines[1]], "anchors.tsv|seeds.tsv|pairs.tsv"),
        ("pairs", lambda lines: [lines[0], lines[1], lines[1], *lines[3:]], "unmatched.tsv: must name the"),
        ("pairs", lambda lines: lines[:-1], "pairs.tsv: must have .* rows, as run.json says"),
        ("pairs", lambda lines: [line.rpartition("\t")[0] for line in lines], "pairs.tsv: must begin with the columns"),
        ("pairs", lambda lines: [*lines[:3], lines[3] + "\t1", *lines[4:]], "pairs.tsv, line 4: 3 columns .* got 4"),
        ("pairs", lambda lines: [], "pairs.tsv: must begin with the columns x, y, confidence"),
        ("anchors", lambda lines: [lines[0].replace("x", "z"), *lines[1:]], "anchors.tsv: must begin with the columns"),
        ("anchors", lambda lines: [lines[0], "56" + lines[1][1:], *lines[2:]], "anchors.tsv: has"),
        ("seeds", lambda lines: [lines[0], lines[1].replace("agrees", "near"), *lines[2:]], "seeds.tsv: has .*'near'"),
        ("seeds", lambda lines: [lines[0], lines[1] + "9", *lines[2:]], "seeds.tsv: found must be keys of Y, got"),
        ("unmatched", lambda lines: [*lines, "Z\tnobody"], "unmatched.tsv: "),
        ("unmatched", lambda lines: [*lines, "Y\tnobody"], "unmatched.tsv: must name the .* rows of Y"),
    ],
)
def test_tables_that_contradict_the_arrays_are_refused(run, table, change, told):
    path = run / f"{table}.tsv"
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in change(lines)))
    seal(run)
    with pytest.raises(InputError, match=told):
        kedge.load(run)


# -- any byte ---------------------------------------------------------------------------------------


def flipped(data: bytes, bit: int) -> bytes:
    """Bytes with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bits_of(path: Path, count: int) -> list[int]:
    """So many of the bits of a file, always the same; all where there are no more."""
    bits = 8 * path.stat().st_size
    return np.random.default_rng(0).choice(bits, min(count, bits), replace=False).tolist()


FILES = sorted(
    [f"{name}.safetensors" for name in ("anchors", "map", "match", "model")]
    + [f"{name}.tsv" for name in ("anchors", "pairs", "seeds", "unmatched")]
    + ["run.json", SUMS]
)


def test_these_are_all_files(run):
    assert sorted(path.name for path in run.iterdir()) == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("count", [25, pytest.param(2000, marks=pytest.mark.thorough)])
def test_any_flipped_bit_of_any_file_is_refused_and_the_file_is_named(run, name, count):
    path = run / name
    written = path.read_bytes()
    for bit in bits_of(path, count):
        path.write_bytes(flipped(written, bit))
        with pytest.raises(InputError) as error:
            kedge.load(run)
        assert "\n" not in str(error.value)
        told = str(error.value)
        assert told.startswith(str(run)), (bit, told)
        if name == SUMS:  # which then contradicts a file, or can be read no more
            assert SUMS in told, (bit, told)
        else:
            assert told.startswith(f"{path}: "), (bit, told)


def test_any_flipped_bit_of_a_map_is_refused_by_who_only_translates(run):
    path = run / "map.safetensors"
    written = path.read_bytes()
    for bit in bits_of(path, 200):
        path.write_bytes(flipped(written, bit))
        with pytest.raises(InputError, match="map.safetensors: has changed since it was written .see SHA256SUMS"):
            kedge.load_translator(run)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\n", lambda data: b""])
@pytest.mark.parametrize("name", FILES)
def test_shorter_longer_and_empty_files_are_refused(run, name, change):
    path = run / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=name):
        kedge.load(run)


def test_checksums_that_are_listed_twice_are_refused(run):
    lines = (run / SUMS).read_text().splitlines(keepends=True)
    (run / SUMS).write_text("".join([*lines, lines[2]]))
    with pytest.raises(InputError, match="SHA256SUMS: has changed since it was written: it must name each file once"):
        kedge.load(run)


def test_a_file_of_another_run_is_refused(run, originals):
    for name in FILES:
        if name == SUMS:
            continue
        written = (run / name).read_bytes()
        shutil.copy(originals / "other" / name, run / name)
        assert (run / name).read_bytes() != written
        with pytest.raises(InputError, match=f"{name}: has changed since it was written"):
            kedge.load(run)
        (run / name).write_bytes(written)
    kedge.load(run)


# -- states -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "name", "change"),
    [
        ("attempt-1-annealed", "matrix_x", first(np.nan)),
        ("attempt-1-annealed", "matrix_x", lambda array: array.astype(np.float64)),
        ("attempt-1-annealed", "biases", lambda _: np.array(3)),
        ("attempt-1-start", "x", lambda array: array[:, 1:]),
        ("attempt-1-start", "x", lambda array: array.reshape(-1)),
        ("attempt-1-finished", "match.partner", first(60)),
        ("attempt-1-finished", "match.partner", lambda rows: rows * 0),
        ("attempt-1-finished", "settled", None),
        ("attempt-1-finished", "generator", first(7)),  # another sample would be drawn next
        ("confidence", "margin", first(np.nan)),
        ("chance", "share", lambda _: np.array(7.0)),
        ("rivals", "values", first(np.nan)),  # it would change the verdict
        ("rivals", "values", lambda array: np.tile(array, (9, 1))),
    ],
)
def test_states_that_were_changed_are_refused(rotated, states, stage, name, change):
    path = states / f"{stage}.safetensors"
    tensors, metadata = read_tensors(path)
    if change is None:
        del tensors[name]
    else:
        tensors[name] = change(tensors[name])
    write_tensors(path, tensors, metadata)
    with pytest.raises(
        InputError, match=f"{stage}.safetensors: has changed since it was written; delete .* start over"
    ):
        fit(rotated, states)


@pytest.mark.parametrize(
    ("entry", "value", "told"),
    [
        ("steps", "[5]", "has changed since it was written"),
        ("steps", "{", "has changed since it was written"),
        ("sha256", "0" * 64, "has changed since it was written"),
        ("discovery", "0" * 64, "is the state of another discovery, or of another stage"),
        ("stage", "attempt-2-annealed", "is the state of another discovery, or of another stage"),
    ],
)
def test_what_a_state_says_of_itself_cannot_be_changed_either(rotated, states, entry, value, told):
    path = states / "attempt-1-annealed.safetensors"
    tensors, metadata = read_tensors(path)
    for changed_metadata in (metadata | {entry: value}, {name: metadata[name] for name in metadata if name != entry}):
        write_tensors(path, tensors, changed_metadata)
        with pytest.raises(InputError, match=f"attempt-1-annealed.safetensors: {told}.*start over"):
            fit(rotated, states)


def test_a_state_that_lacks_a_part_is_refused_whatever_its_checksum_says(rotated, states):
    from kedge.runs.checkpoint import _digest, _read

    path = states / "attempt-1-finished.safetensors"
    for lost in ("settled", "match.margin", "generator"):
        tensors, metadata = read_tensors(path)
        del tensors[lost]
        write_tensors(path, tensors, metadata)
        write_tensors(path, tensors, metadata | {"sha256": _digest(_read(path)[0], metadata["steps"])})
        with pytest.raises(InputError, match="attempt-1-finished.safetensors: lacks a part of the state; delete"):
            fit(rotated, states)


def test_any_flipped_bit_of_a_state_is_refused(rotated, states):
    """Except in the order or the padding of its header, which says nothing."""
    path = states / "attempt-1-annealed.safetensors"
    written = path.read_bytes()
    for bit in bits_of(path, 40):
        path.write_bytes(flipped(written, bit))
        with pytest.raises(InputError, match="attempt-1-annealed.safetensors: .*; delete .* and start over"):
            fit(rotated, states)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("inputs", [], "identity.json: inputs: must be an object, got a list"),
        ("inputs.X", 7, "identity.json: inputs.X: must be text"),
        ("inputs.X", "300 x 8", "is the state of another discovery, whose X differs"),
        ("settings", None, "identity.json: settings: must be an object, got null"),
        ("settings.random_state", {}, "random_state was {} and is now 0"),
        ("kedge", ..., "identity.json: kedge: is missing"),
    ],
)
def test_every_edit_of_an_identity_is_refused(rotated, states, path, value, told):
    document = json.loads((states / "identity.json").read_text())
    (states / "identity.json").write_text(changed(document, path, value))
    with pytest.raises(InputError, match=told):
        fit(rotated, states)


# -- at random --------------------------------------------------------------------------------------


def tampered(original: Path, folder: Path, seed: int, *, sealed: bool = False) -> list[str]:
    """A copy with one or two random edits, of which the checksums know if it is sealed again; returns which."""
    chance = np.random.default_rng(seed)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    edits = []
    for _ in range(int(chance.integers(1, 3))):
        files = sorted(path for path in folder.iterdir() if not (sealed and path.name == SUMS))
        edits.append(mutate(files[int(chance.integers(len(files)))], chance))
    if sealed:
        seal(folder)
    return edits


def assert_refused_or_sound(use, edits: list[str]) -> bool:
    try:
        assert_sound(use())
    except InputError as error:
        if "\n" not in str(error):
            return False
        raise AssertionError(f"more than a line after {edits}") from error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} after {edits}") from error
    return True


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.thorough)])
def test_runs_after_random_edits_are_refused_or_sound(originals, tmp_path, count):
    """Although the checksums agree to the edits."""
    sound = 0
    for seed in range(count):
        edits = tampered(originals / "run", tmp_path / "run", seed, sealed=True)
        sound += assert_refused_or_sound(lambda: kedge.load(tmp_path / "run"), edits)
    assert 0 < sound < count / 3


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.thorough)])
def test_runs_after_random_edits_are_refused_if_a_byte_has_changed(originals, tmp_path, count):
    sums = {path.name: file_sha256(path) for path in (originals / "run").iterdir()}
    for seed in range(count):
        edits = tampered(originals / "run", tmp_path / "run", seed)
        same = {path.name: file_sha256(path) for path in (tmp_path / "run").iterdir()} == sums
        assert assert_refused_or_sound(lambda: kedge.load(tmp_path / "run"), edits) == same, edits


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.thorough)])
def test_discoveries_after_random_edits_of_their_states_are_refused_or_sound(originals, tmp_path, rotated, count):
    for seed in range(count):
        edits = tampered(originals / "states", tmp_path / "states", seed)
        assert_refused_or_sound(lambda: fit(rotated, tmp_path / "states"), edits)
