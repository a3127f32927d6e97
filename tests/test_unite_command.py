"""`kedge unite`, and the other commands given a run of many spaces."""

from __future__ import annotations

import json
import re
from itertools import combinations

import numpy as np
import pytest

import kedge
from kedge import CommonSpace
from kedge.cli.main import main
from kedge.spaces.pairs import write_table

NAMES = ("a", "b", "c")


def run(folder, *arguments):
    files = (".npz", ".tsv", ".html", "run", "run2", "run3")
    return main([str(folder / one) if one.endswith(files) and "=" not in one else one for one in arguments])


def test_unite_writes_groups(common_folder, capsys):
    lines = (common_folder / "run" / "groups.tsv").read_text().splitlines()
    assert lines[0] == "probability\ta\tb\tc"
    assert len(set(lines[1].split("\t")[1:])) == 1
    assert run(common_folder, "info", "run", "--json", "--verify") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [member["name"] for member in shown["members"]] == list(NAMES)
    assert shown["verified"] is True
    assert run(common_folder, "info", "run") == 0
    assert "% of the rows come back" in capsys.readouterr().out


def test_a_run_of_many_translates_projects_and_searches(common_folder, three_spaces, common, capsys):
    assert run(common_folder, "translate", "run", "a.npz", "--from", "a", "--to", "c", "-o", "t.npz") == 0
    translated = kedge.read_embeddings(common_folder / "t.npz").vectors
    assert np.allclose(translated, common.translate(three_spaces["a"], source="a", target="c"), atol=1e-4)
    assert run(common_folder, "project", "run", "b", "b.npz", "-o", "p.npz", "--query") == 0
    projected = kedge.read_embeddings(common_folder / "p.npz").vectors
    assert np.allclose(projected, common.project(three_spaces["b"], space="b", query=True), atol=1e-3)
    capsys.readouterr()
    assert run(common_folder, "search", "run", "a.npz", "b.npz", "i0", "--from", "a", "--to", "b", "--json") == 0
    assert json.loads(capsys.readouterr().out)["i0"][0]["key"] == "i0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "run", "a.npz", "-o", "new.npz"), "name two of them with --from and --to"),
        (("translate", "run", "a.npz", "--back", "--from", "a", "--to", "b", "-o", "new.npz"), "--back: a run of many"),
        (("project", "run", "a", "a.npz", "-o", "new.npz", "--coordinates", "shared"), "common coordinates only"),
        (("project", "run", "z", "a.npz", "-o", "new.npz"), "no space 'z'"),
        (("report", "run", "a.npz", "b.npz", "-o", "new.html"), "needs all of its members; also give the file of c"),
        (("report", "run", "a.npz", "seeds.npz", "-o", "new.html"), "no such file"),
        (("lexicon", "run", "a.npz", "b.npz", "-o", "new.tsv"), "holds a common space"),
        (("export", "run", "-o", "new.npz"), "name two of them with --from and --into"),
        (("export", "run", "-o", "new.npz", "--from", "a", "--into", "a"), "both 'a'"),
        (("export", "run", "a.npz", "b.npz", "-o", "new.parquet"), "embedding-atlas shows two"),
        (("compare", "run"), "at least two runs"),
        (("compare", "run", "run"), "is the same run"),
        (("evaluate", "run", "a.npz", "seeds.tsv", "--gold", "keys"), "seeds.tsv"),
        (("search", "run", "a.npz", "b.npz", "i0", "--from", "a"), "numbers per row, but common coordinates"),
        (("unite", "a.npz", "a.npz", "-o", "new-run"), "is called 'a' already"),
        (("unite", "a.npz", "-o", "new-run"), "only one space"),
        (("unite", "a.npz", "b.npz", "-o", "run"), "already exists"),
        (
            ("unite", "a.npz", "b.npz", "--add", "run", "-o", "run2", "--disjoint"),
            "--disjoint: cannot be used with --add",
        ),
        (
            ("unite", "a.npz", "b.npz", "--add", "run", "-o", "run2", "--min-confidence", ".5"),
            "--min-confidence: cannot",
        ),
        (("unite", "a.npz", "b.npz", "--add", "run", "-o", "run2", "--random-state", "0"), "or unite all spaces anew"),
        (("unite", "b", "--remove", "run", "-o", "run2", "--random-state", "0"), "--random-state: cannot be used with"),
    ],
)
def test_what_a_run_of_many_cannot_do_is_said(common_folder, capsys, arguments, message):
    assert run(common_folder, *arguments) == 2
    assert message in capsys.readouterr().err


def test_names_are_refused_for_a_run_of_two(run_files, capsys):
    folder, x, y = run_files
    assert main(["search", folder, x, y, "water", "--from", "a", "--to", "b"]) == 2
    assert "is a run of two spaces" in capsys.readouterr().err
    assert main(["project", folder, "a", x, "-o", "new.npz"]) == 2
    assert "give X or Y" in capsys.readouterr().err


def test_a_space_is_added_on_the_command_line(common_folder, three_spaces, capsys):
    first = ["unite", "a.npz", "b.npz", "--seeds", "ab.tsv", "-o", "run2", "--device", "cpu"]
    write_table(common_folder / "ab.tsv", ("a", "b"), [(f"i{row}",) * 2 for row in range(15)])
    assert run(common_folder, *first) == 0
    before = (CommonSpace.load(common_folder / "run2")).project(three_spaces["a"], space="a")
    more = ["unite", "a.npz", f"new={common_folder / 'c.npz'}", "--add", "run2", "-o", "run3", "--device", "cpu"]
    assert run(common_folder, *more) == 0
    assert "a, new" in capsys.readouterr().out
    grown = CommonSpace.load(common_folder / "run3")
    assert list(grown.members_) == ["a", "b", "new"]
    assert np.array_equal(grown.project(three_spaces["a"], space="a"), before)


def test_a_member_leaves_on_the_command_line(common_folder, three_spaces, common, tmp_path, capsys):
    assert main(["unite", "b", "--remove", str(common_folder / "run"), "-o", str(tmp_path / "left")]) == 0
    assert "1 of 1 pairs of spaces are ok" in capsys.readouterr().out
    left = CommonSpace.load(tmp_path / "left")
    assert list(left.members_) == ["a", "c"]
    assert np.array_equal(left.project(three_spaces["a"], space="a"), common.project(three_spaces["a"], space="a"))
    assert main(["unite", "z", "--remove", str(common_folder / "run"), "-o", str(tmp_path / "none")]) == 2
    assert "no space 'z'" in capsys.readouterr().err
    assert main(["unite", "a", "b", "--remove", str(common_folder / "run"), "-o", str(tmp_path / "none")]) == 2
    assert "needs two members" in capsys.readouterr().err


def test_every_two_members_are_evaluated(common_folder, capsys):
    assert (
        run(common_folder, "evaluate", "run", "b.npz", "a.npz", "c.npz", "--gold", "keys", "--device", "cpu", "--json")
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert [(one["first"], one["second"]) for one in shown["pairs"]] == list(combinations(NAMES, 2))
    for one in shown["pairs"]:
        assert one["queries"] == 390 - 15
        assert one["shared"]["p_at_1"] > 0.95
        assert one["map"]["p_at_1"] > 0.9
        assert one["pairs_precision"] > 0.95
        assert one["pairs_recall"] > 0.95
    assert run(common_folder, "evaluate", "run", "a.npz", "b.npz", "--gold", "seeds.tsv", "--device", "cpu") == 2
    assert "must name at least two of the spaces" in capsys.readouterr().err  # a column of one that is not given
    write_table(common_folder / "gold.tsv", ("b", "a"), [(f"i{row}",) * 2 for row in range(10, 18)])
    assert run(common_folder, "evaluate", "run", "a.npz", "b.npz", "--gold", "gold.tsv", "--device", "cpu") == 0
    assert re.search(r"a, b\s+3\s+1\.000", capsys.readouterr().out)  # the others of the eight are seeds


def test_a_run_of_many_is_exported(common_folder, three_spaces, common, capsys):
    assert run(common_folder, "export", "run", "--from", "b", "--into", "c", "-o", "b-to-c.npz") == 0
    assert "translation of b to c" in capsys.readouterr().out
    translate = kedge.load_translator(common_folder / "b-to-c.npz")
    expected = common.translate(three_spaces["b"], source="b", target="c")
    assert np.allclose(translate(three_spaces["b"].vectors), expected, atol=1e-4)
    assert run(common_folder, "export", "run", "--to", "pairs", "-o", "groups.tsv") == 0
    assert (common_folder / "groups.tsv").read_text() == (common_folder / "run" / "groups.tsv").read_text()
    assert run(common_folder, "export", "run", "--to", "pairs", "--from", "a", "--into", "c", "-o", "two.tsv") == 0
    lines = (common_folder / "two.tsv").read_text().splitlines()
    assert lines[0] == "probability\ta\tc"
    assert len(lines) - 1 == (common.match("a", "c") >= 0).sum()


def test_runs_of_many_are_compared(common_folder, common, run_files, tmp_path, capsys):
    changed = CommonSpace.load(common_folder / "run").without("c")
    rows = changed.groups_[:, 0].copy()
    changed.groups_[:10, 1] = np.roll(changed.groups_[:10, 1], 1)
    assert np.array_equal(rows, changed.groups_[:, 0])
    changed.group_keys_ = [
        (keys[0], changed.group_keys_[(place - 1) % 10][1]) if place < 10 else keys
        for place, keys in enumerate(changed.group_keys_)
    ]
    changed.save(tmp_path / "changed")
    assert main(["compare", str(common_folder / "run"), str(tmp_path / "changed"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["trusted"] == str(common_folder / "run")
    same, contradicted, unknown = shown["agreements"][1][0]
    assert (contradicted, unknown) == (10, 0)
    assert same == (common.match("a", "b") >= 0).sum() - 10
    assert main(["compare", str(common_folder / "run"), str(tmp_path / "changed")]) == 0
    assert "Trust" in capsys.readouterr().out
    assert main(["compare", str(common_folder / "run"), run_files[0]]) == 2
    assert "compare runs of the same kind" in capsys.readouterr().err
