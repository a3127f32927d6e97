"""Queries instead of the index: one vector at a time, and what translates it as a file without torch or kedge."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import kedge
from kedge import AnchorDiscovery, InputError, KnownAnchors, Stitcher
from kedge.cli.main import main
from kedge.geometry import denormalise, unit
from kedge.models.maps.linear import LinearMap
from kedge.models.translator import Normaliser, TranslationStep, Translator
from kedge.runs.exported import with_sum
from kedge.tasks import about_translation, export_bytes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recipes" / "changing-models.md"
WAYS = [(back, scale) for back in (False, True) for scale in ("unit", "raw")]
LENGTHS = np.float32([1e-40, 1e-30, 1e-3, 1, 17, 1e10, 1e30, 1e37])
INPUTS = {"x": {"file": "new.npz", "sha256": "0"}, "y": {"file": "old.npz", "sha256": "1"}}


@pytest.fixture(scope="module")
def uncentered(fitted) -> AnchorDiscovery:
    """The same run, as if nothing had been taken off its spaces."""
    found = copy.copy(fitted).set_params(center=False)
    found.x_, found.y_ = (replace(side, center=None) for side in (found.x_, found.y_))
    found.provenance_ = {}
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory, fitted, uncentered) -> dict[str, Path]:
    """Folders of both runs."""
    path = tmp_path_factory.mktemp("runs")
    centered = copy.copy(fitted)
    centered.save(path / "centered", extra={"inputs": INPUTS})
    uncentered.save(path / "uncentered")
    return {name: path / name for name in ("centered", "uncentered")}


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def options(back: bool, scale: str) -> list[str]:
    return [*(["--back"] if back else []), "--scale", scale]


def translated(discovery, vectors, *, back, scale):
    return discovery.translate(vectors, back=back, scale=scale)


def assert_alike(found, expected, tolerance=1e-5):
    """Equal, up to so much of the vectors' length."""
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.linalg.norm(expected, axis=-1).max())


def queries_of(words, *, back: bool) -> np.ndarray:
    """Some vectors, of lengths that only just have a place in float32."""
    rows = words[1 if back else 0].vectors[: 4 * len(LENGTHS)]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit * np.tile(LENGTHS, 4)[:, None]


def lines_for(capsys, *arguments) -> str:
    """The lines of Python that `kedge export` prints."""
    assert run("export", *arguments) == 0
    return capsys.readouterr().out.split("use it so:\n\n")[1]


def use(lines: str, folder: Path, queries: np.ndarray) -> tuple[np.ndarray, set[str]]:
    """What a fresh Python makes of the queries with these lines, and the modules it has loaded."""
    np.save(folder / "queries.npy", queries)
    script = (
        f"{lines}\nimport sys\nimport numpy\nnumpy.save('out.npy', translate(numpy.load('queries.npy')))\n"
        "print('\\n'.join(sys.modules))"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return np.load(folder / "out.npy"), set(done.stdout.split())


# -- one vector -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("back", "scale"), WAYS)
def test_one_vector_is_translated_as_among_others(fitted, words, back, scale):
    rows = words[1 if back else 0].vectors[:5]
    together = translated(fitted, rows, back=back, scale=scale)
    for row, expected in zip(rows, together, strict=True):
        for vector in (row, row.astype(np.float64), row.tolist(), torch.from_numpy(row.copy())):
            alone = translated(fitted, vector, back=back, scale=scale)
            assert alone.shape == (words[0 if back else 1].dim,)
            assert_alike(alone, expected, 1e-6)


@pytest.mark.parametrize("centering", ["centered", "uncentered"])
def test_translation_is_the_map_and_the_way_back_to_the_sphere(fitted, uncentered, words, centering):
    discovery = {"centered": fitted, "uncentered": uncentered}[centering]
    center = None if discovery.y_.center is None else torch.from_numpy(discovery.y_.center)
    mapped = unit(torch.from_numpy(discovery.map_(discovery.x_.normalise(words[0]))))
    plain = denormalise(mapped, center).numpy()
    np.testing.assert_allclose(discovery.translate(words[0]), plain, atol=1e-6)
    at_length = discovery.translate(words[0], scale="raw")
    np.testing.assert_allclose(at_length / discovery.y_.mean_norm, plain, atol=1e-6)


def test_more_rows_than_are_carried_at_once(fitted, words):
    many = np.tile(words[0].vectors, (3, 1))
    np.testing.assert_allclose(fitted.translate(many)[-2000:], fitted.translate(words[0]), atol=1e-6)


@pytest.mark.parametrize("side", ["x", "y"])
@pytest.mark.parametrize("name", ["normalise", "whiten", "relative", "shared"])
def test_other_methods_take_one_vector_too(fitted, words, name, side):
    method, rows = getattr(getattr(fitted, f"{side}_"), name), words[side == "y"].vectors[:3]
    together = method(rows)
    np.testing.assert_allclose(method(rows[1]), together[1], rtol=1e-4, atol=1e-4)
    assert method(rows[1]).shape == together[1].shape


def test_known_anchors_take_one_vector_and_stitchers_refuse_it(rotated):
    x, y = rotated()
    known = KnownAnchors().fit(x, y, [(row, row) for row in range(20)])
    np.testing.assert_allclose(known.y_.relative(y[3]), known.y_.relative(y)[3], atol=1e-6)
    with pytest.raises(InputError, match=r"shape \(rows, dimensions\), got one vector"):
        Stitcher(known, head="mlp").fit(x[0], ["a"])


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.ones(100), "vectors: has 100 dimensions, but X of this run has 300; give vectors of X's encoder"),
        (np.zeros(300), "is a zero vector"),
        (np.full(300, np.nan), "has NaN or infinite values"),
        (np.r_[np.inf, np.ones(299)], "has NaN or infinite values"),
        ([], "is empty"),
        (3.0, r"must have shape \(rows, dimensions\), got shape \(\)"),
        (np.ones((1, 1, 300)), r"got shape \(1, 1, 300\)"),
        (["cat"], "must be real numbers"),
    ],
)
def test_what_is_no_vector_is_refused(fitted, vector, message):
    with pytest.raises(InputError, match=message):
        fitted.translate(vector)


# -- exported files -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("centering", ["centered", "uncentered"])
@pytest.mark.parametrize(("back", "scale"), WAYS)
def test_printed_lines_translate_by_numpy_alone(
    fitted, uncentered, runs, words, tmp_path, capsys, suffix, centering, back, scale
):
    file = tmp_path / f"map{suffix}"
    lines = lines_for(capsys, runs[centering], "--to", "numpy", "-o", file, *options(back, scale))
    queries = queries_of(words, back=back)
    found, modules = use(lines, tmp_path, queries)
    discovery = {"centered": fitted, "uncentered": uncentered}[centering]
    expected = translated(discovery, queries, back=back, scale=scale)
    assert_alike(found, expected)
    assert "numpy" in modules
    assert not {"torch", "kedge", "scipy", "onnxruntime"} & modules
    if suffix == ".npz":
        assert "safetensors" not in modules
    one, _ = use(lines, tmp_path, queries[3])
    assert_alike(one, expected[3])


@pytest.mark.parametrize("centering", ["centered", "uncentered"])
@pytest.mark.parametrize(("back", "scale"), WAYS)
def test_onnxruntime_translates_alike(fitted, uncentered, runs, words, tmp_path, centering, back, scale):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    file = tmp_path / "map.onnx"
    assert run("export", runs[centering], "--to", "onnx", "-o", file, *options(back, scale)) == 0
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    discovery = {"centered": fitted, "uncentered": uncentered}[centering]
    queries = queries_of(words, back=back)
    expected = translated(discovery, queries, back=back, scale=scale)
    for count in (len(queries), 1, 7):  # the number of rows is open
        (found,) = session.run(["translated"], {"vectors": queries[:count]})
        assert_alike(found, expected[:count])
    (entry,), (exit_,) = session.get_inputs(), session.get_outputs()
    assert (entry.name, entry.shape, entry.type) == ("vectors", ["rows", queries.shape[1]], "tensor(float)")
    assert (exit_.name, exit_.shape) == ("translated", ["rows", expected.shape[1]])


def test_printed_lines_for_onnx_need_no_torch(fitted, runs, words, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    lines = lines_for(capsys, runs["centered"], "-o", tmp_path / "map.onnx")
    found, modules = use(lines, tmp_path, words[0].vectors[:9])
    assert_alike(found, fitted.translate(words[0].vectors[:9]))
    assert not {"torch", "kedge", "onnx"} & modules


def test_onnx_asks_for_nothing_new(fitted):
    onnx = pytest.importorskip("onnx")
    about = about_translation(fitted)
    model = onnx.load_from_string(export_bytes(fitted.translator(), about, ".onnx"))
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 13)]
    assert model.ir_version == 7
    assert {entry.key: entry.value for entry in model.metadata_props} == about


def test_files_hold_plain_arrays_and_say_where_they_are_from(fitted, runs, tmp_path):
    from safetensors import safe_open

    about = {
        "format": "kedge-translation", "kedge": "0.1.0", "source": "Y", "target": "X", "source_file": "old.npz",
        "target_file": "new.npz", "scale": "raw", "map": fitted.map_scores_["map_back"]["kind"], "map_verdict": "ok",
    }  # fmt: skip
    shapes = {"matrix": (100, 300), "source_center": (100,), "target_center": (300,), "length": ()}
    for name in ("map.npz", "map.safetensors"):
        assert run("export", runs["centered"], "-o", tmp_path / name, "--back", "--scale", "raw") == 0
    with np.load(tmp_path / "map.npz", allow_pickle=False) as arrays:
        said = json.loads(str(arrays["about"]))
        digest = said.pop("sha256")
        assert said == about
        assert {name: arrays[name].shape for name in set(arrays.files) - {"about"}} == shapes
        assert {arrays[name].dtype for name in shapes} == {np.dtype(np.float32)}
        np.testing.assert_allclose(arrays["length"], fitted.x_.mean_norm, rtol=1e-6)
        assert with_sum(about, {name: arrays[name] for name in shapes})["sha256"] == digest
    with safe_open(tmp_path / "map.safetensors", framework="np") as tensors:
        assert json.loads(tensors.metadata()["about"]) == {**about, "sha256": digest}
        assert {name: tensors.get_tensor(name).shape for name in tensors.keys()} == shapes  # noqa: SIM118
    # A run that was not made from files does not name any.
    assert not [name for name in about_translation(fitted) if name.endswith("_file")]


@pytest.fixture(scope="module")
def small_translator() -> Translator:
    """A linear map of 3 dimensions into 2, whose file is short."""
    chance = np.random.default_rng(0)
    source, target = (Normaliser(np.float32(chance.uniform(-0.3, 0.3, dim))) for dim in (3, 2))
    step = TranslationStep(source, LinearMap(np.float32(chance.standard_normal((3, 2)))), target)
    return Translator((step,), 2.5)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_with_a_flipped_bit_is_read_soundly_or_refused(small_translator, tmp_path, suffix):
    path, about = tmp_path / f"map{suffix}", {"format": "kedge-translation", "scale": "unit"}
    data = export_bytes(small_translator, about, suffix)
    expected, refused = small_translator(np.eye(3)), 0
    chance = np.random.default_rng(0)
    for place in chance.choice(8 * len(data), 400, replace=False).tolist():
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found = kedge.load_translator(path)
        except InputError as error:
            refused += 1
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(found(np.eye(3)), expected)
    assert refused > 300


def test_what_a_file_says_about_itself_is_summed_too_and_older_files_have_no_sum(small_translator, tmp_path):
    path = tmp_path / "map.npz"
    path.write_bytes(export_bytes(small_translator, {"format": "kedge-translation", "scale": "unit"}, ".npz"))
    with np.load(path) as stored:
        arrays = dict(stored)
    said = json.loads(str(arrays["about"]))
    np.savez(path, **arrays | {"about": np.asarray(json.dumps(said | {"scale": "raw"}))})
    with pytest.raises(InputError, match="its SHA-256 shows that it has changed since it was written"):
        kedge.load_translator(path)
    del said["sha256"]
    np.savez(path, **arrays | {"about": np.asarray(json.dumps(said))})
    np.testing.assert_array_equal(kedge.load_translator(path)(np.eye(3)), small_translator(np.eye(3)))


def test_the_same_run_gives_the_same_bytes(fitted):
    pytest.importorskip("onnx")
    for suffix in (".npz", ".safetensors", ".onnx"):
        files = [export_bytes(fitted.translator(), about_translation(fitted), suffix) for _ in range(2)]
        assert files[0] == files[1], suffix


def test_export_tells_what_was_written(fitted, runs, tmp_path, capsys):
    file = tmp_path / "map.npz"
    assert run("export", runs["centered"], "-o", file) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(
        f"translation of X to Y, 300 to 100 dimensions, in {file}\nuse it so:\n\nimport numpy"
    )
    assert f"Y's own vectors have mean length {fitted.y_.mean_norm:.4g}: compare by cosine" in captured.err
    assert run("export", runs["centered"], "-o", file, "--overwrite", "--scale", "raw", "--json") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result.pop("about")["source_file"] == "new.npz"
    assert result == {
        "out": str(file), "to": "numpy", "bytes": file.stat().st_size, "dimensions_in": 300, "dimensions_out": 100,
        "length": pytest.approx(fitted.y_.mean_norm),
    }  # fmt: skip
    assert captured.err == ""


def test_export_warns_of_a_map_that_is_not_right(fitted, tmp_path, capsys):
    doubted = copy.copy(fitted)
    answer = replace(fitted.health_.map, verdict="uncertain", reason="Nobody knows.")
    doubted.health_ = replace(fitted.health_, searching=answer)
    doubted.save(tmp_path / "run")
    assert run("export", tmp_path / "run", "-o", tmp_path / "map.npz", "--scale", "raw") == 0
    assert capsys.readouterr().err == "kedge: for searching this run is uncertain: Nobody knows.\n"


def test_export_replaces_a_file_only_if_asked_to(runs, tmp_path, capsys):
    file = tmp_path / "map.npz"
    file.write_bytes(b"mine")
    assert run("export", runs["centered"], "-o", file) == 2
    assert "map.npz: already exists; choose another name, or replace it with --overwrite" in (capsys.readouterr().err)
    assert file.read_bytes() == b"mine"
    assert run("export", runs["centered"], "-o", file, "--overwrite") == 0
    assert np.load(file)["matrix"].shape == (300, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["map.npz"]


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("map.vec", [], "map.vec: the suffix '.vec' is not an export format; known are .npz, .safetensors, .onnx"),
        ("map", [], "map: the suffix '' is not an export format"),
        ("map.npz", ["--to", "onnx"], "map.npz: --to onnx needs a name that ends in .onnx, got .npz"),
        (
            "map.onnx",
            ["--to", "numpy"],
            "map.onnx: --to numpy needs a name that ends in .npz or .safetensors, got .onnx",
        ),
        ("nowhere/map.npz", [], "nowhere' does not exist; create it first"),
    ],
)
def test_export_refuses_what_it_cannot_write(runs, tmp_path, capsys, name, more, message):
    assert run("export", runs["centered"], "-o", tmp_path / name, *more) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_export_says_how_to_get_onnx(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert run("export", runs["centered"], "-o", tmp_path / "map.onnx") == 2
    assert "ONNX files need onnx: pip install 'kedge[onnx]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


UNUSABLE = {
    "zero": np.zeros(300),
    "negative zero": np.full(300, -0.0),
    "NaN": np.full(300, np.nan),
    "one NaN": np.r_[np.nan, np.ones(299)],
    "NaN at the end": np.r_[np.ones(299), np.nan],
    "NaN among zeros": np.r_[np.zeros(299), np.nan],
    "infinity": np.r_[np.inf, np.ones(299)],
    "less than nothing": np.r_[np.ones(299), -np.inf],
    "NaN and infinity": np.r_[np.inf, np.nan, np.ones(298)],
}


@pytest.fixture(scope="module")
def session(fitted):
    """The exported model in onnxruntime, as it optimises it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the error is raised, and need not be logged too
    model = export_bytes(fitted.translator(), about_translation(fitted), ".onnx")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("wrong", UNUSABLE.values(), ids=UNUSABLE)
def test_onnx_refuses_what_translate_refuses(fitted, words, session, wrong):
    good = words[0].vectors[:5]
    for rows in ([wrong], [*good, wrong], [wrong, *good], [*good[:2], wrong, *good[2:], wrong]):
        vectors = np.asarray(rows, dtype=np.float32)
        with pytest.raises(InputError, match="is a zero vector|has NaN or infinite values"):
            fitted.translate(vectors)
        with pytest.raises(Exception, match="vectors_must_be_finite_and_not_zero.*out of data bounds"):
            session.run(["translated"], {"vectors": vectors})
    (found,) = session.run(["translated"], {"vectors": good})  # it goes on
    assert_alike(found, fitted.translate(good))


def test_onnx_takes_all_that_translate_takes(fitted, words, session):
    extremes = np.zeros((4, 300), dtype=np.float32)
    extremes[0, 7], extremes[1, 7], extremes[2] = 1e-45, 3e38, 3e38  # the tiniest number, and the largest squares
    extremes[3] = fitted.x_.center
    (found,) = session.run(["translated"], {"vectors": extremes})
    assert_alike(found, fitted.translate(extremes))
    (none,) = session.run(["translated"], {"vectors": np.empty((0, 300), dtype=np.float32)})
    assert none.shape == (0, 100)


def test_onnx_translates_what_is_mapped_to_nothing(fitted):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    translator = fitted.translator()
    (step,) = translator.steps
    nowhere = replace(translator, steps=(replace(step, map=LinearMap(np.zeros((300, 100), dtype=np.float32))),))
    model = export_bytes(nowhere, about_translation(fitted), ".onnx")
    vectors = np.ones((2, 300), dtype=np.float32)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(["translated"], {"vectors": vectors})
    assert_alike(found, nowhere(vectors))


@pytest.mark.parametrize("wrong", UNUSABLE.values(), ids=UNUSABLE)
def test_printed_lines_refuse_what_translate_refuses(runs, words, tmp_path, capsys, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(lines_for(capsys, runs["centered"], "-o", "map.npz"), scope)
    for vectors in (wrong, [*words[0].vectors[:2], wrong]):
        with pytest.raises(ValueError, match="vectors must be finite and not zero"):
            scope["translate"](np.asarray(vectors, dtype=np.float32))


def test_an_unknown_suffix_is_refused(fitted):
    with pytest.raises(InputError, match="suffix must be one of .npz, .safetensors, .onnx, got '.h5'"):
        export_bytes(fitted.translator(), about_translation(fitted), ".h5")


def test_the_page_shows_the_lines_that_are_printed(runs, tmp_path, capsys):
    shown = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    blocks = [block for block in shown if "def translate(vectors)" in block]
    if not blocks:
        pytest.skip(f"{PAGE.name} does not show them")
    for block in blocks:
        file = re.search(r'"([\w-]+\.(?:npz|safetensors|onnx))"', block)[1]
        printed = lines_for(capsys, runs["centered"], "-o", tmp_path / file)
        assert without_sizes(printed) in without_sizes(block)


def without_sizes(lines: str) -> str:
    return re.sub(r"\d{2,}", "#", lines)


def test_several_steps_are_exported_to_onnx_alone(fitted, words):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    there_and_back = fitted.translator().then(fitted.translator(back=True))
    with pytest.raises(InputError, match="only one linear map can be written as plain arrays; export to onnx"):
        export_bytes(there_and_back, about_translation(fitted), ".npz")
    model = export_bytes(there_and_back, about_translation(fitted), ".onnx")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(["translated"], {"vectors": words[0].vectors[:50]})
    assert_alike(found, there_and_back(words[0].vectors[:50]))
