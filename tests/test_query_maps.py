"""Queries as a kind: a translation of their own where it helps, kept with the run, exported, used by commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import kedge
from kedge import AnchorDiscovery, Embeddings, InputError, write_embeddings
from kedge.cli.main import main
from kedge.models.maps.linear import LinearMap
from kedge.models.query_map import ONE_MAP, choose_query_translation
from kedge.models.translator import Normaliser, TranslationStep, Translator
from kedge.spaces.pairs import write_table


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def make_world(shift=0.0, rows=400, dim=24, seed=0):
    """Rows of X and of Y, X rotated, off center; queries near rows of X, all of them moved the same way."""
    chance = np.random.default_rng(seed)
    latent = chance.standard_normal((rows, dim)) * np.geomspace(1, 0.3, dim)
    rotation, _ = np.linalg.qr(chance.standard_normal((dim, dim)))
    off_x, off_y, prefix = unit(chance.standard_normal((3, dim)))
    x = latent + 0.2 * chance.standard_normal((rows, dim)) + 2 * off_x
    y = latent @ rotation + 0.2 * chance.standard_normal((rows, dim)) + 2 * off_y
    asked = latent + 0.3 * chance.standard_normal((rows, dim)) + 2 * off_x + shift * prefix
    keys = [f"r{row}" for row in range(rows)]
    queries = Embeddings([f"q{row}" for row in range(rows)], asked.astype(np.float32), "asked.npz")
    return Embeddings(keys, x.astype(np.float32), "x.npz"), Embeddings(keys, y.astype(np.float32), "y.npz"), queries


def recall_at_10(translated, index):
    nearest = np.argsort(-(translated @ unit(index).T), axis=1)[:, :10]
    return float((nearest == np.arange(len(translated))[:, None]).any(axis=1).mean())


@pytest.fixture(scope="module")
def world():
    return make_world(shift=4.0)


@pytest.fixture(scope="module")
def asked(world):
    """A discovery that was given half of the queries."""
    x, y, queries = world
    seeds = [(key, key) for key in x.keys[:60]]
    return AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, seeds, queries=queries.take(range(0, 400, 2)))


# -- what is chosen --------------------------------------------------------------------------------


def test_queries_that_are_marked_find_more_with_a_translation_of_their_own(asked, world):
    _, y, queries = world
    assert asked.queries_.kind != ONE_MAP
    assert asked.queries_.agreement > asked.queries_.agreement_of_one_map + 0.05
    others = queries.take(range(1, 400, 2))
    found = {}
    for kind in ("text", "query"):
        nearest = np.argsort(-(asked.translate(others, kind=kind) @ unit(y.vectors).T), axis=1)[:, :10]
        found[kind] = (nearest == np.arange(1, 400, 2)[:, None]).any(axis=1).mean()
    assert found["query"] > found["text"] + 0.05


def test_nothing_but_the_translation_of_queries_depends_on_them(asked, world):
    x, y, _ = world
    without = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(key, key) for key in x.keys[:60]])
    assert without.queries_ is None
    np.testing.assert_array_equal(without.translate(x), asked.translate(x))
    assert without.pair_keys_ == asked.pair_keys_


def test_rows_like_all_others_keep_the_one_map():
    chance = np.random.default_rng(0)
    rows = chance.standard_normal((600, 16)).astype(np.float32)
    rotation = np.linalg.qr(chance.standard_normal((16, 16)))[0].astype(np.float32)
    nothing = Normaliser(np.zeros(16, dtype=np.float32))
    docs = TranslationStep(nothing, LinearMap(rotation), nothing)
    x, queries = torch.from_numpy(unit(rows[:400])), torch.from_numpy(rows[400:])
    chosen = choose_query_translation(docs, queries, x, x @ torch.from_numpy(rotation))
    assert chosen.kind == ONE_MAP
    assert chosen.step is docs
    assert chosen.agreement == chosen.agreement_of_one_map > 0.8
    few = choose_query_translation(docs, queries, x[:39], x[:39] @ torch.from_numpy(rotation))
    assert (few.kind, few.step, few.agreement) == (ONE_MAP, docs, None)


def test_the_chosen_one_is_a_mean_a_matrix_and_a_share_of_the_target():
    """Where queries differ from rows by their mean alone, subtracting it makes them agree."""
    x, y, queries = make_world(shift=4.0, seed=3)
    center_x, center_y = unit(x.vectors).mean(axis=0), unit(y.vectors).mean(axis=0)
    normal = [unit(unit(space.vectors) - center) for space, center in ((x, center_x), (y, center_y))]
    left, _, right = np.linalg.svd(normal[0].T @ normal[1])
    docs = TranslationStep(Normaliser(center_x), LinearMap((left @ right).astype(np.float32)), Normaliser(center_y))
    chosen = choose_query_translation(docs, *(torch.from_numpy(rows.vectors) for rows in (queries, x, y)))
    own = unit(queries.vectors).mean(axis=0)
    assert chosen.kind.startswith("their own center")
    np.testing.assert_allclose(chosen.step.source.center, own, atol=1e-5)
    share = chosen.step.target.center @ center_y / (center_y @ center_y)
    np.testing.assert_allclose(chosen.step.target.center, share * center_y, atol=1e-6)
    before, after = (recall_at_10(Translator((step,))(queries.vectors), y.vectors) for step in (docs, chosen.step))
    assert after > before + 0.05


def test_spaces_that_were_not_centered_have_one_map(world):
    x, y, queries = world
    discovery = AnchorDiscovery(n_anchors=20, device="cpu", center=False)
    assert discovery.fit(x, y, [(key, key) for key in x.keys[:60]], queries=queries).queries_.kind == ONE_MAP


# -- kept with the run -----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["unit", "raw"])
def test_a_loaded_run_translates_queries_the_same(asked, world, tmp_path, scale):
    queries = world[2].vectors
    asked.save(tmp_path / "run")
    expected = asked.translate(queries, kind="query", scale=scale)
    loaded = kedge.load(tmp_path / "run")
    assert loaded.queries_.kind == asked.queries_.kind
    assert loaded.queries_.agreement == asked.queries_.agreement
    for translate in (
        asked.translator(kind="query", scale=scale),
        loaded.translator(kind="query", scale=scale),
        kedge.load_translator(tmp_path / "run", kind="query", scale=scale),
    ):
        np.testing.assert_array_equal(translate(queries), expected)


def test_a_kind_that_the_run_does_not_know_is_refused(asked, fitted, words, run_files, world):
    for translate in (
        lambda: fitted.translate(words[0], kind="query"),
        lambda: kedge.load_translator(run_files[0], kind="query"),
    ):
        with pytest.raises(InputError, match=r"this run was made without queries; give some.*--queries"):
            translate()
    with pytest.raises(InputError, match="kind must be one of text, query, got 'question'"):
        asked.translate(world[0], kind="question")
    with pytest.raises(InputError, match="kind 'query' is for queries of X, but back translates vectors of Y"):
        asked.translate(world[1], kind="query", back=True)


def test_queries_that_cannot_be_a_kind_are_refused(world):
    x, y, queries = world
    discovery = AnchorDiscovery(device="cpu")
    with pytest.raises(InputError, match=r"asked.npz: holds 19 queries, at least 20 are needed"):
        discovery.fit(x, y, queries=queries.take(range(19)))
    narrow = Embeddings(queries.keys, queries.vectors[:, :8], "narrow.npz")
    with pytest.raises(InputError, match=r"narrow.npz: has 8 dimensions, X \(x.npz\) has 24; encode queries by X's"):
        discovery.fit(x, y, queries=narrow)


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory, world):
    folder = tmp_path_factory.mktemp("asked")
    for name, space in zip(("x", "y", "asked"), world, strict=True):
        write_embeddings(space, folder / f"{name}.npz")
    write_table(folder / "seeds.tsv", ("x", "y"), [(key, key) for key in world[0].keys[:60]])
    return folder


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_discover_translate_and_export_know_queries(files, capsys):
    spaces = files / "x.npz", files / "y.npz"
    found = "--seeds", files / "seeds.tsv", "--queries", files / "asked.npz", "-o", files / "run", "--device", "cpu"
    assert run("discover", *spaces, *found) == 0
    captured = capsys.readouterr()
    line = next(line for line in captured.out.splitlines() if line.startswith("queries: "))
    assert "% with one map for all); use it with --kind query" in line
    described = json.loads((files / "run" / "run.json").read_text())
    assert described["inputs"]["queries"]["file"] == "asked.npz"
    assert described["queries"]["agreement"] > described["queries"]["agreement_of_one_map"]

    asked = files / "asked.npz"
    assert run("translate", files / "run", asked, "-o", files / "in-y.npy", "--kind", "query") == 0
    expected = kedge.load(files / "run").translate(kedge.read_embeddings(asked), kind="query")
    np.testing.assert_array_equal(np.load(files / "in-y.npy"), expected)
    capsys.readouterr()
    assert run("export", files / "run", "-o", files / "to-y.npz", "--kind", "query", "--json") == 0
    assert json.loads(capsys.readouterr().out)["about"]["kind"] == "query"
    arrays = np.load(files / "to-y.npz")
    np.testing.assert_array_equal(arrays["source_center"], kedge.load(files / "run").queries_.step.source.center)
    assert run("export", files / "run", "-o", files / "back.npz", "--kind", "query", "--back") == 2
    assert "omit one of the two" in capsys.readouterr().err


def test_json_says_how_queries_are_translated(files, capsys):
    spaces = files / "x.npz", files / "y.npz"
    options = "--seeds", files / "seeds.tsv", "--device", "cpu", "--json"
    assert run("discover", *spaces, *options, "--queries", files / "asked.npz", "-o", files / "with") == 0
    assert json.loads(capsys.readouterr().out)["queries"]["kind"] != ONE_MAP
    assert run("discover", *spaces, *options, "-o", files / "without") == 0
    assert json.loads(capsys.readouterr().out)["queries"] is None
    assert run("translate", files / "without", files / "x.npz", "-o", files / "z.npy", "--kind", "query") == 2
    assert "this run was made without queries" in capsys.readouterr().err


def test_integrations_translate_queries_as_their_kind_and_documents_as_texts(asked, world, tmp_path):
    from kedge.integrations.translation import EmbedderTranslation

    _, _, queries = world
    asked.save(tmp_path / "run")
    translation = EmbedderTranslation(tmp_path / "run")
    some = queries.vectors[:3]
    np.testing.assert_allclose(translation.of_queries(some), asked.translate(some, kind="query"), atol=1e-6)
    np.testing.assert_allclose(translation.of_documents(some), asked.translate(some), atol=1e-6)
    assert not np.allclose(asked.translate(some), asked.translate(some, kind="query"), atol=1e-3)


def test_a_file_that_was_exported_for_texts_is_not_used_for_queries(asked, tmp_path):
    asked.save(tmp_path / "run")
    for kind in ("text", "query"):
        out = tmp_path / f"{kind}.npz"
        assert main(["export", str(tmp_path / "run"), "--to", "numpy", "-o", str(out), "--kind", kind]) == 0
    kedge.load_translator(tmp_path / "query.npz", kind="query")
    with pytest.raises(InputError, match="or export it with --kind query and omit the argument here"):
        kedge.load_translator(tmp_path / "text.npz", kind="query")
