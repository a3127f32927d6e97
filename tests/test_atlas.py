"""`kedge export RUN X Y --to embedding-atlas`: the table that embedding-atlas opens."""

from __future__ import annotations

import json
import shlex
import sys

import numpy as np
import pytest

from kedge import AnchorDiscovery, Embeddings
from kedge.cli.main import main
from kedge.report import opening_command, write_atlas
from kedge.report.picture.neighbourhoods import Neighbourhoods

pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'kedge[parquet]'")


@pytest.fixture(scope="module")
def table(fitted, words, tmp_path_factory):
    """All rows of both spaces, as columns of Python values."""
    path = tmp_path_factory.mktemp("atlas") / "atlas.parquet"
    labels = {key: "long" if len(key) > 6 else "short" for key in words[0].keys[:500]}
    assert write_atlas(path, fitted, *words, max_rows=5000, labels=labels) == 4000
    return pq.read_table(path).to_pydict()


def test_every_row_of_both_spaces_is_there(table, words):
    x, y = words
    assert sorted(zip(table["space"], table["key"], strict=True)) == sorted(
        [("X", key) for key in x.keys] + [("Y", key) for key in y.keys]
    )
    described = ["key", "space", "role", "partner", "confidence", "label"]
    assert list(table) == [*described, "projection_x", "projection_y", "neighbors"]


def test_partners_point_at_each_other(table, fitted):
    rows = {(space, key): row for row, (space, key) in enumerate(zip(table["space"], table["key"], strict=True))}
    for (left, right), confidence in zip(fitted.pair_keys_, fitted.pair_confidence_, strict=True):
        x, y = rows["X", left], rows["Y", right]
        assert (table["partner"][x], table["partner"][y]) == (right, left)
        assert table["confidence"][x] == table["confidence"][y] == pytest.approx(confidence)
    for left, right in fitted.seed_keys_:  # a seed was given, so nothing says how sure it is
        x, y = rows["X", left], rows["Y", right]
        assert (table["partner"][x], table["partner"][y]) == (right, left)
        assert table["confidence"][x] is table["confidence"][y] is None
    for left in fitted.x_.unmatched_keys:
        row = rows["X", left]
        assert table["partner"][row] is None
        assert table["confidence"][row] is None


def test_roles_are_those_of_the_run(table, fitted):
    by_role = {
        role: {key for key, space, own in zip(table["key"], table["space"], table["role"], strict=True)
               if (space, own) == ("X", role)}
        for role in set(table["role"])
    }  # fmt: skip
    seeds = {left for left, _ in fitted.seed_keys_}
    suspects = {key for (key, _), wrong in zip(fitted.seed_keys_, fitted.seed_is_suspect_, strict=True) if wrong}
    assert by_role["seed"] == seeds - suspects
    assert by_role.get("suspect seed", set()) == suspects
    assert by_role["anchor"] == {left for left, _ in fitted.anchor_keys_} - seeds
    assert by_role["unmatched"] == set(fitted.x_.unmatched_keys) - seeds - by_role["anchor"]


def test_contradicted_seeds_have_a_role_of_their_own(rotated, tmp_path):
    keys = [f"r{row}" for row in range(300)]
    x, y = (Embeddings(keys, vectors, name) for vectors, name in zip(rotated(), "xy", strict=True))
    wrong = [(100, 120), (101, 121), (102, 122)]
    fitted = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(row, row) for row in range(60)] + wrong)
    assert fitted.seed_opinion_[-3:].tolist() == ["contradicted"] * 3
    fitted.seed_is_suspect_ = np.arange(63) == 60  # the others were learned from all the same
    write_atlas(tmp_path / "atlas.parquet", fitted, x, y, max_rows=300)
    table = pq.read_table(tmp_path / "atlas.parquet").to_pydict()
    role = {(space, key): role for space, key, role in zip(table["space"], table["key"], table["role"], strict=True)}
    assert [role["X", f"r{row}"] for row, _ in wrong] == ["suspect seed", *["contradicted seed"] * 2]
    assert [role["Y", f"r{row}"] for _, row in wrong] == ["suspect seed", *["contradicted seed"] * 2]
    assert role["X", "r0"] == "seed"


def test_a_run_that_found_nothing_has_columns_of_the_same_types(fitted, words, table, tmp_path):
    write_atlas(tmp_path / "atlas.parquet", fitted.with_min_confidence(1.0), *words, max_rows=200)
    schema = pq.read_schema(tmp_path / "atlas.parquet")
    assert [str(schema.field(name).type) for name in ("partner", "confidence")] == ["string", "double"]


def test_neighbours_are_rows_of_the_table(table, fitted, words):
    x, y = words
    near = Neighbourhoods(fitted, x, y)
    for side, space, key in (("x", "X", "water"), ("y", "Y", "music")):
        row = next(
            row for row, each in enumerate(zip(table["space"], table["key"], strict=True)) if each == (space, key)
        )
        ids, distances = table["neighbors"][row]["ids"], table["neighbors"][row]["distances"]
        assert distances == sorted(distances)
        number = np.array([(x if side == "x" else y).row_of[key]])
        own, across = near.within(side, number, 8), near.across(side, number, 8)
        first, second = (x, y) if side == "x" else (y, x)
        expected = {(space, first.keys[each]) for each in own.rows[0]}
        expected |= {("Y" if space == "X" else "X", second.keys[each]) for each in across.rows[0]}
        assert {(table["space"][each], table["key"][each]) for each in ids} == expected
        assert min(distances) == pytest.approx(1 - max(own.similarity[0, 0], across.similarity[0].max()), abs=1e-5)


def test_both_spaces_lie_in_the_same_places(table):
    """Partners are closer than what is drawn by lot."""
    places = np.stack([table["projection_x"], table["projection_y"]], axis=1)
    rows = {(space, key): row for row, (space, key) in enumerate(zip(table["space"], table["key"], strict=True))}
    pairs = np.array(
        [
            (row, rows["Y", partner])
            for row, (space, partner) in enumerate(zip(table["space"], table["partner"], strict=True))
            if space == "X" and partner is not None
        ]
    )
    apart = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
    by_lot = np.linalg.norm(places[pairs[:, 0]] - places[np.roll(pairs[:, 1], 7)], axis=1)
    assert np.median(apart) < np.median(by_lot) / 2


def test_labels_are_by_key_in_both_spaces(table, words):
    labelled = set(words[0].keys[:500])
    assert set(table["label"]) == {"long", "short", None}
    assert [label is not None for label in table["label"]] == [key in labelled for key in table["key"]]


def test_the_command_line_writes_it_and_says_how_to_open_it(run_files, tmp_path, capsys):
    out = tmp_path / "my atlas.parquet"
    assert main(["export", *run_files, "--to", "embedding-atlas", "-o", str(out), "--rows", "100"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("200 rows of both spaces in ")
    assert printed[-1] == opening_command(out)
    program, file, *options = shlex.split(printed[-1])
    assert (program, file) == ("embedding-atlas", str(out))
    schema = pq.read_schema(out)
    named = dict(zip(options[::2], options[1::2], strict=True))
    assert set(named) == {"--text", "--x", "--y", "--neighbors"}
    assert set(named.values()) <= set(schema.names)
    neighbors = schema.field(named["--neighbors"]).type
    assert [field.name for field in neighbors] == ["ids", "distances"]
    table = pq.read_table(out)
    assert max(max(near["ids"]) for near in table["neighbors"].to_pylist()) < len(table) == 200

    assert main(["export", *run_files, "-o", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["export", *run_files, "-o", str(out), "--overwrite", "--json", "--rows", "50"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"out": str(out), "to": "embedding-atlas", "rows": 100, "command": opening_command(out)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{run} --to embedding-atlas -o a.parquet", "give X and Y after RUN"),
        ("{run} {x} -o a.parquet", "give X and Y after RUN"),
        ("{run} {x} {y} --to embedding-atlas -o a.npz", "needs a name that ends in .parquet"),
        ("{run} {x} {y} --to numpy -o a.npz", "are for --to embedding-atlas"),
        ("{run} {y} {x} -o a.parquet", "is not what this run had as X"),
        ("{run} {x} {y} -o a.parquet --labels nowhere.tsv", "no such file"),
        ("{run} {x} {y} -o {x}.parquet/a.parquet", "does not exist"),
    ],
)
def test_what_cannot_be_written_is_refused(run_files, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    names = dict(zip(("run", "x", "y"), run_files, strict=True))
    assert main(["export", *arguments.format(**names).split()]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_labels_are_read_from_a_file(run_files, words, tmp_path):
    out, labels = tmp_path / "atlas.parquet", tmp_path / "labels.tsv"
    labels.write_text("".join(f"{key}\t{key[0]}\n" for key in words[0].keys))
    assert main(["export", *run_files, "-o", str(out), "--rows", "50", "--labels", str(labels)]) == 0
    table = pq.read_table(out).to_pydict()
    assert table["label"][0] == table["key"][0][0]


def test_without_pyarrow_it_says_what_to_install(run_files, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", *run_files, "-o", str(tmp_path / "a.parquet")]) == 2
    assert "Parquet files need pyarrow: pip install 'kedge[parquet]'" in capsys.readouterr().err
